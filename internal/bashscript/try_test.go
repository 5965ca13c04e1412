package bashscript

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
)

func TestTry(t *testing.T) {
	bash := os.Getenv("B")
	if bash == "" {
		bash = "bash"
	}
	s := NewScripts([]string{"TERM"})
	dir := t.TempDir()
	from := ""
	call := func(cmd string, r Run) {
		id := NewID()
		tok := NewToken()
		c := exec.Command(bash, s.Args()...)
		c.Env = append(os.Environ(), "ELSEWHERE_CALL="+id)
		in, _ := c.StdinPipe()
		out, _ := c.StdoutPipe()
		errp, _ := c.StderrPipe()
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		slot := dir + "/" + id
		in.Write(s.Boot())
		in.Write(s.Load(Load{Token: tok, Mark: NewMark(7), Slot: slot, From: from, Record: id}))
		r.Command = cmd
		if r.Cwd == "" {
			r.Cwd = "/tmp"
		}
		in.Write(s.Run(r))
		in.Close()
		go func() {
			b, _ := io.ReadAll(errp)
			if len(b) > 0 {
				fmt.Printf("   stderr %q\n", b)
			}
		}()
		sc := NewScanner(tok)
		b, _ := io.ReadAll(out)
		fmt.Printf("== %.200q\n", cmd)
		sc.Feed(b, func(p []byte) { fmt.Printf("   out %.3000q\n", p) }, func(r Report) {
			fmt.Printf("   %c %q\n", r.Kind, r.Fields)
			if r.Kind == 'S' {
				from = slot
			}
		})
		err := c.Wait()
		fmt.Printf("   wait %v\n", err)
	}
	call("echo hi; A=1; export B=2; f() { echo f; }; alias ll='ls -l'; cd /usr", Run{})
	call("echo $B; f; ll / | head -1; echo $OLDPWD", Run{})
	call("set -x; export C=3; exit 5", Run{})
	call("echo $C; kill -TERM $$", Run{})
	call("echo $C; set -euo pipefail; export D=9; false", Run{})
	call("echo $D; trap 'echo bye; exit 4' EXIT; export E=1; exit 3", Run{ExitTrap: true})
	call("echo $E; trap 'echo bye $?' EXIT; exit 3", Run{ExitTrap: true})
	call("echo $X", Run{Dir: "nope"})
	call("set; declare -p; trap -p; set -xv\necho hi", Run{})
	call("exec 1>&- 2>&-; export L=1; cd /", Run{})
	call("echo $L; exec > >(cat) 2>&1; echo hi", Run{})
	call("for i in {3..255}; do eval \"exec $i>&-\"; done; export M=1", Run{})
	call("echo $M; nosuch; if then fi", Run{})
	call("echo $M\nnosuch", Run{})
	call("kill -9 $$", Run{})
	call("exec nosuch", Run{})
	call("echo $X $Y; export Y=5", Run{Env: []string{"X", "a\nb'c"}})
	call("echo $X $Y; cat", Run{Stdin: true})
	call("echo $$ $PPID $-; ulimit -S -x; env | grep -v LESS | sort | head -50", Run{})
	call("sleep 0.2 & wait $!; export Q=1; (sleep 0.1; kill -TERM $$) & sleep 5", Run{})
	call("echo $Q", Run{})
	call("export LC_ALL=en_US.UTF-8 TMOUT=3 POSIXLY_CORRECT=1; [[ -o posix ]] && echo posix; a-b() { :; }", Run{})
	call("echo $LC_ALL $TMOUT $POSIXLY_CORRECT; [[ -o posix ]] && echo posix", Run{})
	call("echo $LC_ALL $TMOUT $POSIXLY_CORRECT; [[ -o posix ]] && echo posix; unset TMOUT LC_ALL POSIXLY_CORRECT", Run{})
	call("echo $LC_ALL $TMOUT $POSIXLY_CORRECT; [[ -o posix ]] && echo posix; declare -F", Run{})
	b, _ := os.ReadFile(from)
	fmt.Printf("%s\n", b)
}

func TestEnd(t *testing.T) {
	s := NewScripts(nil)
	id := NewID()
	mark := NewMark(NewSessionMark())
	c := exec.Command("bash", "-c", fmt.Sprintf(`ulimit -S -x %d; sleep 100 & setsid sleep 101 & (setsid bash -c 'trap "" TERM; env -i sleep 102; env -i sleep 103' & ) ; wait`, mark))
	c.Env = append(os.Environ(), "ELSEWHERE_CALL="+id)
	c.Start()
	exec.Command("sleep", "0.3").Run()
	k := exec.Command("bash", s.EndArgs()...)
	in, _ := k.StdinPipe()
	k.Stderr = os.Stderr
	k.Stdout = os.Stdout
	k.Start()
	in.Write(s.End())
	io.WriteString(in, Watch(mark, id, c.Process.Pid)+EndNow("TOK", 2000e6))
	fmt.Println(k.Wait())
	fmt.Println(c.Wait())
	b, _ := exec.Command("bash", "-c", "ps -ef | grep 'sleep 10[0-9]'").CombinedOutput()
	fmt.Printf("%s", b)
}

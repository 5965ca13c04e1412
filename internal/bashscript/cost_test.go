package bashscript

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

func rusage() time.Duration {
	var r syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_CHILDREN, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func TestCost(t *testing.T) {
	s := NewScripts([]string{"TERM"})
	dir := t.TempDir()
	from := ""
	one := func(load, run bool) {
		id, tok := NewID(), NewToken()
		c := exec.Command("bash", s.Args()...)
		c.Env = append(os.Environ(), "ELSEWHERE_CALL="+id)
		in, _ := c.StdinPipe()
		out, _ := c.StdoutPipe()
		c.Start()
		slot := dir + "/" + id
		if load {
			in.Write(s.Boot())
			in.Write(s.Load(Load{Token: tok, Mark: NewMark(7), Slot: slot, From: from, Record: id}))
			if run {
				in.Write(s.Run(Run{Cwd: "/tmp", Command: "true"}))
			}
		}
		in.Close()
		io.Copy(io.Discard, bufio.NewReader(out))
		c.Wait()
		if run && from == "" {
			from = slot
		} else {
			os.Remove(slot)
		}
	}
	one(true, true)
	floor := func() { exec.Command("bash", "-c", "true").Run() }
	for range 3 {
		for _, x := range []struct {
			n string
			f func()
		}{{"floor", floor}, {"spawn", func() { one(false, false) }}, {"load", func() { one(true, false) }}, {"all", func() { one(true, true) }}} {
			r0 := rusage()
			for range 100 {
				x.f()
			}
			fmt.Printf("%s cpu %v\n", x.n, (rusage()-r0)/100)
		}
	}
}

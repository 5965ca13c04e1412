package drivertest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// stateFileGroup: how state is kept (SPEC 1.5).
func stateFileGroup() group {
	return group{name: "state files", cases: []testCase{
		{name: "X03 state files are 0600 in directories of 0700, whatever the umask", run: func(t *test) {
			b := t.own(boxSpec{})
			for _, name := range []string{"", "kept"} {
				s := b.session(name)
				s.want(`umask 0; export TOK=s3cret`, "")
				s.want(`umask`, "0000\n")
				s.flush()
			}
			info := b.sb.Info()
			seen := false
			for _, d := range []string{info.StateDir, info.PrivateDir} {
				out := b.observe(fmt.Sprintf(`d=%s; [ -d "$d" ] && { stat -c '%%a d %%n' "$d"; find "$d" -mindepth 1 -printf '%%m %%y %%p\n'; }`, quote(d)))
				for line := range strings.Lines(out) {
					f := strings.SplitN(strings.TrimSpace(line), " ", 3)
					if want := map[string]string{"d": "700", "f": "600"}[f[1]]; f[0] != want {
						t.Errorf("mode %s, want %s: %s", f[0], want, f[2])
					}
					seen = seen || f[1] == "f"
				}
			}
			if !seen {
				t.Errorf("no state file in %q or %q: the case proves nothing", info.StateDir, info.PrivateDir)
			}
		}},
		{name: "a handful of state files exist at most, after any number of calls", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			for i := range 40 {
				s.want(fmt.Sprintf(`export A=%d`, i), "")
			}
			s.flush()
			t.eventually("old state files are removed or emptied", time.Second, func() bool {
				n, _ := strconv.Atoi(strings.TrimSpace(b.observe(stateFileCount(b))))
				if n == 0 || n > 8 {
					t.Logf("%d state files hold something: %s", n, b.observe(stateFileList(b)))
				}
				return n > 0 && n <= 8
			})
			s.want(`echo $A`, "39\n")
		}},
		{name: "a named session that is closed leaves its last versions alone", needs: []Need{NeedReopen}, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			s.want(`:`, "")
			s.flush()
			// What a call has loaded stays while it runs, however many versions come after it.
			p := s.start(`: > @D/on; until [ -e @D/off ]; do sleep 0.02; done`)
			s.await("@D/on")
			for i := range 8 {
				s.want(fmt.Sprintf(`export A=%d`, i), "")
				s.flush()
			}
			s.write("@D/off", "")
			p.wait().code(0)
			s.close()
			t.eventually("the versions before the last ones are gone", time.Second, func() bool { return len(states(b)) <= 4 })
			b.again().session("dev").want(`echo $A`, "7\n")
		}},
		{name: "nothing stays of a removed session that a killed process used", needs: []Need{NeedReopen, NeedHostChildren}, slow: true, run: killedBeforeItsState},
		{name: "throw-away state goes when the session is closed", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`export TOK=drivertest-throwaway`, "")
			s.flush()
			if !strings.Contains(stateContent(b), "drivertest-throwaway") {
				t.Fatal("the state is in no file: the case proves nothing")
			}
			s.close()
			t.eventually("the state is gone", time.Second, func() bool { return !strings.Contains(stateContent(b), "drivertest-throwaway") })
		}},
		{name: "the private directory goes when the sandbox is closed", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`export A=1`, "")
			private := b.sb.Info().PrivateDir
			if private == "" || private == b.sb.Info().StateDir {
				t.skip("this sandbox keeps all state in one directory, which goes with it")
			}
			if b.observe(`[ -d `+quote(private)+` ] && echo there`) != "there\n" {
				t.Fatalf("there is no private directory %s", private)
			}
			s.close()
			b.close()
			if b.observe(`[ -e `+quote(private)+` ] && echo there`) != "" {
				t.Errorf("%s is still there", private)
			}
		}},
		{name: "a named session is there again when its sandbox is opened again", needs: []Need{NeedReopen}, run: func(t *test) {
			b := t.place(boxSpec{})
			b.open()
			s := b.session("dev")
			s.want(`export A=1; f() { echo "f $A"; }; alias al='echo al'; cd /usr; umask 027`, "")
			s.close()
			b.close()
			s = b.again().session("dev")
			s.want("f; umask; pwd\nal", "f 1\n0027\n/usr\nal\n")
		}},
		{name: "two sandbox values of one task share its named session", needs: []Need{NeedReopen}, run: func(t *test) {
			b := t.own(boxSpec{})
			other := b.again()
			s, o := b.session("dev"), other.session("dev")
			for i := range 5 {
				s.want(fmt.Sprintf(`export A=%d`, i), "")
				s.flush()
				o.want(`echo $A; export B=b$A`, fmt.Sprintf("%d\n", i))
				o.flush()
				s.want(`echo $B`, fmt.Sprintf("b%d\n", i))
			}
		}},
		{name: "two users of one named session at once each see a whole state and lose none of it", needs: []Need{NeedReopen}, run: func(t *test) {
			b := t.own(boxSpec{})
			other := b.again()
			s, o := b.session("dev"), other.session("dev")
			s.want(manyExports(40), "")
			s.flush()
			var wg sync.WaitGroup
			for i, user := range []*session{s, o} {
				wg.Go(func() {
					for j := range 10 {
						res, err := user.try(fmt.Sprintf(`export W_%d_%d=1; compgen -e BASE_ | wc -l`, i, j))
						if err != nil || strings.TrimSpace(string(res.Output)) != "40" {
							t.Errorf("user %d, call %d: %v, %+v", i, j, err, res)
						}
					}
				})
			}
			wg.Wait()
			s.flush()
			o.flush()
			s.want(`compgen -e BASE_ | wc -l`, "40\n")
		}},
		{name: "a shell killed while it writes its state poisons nothing", needs: []Need{NeedProc}, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(manyExports(200)+"f() { :; }\nexport A=0", "")
			variable := b.rec.variable()
			for i := range 12 {
				r := s.run(fmt.Sprintf(`export A=%d`, i+1))
				if i%2 == 0 {
					// The end was reported; the state is being written. Whatever the blow hits, the next call has to work.
					b.observe(fmt.Sprintf(`for f in $(grep -alF -e %s /proc/[0-9]*/environ 2>/dev/null); do p=${f#/proc/}; p=${p%%%%/*}; [ $p = $$ ] || kill -9 $p; done 2>/dev/null`,
						quote(variable+"="+r.CallID)))
				}
				out := s.run(`echo "$A"; compgen -e BASE_ | wc -l; type -t f`).code(0).text()
				f := strings.Fields(out)
				if len(f) != 3 || f[1] != "200" || f[2] != "function" {
					t.Fatalf("after the blow the state is %q", out)
				}
				if n, _ := strconv.Atoi(f[0]); n > i+1 || n < i-1 {
					t.Errorf("after the blow A is %s in round %d", f[0], i+1)
				}
			}
		}},
		{name: "a state directory that was emptied costs the state, not the call", run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("")
			s.want(`export A=1`, "")
			s.flush()
			info := b.sb.Info()
			b.observe(fmt.Sprintf(`for d in %s %s; do [ -z "$d" ] || find "$d" -mindepth 1 -type f -delete; done`, quote(info.StateDir), quote(info.PrivateDir)))
			first := s.run(`echo body`)
			second := s.run(`echo body; export B=2`).code(0)
			s.run(`echo "$B"`).out("2\n")
			if first.ExitCode != 0 || !strings.Contains(first.text(), "body") {
				t.Errorf("the call after the loss did not run: %+v", first.Result)
			}
			if v := s.run(`echo "${A-unset}"`).code(0).text(); v == "unset\n" && len(first.Notices)+len(second.Notices) == 0 {
				t.Error("the state was lost and nothing says so")
			}
		}},
		{name: "a state that cannot be written is said by the next result, and the calls are well", run: func(t *test) {
			// The command itself takes away what it takes to write a file.
			for _, limit := range []string{`ulimit -S -f 0; trap '' XFSZ`, `ulimit -S -f 0`, `ulimit -S -f 1; trap '' XFSZ; export B=$(printf '%05000d' 1)`} {
				s := t.session()
				s.want(`export A=1`, "")
				r := s.run(`export A=2; ` + limit + `; :`)
				err := s.Session.Flush(t.ctx())
				next := s.run(`echo "$A"`).code(0)
				if next.text() == "2\n" {
					continue // it could be written all the same
				}
				next.out("1\n")
				if err == nil && !hasNotice(r.Notices, "state") && !hasNotice(next.Notices, "state") && r.StateSaved {
					next.fail("nothing says that the state was not written")
				}
				s.want(`export A=3`, "").saved(true)
				s.want(`echo "$A"`, "3\n")
			}
		}},
		{name: "the next call sees the state of the one before, however big it is", run: func(t *test) {
			s := t.session()
			for i := range 6 {
				s.want(fmt.Sprintf("export BIG=$(printf '%%0100000d' %d)%s; export N=%d", i, strings.Repeat(" ", i), i), "")
				s.want(`echo "$N ${#BIG}"`, fmt.Sprintf("%d 100000\n", i))
			}
		}},
	}}
}

// stateFileCount is a script that counts the state files that hold anything.
func stateFileCount(b *box) string {
	info := b.sb.Info()
	return fmt.Sprintf(`n=0; for d in %s %s; do [ ! -d "$d" ] || n=$((n + $(find "$d" -type f -size +0 | wc -l))); done; echo $n`, quote(info.PrivateDir), quote(info.StateDir))
}

// stateFileList is a script that shows them: name, size, age and first line.
func stateFileList(b *box) string {
	info := b.sb.Info()
	return fmt.Sprintf(`for f in %s/* %s/*; do [ ! -s "$f" ] || { stat -c '%%n %%s %%y' "$f"; head -c 120 "$f" | head -n 1; }; done`, quote(info.PrivateDir), quote(info.StateDir))
}

// killedBeforeItsState kills another process in the moment in which a call of its has written its state and the session does not
// have it yet, and removes the session.
func killedBeforeItsState(t *test) {
	b := t.own(boxSpec{})
	look := &session{t: t, b: b}
	on, off := look.d()+"/on", look.d()+"/off"
	h := b.host(childJob{
		Session: "dev", First: []string{`export A=1`}, Ahead: 1, Await: []string{on},
		Call: `export A=drivertest-late; : > ` + on + `; until [ -e ` + off + ` ]; do sleep 0.02; done`,
	})
	files, _ := filepath.Glob(filepath.Join(b.place.HermesHome, "elsewhere", "sessions", "*", "*", "dev.json.lock"))
	if len(files) != 1 {
		t.Fatalf("the session's lock is none of %q", files)
	}
	lock := flock.New(files[0])
	t.Cleanup(func() { _ = lock.Close() })
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	look.write(off, "")
	written := func() bool { return b.observe(`grep -l drivertest-late `+quote(b.sb.Info().StateDir)+`/*`) != "" }
	t.eventually("the state is written", hang/6, written)
	h.kill()
	if !written() {
		t.Fatal("the state has gone again: the case proves nothing")
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	b = b.again()
	if err := b.sb.RemoveSession(t.ctx(), "dev"); err != nil {
		t.Fatal(err)
	}
	s := b.session("")
	t.eventually("no state is left", grace, func() bool {
		s.want(`:`, "") // where nobody else can, a bash empties them
		return len(states(b)) == 0
	})
}

// states gives the names of the files in the state directory that calls have written and nobody has emptied.
func states(b *box) []string {
	return strings.Fields(b.observe(`find ` + quote(b.sb.Info().StateDir) + ` -size +0 -printf '%f\n' | grep -xE '[0-9a-f]{32}'`))
}

// manyExports is bash text that exports BASE_0 to BASE_n-1.
func manyExports(n int) string {
	return fmt.Sprintf("for ((i = 0; i < %d; i++)); do export BASE_$i=\"value $i\"; done\n", n)
}

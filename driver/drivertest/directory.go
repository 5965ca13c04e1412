package drivertest

import (
	"path"
	"strings"

	"github.com/elsewhere-sh/elsewhere"
)

// oddNames are names of directories that break whoever pastes them somewhere.
var oddNames = []string{
	"with space", "new\nline", "trailing newline\n", "\nleading newline", "inv\xff\xfeutf8", "semi;colon", "per%cent%0A%3B", "-dash", "--", "quote'single", `quote"double`,
	"back\\slash", "$(touch pwned)", "`touch pwned`", "*", "?[a]", "~", "tab\there", "unié", "a&b|c>d<e", "#hash", "!bang", "{a,b}", "\x01\x7f", "=eq", "trailing ", " ",
}

// directoryGroup: where a call runs and where it ends (SPEC 1.6, and the directory of 1.3).
func directoryGroup() group {
	return group{name: "directory", cases: []testCase{
		{name: "the directory is known after every call and kept for the next", run: func(t *test) {
			s := t.session()
			s.want(`cd @D && mkdir a && cd a`, "").cwd(s.d() + "/a")
			s.want(`pwd`, s.d()+"/a\n").cwd(s.d() + "/a")
			if got := s.Cwd(); got != s.d()+"/a" {
				t.Errorf("Session.Cwd is %q", got)
			}
			s.run(`cd ..; exit 3`).code(3).cwd(s.d())
			s.run(`cd a; false`).code(1).cwd(s.d() + "/a")
			s.run(`( cd / )`).code(0).cwd(s.d() + "/a")
			s.run(`cd /no/such/dir`).code(1).cwd(s.d() + "/a")
		}},
		{name: "directories with every odd name are known, entered and kept", run: func(t *test) {
			s := t.session()
			for _, n := range oddNames {
				d := s.d() + "/" + n
				s.want("mkdir -- "+quote(d)+"; cd -- "+quote(d), "").cwd(d)
				s.want(`printf %s "$PWD"`, d).cwd(d)
				s.want(`printf %s "$PWD"; cd /`, d).cwd("/")
				s.want(`printf %s "$PWD"`, d, dir(d))
				s.want(`pwd`, "/\n").cwd("/")
			}
			if s.observe(`find @D -name pwned`) != "" {
				t.Error("the name of a directory was executed")
			}
		}},
		{name: "a new session starts in the place's own directory", run: func(t *test) {
			b := t.shared()
			r := b.session("").run(`pwd`).code(0)
			if info := b.sb.Info(); r.Cwd != info.Dir || r.text() != info.Dir+"\n" {
				r.fail("a session starts in %q, Info.Dir is %q", r.Cwd, info.Dir)
			}
		}},
		{name: "D11 a directory of the caller's machine in the setting cwd is replaced by the home, said once", inapt: sharesEnvironment, run: func(t *test) {
			for cwd, word := range map[string]string{`D:\drivertest`: "drivertest", "/Users/drivertest/p": "/Users/drivertest/p"} {
				b := t.own(boxSpec{Settings: map[string]string{"cwd": cwd}})
				b.session("").want(`pwd`, b.sb.Info().Home+"\n").notice(word)
				b.session("").want(`pwd`, b.sb.Info().Home+"\n").noNotice(word)
			}
		}},
		{name: "D12 a named session stays where it is, whatever its next user is told to start in", needs: []Need{NeedReopen}, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			s.want(`cd /usr`, "")
			s.close()
			b.close()
			next := *b
			next.reload(map[string]string{"cwd": "/etc"})
			next.open()
			next.session("dev").want(`pwd`, "/usr\n")
			next.session("").want(`pwd; cat /etc/passwd >/dev/null && echo read`, "/etc\nread\n")
			if data, err := next.sb.ReadFile(t.ctx(), "/etc/passwd"); err != nil || len(data) == 0 {
				t.Errorf("a file elsewhere: %v", err)
			}
		}},
		{name: "the logical directory through a link is kept, and cd .. leaves the link", run: func(t *test) {
			s := t.session()
			s.observe(`mkdir -p @D/real/deep; ln -s @D/real/deep @D/link`)
			s.want(`cd @D/link`, "").cwd(s.d() + "/link")
			s.want(`pwd; pwd -P`, s.d()+"/link\n"+s.d()+"/real/deep\n").cwd(s.d() + "/link")
			s.want(`cd ..; pwd`, s.d()+"\n").cwd(s.d())
			s.want(`cd @D/link; cd -P .`, "").cwd(s.d() + "/real/deep")
			s.want(`cd ..; pwd`, s.d()+"/real\n")
		}},
		{name: "a link that now leads elsewhere does not move the session", run: func(t *test) {
			s := t.session()
			s.observe(`mkdir @D/one @D/two; ln -s @D/one @D/link`)
			s.want(`cd @D/link`, "").cwd(s.d() + "/link")
			s.observe(`ln -sfn @D/two @D/link`)
			r := s.run(`pwd -P`).code(0)
			if got := r.text(); got != s.d()+"/one\n" && got != s.d()+"/two\n" {
				r.fail("the call ran in neither directory")
			} else if got == s.d()+"/two\n" && r.Cwd != s.d()+"/link" {
				r.fail("the reported directory is not where the call ran")
			} else if got == s.d()+"/one\n" && r.Cwd != s.d()+"/one" {
				r.fail("the reported directory is not where the call ran")
			}
		}},
		{name: "cd - and OLDPWD work from call to call", run: func(t *test) {
			s := t.session()
			s.want(`cd /usr; cd /tmp`, "")
			s.want(`echo "$OLDPWD"; cd -`, "/usr\n/usr\n").cwd("/usr")
			s.want(`cd -`, "/tmp\n").cwd("/tmp")
			s.want(`cd - > /dev/null; pwd`, "/usr\n").cwd("/usr")
			s.want(`echo "$OLDPWD"`, "/tmp\n")
		}},
		{name: "pushd in one call moves the session", run: func(t *test) {
			s := t.session()
			s.want(`cd /; pushd /usr > /dev/null`, "").cwd("/usr")
			s.want(`pwd`, "/usr\n")
			s.want(`cd -`, "/\n")
		}},
		{name: "a directory for one call is used for it and leaves the session's own", run: func(t *test) {
			s := t.session()
			s.want(`cd /usr`, "")
			s.want(`pwd`, "/tmp\n", dir("/tmp"))
			s.want(`pwd; echo "$OLDPWD"`, "/usr\n"+strings.TrimSpace(string(t.session().run(`pwd`).Output))+"\n").cwd("/usr")
			s.want(`export A=1`, "", dir("/tmp"))
			s.want(`pwd; echo $A`, "/usr\n1\n")
		}},
		{name: "a relative directory for one call starts at the session's own, ~ is the home", run: func(t *test) {
			s := t.session()
			home := strings.TrimSuffix(string(s.run(`echo "$HOME"`).code(0).Output), "\n")
			s.observe(`mkdir -p "@D/a/~" "@D/a/-x"`)
			s.want(`cd @D`, "")
			s.want(`pwd`, s.d()+"/a\n", dir("a"))
			s.want(`pwd`, s.d()+"/a\n", dir("./a/"))
			s.want(`cd a`, "")
			s.want(`pwd`, s.d()+"\n", dir(".."))
			s.want(`pwd -P`, string(s.run(`cd ~; pwd -P`, dir("/")).Output), dir("~"))
			s.want(`pwd`, s.d()+"/a/-x\n", dir("-x"))
			s.run(`pwd`, dir("~/")).out(home + "\n")
		}},
		{name: "C17 a directory for one call that cannot be entered: 126, nothing run, named, session unchanged", run: func(t *test) {
			s := t.session()
			s.want(`cd /usr; export A=1`, "")
			s.observe(`: > @D/file`)
			for _, d := range []string{"/workspace/nope", "@D/file", "@D/no such\ndir", "nope", "~/no/such", "-"} {
				d = s.fill(d)
				for _, how := range [][]runOption{{}, {split}} {
					r := s.run(`touch @D/ran; export A=2; echo ran`, append(how, dir(d))...).ended(elsewhere.Directory, 126).hasNot("ran\n")
					said := r.text() + strings.Join(r.Notices, "\n")
					if base := strings.SplitN(path.Base(d), "\n", 2)[0]; !strings.Contains(said, base) {
						r.fail("nothing names %q", d)
					}
				}
			}
			if s.exists("@D/ran") {
				t.Error("the command was run")
			}
			s.want(`pwd; echo $A`, "/usr\n1\n").cwd("/usr")
		}},
		{name: "C17 exit 126 of the command itself is not taken for a directory", run: func(t *test) {
			s := t.session()
			s.run(`exit 126`).code(126)
			s.run(`@D`).code(126)
		}},
		{name: "C03 deleting the session's directory bricks nothing: the nearest ancestor, said once", run: func(t *test) {
			s := t.session()
			s.want(`mkdir -p @D/w/x/y && cd @D/w/x/y`, "")
			s.run(`rm -rf @D/w/x`).code(0)
			r := s.run(`pwd`).code(0)
			if r.text() != s.d()+"/w\n" {
				r.fail("the call ran in %q, want the nearest surviving ancestor", r.text())
			}
			r.cwd(s.d() + "/w").notice("directory")
			s.want(`pwd; echo fine`, s.d()+"/w\nfine\n").noNotice("gone")
			s.want(`cd /; pwd`, "/\n").cwd("/")
		}},
		{name: "C03 a directory deleted from outside between two calls, with its whole tree", run: func(t *test) {
			s := t.session()
			d := s.b.scratch()
			s.want(`mkdir -p `+d+`/a/b; cd `+d+`/a/b`, "")
			s.flush()
			s.observe("rm -rf " + d)
			r := s.run(`pwd; echo ok`).code(0).out("/tmp\nok\n").cwd("/tmp").notice(d)
			if hasNotice(r.Notices, "executable") {
				r.fail("the notice blames a file")
			}
			s.want(`echo ok`, "ok\n")
		}},
		{name: "C03 an explicit directory works while the session's own is gone", run: func(t *test) {
			s := t.session()
			s.want(`mkdir @D/w; cd @D/w`, "")
			s.observe(`rmdir @D/w`)
			s.want(`pwd`, "/usr\n", dir("/usr"))
			s.want(`cd /; pwd`, "/\n")
		}},
		{name: "C04 a named session whose directory is gone starts again in an ancestor and names it", needs: []Need{NeedReopen}, run: func(t *test) {
			b := t.own(boxSpec{})
			s := b.session("dev")
			s.want(`mkdir @D/p && cd @D/p`, "")
			s.flush()
			s.observe(`rmdir @D/p`)
			s.close()
			again := b.again().session("dev")
			again.run(`pwd`).code(0).out(s.d() + "\n").notice(s.d() + "/p")
			b.session("").run(`pwd`).code(0).out(b.sb.Info().Dir + "\n")
		}},
		{name: "a directory that the command removes under itself is no failure", run: func(t *test) {
			s := t.session()
			s.want(`mkdir @D/w; cd @D/w; rmdir @D/w; echo done; export A=1`, "done\n").saved(true)
			r := s.run(`echo "$A"; pwd`).code(0)
			if !strings.HasPrefix(r.text(), "1\n") || r.text() != "1\n"+r.Cwd+"\n" {
				r.fail("the session does not say where it is")
			}
		}},
		{name: "a directory that cannot be entered any more is left like one that is gone", run: func(t *test) {
			s := t.session()
			if strings.TrimSpace(string(s.run(`id -u`).Output)) == "0" {
				t.skip("commands run as root here, who may enter every directory")
			}
			s.want(`mkdir @D/w; cd @D/w`, "")
			s.want(`chmod 0 @D/w`, "")
			s.run(`echo ok`).code(0).out("ok\n")
		}},
		{name: "PWD and OLDPWD that a command sets to nonsense do not mislead", run: func(t *test) {
			s := t.session()
			s.run(`cd /usr; PWD=/nowhere; OLDPWD=`).code(0)
			s.want(`pwd -P`, "/usr\n")
			s.run(`cd /usr; unset PWD OLDPWD`).code(0)
			s.want(`pwd -P`, "/usr\n").cwd("/usr")
			s.run(`cd /usr; export PWD=/tmp`).code(0)
			s.run(`pwd -P`).code(0).out("/usr\n")
		}},
		{name: "a directory whose path is very long is kept", run: func(t *test) {
			s := t.session()
			part := strings.Repeat("d", 200)
			s.want(`cd @D; for i in 1 2 3 4 5 6 7 8 9 10; do mkdir `+part+` && cd `+part+`; done`, "").cwd(s.d() + strings.Repeat("/"+part, 10))
			s.want(`pwd`, s.d()+strings.Repeat("/"+part, 10)+"\n")
			s.want(`cd /`, "")
		}},
	}}
}

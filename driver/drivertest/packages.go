package drivertest

import (
	"strings"
)

// plainPath keeps the developer's own tools out, where the caller's PATH counts.
var plainPath = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}

// packageGroup: login files and tools that people really have, from Debian's packages. Where a package is not installed in
// the place its case is skipped with that reason.
func packageGroup() group {
	// needs skips the case where a file is missing in the place.
	needs := func(t *test, b *box, file, pkg string) {
		if b.observe(`[ -e `+quote(file)+` ] && echo there`) != "there\n" {
			t.skip("the package " + pkg + " is not installed in this place (no " + file + ")")
		}
	}
	return group{name: "packages", cases: []testCase{
		{name: "bash-completion in a login file is carried whole", run: func(t *test) {
			b := t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{".bashrc": "PS1='$ '; . /usr/share/bash-completion/bash_completion\nexport AFTER=1\n"}}})
			needs(t, b, "/usr/share/bash-completion/bash_completion", "bash-completion")
			s := b.session("")
			natively := strings.Fields(b.observe(`. /usr/share/bash-completion/bash_completion; compgen -A function`))
			for range 2 {
				r := s.run(`set -euo pipefail; compgen -A function; echo "after=$AFTER"`, split).err("").code(0).has("after=1\n").noNotice("function")
				if lost := missing(natively, strings.Fields(string(r.Stdout))); len(lost) > 0 || len(natively) < 20 {
					r.fail("of %d functions these are lost: %q", len(natively), lost)
				}
			}
			s.run(`COMP_WORDS=(cmd --opt=a:b) COMP_CWORD=1; _get_comp_words_by_ref -n : cur; type -t _init_completion __ltrim_colon_completions`, split).out("function\nfunction\n")
		}},
		{name: "environment-modules: module works from call to call", run: func(t *test) {
			b := t.own(boxSpec{PlaceSpec: PlaceSpec{Profile: map[string]string{
				".bashrc":               ". /usr/share/modules/init/bash\n",
				"modules/drivertest/1":  "#%Module1.0\nsetenv DRIVERTEST_MODULE loaded\nprepend-path PATH /opt/drivertest/bin\nset-alias dtalias {echo from the alias}\n",
				"modules/drivertest2/1": "#%Module1.0\nprepend-path PATH /opt/drivertest2/bin\n",
			}}})
			needs(t, b, "/usr/share/modules/init/bash", "environment-modules")
			s := b.session("")
			s.run(`module --version`).code(0).has("Modules")
			s.run(`module use "$HOME/modules"`).code(0)
			s.run(`module load drivertest/1`).code(0)
			s.run("echo \"$DRIVERTEST_MODULE\"; case $PATH in /opt/drivertest/bin:*) echo in front;; esac\ndtalias").out("loaded\nin front\nfrom the alias\n").code(0)
			s.run(`module list -t 2>&1`).code(0).has("drivertest/1")
			s.run(`module load drivertest2/1; module unload drivertest/1`).code(0)
			s.run(`echo "${DRIVERTEST_MODULE-unset}"; case $PATH in /opt/drivertest2/bin:*) echo in front;; esac; case :$PATH: in *:/opt/drivertest/bin:*) echo left;; esac`).out("unset\nin front\n")
		}},
		{name: "virtualenvwrapper: mkvirtualenv in one call, workon and deactivate in the next", slow: true, run: func(t *test) {
			// Its functions want the variables that it sets and does not export, which no state carries: hence set -a.
			const script = "/usr/share/virtualenvwrapper/virtualenvwrapper.sh"
			b := t.own(boxSpec{PlaceSpec: PlaceSpec{Environ: plainPath, Profile: map[string]string{".bashrc": "export WORKON_HOME=$HOME/envs VIRTUALENVWRAPPER_PYTHON=/usr/bin/python3 PATH=/usr/bin:/bin:$PATH\nmkdir -p \"$WORKON_HOME\"\nset -a\n. " + script + "\nset +a\n"}}})
			needs(t, b, script, "virtualenvwrapper")
			s := b.session("")
			s.run(`type -t workon mkvirtualenv`).out("function\nfunction\n")
			s.run(`mkvirtualenv -p /usr/bin/python3 --no-download --no-pip dt; echo "in ${VIRTUAL_ENV##*/}"`).code(0).has("in dt\n")
			s.run(`python -c 'import sys; print(sys.prefix.split("/")[-1])'; workon`).out("dt\ndt\n")
			s.run(`deactivate; echo "${VIRTUAL_ENV-none}"`).out("none\n").code(0)
			s.run(`echo "${VIRTUAL_ENV-none}"; workon dt; echo "${VIRTUAL_ENV##*/}"`).out("none\ndt\n")
			s.run(`command -v python | tail -c 15; cdvirtualenv; pwd`).has("/dt\n")
		}},
		{name: "a Python venv activated in one call is used in the next, and left in a third", slow: true, run: func(t *test) {
			b := t.own(boxSpec{PlaceSpec: PlaceSpec{Environ: plainPath}})
			if b.observe(`/usr/bin/python3 -c 'import venv, ensurepip' 2>/dev/null && echo there`) != "there\n" {
				t.skip("python3 with venv is not installed in this place")
			}
			s := b.session("")
			s.run(`/usr/bin/python3 -m venv --without-pip @D/v`).code(0)
			s.want(`. @D/v/bin/activate`, "")
			s.want(`command -v python; python -c 'import sys; print(sys.prefix)'; echo "$VIRTUAL_ENV"`, strings.ReplaceAll("D/v/bin/python\nD/v\nD/v\n", "D", s.d()))
			// What activate keeps for deactivate is not exported, so PATH is only put back within one call.
			s.want(`type -t deactivate; deactivate`, "function\n")
			s.want(`echo "${VIRTUAL_ENV-unset}"; type -t deactivate; :`, "unset\n")
			s.want(`p=$PATH; . @D/v/bin/activate; deactivate; [ "$PATH" = "$p" ] && echo same`, "same\n")
		}},
		{name: "an agent's usual tools: git, a pager, make and a pipe between them", run: func(t *test) {
			b := t.shared()
			if b.observe(`command -v git make >/dev/null && echo there`) != "there\n" {
				t.skip("git and make are not installed in this place")
			}
			s := b.session("")
			s.run(`git init -q @D/repo && cd @D/repo && git config user.email a@b && git config user.name n`).code(0)
			s.run(`printf 'all:\n\t@echo built $$(cat f)\nfail:\n\t@exit 3\n' > Makefile; echo 1 > f; git add -A && git commit -q -m one`).code(0).out("")
			s.run(`git log --oneline | wc -l; git diff; git status --porcelain`).code(0).out("1\n")
			s.run(`unset MAKEFLAGS MFLAGS MAKELEVEL; make`).code(0).out("built 1\n") // this test may be run by make
			s.run(`make fail`).code(2)
			s.run(`git log -p | cat | head -3 >/dev/null; echo "${PIPESTATUS[*]}"`).out("0 0 0\n")
		}},
	}}
}

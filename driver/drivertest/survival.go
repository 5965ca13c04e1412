package drivertest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/internal/survival"
)

// survivalGroup: what survives what (docs/survival.md). One case does one event for real and compares all things with the table's
// column of the backend.
func survivalGroup() group {
	g := group{name: "survival", needs: []Need{NeedReopen, NeedProc}}
	for _, event := range survival.Events() {
		c := testCase{
			name: "what the table says is there after the event, and what it says is gone: " + string(event), slow: true,
			inapt: func(h *Harness) string { return noSuchEvent(h.Backend.Name, event) },
			run:   func(t *test) { survives(t, event) },
		}
		if event == survival.NewProcess || event == survival.Crash {
			c.needs = []Need{NeedHostChildren}
		}
		g.cases = append(g.cases, c)
	}
	return g
}

// noSuchEvent says why there is nothing to test.
func noSuchEvent(backend string, event survival.Event) string {
	table := survival.Of(backend)
	switch {
	case table == nil:
		return "internal/survival has no table of " + backend
	case !table.Column(event):
		return table.Events[event]
	}
	return ""
}

// survives plants everything in a sandbox of its own, lets the event happen, and looks what is left.
func survives(t *test, event survival.Event) {
	p := newPlanting(t)
	b := p.b
	defer func() { p.sweep() }()
	switch event {
	case survival.NewProcess:
		h := p.there("close")
		h.end()
		p.reopen()
	case survival.Crash:
		h := p.there("")
		h.kill()
		p.reopen()
	case survival.NextCall:
		p.here()
	case survival.Idle:
		p.here()
		if b.place.Idle == nil {
			p.awaitNoWaitingShell()
			break
		}
		where := b.sb.Info()
		p.s.close()
		b.close()
		p.happens("Idle", b.place.Idle(t.ctx(), where))
		p.reopen()
	case survival.Stop:
		p.here()
		p.s.close()
		b.close()
		all, err := elsewhere.OpenSandboxes(t.ctx(), b.cfg, "", &b.opts)
		p.happens("opening the keeper", err)
		p.happens("Stop", all.Stop(t.ctx(), b.sb.Task()))
		p.happens("closing the keeper", all.Close())
		p.reopen()
	case survival.Restart:
		p.here()
		p.happens("Restart", b.place.Restart(t.ctx(), b.sb.Info()))
	case survival.EngineCrash:
		p.here()
		p.happens("Crash", b.place.Crash(t.ctx(), b.sb.Info()))
	}
	p.compare(event)
}

// planting is all things in one sandbox.
type planting struct {
	t     *test
	b     *box
	s     *session // "dev"
	table *survival.Table
	mark  string   // in every name, value and argument of this planting
	jobs  []string // ids: the session's own and the task's
}

const plantedCall = "DRIVERTEST_CALL"

func newPlanting(t *test) *planting {
	t.Helper()
	table := survival.Of(t.r.h.Backend.Name)
	p := &planting{t: t, table: table, mark: fmt.Sprintf("planted-%d", time.Now().UnixNano())}
	ours := t.TempDir()
	settings := map[string]string{"env_passthrough": `["DRIVERTEST_FORWARDED"]`, "spawn_ahead_idle": "1"}
	for key, value := range table.Settings {
		settings[key] = strings.ReplaceAll(value, "{HOST}", ours)
	}
	p.b = t.place(boxSpec{PlaceSpec: PlaceSpec{Environ: []string{"DRIVERTEST_FORWARDED=" + p.mark}}, Settings: settings})
	for _, file := range []string{filepath.Join(ours, "file"), filepath.Join(p.b.place.HermesHome, "skills", "planted", "SKILL.md")} {
		p.happens("making the directory", os.MkdirAll(filepath.Dir(file), 0o700))
		p.happens("writing the file", os.WriteFile(file, []byte(p.mark+"\n"), 0o644))
	}
	return p
}

func (p *planting) happens(what string, err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatalf("%s: %v", what, err)
	}
}

// files are the paths of those that are planted, as bash writes them.
func (p *planting) files() map[survival.Thing]string {
	all := map[survival.Thing]string{survival.Home: "~/" + p.mark, survival.Temp: "/tmp/" + p.mark, survival.System: "/etc/" + p.mark, survival.Workspace: p.table.Workspace + "/" + p.mark}
	maps.DeleteFunc(all, func(thing survival.Thing, _ string) bool {
		return p.table.Cell(thing, survival.NextCall).Fate == survival.None
	})
	return all
}

// loop is a command of bash alone that goes on, with the mark in its arguments.
func (p *planting) loop(name, first string) string {
	return fmt.Sprintf(`bash -c %s %s-%s`, quote(first+`exec 3<> <(:); while :; do read -r -t 1 -u 3; done`), p.mark, name)
}

// commands plant what commands can plant. It takes no program but bash.
func (p *planting) commands() []string {
	var write strings.Builder
	for _, path := range p.files() {
		fmt.Fprintf(&write, "echo %s > %s && ", p.mark, path)
	}
	return []string{
		`export PLANTED='a  b'; planted() { echo "function $1"; }; umask 027; cd /etc && echo planted`,
		write.String() + p.loop("child", "") + ` </dev/null >/dev/null 2>&1 & echo planted`,
	}
}

func (p *planting) job(name string) string { return p.loop(name, "echo early; ") }

// here plants in this process and leaves session and sandbox open.
func (p *planting) here() {
	p.t.Helper()
	p.b.open()
	p.s = p.b.session("dev")
	for _, command := range p.commands() {
		p.s.want(command, "planted\n", env(plantedCall, p.mark))
	}
	for _, keep := range []bool{false, true} {
		j, err := p.s.Start(p.t.ctx(), p.job(map[bool]string{false: "job", true: "kept-job"}[keep]), &elsewhere.JobOptions{Keep: keep})
		p.happens("starting a job", err)
		(&job{j, p.t}).await(func(out []byte) bool { return string(out) == "early\n" })
		p.jobs = append(p.jobs, j.ID())
	}
	p.s.flush()
}

// there plants in another process.
func (p *planting) there(end string) *host {
	p.t.Helper()
	h := p.b.host(childJob{
		Session: "dev", First: p.commands(), FirstEnv: map[string]string{plantedCall: p.mark}, End: end,
		Jobs: []string{p.job("job")}, KeptJobs: []string{p.job("kept-job")},
	})
	for i, out := range h.report.Outputs {
		if out != "planted\n" {
			p.t.Fatalf("the other process's command %d printed %q", i, out)
		}
	}
	p.jobs = h.report.Jobs
	return h
}

// reopen opens the sandbox and the session anew.
func (p *planting) reopen() {
	p.t.Helper()
	p.b.open()
	p.s = p.b.session("dev")
}

// awaitNoWaitingShell waits until the shell that was started ahead behind a call has left unused.
func (p *planting) awaitNoWaitingShell() {
	p.t.Helper()
	last := p.s.want(`true`, "").CallID
	p.t.eventually("the shell that was started ahead has left", hang/3, func() bool {
		all := p.b.rec.all()
		at := slices.IndexFunc(all, func(b *recorded) bool { return b.spec.ID == last })
		return at >= 0 && slices.ContainsFunc(all[at+1:], func(b *recorded) bool { return b.forCall() && b.over() })
	})
}

// probe is one thing as a line of bash that prints its value, and the value that it has if it is there.
type probe struct {
	thing     survival.Thing
	text, has string
}

func (p *planting) probes() []probe {
	read := func(path string) string { return `line=; read -r line < ` + path + `; echo "$line"` }
	fixed := func(path string) string {
		return `line=; read -r line < ` + path + `; { : >> ` + path + `; } 2>/dev/null && line="$line writable"; echo "$line"`
	}
	all := []probe{
		{survival.Variables, `echo "$PLANTED"`, "a  b"},
		{survival.Functions, `planted works`, "function works"},
		{survival.Directory, `echo "$PWD"`, "/etc"},
		{survival.Umask, `umask`, "0027"},
		{survival.OneCall, `echo "$` + plantedCall + `"`, p.mark},
		{survival.Forwarded, `echo "$DRIVERTEST_FORWARDED"`, p.mark},
		{survival.Network, `n=0; while read -r _; do n=$((n + 1)); done < /proc/net/route; [ $n = 1 ] && echo "no route"`, "no route"},
		{survival.Mount, fixed(p.table.MountAt + "/file"), p.mark},
	}
	skills := probe{survival.Skills, read("~/.hermes/skills/planted/SKILL.md"), p.mark}
	if p.table.SkillsMounted {
		skills.text = fixed("~/.hermes/skills/planted/SKILL.md")
	}
	all = append(all, skills)
	for thing, path := range p.files() {
		all = append(all, probe{thing, read(path), p.mark})
	}
	return all
}

// processes is bash text that prints the arguments with the mark of all processes that it sees, and what to do with each ($pid).
func (p *planting) processes(do string) string {
	return `for f in /proc/[0-9]*/cmdline; do pid=${f%/*} pid=${pid##*/}; while IFS= read -r -d '' a; do case $a in ` + p.mark + `-*) ` + do + `;; esac; done < "$f"; done 2>/dev/null`
}

// look gives the value of each thing, and what was said.
func (p *planting) look() (map[survival.Thing]string, *elsewhere.Result) {
	p.t.Helper()
	var text strings.Builder
	for _, one := range p.probes() {
		fmt.Fprintf(&text, "seen=$( { %s; } 2>/dev/null ); echo %s=\"$seen\"\n", one.text, quote(string(one.thing)))
	}
	text.WriteString(p.processes(`echo "process=$a"`))
	res, err := p.s.try(text.String())
	if err != nil {
		// A bash that waited may have got the command.
		p.t.wantKind(err, elsewhere.ErrLost, "a call that found its sandbox gone")
		res, err = p.s.try(text.String())
	}
	p.happens("the call after the event", err)
	seen := map[survival.Thing]string{}
	processes := map[string]bool{}
	for line := range strings.Lines(string(res.Output)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if name == "process" {
			processes[value] = true
		} else {
			seen[survival.Thing(name)] = value
		}
	}
	for thing, name := range map[survival.Thing]string{survival.Child: "child", survival.Job: "job", survival.KeptJob: "kept-job"} {
		if processes[p.mark+"-"+name] {
			seen[thing] = "runs"
		}
	}
	p.lookAtJobs(seen)
	return seen, res
}

// lookAtJobs says of a job that runs that it is known to run, too, and what is there of both jobs' output.
func (p *planting) lookAtJobs(seen map[survival.Thing]string) {
	p.t.Helper()
	var output []string
	for _, st := range p.b.jobs() {
		for i, thing := range []survival.Thing{survival.Job, survival.KeptJob} {
			if st.ID != p.jobs[i] {
				continue
			}
			if runs := seen[thing] != ""; runs != (st.State == elsewhere.JobRunning) {
				p.t.Errorf("%s: that its process lives is %v, and its state %s", thing, runs, st.State)
			}
			j, err := p.b.sb.Job(p.t.ctx(), st.ID)
			p.happens("finding the job", err)
			out, err := j.Logs(p.t.ctx(), 0, 0, time.Second)
			p.happens("reading the job's output", err)
			output = append(output, string(out.Data))
		}
	}
	seen[survival.JobOutput] = strings.Join(output, "")
}

// compare holds what is left against the table.
func (p *planting) compare(event survival.Event) {
	p.t.Helper()
	has := map[survival.Thing]string{survival.Child: "runs", survival.Job: "runs", survival.KeptJob: "runs", survival.JobOutput: "early\nearly\n"}
	for _, one := range p.probes() {
		has[one.thing] = one.has
	}
	seen, res := p.look()
	for _, thing := range survival.Things() {
		there := seen[thing] == has[thing]
		switch cell := p.table.Cell(thing, event); cell.Fate {
		case survival.Kept:
			if !there {
				p.t.Errorf("%s: the table says %q; seen was %q, planted %q", thing, cell.Text, seen[thing], has[thing])
			}
		case survival.Gone:
			if there {
				p.t.Errorf("%s: the table says %q; seen was %q", thing, cell.Text, seen[thing])
			}
		}
	}
	if said := hasNotice(res.Notices, "earlier state"); said != (p.table.Cell(survival.Variables, event).Fate == survival.Gone) {
		p.t.Errorf("that the session's state is gone is said: %v; notices %q, recreated %q", said, res.Notices, res.Recreated)
	}
}

// sweep ends and removes what was planted, where it is not the sandbox's end that does.
func (p *planting) sweep() {
	if p.s == nil {
		return
	}
	for _, id := range p.jobs {
		// Their supervisors would write down their end while the place is removed.
		if j, err := p.b.sb.Job(p.t.ctx(), id); err == nil {
			_, _ = j.Kill(p.t.ctx())
		}
	}
	command := p.processes(`kill -9 "$pid"`)
	for _, path := range p.files() {
		command += "; rm -f " + path
	}
	if _, err := p.s.try(command); err != nil {
		p.t.Errorf("removing what was planted: %v", err)
	}
}

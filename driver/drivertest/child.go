package drivertest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// childVar, when set, makes Run play a host process that opens a place which another one made, as another program that
// imports the library would. Its value is a childJob as JSON.
const childVar = "ELSEWHERE_DRIVERTEST_CHILD"

// childJob says what the child does. It prints one childReport when everything is under way, and then reads its standard
// input until that ends or it is killed.
type childJob struct {
	HermesHome string
	Environ    []string
	Settings   map[string]string
	Ahead      int
	Session    string            // "" is a throw-away one
	First      []string          // commands run to their end
	FirstEnv   map[string]string // of each of them
	Call       string            // a command that goes on; "" for none
	Terminal   string            // a command that goes on on a terminal; "" for none
	Await      []string          // files in the place without which it is not under way
	End        string            // how it ends when its input ends: "close", "exit" without closing, "panic"
	Flood      int64             // bytes of output to take, for the memory it costs
	Env        map[string]string // of Call
	Jobs       []string          // commands that are started as background jobs
	KeptJobs   []string          // the same as jobs of the task, behind Typed
	JobOptions *elsewhere.JobOptions
	Typed      []string // commands that are started as background jobs on a terminal, behind Jobs
}

// childReport is what the child tells.
type childReport struct {
	IDs     []string // of every bash for calls that it started
	Waiting int      // how many of them wait
	Outputs []string // of First
	Private string   // the private directory
	HeapMB  int      // after a flood: the most memory that the process ever had, in MiB
	Bytes   int64
	Jobs    []string // the ids of the jobs
	Error   string
}

// runChild is the child. It never returns to the suite's own cases.
func runChild(t *testing.T, h *Harness) {
	var job childJob
	if err := json.Unmarshal([]byte(os.Getenv(childVar)), &job); err != nil {
		t.Fatal(err)
	}
	report := childReport{}
	sb, session, err := job.open(h, &report)
	if err != nil {
		report.Error = err.Error()
	}
	line, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("\n%s%s\n", childMark, line)
	_, _ = io.Copy(io.Discard, os.Stdin)
	switch job.End {
	case "close":
		if err := session.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := sb.Close(context.Background()); err != nil {
			t.Error(err)
		}
	case "panic":
		go func() { panic("drivertest: this host panics on purpose") }()
		select {}
	}
	os.Exit(3)
}

const childMark = "drivertest-child-report: "

func (job *childJob) open(h *Harness, report *childReport) (*elsewhere.Sandbox, *elsewhere.Session, error) {
	ctx := context.Background()
	rec := newRecorder()
	cfg, err := config.Load(config.Options{
		Backends: []driver.Backend{rec.wrap(h.Backend)}, Flags: job.Settings, Environ: job.Environ, Home: job.HermesHome,
	})
	if err != nil {
		return nil, nil, err
	}
	sb, err := elsewhere.OpenSandbox(ctx, cfg, &elsewhere.SandboxOptions{Environ: job.Environ, SpawnAhead: &job.Ahead})
	if err != nil {
		return nil, nil, err
	}
	report.Private = sb.Info().PrivateDir
	session, err := sb.Session(ctx, job.Session)
	if err != nil {
		return sb, nil, err
	}
	for _, command := range job.First {
		res, err := session.Run(ctx, command, &elsewhere.RunOptions{Env: job.FirstEnv})
		if err != nil {
			return sb, session, err
		}
		rec.returned(res.CallID)
		report.Outputs = append(report.Outputs, string(res.Output))
	}
	if err := session.Flush(ctx); err != nil {
		return sb, session, err
	}
	if job.Flood > 0 {
		res, err := session.Run(ctx, fmt.Sprintf("head -c %d /dev/zero", job.Flood), &elsewhere.RunOptions{Stdout: io.Discard, MaxOutput: 50000})
		if err != nil {
			return sb, session, err
		}
		report.Bytes, report.HeapMB = res.OutputBytes, peakMemory()
	}
	for _, list := range []struct {
		commands []string
		opts     *elsewhere.JobOptions
	}{{job.Jobs, job.JobOptions}, {job.Typed, &elsewhere.JobOptions{Terminal: true}}, {job.KeptJobs, &elsewhere.JobOptions{Keep: true}}} {
		for _, command := range list.commands {
			started, err := session.Start(ctx, command, list.opts)
			if err != nil {
				return sb, session, err
			}
			report.Jobs = append(report.Jobs, started.ID())
		}
	}
	if job.Call != "" {
		go func() { _, _ = session.Run(ctx, job.Call, &elsewhere.RunOptions{Env: job.Env}) }()
	}
	if job.Terminal != "" {
		terminal, err := session.Shell(ctx, job.Terminal, nil)
		if err != nil {
			return sb, session, err
		}
		go func() { _, _ = io.Copy(io.Discard, terminal) }()
	}
	for _, path := range job.Await {
		command := "until [ -e " + quote(path) + " ]; do sleep 0.02; done"
		if _, err := session.Run(ctx, command, nil); err != nil {
			return sb, session, err
		}
	}
	// The shells that wait are part of what has to go.
	running := 0
	if job.Call != "" || job.Terminal != "" {
		running = 1
	}
	deadline := time.Now().Add(hang)
	for quiet := 0; quiet < 15 && time.Now().Before(deadline); quiet++ {
		if report.Waiting = len(rec.idle()) - running; report.Waiting != job.Ahead {
			quiet = 0
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
	for _, b := range rec.all() {
		if b.forCall() {
			report.IDs = append(report.IDs, b.spec.ID)
		}
	}
	return sb, session, nil
}

// peakMemory is the most memory that this process ever had, in MiB; 0 where the system does not tell.
func peakMemory() int {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kb int
		if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
			return kb >> 10
		}
	}
	return 0
}

// host is a child process that plays another program which uses elsewhere.
type host struct {
	t      *test
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	done   chan struct{}
	report childReport
}

// host starts a child in this box's place and waits until everything that the job asks for is under way.
func (b *box) host(job childJob) *host {
	b.t.Helper()
	job.HermesHome, job.Environ, job.Settings = b.place.HermesHome, b.place.Environ, b.settings
	text, err := json.Marshal(job)
	if err != nil {
		b.t.Fatal(err)
	}
	// The test that called Run, and nothing else of the binary.
	root := strings.Split(b.t.r.t.Name(), "/")
	for i := range root {
		root[i] = "^" + regexp.QuoteMeta(root[i]) + "$"
	}
	name := strings.Join(root[:len(root)-1], "/") // without backend=NAME
	own, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	h := &host{t: b.t, cmd: exec.Command(own, "-test.run="+name, "-test.count=1", "-test.timeout=0", "-test.v=false"), done: make(chan struct{})}
	h.cmd.Env = append(append([]string{}, b.place.Environ...), childVar+"="+string(text))
	var stderr syncBuffer
	h.cmd.Stderr = &stderr
	if h.stdin, err = h.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(h.kill)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	found := false
	var said strings.Builder
	for !found && lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if rest, ok := strings.CutPrefix(lines.Text(), childMark); ok {
			if err := json.Unmarshal([]byte(rest), &h.report); err != nil {
				b.t.Fatal(err)
			}
			found = true
		}
	}
	go func() {
		defer close(h.done)
		_, _ = io.Copy(io.Discard, out)
		_ = h.cmd.Wait()
	}()
	if !found || h.report.Error != "" {
		b.t.Fatalf("the other host process came to nothing: %s\n%s", h.report.Error, said.String()+stderr.String())
	}
	return h
}

// kill ends the child by KILL and waits for its end.
func (h *host) kill() {
	_ = h.cmd.Process.Kill()
	<-h.done
}

// end lets the child end in the way that its job says.
func (h *host) end() {
	h.t.Helper()
	_ = h.stdin.Close()
	<-h.done
}

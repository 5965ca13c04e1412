// Package drivertest is the conformance suite by which every backend is judged.
//
// A backend's own test gives a Harness and calls Run:
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, &drivertest.Harness{Backend: local.Backend, Place: place})
//	}
//
// Run opens sandboxes through package elsewhere, as a program does, and holds every call against the contract: what a
// command gets, what carries over to the next one, what a timeout ends, what is left behind. What goes on in the place
// is seen by an observer that reaches it without elsewhere. Absence (nothing survived, nothing ran twice) is asserted
// only after the same thing was seen present; time is asserted only where the contract promises a deadline.
//
// A case that cannot apply to a backend is declared in its Harness with the reason; it is then not started but counted,
// never passed over. The tests are named TestX/backend=NAME/GROUP/SENTENCE, so that `-run` can choose any of them.
package drivertest

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Harness says how one backend is tested.
type Harness struct {
	// Backend is the backend under test.
	Backend driver.Backend

	// Place makes a fresh place: an own HERMES_HOME on this host and an own home directory in the place. It opens
	// nothing yet; what it started is ended by t's cleanup. It may be called from several goroutines.
	Place func(t testing.TB, spec PlaceSpec) *Place

	// Lacks names what the backend does not have by its nature, each with the reason. Cases that need it do not apply.
	Lacks map[Need]string

	// Skip holds cases that cannot apply, each with the reason. A key is a CASES id ("X05"), a case's whole name, "group/name",
	// or "group/*". A key that fits no case is an error.
	Skip map[string]string

	// Only, where it is not empty, holds the cases to run, with the same keys as Skip.
	Only []string

	// KeepsChildren says that a child which a finished call left in the background belongs to the sandbox and outlives its
	// session; false says that the session's end is its end, as on local.
	KeepsChildren bool

	// OrphansEndOnOpen says that what a dead host process left is ended when its sandbox is opened again, and OrphanGrace how
	// long that, or the end by itself, may take; 0 is the grace of 2 s between TERM and KILL.
	OrphansEndOnOpen bool
	OrphanGrace      time.Duration

	// SharedAhead is how many bashes are started ahead in the sandbox that most cases share; nil is as many as the settings say.
	// 0 halves the starts of a backend where they take the most time; cases with a sandbox of their own have them all the same.
	SharedAhead *int

	// Parallel is how many cases run at once, and as many again of those that mostly wait; 0 means one more than there are
	// processors.
	Parallel int
}

// A Need is something that a case takes for granted and that not every backend has.
type Need string

// The needs. Beside them every place but one that is BashOnly holds coreutils, grep, findutils and util-linux (setsid).
const (
	// NeedProc: the observer sees the sandbox's processes in /proc.
	NeedProc Need = "proc"
	// NeedCallerEnv: the caller's environment reaches commands (local).
	NeedCallerEnv Need = "caller environment"
	// NeedLose: Place.Lose makes the sandbox vanish.
	NeedLose Need = "lose"
	// NeedReopen: a named session is still there when its sandbox is closed and opened again.
	NeedReopen Need = "reopen"
	// NeedStream: output arrives while the command runs.
	NeedStream Need = "stream"
	// NeedHostChildren: this test's program can be started again as another host process that opens the same place.
	NeedHostChildren Need = "host children"
	// NeedBashOnly: Place can make a root that holds bash and nothing else.
	NeedBashOnly Need = "bash only"
	// NeedTerminal: the sandbox is a driver.PTY, and has stty.
	NeedTerminal Need = "terminal"
	// NeedStopper: the sandbox is a driver.Stopper. Nothing has to be said of one that is not.
	NeedStopper Need = "stopper"
)

// PlaceSpec says what a case wants of its place.
type PlaceSpec struct {
	// Profile holds login files by their name relative to the home directory (".bash_profile"), to be there before the
	// sandbox is opened.
	Profile map[string]string
	// Environ is added to the environment of the caller ("K=V").
	Environ []string
	// BashOnly asks for a root that holds bash and its libraries and no other program.
	BashOnly bool
}

// Place is where the sandboxes of a case are.
type Place struct {
	// HermesHome is an own HERMES_HOME on this host.
	HermesHome string

	// Environ is the whole environment of the caller that opens the sandbox, HERMES_HOME and HOME included.
	Environ []string

	// Settings are what it takes to reach the place, by key ("docker_image").
	Settings map[string]string

	// Backend, where not nil, is used instead of Harness.Backend.
	Backend *driver.Backend

	// Home is the home directory in the place.
	Home string

	// Observe runs a program in the place, outside of elsewhere and of everything that elsewhere started, as the user who
	// runs the commands, or with more rights. Nil where it cannot.
	Observe func(ctx context.Context, where driver.Info, stdin []byte, argv ...string) (Observed, error)

	// Lose makes the sandbox vanish as if its engine had lost it. Nil where it cannot.
	Lose func(ctx context.Context, where driver.Info) error

	// Idle, Restart and Crash let happen what internal/survival says of these events, and return when it has. Idle ends a sandbox
	// that nobody has open, as its service does in the end; nil where none does. Restart and Crash are for one that is open.
	Idle    func(ctx context.Context, where driver.Info) error
	Restart func(ctx context.Context, where driver.Info) error
	Crash   func(ctx context.Context, where driver.Info) error

	// Wedge makes nothing in the sandbox answer any more, though its engine answers for it: no bash starts there, nothing is ended and
	// no byte goes through, until it is stopped. What it returns tells, from outside, whether the sandbox was stopped since. Nil where
	// the sandbox is no driver.Stopper.
	Wedge func(ctx context.Context, where driver.Info) (stopped func() bool, err error)
}

// Observed is what an observer's program came to.
type Observed struct {
	Stdout, Stderr []byte
	Code           int
}

// Long tells whether LONG=1 asks for the long versions of what is run in a shorter one otherwise: more of the same.
func Long() bool { return os.Getenv("LONG") == "1" }

// AtADistance is a Harness.Only that chooses cases that wait for the far side, each in a way of its own, to be run again with latency;
// with LONG=1 all that wait for it.
func AtADistance() []string {
	if Long() {
		return []string{"stdin/*", "kill/*", "lost/*", "concurrency/*", "state files/*"}
	}
	return []string{
		"concurrency/C08 twenty calls at once see each a whole state",
		"concurrency/closing the sandbox while calls run ends them, and nothing hangs",
		"kill/an interrupt is 130 with its cause, returns what was printed and ends the tree",
		"lost/a call whose sandbox vanishes under it fails as lost and is not run again",
		"stdin/stdin flows while the command runs",
		"state files/two users of one named session at once each see a whole state and lose none of it",
	}
}

// group is one subject of the contract; every file of cases holds one or two.
type group struct {
	name  string
	needs []Need
	cases []testCase
}

// testCase is one sentence of the contract.
type testCase struct {
	name  string
	run   func(t *test)
	needs []Need
	// slow cases mostly wait; they have slots of their own.
	slow bool
	// big cases are left out under -short.
	big bool
	// alone: no other case runs at the same time.
	alone bool
	// inapt, where not nil, says why the case cannot apply to a backend; "" is that it can.
	inapt func(h *Harness) string
}

// sharesEnvironment is the inapt of what cannot apply where commands share the caller's machine and environment.
func sharesEnvironment(h *Harness) string {
	if _, lacks := h.Lacks[NeedCallerEnv]; lacks {
		return ""
	}
	return "commands run on the caller's own machine, with its directories and environment"
}

// groups lists the suite. A function, so that nothing is built before it is asked for.
func groups() []group {
	return []group{
		stateGroup(), functionGroup(), neverSavedGroup(), stateFileGroup(),
		directoryGroup(),
		exitGroup(), nativeGroup(),
		outputGroup(), bookkeepingGroup(),
		stdinGroup(), terminalGroup(),
		backgroundGroup(), jobGroup(), killGroup(), orphanGroup(),
		profileGroup(), packageGroup(),
		spawnAheadGroup(), concurrencyGroup(),
		hostileGroup(), secretGroup(), lostGroup(), lastResortGroup(), survivalGroup(), nameGroup(),
		fileGroup(), hermesGroup(), bigGroup(), bashOnlyGroup(),
	}
}

// Run holds a backend against the whole contract. Harness.Place is called many times.
func Run(t *testing.T, h *Harness) {
	if err := checkHarness(h); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			// A shell script that runs the tests in the background has it so, and every bash would inherit that.
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	if os.Getenv(childVar) != "" {
		runChild(t, h)
		return
	}
	t.Run("backend="+h.Backend.Name, func(t *testing.T) {
		r := newRunner(t, h)
		r.runAll(groups())
		r.report()
	})
}

// checkHarness finds declarations that say nothing.
func checkHarness(h *Harness) error {
	if h == nil || h.Backend.Open == nil || h.Place == nil {
		return fmt.Errorf("drivertest: a harness needs a Backend that is built, and a Place")
	}
	for need, reason := range h.Lacks {
		if strings.TrimSpace(reason) == "" {
			return fmt.Errorf("drivertest: Harness.Lacks[%q] gives no reason", need)
		}
	}
	for key, reason := range h.Skip {
		if strings.TrimSpace(reason) == "" {
			return fmt.Errorf("drivertest: Harness.Skip[%q] gives no reason", key)
		}
		if !slices.ContainsFunc(groups(), func(g group) bool {
			return slices.ContainsFunc(g.cases, func(c testCase) bool { return skipFits(key, g, c) })
		}) {
			return fmt.Errorf("drivertest: Harness.Skip[%q] fits no case", key)
		}
	}
	return nil
}

// skipFits tells whether a key of Harness.Skip means the case c of g.
func skipFits(key string, g group, c testCase) bool {
	return key == c.name || key == g.name+"/"+c.name || key == g.name+"/*" || strings.HasPrefix(c.name, key+" ") && isCaseID(key)
}

// isCaseID tells whether s is an id such as C01.
func isCaseID(s string) bool {
	return len(s) == 3 && s[0] >= 'A' && s[0] <= 'Z' && s[1] >= '0' && s[1] <= '9' && s[2] >= '0' && s[2] <= '9'
}

// runner is one run of the suite.
type runner struct {
	t     *testing.T
	h     *Harness
	slots chan struct{}
	slow  chan struct{} // the same for slow cases

	others sync.WaitGroup // the cases that need not be alone
	alone  sync.Mutex     // held by the one that is

	sharedOnce sync.Once
	sharedBox  *box
	natives    nativeSessions

	mu      sync.Mutex
	ran     int
	skipped map[string][]string // reason -> cases
	inapt   map[string][]string // the same for cases that do not apply
}

func newRunner(t *testing.T, h *Harness) *runner {
	n := h.Parallel
	if n == 0 {
		n = runtime.NumCPU() + 1
	}
	return &runner{t: t, h: h, slots: make(chan struct{}, n), slow: make(chan struct{}, n), skipped: map[string][]string{}, inapt: map[string][]string{}}
}

// runAll runs all groups at once, as far as the slots allow, and then the cases that have to be alone. Cases are not run
// by t.Parallel: its limit is the number of processors, and most cases wait for something else.
func (r *runner) runAll(all []group) {
	for _, g := range all {
		r.others.Add(g.notAlone())
	}
	var wg sync.WaitGroup
	for _, g := range all {
		wg.Go(func() {
			chosen := false
			r.t.Run(g.name, func(t *testing.T) {
				chosen = true
				r.runGroup(t, g)
			})
			if !chosen {
				r.others.Add(-g.notAlone())
			}
		})
	}
	wg.Wait()
}

func (g group) notAlone() int {
	n := 0
	for _, c := range g.cases {
		if !c.alone {
			n++
		}
	}
	return n
}

func (r *runner) runGroup(t *testing.T, g group) {
	var wg sync.WaitGroup
	for _, c := range g.cases {
		wg.Go(func() {
			switch {
			case c.alone:
				r.others.Wait()
				r.alone.Lock()
				defer r.alone.Unlock()
			case c.slow:
				defer r.others.Done()
				r.slow <- struct{}{}
				defer func() { <-r.slow }()
			default:
				defer r.others.Done()
				r.slots <- struct{}{}
				defer func() { <-r.slots }()
			}
			if r.applies(g, c) {
				t.Run(c.name, func(t *testing.T) { r.runCase(t, g, c) })
			}
		})
	}
	wg.Wait()
}

func (r *runner) runCase(t *testing.T, g group, c testCase) {
	if c.big && testing.Short() {
		const reason = "short: moves a lot of data or waits long"
		r.count(g.name+"/"+c.name, reason)
		t.Skip(reason)
	}
	tt := &test{T: t, r: r, skip: func(reason string) {
		r.count(g.name+"/"+c.name, reason)
		t.Skip(reason)
	}}
	r.count("", "")
	c.run(tt)
}

// applies tells whether a case can apply to the backend; one that cannot is counted with the reason.
func (r *runner) applies(g group, c testCase) bool {
	if len(r.h.Only) > 0 && !slices.ContainsFunc(r.h.Only, func(key string) bool { return skipFits(key, g, c) }) {
		return false
	}
	reason := ""
	for key, why := range r.h.Skip {
		if skipFits(key, g, c) {
			reason = why
		}
	}
	for _, need := range slices.Concat(g.needs, c.needs) {
		if _, is := r.h.Backend.Type.(driver.Stopper); need == NeedStopper && !is {
			reason = "its sandboxes are no driver.Stopper: what cannot be ended in them is ended by other means, or by nobody"
		}
		if why, lacks := r.h.Lacks[need]; lacks {
			reason = fmt.Sprintf("needs %s: %s", need, why)
		}
	}
	if reason == "" && c.inapt != nil {
		reason = c.inapt(r.h)
	}
	if reason == "" {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inapt[reason] = append(r.inapt[reason], g.name+"/"+c.name)
	return false
}

// count notes a case that ran (no reason) or was skipped.
func (r *runner) count(name, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reason == "" {
		r.ran++
		return
	}
	r.skipped[reason] = append(r.skipped[reason], name)
}

// report prints how many cases ran, and each reason for a skip with its cases.
func (r *runner) report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	list := func(what string, reasons map[string][]string) (n int) {
		for reason, names := range reasons {
			n += len(names)
			sort.Strings(names)
			fmt.Fprintf(&b, "\n  %d %s: %s\n    %s", len(names), what, reason, strings.Join(names, "\n    "))
		}
		return n
	}
	skipped, inapt := list("skipped", r.skipped), list("do not apply", r.inapt)
	r.t.Logf("drivertest: backend=%s: %d cases started, %d skipped, %d do not apply%s", r.h.Backend.Name, r.ran, skipped, inapt, b.String())
}

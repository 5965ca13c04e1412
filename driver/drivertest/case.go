package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

const (
	// allowance is what is added to every promised deadline before its breach is a failure.
	allowance = 10 * time.Second
	// grace is the promise of SPEC 1.12 between TERM and KILL, and endPromise that of a call's return after its timeout.
	grace      = 2 * time.Second
	endPromise = grace + time.Second
	// startWait is how long a bash may take to be ready, before another one is started in its place.
	startWait = 30 * time.Second
	// hang is after how long a call that promises no deadline is taken for hung.
	hang = 3 * time.Minute
)

// test is what a case has in its hands.
type test struct {
	*testing.T
	r    *runner
	skip func(reason string) // skips the case, counted
}

// ctx gives a context that ends with hang, and is released with the case.
func (t *test) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	t.Cleanup(cancel)
	return ctx
}

// box is a sandbox with its place.
type box struct {
	t     *test
	h     *Harness
	place *Place
	cfg   *config.Config
	opts  elsewhere.SandboxOptions
	rec   *recorder
	// settings are those of cfg, for another process.
	settings map[string]string
	backend  driver.Backend
	sb       *elsewhere.Sandbox
}

// boxSpec says what a case wants of a sandbox of its own.
type boxSpec struct {
	PlaceSpec
	// Settings are set as by --set, before the place's own.
	Settings map[string]string
	Options  elsewhere.SandboxOptions
}

// shared gives the sandbox that all cases share which need none of their own.
func (t *test) shared() *box {
	t.Helper()
	t.r.sharedOnce.Do(func() {
		owner := &test{T: t.r.t, r: t.r}
		// Its log is of a thousand cases: the end of it says nothing of the one that failed.
		t.r.sharedBox = owner.own(boxSpec{Options: elsewhere.SandboxOptions{SpawnAhead: t.r.h.SharedAhead, Logger: slog.New(slog.DiscardHandler)}})
	})
	if t.r.sharedBox == nil {
		t.Fatal("the shared sandbox could not be opened")
	}
	return t.r.sharedBox.in(t)
}

// in gives the same sandbox to another case: failures and cleanups are that case's.
func (b *box) in(t *test) *box {
	other := *b
	other.t = t
	return &other
}

// own opens a sandbox in a fresh place.
func (t *test) own(spec boxSpec) *box {
	t.Helper()
	b := t.place(spec)
	b.open()
	return b
}

// place makes a fresh place and opens nothing yet.
func (t *test) place(spec boxSpec) *box {
	t.Helper()
	b := &box{t: t, h: t.r.h, place: t.r.h.Place(t.T, spec.PlaceSpec), opts: spec.Options}
	settings := maps.Clone(spec.Settings)
	if settings == nil {
		settings = map[string]string{}
	}
	maps.Copy(settings, b.place.Settings)
	backend := t.r.h.Backend
	if b.place.Backend != nil {
		backend = *b.place.Backend
	}
	b.rec = newRecorder()
	b.backend = backend
	settings["backend"] = backend.Name
	if _, chosen := settings["policy.enabled"]; !chosen {
		// The contract is about what commands do, and the cases' own are none that a policy lets run: kill -9, rm -rf, chmod.
		settings["policy.enabled"] = "false"
	}
	b.load(settings)
	b.opts.Environ = b.place.Environ
	if b.opts.Logger == nil {
		b.opts.Logger = showIfFailed(t.T)
	}
	return b
}

// load takes settings for the next open.
func (b *box) load(settings map[string]string) {
	b.t.Helper()
	cfg, err := config.Load(config.Options{
		Backends: []driver.Backend{b.rec.wrap(b.backend)}, Flags: settings, Environ: b.place.Environ, Home: b.place.HermesHome,
	})
	if err != nil {
		b.t.Fatalf("loading the settings: %v", err)
	}
	b.cfg, b.settings = cfg, settings
}

// reload changes settings for the next open.
func (b *box) reload(change map[string]string) {
	b.t.Helper()
	settings := maps.Clone(b.settings)
	maps.Copy(settings, change)
	b.load(settings)
}

// open opens the sandbox, to be closed with the case.
func (b *box) open() {
	b.t.Helper()
	opts := b.opts
	sb, err := elsewhere.OpenSandbox(b.t.ctx(), b.cfg, &opts)
	if err != nil {
		b.t.Fatalf("opening a sandbox: %v", err)
	}
	b.sb = sb
	b.t.Cleanup(func() { b.closeSandbox(sb) })
}

// again is the same place as another user of it sees it: the same settings, an own sandbox value.
func (b *box) again() *box {
	b.t.Helper()
	other := *b
	other.open()
	return &other
}

// close closes the sandbox and fails the case where that fails.
func (b *box) close() { b.t.Helper(); b.closeSandbox(b.sb) }

func (b *box) closeSandbox(sb *elsewhere.Sandbox) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if err := sb.Close(ctx); err != nil {
		b.t.Errorf("closing the sandbox: %v", err)
	}
	if !b.rec.closed() {
		return
	}
	// What cannot be seen in any case alone: that none leaves a bash behind.
	for deadline := time.Now().Add(endPromise + allowance); len(b.rec.live())+b.rec.helpers() > 0; {
		if time.Now().After(deadline) {
			b.t.Errorf("the sandbox is closed, and %d bashes for calls and %d others live: %v", len(b.rec.live()), b.rec.helpers(), b.rec.live())
			return
		}
		time.Sleep(20 * time.Millisecond) // between two looks
	}
}

// session opens a session, closed with the case. "" is a throw-away one.
func (b *box) session(name string) *session {
	b.t.Helper()
	s, err := b.sb.Session(b.t.ctx(), name)
	if err != nil {
		b.t.Fatalf("opening session %q: %v", name, err)
	}
	own := &session{Session: s, t: b.t, b: b}
	b.t.Cleanup(own.close)
	return own
}

// session opens a throw-away session in the shared sandbox.
func (t *test) session() *session { t.Helper(); return t.shared().session("") }

// scratch makes a directory in the place, absolute and free of characters that mean something to a shell.
func (b *box) scratch() string {
	b.t.Helper()
	dir := strings.TrimSpace(b.observe(`d=$(mktemp -d /tmp/drivertest.XXXXXXXXXX) && chmod 777 "$d" && echo "$d"`))
	if !strings.HasPrefix(dir, "/") {
		b.t.Fatalf("the observer made no directory: %q", dir)
	}
	b.t.Cleanup(func() { b.observe("chmod -R u+rwx " + quote(dir) + " 2>/dev/null; rm -rf -- " + quote(dir)) })
	return dir
}

// observe runs a bash script in the place, outside of elsewhere, and returns its stdout. It fails the case if the script
// cannot be run; the script's exit code says nothing.
func (b *box) observe(script string) string {
	b.t.Helper()
	return string(b.observed("", script).Stdout)
}

// observed is observe with stdin and everything that came of it.
func (b *box) observed(stdin, script string) Observed {
	b.t.Helper()
	o, err := b.tryObserve(stdin, script)
	if err != nil {
		b.t.Fatalf("the observer failed: %v\n%s", err, script)
	}
	return o
}

func (b *box) tryObserve(stdin, script string) (Observed, error) {
	if b.place.Observe == nil {
		return Observed{}, errors.New("this place has no observer")
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	var where driver.Info
	if b.sb != nil {
		where = b.sb.Info()
	}
	return b.place.Observe(ctx, where, []byte(stdin), "bash", "--noprofile", "--norc", "-c", script)
}

// session is a session in a case's hands. In commands and observed scripts, @D stands for the case's scratch directory.
type session struct {
	*elsewhere.Session
	t   *test
	b   *box
	dir string
	mu  sync.Mutex
	off bool
}

// d gives the session's scratch directory.
func (s *session) d() string {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir == "" {
		s.dir = s.b.scratch()
	}
	return s.dir
}

func (s *session) fill(text string) string {
	if !strings.Contains(text, "@D") {
		return text
	}
	return strings.ReplaceAll(text, "@D", s.d())
}

// observe is box.observe with @D filled in.
func (s *session) observe(script string) string {
	s.t.Helper()
	return s.b.observe(s.fill(script))
}

// close closes the session; a second time does nothing.
func (s *session) close() {
	s.t.Helper()
	s.mu.Lock()
	off := s.off
	s.off = true
	s.mu.Unlock()
	if off {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	if err := s.Session.Close(ctx); err != nil {
		s.t.Errorf("closing the session: %v", err)
	}
}

// version gives the version of the bash that runs the session's commands: 502 for 5.2.
func (s *session) version() int {
	s.t.Helper()
	text := strings.TrimSpace(s.run(`echo $((BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1]))`).text())
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatalf("bash says of its version: %q", text)
	}
	return n
}

// flush waits until the state of ended calls is written, longer than Flush where the machine is slow.
func (s *session) flush() {
	s.t.Helper()
	err := s.Session.Flush(s.t.ctx())
	for deadline := time.Now().Add(hang); errors.Is(err, elsewhere.ErrTimeout) && time.Now().Before(deadline); {
		err = s.Session.Flush(s.t.ctx())
	}
	if err != nil {
		s.t.Errorf("flush: %v", err)
	}
}

// runOption changes how one command is run.
type runOption func(*elsewhere.RunOptions)

func stdin(text string) runOption {
	return func(o *elsewhere.RunOptions) { o.Stdin = strings.NewReader(text) }
}
func stdinFrom(r io.Reader) runOption { return func(o *elsewhere.RunOptions) { o.Stdin = r } }
func dir(d string) runOption          { return func(o *elsewhere.RunOptions) { o.Dir = d } }
func split(o *elsewhere.RunOptions)   { o.Split = true }
func timeout(d time.Duration) runOption {
	return func(o *elsewhere.RunOptions) { o.Timeout = d }
}
func stdout(w io.Writer) runOption { return func(o *elsewhere.RunOptions) { o.Stdout = w } }
func maxOutput(n int64) runOption  { return func(o *elsewhere.RunOptions) { o.MaxOutput = n } }
func env(pairs ...string) runOption {
	return func(o *elsewhere.RunOptions) {
		o.Env = map[string]string{}
		for i := 0; i+1 < len(pairs); i += 2 {
			o.Env[pairs[i]] = pairs[i+1]
		}
	}
}

// try runs a command and reports what came of it, also from another goroutine than the case's.
func (s *session) try(command string, opts ...runOption) (*elsewhere.Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	return s.tryCtx(ctx, command, opts...)
}

func (s *session) tryCtx(ctx context.Context, command string, opts ...runOption) (*elsewhere.Result, error) {
	var o elsewhere.RunOptions
	for _, opt := range opts {
		opt(&o)
	}
	res, err := s.Session.Run(ctx, command, &o)
	if res != nil {
		s.b.rec.returned(res.CallID)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return res, fmt.Errorf("the call had not ended after %v: %v", hang, err)
	}
	if err == nil && res == nil {
		return nil, errors.New("Run returned neither a result nor an error")
	}
	return res, err
}

// run runs a command; an error ends the case.
func (s *session) run(command string, opts ...runOption) *result {
	s.t.Helper()
	command = s.fill(command)
	res, err := s.try(command, opts...)
	if err != nil {
		s.t.Fatalf("running %s: %v", shorten(command), err)
	}
	return &result{Result: res, t: s.t, command: command}
}

// want runs a command that has to print exactly out and exit with 0.
func (s *session) want(command, out string, opts ...runOption) *result {
	s.t.Helper()
	return s.run(command, opts...).out(out).code(0)
}

// pending is a call that was started and not yet waited for.
type pending struct {
	s       *session
	command string
	cancel  context.CancelFunc
	done    chan struct{}
	res     *elsewhere.Result
	err     error
	started time.Time
	ended   time.Time // when Run returned
}

// start runs a command and does not wait for it. The case's end interrupts it.
func (s *session) start(command string, opts ...runOption) *pending {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	p := &pending{s: s, command: s.fill(command), cancel: cancel, done: make(chan struct{}), started: time.Now()}
	go func() {
		defer close(p.done)
		p.res, p.err = s.tryCtx(ctx, p.command, opts...)
		p.ended = time.Now()
	}()
	s.t.Cleanup(func() { cancel(); <-p.done })
	return p
}

// wait waits for the call's end.
func (p *pending) wait() *result {
	p.s.t.Helper()
	<-p.done
	if p.err != nil {
		p.s.t.Fatalf("running %s: %v", shorten(p.command), p.err)
	}
	return &result{Result: p.res, t: p.s.t, command: p.command}
}

// running fails the case if the call has ended already.
func (p *pending) running() {
	p.s.t.Helper()
	select {
	case <-p.done:
		p.s.t.Fatalf("%s has ended too early: %v, %+v", shorten(p.command), p.err, p.res)
	default:
	}
}

// interrupt cancels the call's context and waits for its end, which has to come within the promise.
func (p *pending) interrupt() *result {
	p.s.t.Helper()
	begin := time.Now()
	p.cancel()
	r := p.wait()
	p.within(begin, endPromise)
	return r
}

// within fails the case if Run returned later than the promise and the allowance after begin.
func (p *pending) within(begin time.Time, promise time.Duration) {
	p.s.t.Helper()
	<-p.done
	if d := p.ended.Sub(begin); d > promise+allowance {
		p.s.t.Errorf("took %v; promised are %v", d.Round(time.Millisecond), promise)
	}
}

// within fails the case if more than the promise and the allowance have passed since begin.
func within(t *test, begin time.Time, promise time.Duration) {
	t.Helper()
	if d := time.Since(begin); d > promise+allowance {
		t.Errorf("took %v; promised are %v", d.Round(time.Millisecond), promise)
	}
}

// result is a Result with expectations. A failed one is an error of the case and lets it go on.
type result struct {
	*elsewhere.Result
	t       *test
	command string
}

func (r *result) fail(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf("%s\n  after %s\n  cause %s, exit code %d, state saved %v, cwd %q, notices %q\n  output %s", fmt.Sprintf(format, args...),
		shorten(r.command), r.Cause, r.ExitCode, r.StateSaved, r.Cwd, r.Notices, shorten(string(r.Output)+string(r.Stdout)+string(r.Stderr)))
}

// out expects exactly this output (stdout where the streams are apart).
func (r *result) out(want string) *result {
	r.t.Helper()
	got := r.Output
	if r.Split {
		got = r.Stdout
	}
	if string(got) != want {
		r.fail("output is %s\n  want      %s", shorten(string(got)), shorten(want))
	}
	return r
}

// err expects exactly this on stderr, the streams being apart.
func (r *result) err(want string) *result {
	r.t.Helper()
	if string(r.Stderr) != want {
		r.fail("stderr is %s\n  want      %s", shorten(string(r.Stderr)), shorten(want))
	}
	return r
}

// has expects texts in the output, wherever it is; hasNot the opposite.
func (r *result) has(texts ...string) *result {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(r.text(), text) {
			r.fail("output does not hold %q", text)
		}
	}
	return r
}

func (r *result) hasNot(texts ...string) *result {
	r.t.Helper()
	for _, text := range texts {
		if strings.Contains(r.text(), text) {
			r.fail("output holds %q", text)
		}
	}
	return r
}

func (r *result) text() string { return string(r.Output) + string(r.Stdout) + string(r.Stderr) }

// code expects an exit code of the command's own.
func (r *result) code(want int) *result {
	r.t.Helper()
	return r.ended(elsewhere.Exited, want)
}

// ended expects a cause and exit code.
func (r *result) ended(cause elsewhere.Cause, code int) *result {
	r.t.Helper()
	if r.Cause != cause || r.ExitCode != code {
		r.fail("ended by %s with %d, want %s with %d", r.Cause, r.ExitCode, cause, code)
	}
	return r
}

// saved expects that the state was saved, or not.
func (r *result) saved(want bool) *result {
	r.t.Helper()
	if r.StateSaved != want {
		r.fail("state saved is %v, want %v", r.StateSaved, want)
	}
	return r
}

// cwd expects the directory after the call.
func (r *result) cwd(want string) *result {
	r.t.Helper()
	if r.Cwd != want {
		r.fail("cwd is %q, want %q", r.Cwd, want)
	}
	return r
}

// notice expects a notice that holds all words, any case; noNotice that none does.
func (r *result) notice(words ...string) *result {
	r.t.Helper()
	if !hasNotice(r.Notices, words...) {
		r.fail("no notice speaks of %q", words)
	}
	return r
}

func (r *result) noNotice(words ...string) *result {
	r.t.Helper()
	if hasNotice(r.Notices, words...) {
		r.fail("a notice speaks of %q", words)
	}
	return r
}

func hasNotice(notices []string, words ...string) bool {
	return slices.ContainsFunc(notices, func(n string) bool {
		n = strings.ToLower(n)
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(n, strings.ToLower(w)) })
	})
}

// eventually waits until what holds, for at most the promise and the allowance.
func (t *test) eventually(what string, promise time.Duration, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(promise + allowance)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("still not so after %v: %s", promise+allowance, what)
		}
		time.Sleep(30 * time.Millisecond) // between two looks; the event is what is waited for
	}
}

// await waits until a path exists in the place.
func (s *session) await(path string) {
	s.t.Helper()
	path = s.fill(path)
	s.t.eventually(path+" exists", hang/6, func() bool { return s.exists(path) })
}

func (s *session) exists(path string) bool {
	s.t.Helper()
	return s.observe("[ -e "+quote(s.fill(path))+" ] && echo yes") == "yes\n"
}

// read gives a file's content.
func (s *session) read(path string) string {
	s.t.Helper()
	return s.observe("cat " + quote(s.fill(path)))
}

// write puts a file into the place.
func (s *session) write(path, text string) {
	s.t.Helper()
	s.b.observed(text, "cat > "+quote(s.fill(path)))
}

// quote makes s one shell word.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// shorten quotes a text and leaves out the middle of a long one.
func shorten(s string) string {
	const most = 300
	if len(s) > most {
		return fmt.Sprintf("%q ... %q (%d bytes)", s[:most/2], s[len(s)-most/2:], len(s))
	}
	return strconv.Quote(s)
}

// allBytes is every byte in order, NUL first.
func allBytes() []byte {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return all
}

// bashBytes writes bytes as a word of bash's $'...' form.
func bashBytes(b []byte) string {
	var out strings.Builder
	out.WriteString("$'")
	for _, c := range b {
		fmt.Fprintf(&out, `\%03o`, c)
	}
	return out.String() + "'"
}

// firstDifference says where two byte strings part.
func firstDifference(got, want []byte) string {
	n := min(len(got), len(want))
	i := 0
	for i < n && got[i] == want[i] {
		i++
	}
	cut := func(b []byte) string { return fmt.Sprintf("%q", b[min(i, len(b)):min(i+40, len(b))]) }
	return fmt.Sprintf("%d bytes, want %d; they part at %d: %s, want %s", len(got), len(want), i, cut(got), cut(want))
}

// sameBytes fails the case where got is not want.
func (t *test) sameBytes(what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s: %s", what, firstDifference(got, want))
	}
}

// syncBuffer is a writer that may be read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
func (b *syncBuffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// bookkeeping matches names of elsewhere's own that a command must not see, but for the documented variables.
var bookkeeping = regexp.MustCompile(`(?i)\bew_[a-z_]*|__?elsewhere\w*|\bELSEWHERE_\w+`)

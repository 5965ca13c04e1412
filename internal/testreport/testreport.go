// Package testreport reads a `go test -json` stream and tells a person what ran where.
//
// While the stream runs it prints one line for each package and the output of each failing test. It ends with the names of those
// that failed and a table of backend × (ran, failed, skipped, why) and a closing line, "N passed, N failed, N skipped".
//
// A test belongs to a backend if its package is backend/X or below it, or if an element of its name holds
// "backend=X", which wins. Everything else is in the row "core". Only leaves are counted: a test with subtests counts
// through them, unless it failed where none of them did. A package that fails outside its tests (build, vet, TestMain,
// os.Exit) counts as one failure, and so does a test that never ended.
//
// A skip says why: its last log line is the reason. With Options.RequireAll a skip is a failure, with one exception:
// where the stream is that of a -short run (Options.Short), skips whose reason begins with "race:" or "short:" stay
// skips, because the full run has those tests.
package testreport

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"
)

// Core is the row of the tests that belong to no backend.
const Core = "core"

// Options says how a stream is read. Nil is the zero value.
type Options struct {
	// Module is the module path; it is left out where a package is named.
	Module string
	// Backends are the rows that the table has even where the stream has no test for them, in this order.
	Backends []string
	// RequireAll makes a skip a failure.
	RequireAll bool
	// Short says that the stream is that of a `go test -short` run.
	Short bool
}

// Summary is what a stream came to.
type Summary struct {
	Rows []Row // core first, then the backends
	// Refused are the skipped tests that Options.RequireAll made failures, with their reasons.
	Refused []string
	// Failures has every failure of the rows, in the order in which they ended.
	Failures []Failure
}

// Failure is one test, or one package outside its tests, that failed.
type Failure struct {
	Package string // the whole import path
	Test    string // "" where the package failed outside its tests
	// Checked says that the test ended by itself, in a check of its own, and that nothing in the stream tells of a panic, a
	// time limit that ended the process or a data race.
	Checked bool
	// Beginning is the first of what it printed.
	Beginning string
}

// Pattern is what `go test -run` takes to run this test alone.
func (f *Failure) Pattern() string {
	elements := strings.Split(f.Test, "/")
	for i, e := range elements {
		elements[i] = "^" + regexp.QuoteMeta(e) + "$"
	}
	return strings.Join(elements, "/")
}

// Row is one row of the table.
type Row struct {
	Backend                 string
	Passed, Failed, Skipped int
	Why                     []Reason // the most frequent first
}

// Reason is why tests were skipped.
type Reason struct {
	Text  string
	Count int
}

// Totals adds the rows up. Refused skips are counted as failed here, and as skipped in their rows.
func (s *Summary) Totals() (passed, failed, skipped int) {
	for _, r := range s.Rows {
		passed, failed, skipped = passed+r.Passed, failed+r.Failed, skipped+r.Skipped
	}
	return passed, failed + len(s.Refused), skipped - len(s.Refused)
}

// OK tells whether at least one test ran and none failed.
func (s *Summary) OK() bool {
	passed, failed, _ := s.Totals()
	return passed > 0 && failed == 0
}

// Read reads the stream to its end, reports on w, and returns the summary. The summary is never nil. The error says
// that the stream was no whole `go test -json` stream (it counts as a failure in the row "core" too), or that w
// could not be written to.
func Read(r io.Reader, w io.Writer, opts *Options) (*Summary, error) {
	if opts == nil {
		opts = &Options{}
	}
	out := bufio.NewWriter(w)
	rd := &reader{opts: opts, out: out, packages: map[string]*pkg{}, builds: map[string]*output{}, rows: map[string]*row{}}
	rd.row(Core)
	for _, b := range opts.Backends {
		rd.row(b)
	}
	err := rd.readAll(bufio.NewReader(r))
	if err != nil {
		rd.row(Core).failed++
		rd.printf("\nnot a whole stream of test events: %v\n", err)
	}
	sum := rd.summary()
	rd.recall(sum)
	rd.table(sum)
	return sum, errors.Join(err, out.Flush())
}

// event is one line of the stream: a test event (go doc test2json) or a build event (go help buildjson).
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	Elapsed     float64
	ImportPath  string
	FailedBuild string
}

type reader struct {
	opts     *Options
	out      *bufio.Writer
	packages map[string]*pkg    // those that started and did not end
	builds   map[string]*output // by import path; printed when the build fails
	rows     map[string]*row
	order    []string
	refused  []string
	failures []Failure
	grave    bool // something was printed that no failed check prints
}

var graver = regexp.MustCompile(`(?m)^\s*(panic: |fatal error: |WARNING: DATA RACE|testing\.go:\d+: race detected)`)

type row struct {
	passed, failed, skipped int
	why                     map[string]int
}

type pkg struct {
	output                  output // what belongs to no test
	tests                   map[string]*test
	order                   []string
	passed, failed, skipped int
}

type test struct {
	output      output
	ended       bool
	parent      bool // has subtests
	childFailed bool
}

func (rd *reader) printf(format string, args ...any) { fmt.Fprintf(rd.out, format, args...) }

func (rd *reader) row(name string) *row {
	r := rd.rows[name]
	if r == nil {
		r = &row{why: map[string]int{}}
		rd.rows[name] = r
		rd.order = append(rd.order, name)
	}
	return r
}

func (rd *reader) readAll(r *bufio.Reader) error {
	var first error
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if err != nil && err != io.EOF {
			return err
		}
		if text := bytes.TrimSpace(line); len(text) > 0 {
			var e event
			switch jsonErr := json.Unmarshal(text, &e); {
			case jsonErr != nil && first == nil:
				// Read on: the rest may still say what failed, and a closed pipe would hide it.
				first = fmt.Errorf("line %d: %w: %.200q", n, jsonErr, text)
			case jsonErr == nil && e.Action == "" && first == nil:
				first = fmt.Errorf("line %d: no action: %.200q", n, text)
			case jsonErr == nil:
				rd.event(&e)
			}
		}
		if err == io.EOF {
			break
		}
	}
	var open []string
	for path := range rd.packages {
		open = append(open, path)
	}
	sort.Strings(open)
	for _, path := range open {
		rd.endPackage(&event{Action: "fail", Package: path})
	}
	if first == nil && len(open) > 0 {
		first = fmt.Errorf("it ends before %s", strings.Join(open, ", "))
	}
	return first
}

func (rd *reader) event(e *event) {
	rd.grave = rd.grave || graver.MatchString(e.Output)
	switch {
	case e.ImportPath != "":
		rd.build(e)
	case e.Package == "":
		// Nothing that we know of; a later Go may add such events.
	case e.Test == "":
		rd.packageEvent(e)
	default:
		rd.testEvent(e)
	}
	if e.Action == "pass" || e.Action == "fail" || e.Action == "skip" {
		_ = rd.out.Flush() // an error stays in out and is returned at the end
	}
}

func (rd *reader) build(e *event) {
	o := rd.builds[e.ImportPath]
	if o == nil {
		o = &output{}
		rd.builds[e.ImportPath] = o
	}
	switch e.Action {
	case "build-output":
		o.add(e.Output)
	case "build-fail":
		rd.printf("\nFAIL: build of %s\n%s\n", rd.short(e.ImportPath), o)
	}
}

func (rd *reader) pkg(path string) *pkg {
	p := rd.packages[path]
	if p == nil {
		p = &pkg{tests: map[string]*test{}}
		rd.packages[path] = p
	}
	return p
}

func (rd *reader) packageEvent(e *event) {
	p := rd.pkg(e.Package)
	switch e.Action {
	case "output":
		p.output.add(e.Output)
	case "pass", "fail", "skip":
		rd.endPackage(e)
	}
}

// endPackage counts what the package left open and prints its line.
func (rd *reader) endPackage(e *event) {
	p := rd.pkg(e.Package)
	delete(rd.packages, e.Package)
	// Children come after their parents, so from the end each parent knows what became of its children.
	for _, name := range slices.Backward(p.order) {
		if t := p.tests[name]; !t.ended {
			rd.endTest(p, &event{Action: "unfinished", Package: e.Package, Test: name})
		}
	}
	if e.Action == "fail" && p.failed == 0 {
		p.failed++
		rd.row(backendOf(e.Package, "")).failed++
		rd.failures = append(rd.failures, Failure{Package: e.Package, Beginning: p.output.beginning()})
		if e.FailedBuild == "" { // the build's own output was printed when it failed
			rd.printf("\nFAIL: package %s, outside its tests\n%s\n", rd.short(e.Package), &p.output)
		}
	}
	if p.passed+p.failed+p.skipped == 0 {
		return // no tests: nothing to say
	}
	word := "ok  "
	if p.failed > 0 {
		word = "FAIL"
	}
	rd.printf("%s  %-32s %6.1fs  %s\n", word, rd.short(e.Package), e.Elapsed, counts(p.passed, p.failed, p.skipped))
}

func (rd *reader) testEvent(e *event) {
	p := rd.pkg(e.Package)
	t := p.tests[e.Test]
	if t == nil {
		t = &test{}
		p.tests[e.Test] = t
		p.order = append(p.order, e.Test)
		if parent := p.parent(e.Test); parent != nil {
			parent.parent = true
		}
	}
	switch e.Action {
	case "output":
		t.output.add(e.Output)
	case "pass", "fail", "skip", "bench":
		rd.endTest(p, e)
	}
}

// parent returns the nearest test above name, or nil. A name may hold a slash of its own.
func (p *pkg) parent(name string) *test {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if t := p.tests[name[:i]]; t != nil {
			return t
		}
	}
	return nil
}

func (rd *reader) endTest(p *pkg, e *event) {
	t := p.tests[e.Test]
	t.ended = true
	backend := rd.row(backendOf(e.Package, e.Test))
	switch e.Action {
	case "pass", "bench":
		if !t.parent {
			p.passed++
			backend.passed++
		}
	case "skip":
		p.skipped++
		backend.skipped++
		why := t.output.reason()
		backend.why[why]++
		if rd.opts.RequireAll && !(rd.opts.Short && leftToFullRun(why)) {
			rd.refused = append(rd.refused, fmt.Sprintf("%s %s: %s", rd.short(e.Package), e.Test, why))
		}
	case "fail", "unfinished":
		if parent := p.parent(e.Test); parent != nil {
			parent.childFailed = true
		}
		text := t.output.String()
		if !t.childFailed {
			p.failed++
			backend.failed++
			rd.failures = append(rd.failures, Failure{Package: e.Package, Test: e.Test, Checked: e.Action == "fail", Beginning: t.output.beginning()})
		} else if text == "" {
			return // only its subtests failed, and they were printed
		}
		end := fmt.Sprintf("(%.2fs)", e.Elapsed)
		if e.Action == "unfinished" {
			end = "(did not end)"
		}
		rd.printf("\nFAIL: %s %s %s\n%s\n", rd.short(e.Package), e.Test, end, text)
	}
	t.output = output{}
}

// leftToFullRun tells whether a skip's reason says that only the -short run leaves the test out.
func leftToFullRun(why string) bool {
	return strings.HasPrefix(why, "race:") || strings.HasPrefix(why, "short:")
}

var (
	backendPackage = regexp.MustCompile(`(?:^|/)backend/([^/]+)`)
	backendTest    = regexp.MustCompile(`\bbackend=([A-Za-z0-9-]+)`)
)

func backendOf(path, name string) string {
	if m := backendTest.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	if m := backendPackage.FindStringSubmatch(path); m != nil && m[1] != "all" {
		return m[1]
	}
	return Core
}

// short is an import path without the module's, so that lines stay short; the root package is ".".
func (rd *reader) short(path string) string {
	rest, ok := strings.CutPrefix(path, rd.opts.Module)
	switch {
	case rd.opts.Module == "" || !ok:
		return path
	case rest == "":
		return "."
	case rest[0] == '/':
		return rest[1:]
	case rest[0] == ' ': // "module [module.test]"
		return "." + rest
	}
	return path
}

func (rd *reader) summary() *Summary {
	// Rows that nobody asked for come last, by name: packages end in any order.
	asked := 1 + len(rd.opts.Backends)
	sort.Strings(rd.order[asked:])
	s := &Summary{Refused: rd.refused, Failures: rd.failures}
	for i := range s.Failures {
		s.Failures[i].Checked = s.Failures[i].Checked && !rd.grave
	}
	for _, name := range rd.order {
		r := rd.rows[name]
		line := Row{Backend: name, Passed: r.passed, Failed: r.failed, Skipped: r.skipped}
		for text, n := range r.why {
			line.Why = append(line.Why, Reason{text, n})
		}
		sort.Slice(line.Why, func(i, j int) bool {
			a, b := line.Why[i], line.Why[j]
			return a.Count > b.Count || a.Count == b.Count && a.Text < b.Text
		})
		s.Rows = append(s.Rows, line)
	}
	return s
}

// recall names the failures again, where they are many lines apart: whoever sees the end of the report alone learns what failed.
func (rd *reader) recall(s *Summary) {
	for i, f := range s.Failures {
		if i == 0 {
			rd.printf("\nWhat failed, and how it began:\n")
		}
		rd.printf("  %s %s\n%s", rd.short(f.Package), f.Test, f.Beginning)
	}
}

func (rd *reader) table(s *Summary) {
	rd.printf("\n")
	tw := tabwriter.NewWriter(rd.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "backend\tran\tfailed\tskipped\twhy\n")
	for _, r := range s.Rows {
		fmt.Fprintf(tw, "%s\t%d\t%d\t%d\t%s\n", r.Backend, r.Passed+r.Failed, r.Failed, r.Skipped, r.why())
	}
	_ = tw.Flush() // an error stays in out and is returned at the end
	if len(s.Refused) > 0 {
		rd.printf("\nEverything was required; these skips count as failures:\n")
		for _, line := range s.Refused {
			rd.printf("  %s\n", line)
		}
	}
	passed, failed, skipped := s.Totals()
	if passed+failed == 0 {
		rd.printf("\nNo test ran.\n")
	}
	rd.printf("\n%s\n", counts(passed, failed, skipped))
}

func counts(passed, failed, skipped int) string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped)
}

func (r *Row) why() string {
	if r.Passed+r.Failed+r.Skipped == 0 {
		return "no tests"
	}
	const shown = 4
	var parts []string
	for i, w := range r.Why {
		if i == shown {
			parts = append(parts, fmt.Sprintf("%d more reasons", len(r.Why)-shown))
			break
		}
		if w.Count > 1 {
			w.Text += fmt.Sprintf(" (%d)", w.Count)
		}
		parts = append(parts, w.Text)
	}
	return strings.Join(parts, "; ")
}

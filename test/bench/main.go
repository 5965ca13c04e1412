// Command bench measures what a call costs and prints it as ratios to what the machine itself needs, measured in
// between, in the same run:
//
//	go run ./test/bench                 # every backend that can be measured here
//	BENCH=local go run ./test/bench     # one alone
//	go run ./test/bench -quick -json
//
// README.md says how to read it. Settings are in a temporary HERMES_HOME, and nothing is left behind. It exits 0 also
// where an aim is missed, since a time is a fact about a machine; 1 where something could not be measured; 2 for a wrong
// argument.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// parts are what can be measured, by name, in the order in which they run.
var parts = []struct {
	name string
	run  func(context.Context, *bench) error
}{
	{"calls", measureCalls},
	{"output", measureOutput},
	{"cold", measureCold},
	{"open", measureOpen},
	{"sessions", measureSessions},
	{"sync", measureSync},
	{"cloud", func(ctx context.Context, b *bench) error { return b.rig.whole(ctx, b) }},
}

// bench is one run for one backend.
type bench struct {
	backend string
	rig     rig
	n       counts
	dir     string // temporary; everything is in it
	home    string // HERMES_HOME in it
	environ []string
	report  *report
}

// counts says how often each thing is measured.
type counts struct {
	spaced, bursts, blocks, output, cold, sessions, sync int
}

// scale multiplies the usual counts.
func scale(by float64) counts {
	n := func(usual, least int) int { return max(int(float64(usual)*by), least) }
	return counts{
		spaced: n(60, 3), bursts: n(14, 2), blocks: n(12, 2), output: n(3, 1), cold: n(20, 3), sessions: n(4, 2), sync: n(3, 1),
	}
}

func main() { os.Exit(run()) }

func run() int {
	quick := flag.Bool("quick", false, "a fifth of the iterations: for a look, not for a figure")
	asJSON := flag.Bool("json", false, "print one JSON object")
	times := flag.Float64("n", 1, "multiply the iterations by this")
	only := flag.String("only", "", "measure only these of calls,output,cold,open,sessions,sync,cloud")
	realHome := flag.Bool("real-home", false, "use your own HOME, and so your profile, in every part")
	child := flag.String("child", "", "") // for this command itself
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *child != "" {
		return runChild(ctx, *child, flag.Args())
	}
	backends, err := chosen(os.Getenv("BENCH"))
	if err == nil && (flag.NArg() > 0 || *times <= 0) {
		err = fmt.Errorf("the only arguments are flags, and -n is more than 0")
	}
	wanted := strings.FieldsFunc(*only, func(r rune) bool { return r == ',' })
	for _, name := range wanted {
		if !slices.ContainsFunc(parts, func(p struct {
			name string
			run  func(context.Context, *bench) error
		}) bool {
			return p.name == name
		}) {
			err = fmt.Errorf("-only %s: there are calls, output, cold, open, sessions, sync and cloud", name)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 2
	}
	if *quick {
		*times /= 5
	}
	r := newReport()
	code := 0
	for _, backend := range backends {
		if err := one(ctx, backend, scale(*times), wanted, *realHome, *asJSON, r); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", backend, err)
			code = 1
		}
	}
	if *asJSON {
		if err := r.json(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			code = 1
		}
	} else {
		r.close(os.Stdout)
	}
	return code
}

// chosen reads BENCH: backends separated by commas or blanks; "" is all that can be measured.
func chosen(text string) ([]string, error) {
	names := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
	if len(names) == 0 {
		return available(), nil
	}
	measurable := slices.Sorted(maps.Keys(rigs()))
	for _, name := range names {
		if !slices.Contains(measurable, name) {
			return nil, fmt.Errorf("BENCH=%s: there are figures for %s only", name, strings.Join(measurable, ", "))
		}
	}
	return names, nil
}

// available are the backends that can be measured and whose engine is here; local is always.
func available() []string {
	names := []string{"local"}
	for _, back := range all.Backends() {
		r, ok := rigs()[back.Name]
		if !ok || back.Name == "local" || back.Available == nil {
			continue
		}
		if r.whole != nil {
			// Whether somebody has an account there does not matter.
			if err := r.ready(context.Background()); err != nil {
				fmt.Fprintf(os.Stderr, "bench: %s is left out: %v\n", back.Name, err)
				continue
			}
			names = append(names, back.Name)
			continue
		}
		environ := append(os.Environ(), r.settings...)
		cfg, err := config.Load(config.Options{Backends: all.Backends(), Environ: environ, Flags: map[string]string{"backend": back.Name}})
		if err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err = back.Available(ctx, driver.OpenRequest{Config: cfg, Environ: environ, Logger: slog.New(slog.DiscardHandler)})
		if err == nil && r.ready != nil {
			err = r.ready(ctx)
		}
		cancel()
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s is left out: %v\n", back.Name, err)
			continue
		}
		names = append(names, back.Name)
	}
	return names
}

// one measures one backend. Each part is printed when it is done.
func one(ctx context.Context, backend string, n counts, wanted []string, realHome, asJSON bool, r *report) error {
	dir, err := os.MkdirTemp("", "elsewhere-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the system clears it some day
	if err := os.Setenv(dirVar, dir); err != nil {
		return err
	}
	b := &bench{backend: backend, rig: rigs()[backend], n: n, dir: dir, home: filepath.Join(dir, "hermes"), report: r}
	user := filepath.Join(dir, "user")
	if b.rig.end != nil {
		defer b.rig.end(context.WithoutCancel(ctx))
	}
	for _, d := range []string{b.home, user} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	if realHome {
		user = os.Getenv("HOME")
	}
	b.environ = append(environment(user, b.home), b.rig.settings...)
	out := io.Writer(os.Stdout)
	if asJSON {
		out = io.Discard
	}
	for _, part := range parts {
		if len(wanted) > 0 && !slices.Contains(wanted, part.name) || (part.name == "cloud") != (b.rig.whole != nil) {
			continue
		}
		from := len(r.Rows)
		if err := part.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		r.print(out, r.Rows[from:])
	}
	return nil
}

// environment is this process's without any setting of elsewhere or Hermes, in the given homes.
func environment(home, hermes string) []string {
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "HOME" || strings.HasPrefix(name, "HERMES_") || strings.HasPrefix(name, "TERMINAL_") || strings.HasPrefix(name, "ELSEWHERE_")
	})
	return append(env, "HOME="+home, "HERMES_HOME="+hermes)
}

// sandbox opens the backend's sandbox with environ, which names the homes.
func sandbox(ctx context.Context, backend string, environ []string, ahead int) (*elsewhere.Sandbox, error) {
	cfg, err := config.Load(config.Options{
		Backends: all.Backends(), Environ: environ, Dir: "/",
		// A bash that leaves because it has waited for so long would be no part of the figures.
		Flags: map[string]string{"spawn_ahead_idle": "3600"},
	})
	if err != nil {
		return nil, err
	}
	return elsewhere.OpenSandbox(ctx, cfg, &elsewhere.SandboxOptions{
		Backend: backend, Environ: environ, ThrowAway: true, SpawnAhead: &ahead,
	})
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/backend/all"
	"github.com/elsewhere-sh/elsewhere/config"
)

const (
	syncFiles    = 5000
	syncSize     = 20 << 10 // of each, in bytes
	syncChanged  = syncFiles / 100
	syncPerDir   = 100
	syncAge      = 2200 * time.Millisecond
	syncSlack    = 50.0 // ms that a sync of nothing may take above a round trip
	remoteFolder = "elsewhere-bench"
)

// measureSync sends a tree to the far side in turns with the other ways to do that.
func measureSync(ctx context.Context, b *bench) error {
	if b.rig.sync == nil {
		return nil
	}
	return b.rig.sync(ctx, b)
}

// synced is what a child that synchronised found.
type synced struct {
	Seconds float64
	Peak    float64 // bytes
	Sent    int
}

// syncTree is the child's part: one process that opens the sandbox and synchronises once.
func syncTree(ctx context.Context, backend, from, to string) (result any, err error) {
	cfg, err := config.Load(config.Options{Backends: all.Backends(), Environ: os.Environ(), Dir: "/"})
	if err != nil {
		return nil, err
	}
	ahead := 0
	sb, err := elsewhere.OpenSandbox(ctx, cfg, &elsewhere.SandboxOptions{Backend: backend, Environ: os.Environ(), SpawnAhead: &ahead})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.Close(context.WithoutCancel(ctx))) }()
	start := time.Now()
	done, err := sb.Sync(ctx, elsewhere.SyncOptions{Local: from, Remote: to})
	took := time.Since(start)
	if err != nil {
		return nil, err
	}
	if len(done.Conflicts)+len(done.Skipped) > 0 {
		return nil, fmt.Errorf("not all was synchronised: %+v %+v", done.Conflicts, done.Skipped)
	}
	return synced{took.Seconds(), float64(peakMemory()), len(done.Sent)}, nil
}

// syncWay is one way to bring a tree to the far side.
type syncWay struct {
	name string
	send func(ctx context.Context, to string) (milliseconds float64, err error)
	took [3]samples // first, unchanged, a hundredth changed
}

func (s sshServer) measureSync(ctx context.Context, b *bench) error {
	src := filepath.Join(b.dir, "tree")
	if err := makeTree(src); err != nil {
		return err
	}
	// A file that is younger than this when it is read is read once more the next time, which is no part of the figures.
	select {
	case <-time.After(syncAge):
	case <-ctx.Done():
		return ctx.Err()
	}
	defer os.RemoveAll(src) //nolint:errcheck // the run's directory goes too
	far := remoteFolder + "-" + filepath.Base(b.dir)
	defer func() {
		_ = runProgram(context.WithoutCancel(ctx), io.Discard, s.bash(true, "rm -rf "+far)...)
	}()
	var peak, turn samples
	var sent int
	ours := &syncWay{name: "elsewhere sync", send: func(ctx context.Context, to string) (float64, error) {
		var one synced
		err := b.child(ctx, &one, "sync", b.backend, src, to)
		peak, sent = append(peak, one.Peak/(1<<20)), one.Sent
		return one.Seconds * 1000, err
	}}
	tar := &syncWay{name: "tar | ssh (master) tar", send: func(ctx context.Context, to string) (float64, error) {
		return timed(ctx, "tar -C "+src+" -cf - . | "+quoteAll(s.client(true, "-l", s.user, s.host))+" 'mkdir -p "+to+" && tar -C "+to+" -xf -'")
	}}
	ways := []*syncWay{tar, ours}
	rsync := &syncWay{name: "rsync -a (master)", send: func(ctx context.Context, to string) (float64, error) {
		return timed(ctx, `rsync -a -e "`+quoteAll(s.client(true, "-l", s.user))+`" `+src+"/ "+s.host+":"+to+"/")
	}}
	if _, err := exec.LookPath("rsync"); err != nil {
		return errors.New("there is no rsync to compare with: install it here and on the far side")
	}
	ways = append(ways, rsync)
	if err := runProgram(ctx, io.Discard, s.bash(true, "mkdir "+far)...); err != nil {
		return err
	}
	for i := range b.n.sync {
		for kind := range 3 {
			if kind == 2 {
				if err := changeTree(src, i); err != nil {
					return err
				}
			}
			for j, way := range ways {
				if way == tar && kind > 0 {
					continue // it knows no change
				}
				took, err := way.send(ctx, fmt.Sprintf("%s/%d-%d", far, i, j))
				if err != nil {
					return fmt.Errorf("%s: %w", way.name, err)
				}
				if want := []int{syncFiles + syncFiles/syncPerDir, 0, syncChanged}[kind]; way == ours && sent != want {
					return fmt.Errorf("%s sent %d files and directories, not %d", way.name, sent, want)
				}
				way.took[kind] = append(way.took[kind], took)
			}
		}
		start := time.Now()
		if err := runProgram(ctx, io.Discard, s.bash(true, "true")...); err != nil {
			return err
		}
		turn = append(turn, milliseconds(time.Since(start)))
		if err := runProgram(ctx, io.Discard, s.bash(true, "rm -rf "+far+"/*")...); err != nil {
			return err
		}
	}
	for kind, what := range []string{"first", "unchanged", "1 % changed"} {
		floor := rsync.took[kind]
		if kind == 0 && tar.took[0].p(50) < floor.p(50) {
			floor = tar.took[0]
		}
		for _, way := range ways {
			if len(way.took[kind]) == 0 {
				continue
			}
			r := row{
				Backend: b.backend, Group: fmt.Sprintf("%d files, %d MB: %s", syncFiles, syncFiles*syncSize/1000/1000, what), Name: way.name, Unit: "ms",
				P50: way.took[kind].p(50), P95: way.took[kind].p(95), N: len(way.took[kind]),
				Ratio: way.took[kind].p(50) / floor.p(50), Ratio95: way.took[kind].p(95) / floor.p(95),
			}
			if r.Floor = r.Ratio == 1; way == ours {
				r.Of, r.Aim = "ratio", 1.2
				if kind == 1 {
					r.Of, r.Aim = "p50", turn.p(50)+syncSlack
				}
			}
			b.report.add(r)
		}
	}
	b.report.add(row{
		Backend: b.backend, Group: "peak memory of a process that synchronises", Name: "elsewhere sync", Unit: "MiB", P50: peak.p(50), P95: peak.p(100), N: len(peak),
	})
	return nil
}

// timed runs a line of shell and gives the milliseconds that it took.
func timed(ctx context.Context, line string) (float64, error) {
	start := time.Now()
	err := runProgram(ctx, io.Discard, "bash", "-o", "pipefail", "-c", line)
	return milliseconds(time.Since(start)), err
}

// makeTree makes files that do not compress, so that what is compared is how files are moved.
func makeTree(dir string) error {
	r := rand.NewChaCha8([32]byte{1})
	data := make([]byte, syncSize)
	for i := range syncFiles {
		_, _ = r.Read(data)
		sub := filepath.Join(dir, fmt.Sprintf("directory-%02d", i/syncPerDir))
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(sub, fmt.Sprintf("file-%04d", i)), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// changeTree gives every hundredth file another content of the same length.
func changeTree(dir string, round int) error {
	r := rand.NewChaCha8([32]byte{2, byte(round)})
	data := make([]byte, syncSize)
	for i := 0; i < syncFiles; i += syncFiles / syncChanged {
		_, _ = r.Read(data)
		name := filepath.Join(dir, fmt.Sprintf("directory-%02d", i/syncPerDir), fmt.Sprintf("file-%04d", i))
		if err := os.WriteFile(name, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

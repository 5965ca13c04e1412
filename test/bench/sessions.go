package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

// many is what a child with many sessions found. Memory is in bytes.
type many struct {
	Empty, Total     float64 // all processes, before the first session and with all of them idle
	Bashes           int     // that wait
	BashPSS, BashRSS float64 // of one of them
	Ours, Floor      samples // calls a second
}

// measureSessions opens 1, 10 and 100 sessions in one sandbox, each time in a new process.
func measureSessions(ctx context.Context, b *bench) error {
	for _, n := range b.rig.sessions {
		var m many
		if err := b.child(ctx, &m, "sessions", b.backend, strconv.Itoa(n), strconv.Itoa(b.n.sessions)); err != nil {
			return err
		}
		group := fmt.Sprintf("sessions in one sandbox: %d", n)
		const mib = 1 << 20
		memory := func(name string, bytes float64, aim float64) {
			b.report.add(row{
				Backend: b.backend, Group: group, Name: name, Unit: "MiB", P50: bytes / mib, P95: bytes / mib, N: 1, Of: "p50", Aim: aim,
			})
		}
		memory("memory of each: what it adds", (m.Total-m.Empty)/float64(n), 8)
		memory("memory of all processes, divided", m.Total/float64(n), 0)
		if m.Bashes > 0 {
			memory("  of a waiting bash (PSS)", m.BashPSS, 0)
			memory("  of a waiting bash (RSS)", m.BashRSS, 0)
		}
		b.report.add(row{
			Backend: b.backend, Group: group, Name: fmt.Sprintf("%s, %d at once", b.rig.bare, n), Floor: true, Unit: "/s",
			P50: m.Floor.p(50), P95: m.Floor.p(5), N: len(m.Floor), Ratio: 1, Ratio95: 1,
		})
		b.report.add(row{
			Backend: b.backend, Group: group, Name: "run : in every session at once", Unit: "/s",
			P50: m.Ours.p(50), P95: m.Ours.p(5), N: len(m.Ours),
			Ratio: m.Ours.p(50) / m.Floor.p(50), Ratio95: m.Ours.p(5) / m.Floor.p(5),
		})
	}
	return nil
}

// openMany is the child's part.
func openMany(ctx context.Context, backend string, n, blocks int) (result any, err error) {
	sb, err := sandbox(ctx, backend, nil, 1)
	if err != nil {
		return nil, err
	}
	defer sb.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the figures are taken
	var m many
	m.Empty, _, _ = memoryOfAll()
	sessions := make([]*elsewhere.Session, n)
	for i := range sessions {
		if sessions[i], err = sb.Session(ctx, ""); err != nil {
			return nil, err
		}
		if err := ended(sessions[i].Run(ctx, ":", nil)); err != nil {
			return nil, err
		}
	}
	if err := settle(ctx); err != nil {
		return nil, err
	}
	var bashes []processMemory
	m.Total, bashes, err = memoryOfAll()
	if err != nil {
		return nil, err
	}
	m.Bashes = len(bashes)
	for _, p := range bashes {
		m.BashPSS += p.pss / float64(len(bashes))
		m.BashRSS += p.rss / float64(len(bashes))
	}
	bare := rigs()[backend].run
	floor := func(ctx context.Context, _ int) error { return bare(ctx, sb, io.Discard, "true") }
	ours := func(ctx context.Context, i int) error { return ended(sessions[i].Run(ctx, ":", nil)) }
	for range blocks {
		for _, side := range []struct {
			into *samples
			call func(context.Context, int) error
		}{{&m.Floor, floor}, {&m.Ours, ours}} {
			rate, err := perSecond(ctx, n, side.call)
			if err != nil {
				return nil, err
			}
			*side.into = append(*side.into, rate)
		}
	}
	return m, nil
}

// settle waits until no child is started, ends or works any more: a bash that still boots is not idle.
func settle(ctx context.Context) error {
	type seen struct {
		children int
		used     float64
	}
	deadline := time.Now().Add(30 * time.Second)
	var last seen
	for quiet := 0; quiet < 4; {
		if time.Now().After(deadline) {
			return fmt.Errorf("the waiting bashes did not come to rest")
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
		pids := childrenOf()
		if now := (seen{len(pids), processorTime(pids)}); now != last {
			last, quiet = now, 0
		} else {
			quiet++
		}
	}
	return nil
}

// perSecond counts how many calls n callers finish in half a second.
func perSecond(ctx context.Context, n int, call func(context.Context, int) error) (float64, error) {
	const span = 500 * time.Millisecond
	var calls atomic.Int64
	var failed sync.Map
	var all sync.WaitGroup
	start := time.Now()
	for i := range n {
		all.Go(func() {
			for time.Since(start) < span {
				if err := call(ctx, i); err != nil {
					failed.Store(i, err)
					return
				}
				calls.Add(1)
			}
		})
	}
	all.Wait()
	took := time.Since(start)
	var texts []string
	failed.Range(func(_, err any) bool {
		texts = append(texts, err.(error).Error())
		return true
	})
	if len(texts) > 0 {
		return 0, fmt.Errorf("%s", strings.Join(texts, "\n"))
	}
	return float64(calls.Load()) / took.Seconds(), nil
}

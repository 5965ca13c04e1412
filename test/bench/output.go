package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere"
)

const gib = 1 << 30

// counter is where the output goes.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}

// streamed is what a child that streamed found.
type streamed struct {
	Seconds float64
	Peak    float64 // bytes
}

// measureOutput streams 1 GiB through elsewhere and through a bare pipe in turns, each time in a new process, whose peak
// memory is then of that alone.
func measureOutput(ctx context.Context, b *bench) error {
	for _, command := range []string{"head -c 1G /dev/zero", "yes | head -c 1G"} {
		names := []string{"bare", "ours"}
		speed, peak := map[string]samples{}, map[string]samples{}
		for range b.n.output {
			for _, how := range names {
				var s streamed
				if err := b.child(ctx, &s, "stream", how, b.backend, command); err != nil {
					return err
				}
				speed[how] = append(speed[how], gib/s.Seconds/(1<<20))
				peak[how] = append(peak[how], s.Peak/(1<<20))
			}
		}
		group := "1 GiB of output to a counting writer: " + command
		b.report.add(row{
			Backend: b.backend, Group: group, Name: "the same by " + strings.TrimSuffix(b.rig.bare, " bash -c true"), Floor: true, Unit: "MiB/s",
			P50: speed["bare"].p(50), P95: speed["bare"].p(5), N: len(speed["bare"]), Ratio: 1, Ratio95: 1,
		})
		b.report.add(row{
			Backend: b.backend, Group: group, Name: "run", Unit: "MiB/s",
			P50: speed["ours"].p(50), P95: speed["ours"].p(5), N: len(speed["ours"]),
			Ratio: speed["ours"].p(50) / speed["bare"].p(50), Ratio95: speed["ours"].p(5) / speed["bare"].p(5),
			Of: "ratio", Aim: 0.5, AtLeast: true,
		})
		b.report.add(row{
			Backend: b.backend, Group: group, Name: "peak memory of the process", Unit: "MiB",
			P50: peak["ours"].p(50), P95: peak["ours"].p(95), N: len(peak["ours"]),
			Ratio: peak["ours"].p(50) / peak["bare"].p(50), Ratio95: peak["ours"].p(95) / peak["bare"].p(95),
			Of: "p95", Aim: 64,
		})
	}
	return nil
}

// stream is the child's part: how is ours or bare.
func stream(ctx context.Context, how, backend, command string) (any, error) {
	var out counter
	var took time.Duration
	switch how {
	case "bare":
		var sb *elsewhere.Sandbox
		if backend != "local" { // its peak would be that of a sandbox
			var err error
			if sb, err = sandbox(ctx, backend, nil, 0); err != nil {
				return nil, err
			}
			defer sb.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the figures are taken
		}
		start := time.Now()
		if err := rigs()[backend].run(ctx, sb, &out, command); err != nil {
			return nil, err
		}
		took = time.Since(start)
	default:
		sb, err := sandbox(ctx, backend, nil, 1)
		if err != nil {
			return nil, err
		}
		defer sb.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the figures are taken
		s, err := sb.Session(ctx, "")
		if err != nil {
			return nil, err
		}
		if err := ended(s.Run(ctx, ":", nil)); err != nil {
			return nil, err
		}
		start := time.Now()
		if err := ended(s.Run(ctx, command, &elsewhere.RunOptions{Stdout: &out})); err != nil {
			return nil, err
		}
		took = time.Since(start)
	}
	if out.n != gib {
		return nil, fmt.Errorf("%d bytes came, not 1 GiB", out.n)
	}
	return streamed{Seconds: took.Seconds(), Peak: float64(peakMemory())}, nil
}

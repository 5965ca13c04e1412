package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// samples are what was measured, one for each turn.
type samples []float64

// p is a percentile by nearest rank; NaN of nothing.
func (s samples) p(percent float64) float64 {
	if len(s) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(s))
	rank := int(math.Ceil(percent / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// row is one line of the table. P95 is the bad end: the 95th percentile of a time, the 5th of a rate. Ratio is to the
// floor of its group.
type row struct {
	Backend string  `json:"backend"`
	Group   string  `json:"group"`
	Name    string  `json:"name"`
	Floor   bool    `json:"floor,omitempty"`
	Unit    string  `json:"unit"`
	P50     float64 `json:"p50"`
	P95     float64 `json:"p95"`
	N       int     `json:"n"`
	Ratio   float64 `json:"ratio,omitempty"`
	Ratio95 float64 `json:"ratio_p95,omitempty"`
	Of      string  `json:"aim_of,omitempty"` // what Aim is about: ratio, p50 or p95
	Aim     float64 `json:"aim,omitempty"`    // 0 is none
	AtLeast bool    `json:"at_least,omitempty"`
	Met     *bool   `json:"met,omitempty"`
}

// report is all rows, and what they were measured on.
type report struct {
	Machine string    `json:"machine"`
	Started time.Time `json:"started"`
	Load    string    `json:"load"` // before
	Rows    []row     `json:"rows"`
}

func newReport() *report {
	return &report{
		Machine: fmt.Sprintf("%s/%s, %d processors, %s, %s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), bashVersion()),
		Started: time.Now().UTC(), Load: load(),
	}
}

func bashVersion() string {
	out, err := exec.Command("bash", "-c", "echo bash $BASH_VERSION").Output()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}

func load() string {
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(raw))[:3], " ")
}

func (r *report) add(one row) {
	if one.Aim != 0 {
		got := map[string]float64{"ratio": one.Ratio, "p50": one.P50, "p95": one.P95}[one.Of]
		met := got <= one.Aim
		if one.AtLeast {
			met = got >= one.Aim
		}
		one.Met = &met
	}
	r.Rows = append(r.Rows, one)
}

func (r *report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// print prints rows, a heading before each group.
func (r *report) print(w io.Writer, rows []row) {
	if len(rows) == len(r.Rows) {
		fmt.Fprintf(w, "%s; load %s\n", r.Machine, r.Load)
	}
	group := ""
	for _, one := range rows {
		if one.Group != group {
			group = one.Group
			fmt.Fprintf(w, "\n%s: %s\n%-36s %9s %9s  %-6s %7s %7s  %s\n", one.Backend, group, "", "p50", "p95", "", "x p50", "x p95", "aim")
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-36s %9s %9s  %-6s %7s %7s  %s", one.Name, number(one.P50), number(one.P95), one.Unit,
			ratio(one.Ratio), ratio(one.Ratio95), one.aim()), " "))
	}
}

func (one row) aim() string {
	if one.Met == nil {
		if one.Floor {
			return "the floor"
		}
		return ""
	}
	sign, unit, verdict := "at most", "", "met"
	if one.AtLeast {
		sign = "at least"
	}
	if one.Of != "ratio" {
		unit = " " + one.Unit
	}
	if !*one.Met {
		verdict = "MISSED"
	}
	return fmt.Sprintf("%s %g%s: %s", sign, one.Aim, unit, verdict)
}

func number(n float64) string {
	if math.Abs(n) >= 100 {
		return fmt.Sprintf("%.0f", n)
	}
	return fmt.Sprintf("%.2f", n)
}

func ratio(n float64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", n)
}

// close prints the sum.
func (r *report) close(w io.Writer) {
	aims, met := 0, 0
	for _, one := range r.Rows {
		if one.Met != nil {
			aims++
			if *one.Met {
				met++
			}
		}
	}
	fmt.Fprintf(w, "\n%d of %d aims met; load %s before, %s after; %.0f s\n", met, aims, r.Load, load(), time.Since(r.Started).Seconds())
}

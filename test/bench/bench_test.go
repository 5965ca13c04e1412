package main

import (
	"math"
	"testing"
)

func TestAPercentileIsOneOfTheSamples(t *testing.T) {
	s := samples{5, 1, 4, 2, 3}
	for percent, want := range map[float64]float64{0: 1, 5: 1, 50: 3, 95: 5, 100: 5} {
		if got := s.p(percent); got != want {
			t.Errorf("p%g is %g, want %g", percent, got, want)
		}
	}
	if s[0] != 5 {
		t.Error("the samples were sorted in place")
	}
	if !math.IsNaN(samples(nil).p(50)) {
		t.Error("nothing has a median")
	}
}

func TestAnAimIsMetOrMissed(t *testing.T) {
	for _, tc := range []struct {
		name string
		row  row
		want string
	}{
		{"a ratio at its limit is met", row{Ratio: 0.35, Of: "ratio", Aim: 0.35}, "at most 0.35: met"},
		{"a ratio above it is missed", row{Ratio: 0.36, Of: "ratio", Aim: 0.35}, "at most 0.35: MISSED"},
		{"a rate has to reach it", row{Ratio: 0.4, Of: "ratio", Aim: 0.5, AtLeast: true}, "at least 0.5: MISSED"},
		{"a size is compared with its bad end", row{P50: 60, P95: 70, Unit: "MiB", Of: "p95", Aim: 64}, "at most 64 MiB: MISSED"},
		{"what could not be measured is missed", row{Ratio: math.NaN(), Of: "ratio", Aim: 1}, "at most 1: MISSED"},
		{"without an aim nothing is said", row{P50: 1}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r report
			r.add(tc.row)
			if got := r.Rows[0].aim(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestOnlyBackendsWithAFloorAreChosen(t *testing.T) {
	if got, err := chosen(""); err != nil || len(got) == 0 || got[0] != "local" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := chosen("local,nowhere"); err == nil {
		t.Error("an unknown backend was taken")
	}
}

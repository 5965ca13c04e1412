package main

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere/backend/all"
)

// TestHelpHasExamples: what a command is for is seen from a line that can be typed.
func TestHelpHasExamples(t *testing.T) {
	a := &app{out: os.Stdout, err: os.Stderr, level: new(slog.LevelVar), log: slog.New(slog.NewTextHandler(io.Discard, nil)), backends: all.Backends()}
	a.status = newStatusLine(os.Stderr)
	seen := 0
	var look func(*cobra.Command)
	look = func(cmd *cobra.Command) {
		if cmd.Name() != "help" && cmd.Name() != "man" {
			seen++
			if cmd.Short == "" || cmd.Example == "" {
				t.Errorf("%s has no short text or no example", cmd.CommandPath())
			}
		}
		if cmd.Name() == "completion" {
			return // cobra's own, with examples in their long texts
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(a.root())
	if seen < 30 {
		t.Errorf("%d commands were seen", seen)
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// child runs a part of this command in a process of its own and reads its answer.
func (b *bench) child(ctx context.Context, answer any, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"-child"}, args...)...)
	cmd.Env = b.environ
	// An interrupt reaches the child by itself, which then closes what it opened.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w\n%s", args, err, errs.Bytes())
	}
	return json.Unmarshal(out.Bytes(), answer)
}

// runChild is what the process that child starts does.
func runChild(ctx context.Context, what string, args []string) int {
	answer, err := func() (any, error) {
		switch {
		case what == "stream" && len(args) == 3:
			return stream(ctx, args[0], args[1], args[2])
		case what == "once" && len(args) == 1:
			return nil, once(ctx, args[0])
		case what == "sync" && len(args) == 3:
			return syncTree(ctx, args[0], args[1], args[2])
		case what == "sessions" && len(args) == 3:
			n, _ := strconv.Atoi(args[1])
			blocks, _ := strconv.Atoi(args[2])
			return openMany(ctx, args[0], n, blocks)
		}
		return nil, fmt.Errorf("no such child: %s %q", what, args)
	}()
	if err == nil && answer != nil {
		err = json.NewEncoder(os.Stdout).Encode(answer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		return 1
	}
	return 0
}

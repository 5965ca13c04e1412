//go:build unix

// Command recording runs the commands of session.txt with the real program on a terminal, and draws what was to be seen there as
// docs/recording.svg, which the README shows. It needs Docker and an image with bash.
//
//	go run ./test/recording [-image NAME] [-o FILE]
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
)

// columns is the width of the terminal.
const columns = 100

// stepWait bounds one command of the session.
const stepWait = 2 * time.Minute

//go:embed session.txt
var session string

func main() {
	image := flag.String("image", "elsewhere-test/debian", "the image in which commands run")
	out := flag.String("o", "docs/recording.svg", "the picture")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := record(ctx, *image, *out); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		stop()
		os.Exit(1)
	}
}

func record(ctx context.Context, image, out string) (err error) {
	dir, err := os.MkdirTemp("", "recording-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := newStage(ctx, dir, image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.clear()) }()
	shots, err := s.play(ctx, parseSession(session))
	if err != nil {
		return err
	}
	return os.WriteFile(out, draw(shots, columns), 0o644)
}

// line is one line of the session: a remark, a command, or an empty one between scenes.
type line struct {
	remark, command string
}

func parseSession(text string) []line {
	var lines []line
	for row := range strings.Lines(text) {
		row = strings.TrimSuffix(row, "\n")
		var l line
		if command, ok := strings.CutPrefix(row, "$ "); ok {
			l.command = command
		} else {
			l.remark = row
		}
		lines = append(lines, l)
	}
	return lines
}

// asRootNotice is what local says to root alone: the picture is the same whoever makes it.
var asRootNotice = regexp.MustCompile(`(?m)^elsewhere: notice: commands run as root [^\n]*\n`)

// shot is a line of the session with what was to be seen after it.
type shot struct {
	line
	output string // as it came to the terminal
}

// stage is a home of its own with the program, and one bash that runs the whole session.
type stage struct {
	env  []string
	home string
}

// newStage builds the program below dir, which must be empty.
func newStage(ctx context.Context, dir, image string) (*stage, error) {
	bin, home := filepath.Join(dir, "bin"), filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(bin, 0o755), os.Mkdir(home, 0o700)); err != nil {
		return nil, err
	}
	build := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/elsewhere-sh/elsewhere/cmd/elsewhere")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w: %s", err, out)
	}
	env := []string{
		"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm", "LANG=C.UTF-8", "TERMINAL_DOCKER_IMAGE=" + image,
	}
	for _, name := range []string{"DOCKER_HOST", "DOCKER_CONFIG"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return &stage{env: env, home: home}, nil
}

// play runs the commands one after the other. Each is a bash of its own; variables that it sets go on to the next one.
func (s *stage) play(ctx context.Context, lines []line) ([]shot, error) {
	vars := filepath.Join(filepath.Dir(s.home), "vars")
	if err := os.WriteFile(vars, nil, 0o600); err != nil {
		return nil, err
	}
	var shots []shot
	for _, l := range lines {
		shown := shot{line: l}
		if l.command != "" {
			out, err := s.run(ctx, `. "$0"; eval "$1"; declare -p job > "$0" 2> /dev/null; exit 0`, vars, l.command)
			if err != nil {
				return nil, fmt.Errorf("%s: %w: %s", l.command, err, out)
			}
			shown.output = asRootNotice.ReplaceAllString(out, "")
		}
		shots = append(shots, shown)
	}
	return shots, nil
}

// run runs a bash on a terminal and returns what it showed.
func (s *stage) run(ctx context.Context, script string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stepWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", append([]string{"--norc", "-c", script}, args...)...)
	cmd.Env, cmd.Dir = s.env, s.home
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 30, Cols: columns})
	if err != nil {
		return "", err
	}
	defer terminal.Close()
	var text bytes.Buffer
	// The terminal's end is an error of reading (EIO), where the last process that has it leaves.
	_, _ = text.ReadFrom(terminal)
	return text.String(), cmd.Wait()
}

// clear removes the sandbox of the session, with its files.
func (s *stage) clear() error {
	ctx, cancel := context.WithTimeout(context.Background(), stepWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "elsewhere sandbox rm --force --data docker/default")
	cmd.Env, cmd.Dir = s.env, s.home
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("remove the sandbox: %w: %s", err, out)
	}
	return nil
}

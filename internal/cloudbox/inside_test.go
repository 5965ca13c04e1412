package cloudbox

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A process that was just told to end and takes a moment does not keep a sandbox running; one that stays does.
func TestWhatIsAboutToEndDoesNotCount(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("looks into /proc")
	}
	// Other tests' calls run on this machine: what this one looks for has another name.
	const mark = "ELSEWHERE_TEST_OF_TIDY="
	i := &Inside{Run: func(ctx context.Context, _ time.Duration, script string, args ...string) (string, int, error) {
		script = strings.NewReplacer("ELSEWHERE_CALL=", mark, "-t 0.3 ", "-t 3 ").Replace(script) // this machine may be busy
		out, err := exec.CommandContext(ctx, "bash", append([]string{"--noprofile", "--norc", "-p", "-c", script, "script"}, args...)...).Output()
		return string(out), 0, err
	}, Log: slog.New(slog.DiscardHandler)}
	if i.Tidy(t.Context(), t.TempDir()) {
		t.Error("nothing counts")
	}
	sleep := exec.Command("sleep", "1000")
	sleep.Env = append(os.Environ(), mark+"x")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	if !i.Tidy(t.Context(), t.TempDir()) {
		t.Error("what stays does not count")
	}
	go func() {
		time.Sleep(time.Second)
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	}()
	if i.Tidy(t.Context(), t.TempDir()) {
		t.Error("what ends in a moment counts")
	}
}

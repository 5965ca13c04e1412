//go:build linux

package modal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// emulator starts one for a test, and a client of the vendor's with its own ways of being told where to go.
func emulator(t *testing.T) (*Emulator, *sdk.Client) {
	t.Helper()
	e, err := New(Options{Dir: t.TempDir()})
	if err != nil {
		if os.Getenv("REQUIRE_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("MODAL_SERVER_URL", e.URL())
	t.Setenv("MODAL_CONFIG_PATH", filepath.Join(t.TempDir(), "none.toml"))
	t.Setenv("MODAL_LOGLEVEL", "ERROR")
	client, err := sdk.NewClientWithOptions(&sdk.ClientParams{TokenID: DefaultToken.ID, TokenSecret: DefaultToken.Secret})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return e, client
}

// must is the value of a call that has to go well.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// box is a sandbox as the vendor's tests make one.
func sandbox(t *testing.T, client *sdk.Client, image *sdk.Image, params *sdk.SandboxCreateParams) *sdk.Sandbox {
	t.Helper()
	app, err := client.Apps.FromName(t.Context(), "app", &sdk.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	if image == nil {
		image = client.Images.FromRegistry("alpine:3.21", nil)
	}
	sb, err := client.Sandboxes.Create(t.Context(), app, image, params)
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// run runs a command to its end.
func run(t *testing.T, sb *sdk.Sandbox, params *sdk.SandboxExecParams, stdin string, args ...string) (out, errs string, code int) {
	t.Helper()
	p, err := sb.Exec(t.Context(), args, params)
	if err != nil {
		t.Fatal(err)
	}
	if stdin != "" {
		if _, err := io.WriteString(p.Stdin, stdin); err != nil {
			t.Fatal(err)
		}
	}
	_ = p.Stdin.Close()
	o, err := io.ReadAll(p.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	x, err := io.ReadAll(p.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	code, err = p.Wait(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(o), string(x), code
}

func TestVendorSDKCommands(t *testing.T) {
	e, client := emulator(t)
	sb := sandbox(t, client, nil, &sdk.SandboxCreateParams{Env: map[string]string{"MADE": "with"}, Workdir: "/usr"})
	t.Run("streams, stdin, exit code", func(t *testing.T) {
		out, errs, code := run(t, sb, nil, "in\x00\xff", "bash", "-c", "cat; echo err >&2; exit 3")
		if out != "in\x00\xff" || errs != "err\n" || code != 3 {
			t.Errorf("%q %q %d", out, errs, code)
		}
	})
	t.Run("environment and directory", func(t *testing.T) {
		out, _, _ := run(t, sb, nil, "", "bash", "-c", "echo $MADE $HOME; pwd")
		if out != "with /root\n/usr\n" {
			t.Errorf("%q", out)
		}
		secret := must(client.Secrets.FromMap(t.Context(), map[string]string{"S": "secret"}, nil))
		out, _, _ = run(t, sb, &sdk.SandboxExecParams{Workdir: "/tmp", Env: map[string]string{"V": "a b\n"}, Secrets: []*sdk.Secret{secret}}, "", "bash", "-c", `printf '%s' "$V$S"; pwd`)
		if out != "a b\nsecret/tmp\n" {
			t.Errorf("%q", out)
		}
	})
	t.Run("a missing program", func(t *testing.T) {
		if _, _, code := run(t, sb, nil, "", "no-such-program"); code != 127 {
			t.Errorf("%d", code)
		}
	})
	t.Run("output while it runs, and input while it prints", func(t *testing.T) {
		p := must(sb.Exec(t.Context(), []string{"bash", "-c", `while read -r x; do echo "got $x"; done; echo end`}, nil))
		for _, word := range []string{"a\n", "b\n"} {
			_ = must(io.WriteString(p.Stdin, word))
			got := make([]byte, 6)
			if _, err := io.ReadFull(p.Stdout, got); err != nil || string(got) != "got "+word {
				t.Fatalf("%q, %v", got, err)
			}
		}
		_ = p.Stdin.Close()
		if rest := must(io.ReadAll(p.Stdout)); string(rest) != "end\n" {
			t.Errorf("%q", rest)
		}
		if code := must(p.Wait(t.Context(), nil)); code != 0 {
			t.Errorf("%d", code)
		}
		if _, err := p.Stdin.Write([]byte("late")); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("a write after the end: %v", err)
		}
	})
	t.Run("a signal is 128 and its number", func(t *testing.T) {
		if _, _, code := run(t, sb, nil, "", "bash", "-c", "kill -9 $$"); code != 137 {
			t.Errorf("%d", code)
		}
	})
	t.Run("a command is ended by a second one", func(t *testing.T) {
		p := must(sb.Exec(t.Context(), []string{"bash", "-c", "echo $$; exec sleep 1000"}, nil))
		pid := make([]byte, 16)
		n := must(p.Stdout.Read(pid))
		if _, errs, code := run(t, sb, nil, "", "kill", "-INT", strings.TrimSpace(string(pid[:n]))); code != 0 {
			t.Fatal(errs)
		}
		if code := must(p.Wait(t.Context(), nil)); code != 130 {
			t.Errorf("%d", code)
		}
	})
	t.Run("a timeout ends it by KILL", func(t *testing.T) {
		p := must(sb.Exec(t.Context(), []string{"sleep", "1000"}, &sdk.SandboxExecParams{Timeout: time.Second}))
		code, err := p.Wait(t.Context(), nil)
		if _, late := errors.AsType[sdk.ExecTimeoutError](err); code != 137 && !late {
			t.Errorf("%d, %v", code, err)
		}
	})
	t.Run("a wait that is given up ends nothing", func(t *testing.T) {
		p := must(sb.Exec(t.Context(), []string{"bash", "-c", "read -r x; exit 5"}, nil))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := p.Wait(ctx, nil); err == nil {
			t.Error("the wait came to an end")
		}
		_ = must(io.WriteString(p.Stdin, "x\n"))
		if code := must(p.Wait(t.Context(), nil)); code != 5 {
			t.Errorf("%d", code)
		}
	})
	t.Run("a terminal of 24 lines and 80 columns", func(t *testing.T) {
		p := must(sb.Exec(t.Context(), []string{"bash", "-c", "stty size; echo $TERM; echo err >&2; test -t 0 && echo tty"}, &sdk.SandboxExecParams{PTY: true}))
		out := must(io.ReadAll(p.Stdout))
		if string(out) != "24 80\r\nxterm-256color\r\nerr\r\ntty\r\n" {
			t.Errorf("%q", out)
		}
	})
	t.Run("too many arguments are refused before anything is sent", func(t *testing.T) {
		before := e.Counts()["TaskExecStart"]
		_, err := sb.Exec(t.Context(), []string{"echo", strings.Repeat("x", 65537)}, nil)
		if _, ok := errors.AsType[sdk.InvalidError](err); !ok || e.Counts()["TaskExecStart"] != before {
			t.Errorf("%v", err)
		}
	})
	t.Run("5 MB each way", func(t *testing.T) {
		text := strings.Repeat("0123456789abcde\n", 5<<16)
		if out, _, _ := run(t, sb, nil, text, "cat"); out != text {
			t.Errorf("%d of %d bytes", len(out), len(text))
		}
	})
	t.Run("a child that holds the output does not keep the stream open", func(t *testing.T) {
		if out, _, code := run(t, sb, nil, "", "bash", "-c", "sleep 1000 & echo started"); out != "started\n" || code != 0 {
			t.Errorf("%q %d", out, code)
		}
	})
}

func TestVendorSDKFiles(t *testing.T) {
	_, client := emulator(t)
	ctx := t.Context()
	files := sandbox(t, client, nil, nil).Filesystem
	data := bytes.Repeat([]byte{0, 255, '\n', 7}, 1<<18)
	if err := files.WriteBytes(ctx, data, "/work/sub/file", nil); err != nil {
		t.Fatal(err)
	}
	if got, err := files.ReadBytes(ctx, "/work/sub/file", nil); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	list, err := files.ListFiles(ctx, "/work", nil)
	if err != nil || len(list) != 1 || list[0].Name != "sub" || list[0].Type != sdk.FileTypeDirectory {
		t.Errorf("%+v, %v", list, err)
	}
	if st, err := files.Stat(ctx, "/work/sub/file", nil); err != nil || st.Size != int64(len(data)) {
		t.Errorf("%+v, %v", st, err)
	}
	if err := files.Remove(ctx, "/work", &sdk.SandboxFilesystemRemoveParams{Recursive: true}); err != nil {
		t.Error(err)
	}
	if _, err := files.ReadBytes(ctx, "/work/sub/file", nil); !as[sdk.SandboxFilesystemNotFoundError](err) {
		t.Errorf("a file that is gone: %v", err)
	}
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func TestVendorSDKLifeCycle(t *testing.T) {
	e, client := emulator(t)
	ctx := t.Context()
	app := must(client.Apps.FromName(ctx, "app", &sdk.AppFromNameParams{CreateIfMissing: true}))
	first := sandbox(t, client, nil, &sdk.SandboxCreateParams{Name: "first", Tags: map[string]string{"a": "1", "b": "2"}})
	t.Run("names, tags, lists", func(t *testing.T) {
		if _, err := client.Sandboxes.Create(ctx, app, client.Images.FromRegistry("x", nil), &sdk.SandboxCreateParams{Name: "first"}); !as[sdk.AlreadyExistsError](err) {
			t.Errorf("a name that is taken: %v", err)
		}
		found, err := client.Sandboxes.FromName(ctx, "app", "first", nil)
		if err != nil || found.SandboxID != first.SandboxID {
			t.Fatalf("%v, %v", found, err)
		}
		if tags := must(found.GetTags(ctx, nil)); len(tags) != 2 || tags["a"] != "1" {
			t.Errorf("%v", tags)
		}
		if out, _, _ := run(t, found, nil, "", "echo", "hi"); out != "hi\n" {
			t.Errorf("%q", out)
		}
		if _, err := client.Sandboxes.FromName(ctx, "app", "other", nil); !as[sdk.NotFoundError](err) {
			t.Errorf("a name that is not there: %v", err)
		}
		var want []string
		for range 4 {
			want = append(want, sandbox(t, client, nil, &sdk.SandboxCreateParams{Tags: map[string]string{"of": "us"}}).SandboxID)
		}
		var got []string
		for sb, err := range must(client.Sandboxes.List(ctx, &sdk.SandboxListParams{AppID: app.AppID, Tags: map[string]string{"of": "us"}})) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, sb.SandboxID)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("a snapshot is a copy, and a sandbox is made from it", func(t *testing.T) {
		run(t, first, nil, "", "bash", "-c", "echo before > /root/f; rm /etc/hostname; mkdir /root/d")
		image := must(first.SnapshotFilesystem(ctx, nil))
		run(t, first, nil, "", "bash", "-c", "echo after > /root/f")
		second := sandbox(t, client, must(client.Images.FromID(ctx, image.ImageID, nil)), nil)
		if out, _, _ := run(t, second, nil, "", "bash", "-c", "cat /root/f; ls -d /root/d; [ -e /etc/hostname ] || echo gone"); out != "before\n/root/d\ngone\n" {
			t.Errorf("%q", out)
		}
		if err := client.Images.Delete(ctx, image.ImageID, nil); err != nil {
			t.Error(err)
		}
		if _, err := client.Images.FromID(ctx, image.ImageID, nil); !as[sdk.NotFoundError](err) {
			t.Errorf("an image that was deleted: %v", err)
		}
	})
	t.Run("the end", func(t *testing.T) {
		if code := must(first.Poll(ctx, nil)); code != nil {
			t.Errorf("it has ended with %d", *code)
		}
		p := must(first.Exec(ctx, []string{"sleep", "1000"}, nil))
		if code := must(first.Terminate(ctx, &sdk.SandboxTerminateParams{Wait: true})); code != 137 {
			t.Errorf("terminated: %d", code)
		}
		_ = must(first.Terminate(ctx, nil))
		if _, err := p.Wait(ctx, nil); err == nil {
			t.Log("the command's end was told") // nothing is promised
		}
		if _, err := first.Exec(ctx, []string{"true"}, nil); err == nil {
			t.Error("a command was started in a sandbox that has ended")
		}
		if _, err := client.Sandboxes.FromName(ctx, "app", "first", nil); !as[sdk.NotFoundError](err) {
			t.Errorf("found by name: %v", err)
		}
		own := sandbox(t, client, nil, &sdk.SandboxCreateParams{Command: []string{"bash", "-c", "cat; exit 7"}})
		_ = must(io.WriteString(own.Stdin, "typed"))
		_ = own.Stdin.Close()
		if code := must(own.Wait(ctx, nil)); code != 7 {
			t.Errorf("its own command: %d", code)
		}
		short := sandbox(t, client, nil, &sdk.SandboxCreateParams{Timeout: time.Second})
		if code := must(short.Wait(ctx, nil)); code != 124 {
			t.Errorf("a lifetime that is over: %d", code)
		}
	})
	t.Run("a GPU takes the older way", func(t *testing.T) {
		sb := sandbox(t, client, nil, &sdk.SandboxCreateParams{GPU: "T4", Name: "gpu", Env: map[string]string{"G": "1"}})
		if out, _, code := run(t, sb, nil, "", "bash", "-c", "echo $G; exit 4"); out != "1\n" || code != 4 {
			t.Errorf("%q %d", out, code)
		}
		if found := must(client.Sandboxes.FromName(ctx, "app", "gpu", nil)); found.SandboxID != sb.SandboxID {
			t.Error("another one has its name")
		}
		if counts := e.Counts(); counts["SandboxCreate"] != 1 || counts["TaskGetCommandRouterAccess"] == 0 {
			t.Errorf("%v", counts)
		}
	})
	t.Run("an image that cannot be built", func(t *testing.T) {
		_, err := client.Sandboxes.Create(ctx, app, client.Images.FromRegistry(FailingTag, nil), nil)
		if !as[sdk.RemoteError](err) || !strings.Contains(err.Error(), "manifest unknown") {
			t.Errorf("%v", err)
		}
	})
}

func TestVendorSDKFaults(t *testing.T) {
	e, client := emulator(t)
	ctx := t.Context()
	sb := sandbox(t, client, nil, nil)
	t.Run("an answer that was lost starts nothing twice", func(t *testing.T) {
		e.Inject(Fault{Method: "TaskExecStart", Code: codes.Unavailable, After: true}, Fault{Method: "TaskExecStdinWrite", Code: codes.Internal, After: true, Times: 2})
		run(t, sb, nil, "x", "bash", "-c", "cat >> /root/ran")
		if out, _, _ := run(t, sb, nil, "", "cat", "/root/ran"); out != "x" {
			t.Errorf("%q", out)
		}
	})
	t.Run("a stream that was cut goes on where it was", func(t *testing.T) {
		e.Inject(Fault{Method: "TaskExecStdioRead", Bytes: 100000, Code: codes.Unavailable, Times: 2})
		text := strings.Repeat("0123456789abcde\n", 1<<16)
		if out, _, _ := run(t, sb, nil, text, "cat"); out != text {
			t.Errorf("%d of %d bytes, or others", len(out), len(text))
		}
		e.Heal()
	})
	t.Run("connections that were cut", func(t *testing.T) {
		p := must(sb.Exec(ctx, []string{"bash", "-c", "echo a; read -r x; echo $x; exit 6"}, nil))
		one := make([]byte, 2)
		_ = must(io.ReadFull(p.Stdout, one))
		e.CutConnections()
		_ = must(io.WriteString(p.Stdin, "b\n"))
		if rest := must(io.ReadAll(p.Stdout)); string(rest) != "b\n" {
			t.Errorf("%q", rest)
		}
		if code := must(p.Wait(ctx, nil)); code != 6 {
			t.Errorf("%d", code)
		}
	})
	t.Run("too many requests, with the time to wait", func(t *testing.T) {
		after := 200 * time.Millisecond
		e.Inject(Fault{Method: "SandboxCreateV2", Code: codes.ResourceExhausted, RetryAfter: &after, Times: 2})
		begin := time.Now()
		sandbox(t, client, nil, nil)
		if waited := time.Since(begin); waited < 2*after {
			t.Errorf("it waited %v", waited)
		}
	})
	t.Run("a quota that is full", func(t *testing.T) {
		e.SetQuota(1)
		app := must(client.Apps.FromName(ctx, "app", nil))
		if _, err := client.Sandboxes.Create(ctx, app, client.Images.FromRegistry("x", nil), nil); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("%v", err)
		}
		e.SetQuota(0)
	})
	t.Run("wrong credentials", func(t *testing.T) {
		other := must(sdk.NewClientWithOptions(&sdk.ClientParams{TokenID: "ak-other", TokenSecret: "as-other"}))
		defer other.Close()
		if _, err := other.Apps.FromName(ctx, "app", nil); err == nil || !strings.Contains(err.Error(), "Unauthenticated") {
			t.Errorf("%v", err)
		}
	})
	t.Run("latency", func(t *testing.T) {
		e.SetLatency(100 * time.Millisecond)
		defer e.SetLatency(0)
		begin := time.Now()
		_ = must(sb.Poll(ctx, nil))
		if took := time.Since(begin); took < 100*time.Millisecond {
			t.Errorf("a round trip took %v", took)
		}
	})
}

func TestAnIdleSandboxEnds(t *testing.T) {
	e, client := emulator(t)
	sb := sandbox(t, client, nil, &sdk.SandboxCreateParams{IdleTimeout: time.Second})
	p := must(sb.Exec(t.Context(), []string{"bash", "-c", "sleep 1.5; echo still"}, nil))
	if out := must(io.ReadAll(p.Stdout)); string(out) != "still\n" {
		t.Errorf("%q: it ended while a command ran", out)
	}
	_ = must(sb.Wait(t.Context(), nil))
	if all := e.Sandboxes(); len(all) != 1 || all[0].Status != pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT {
		t.Errorf("%+v", all)
	}
}

func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	e, err := New(Options{Dir: dir})
	if err != nil {
		t.Skip(err)
	}
	b, err := e.create(t.Context(), true, "ap-x", pb.Sandbox_builder{ImageId: must(e.MakeImage(map[string]string{"/root/x": "y"})), TimeoutSecs: 100}.Build(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if o, err := e.Observe(t.Context(), b.id, []byte("in"), "bash", "-c", "cat /root/x -; sleep 1000 >/dev/null 2>&1 & exit 2"); err != nil || (string(o.Stdout) != "yin" || o.Code != 2) {
		t.Errorf("%q %d", o.Stdout, o.Code)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	mounts := must(os.ReadFile("/proc/self/mountinfo"))
	if strings.Contains(string(mounts), dir) {
		t.Error("a file system is still mounted")
	}
	if left := must(os.ReadDir(dir)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

package resultjson_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// The golden objects are the promise: a change of one is a change of the schema.
func TestObjectsAreExactlyAsDocumented(t *testing.T) {
	done := func() *elsewhere.Result {
		return &elsewhere.Result{
			CallID: "0123", Backend: "local", Task: "default", Session: "dev",
			Where:  elsewhere.Where{Host: "box", SandboxID: "local", User: "ada"},
			Output: []byte("<a> & b\n"), ExitCode: 1, Cause: elsewhere.Exited, ExitMeaning: "no match",
			Cwd: "/tmp", StateSaved: true, Duration: 1500 * time.Microsecond, OutputBytes: 8,
		}
	}
	lost := &elsewhere.Error{Kind: driver.KindLost, Op: "run", Backend: "docker", Hint: "run it again", Err: errors.New("gone")}
	for _, c := range []struct {
		name   string
		result *elsewhere.Result
		err    error
		target resultjson.Target
		want   string
	}{
		{
			name: "a merged call", result: done(),
			want: `{"schema":1,"call_id":"0123","backend":"local","task":"default","session":"dev","where":{"host":"box","sandbox_id":"local","user":"ada"},` +
				`"output":"<a> & b\n","exit_code":1,"cause":"exited","signal":null,"exit_meaning":"no match","cwd":"/tmp","cwd_b64":null,"state_saved":true,` +
				`"survivors":[],"duration_ms":1,"truncated":false,"output_bytes":8,"output_file":null,"recreated":null,"notices":[],"error":null}`,
		},
		{
			name: "a split call in a throw-away session, with everything set",
			result: &elsewhere.Result{
				CallID: "4567", Backend: "docker", Task: "t", Where: elsewhere.Where{Host: "h", SandboxID: "s", User: "root"},
				Split: true, Stdout: []byte("o\xff\xfeo"), Stderr: []byte("e"), ExitCode: 137, Cause: elsewhere.Signaled, Signal: "KILL",
				Cwd: "/t\xff", Survivors: []elsewhere.Survivor{{PID: 7, Command: "sleep"}}, Duration: 2 * time.Second, Truncated: true,
				OutputBytes: 5, OutputFile: "/h/output/1", Recreated: "the container was gone", Notices: []string{"n"},
			},
			want: `{"schema":1,"call_id":"4567","backend":"docker","task":"t","session":null,"where":{"host":"h","sandbox_id":"s","user":"root"},` +
				`"stdout":"o` + "\ufffd\ufffd" + `o","stdout_b64":"b//+bw==","stderr":"e","exit_code":137,"cause":"signal","signal":"KILL","exit_meaning":null,` +
				`"cwd":"/t` + "\ufffd" + `","cwd_b64":"L3T/","state_saved":false,"survivors":[{"pid":7,"command":"sleep"}],"duration_ms":2000,"truncated":true,` +
				`"output_bytes":5,"output_file":"/h/output/1","recreated":"the container was gone","notices":["n"],"error":null}`,
		},
		{
			name: "a failure before anything ran", err: errors.New("no engine"), target: resultjson.Target{Backend: "docker", Task: "default"},
			want: `{"schema":1,"call_id":null,"backend":"docker","task":"default","session":null,"where":null,"output":"","exit_code":null,"cause":null,` +
				`"signal":null,"exit_meaning":null,"cwd":null,"cwd_b64":null,"state_saved":false,"survivors":[],"duration_ms":0,"truncated":false,` +
				`"output_bytes":0,"output_file":null,"recreated":null,"notices":[],"error":{"kind":"unavailable","message":"no engine","hint":null}}`,
		},
		{
			name: "a split failure", err: lost, target: resultjson.Target{Session: "dev", Split: true},
			want: `{"schema":1,"call_id":null,"backend":null,"task":null,"session":"dev","where":null,"stdout":"","stderr":"","exit_code":null,"cause":null,` +
				`"signal":null,"exit_meaning":null,"cwd":null,"cwd_b64":null,"state_saved":false,"survivors":[],"duration_ms":0,"truncated":false,` +
				`"output_bytes":0,"output_file":null,"recreated":null,"notices":[],"error":{"kind":"lost","message":"run on docker: gone","hint":"run it again"}}`,
		},
		{
			name: "a lost call keeps its output and has no exit code",
			result: &elsewhere.Result{
				CallID: "89", Backend: "docker", Task: "t", Output: []byte("early"), ExitCode: -1, Cause: elsewhere.Lost, OutputBytes: 5,
			},
			err: lost,
			want: `{"schema":1,"call_id":"89","backend":"docker","task":"t","session":null,"where":null,"output":"early","exit_code":null,"cause":"lost",` +
				`"signal":null,"exit_meaning":null,"cwd":null,"cwd_b64":null,"state_saved":false,"survivors":[],"duration_ms":0,"truncated":false,` +
				`"output_bytes":5,"output_file":null,"recreated":null,"notices":[],"error":{"kind":"lost","message":"run on docker: gone","hint":"run it again"}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got bytes.Buffer
			if err := resultjson.New(c.result, c.err, c.target).Encode(&got); err != nil {
				t.Fatal(err)
			}
			if got.String() != c.want+"\n" {
				t.Errorf("got  %swant %s", got.String(), c.want)
			}
			if n := bytes.Count(got.Bytes(), []byte("\n")); n != 1 {
				t.Errorf("%d lines, want 1", n)
			}
		})
	}
}

func TestEveryByteOfOutputCanBeRecovered(t *testing.T) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	var buf bytes.Buffer
	if err := resultjson.New(&elsewhere.Result{Output: all}, nil, resultjson.Target{}).Encode(&buf); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Output string
		B64    string `json:"output_b64"`
	}
	if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if b, err := base64.StdEncoding.DecodeString(got.B64); err != nil || !bytes.Equal(b, all) {
		t.Errorf("output_b64 gives %q (%v)", b, err)
	}
	if got.Output[:128] != string(all[:128]) {
		t.Errorf("the ASCII half came out as %q", got.Output[:128])
	}
}

func TestKindsOfErrors(t *testing.T) {
	own := &elsewhere.Error{Kind: driver.KindDenied, Op: "run", Err: errors.New("no")}
	for _, c := range []struct {
		err  error
		want driver.Kind
	}{
		{own, driver.KindDenied},
		{fmt.Errorf("outer: %w", own), driver.KindDenied},
		{fmt.Errorf("outer: %w", context.Canceled), driver.KindCanceled},
		{context.DeadlineExceeded, driver.KindTimeout},
		{errors.New("anything"), driver.KindUnavailable},
	} {
		if got := resultjson.NewError(c.err).Kind; got != c.want {
			t.Errorf("%v: %s, want %s", c.err, got, c.want)
		}
	}
	if resultjson.NewError(nil) != nil {
		t.Error("no error has a JSON form")
	}
}

// Package resultjson is the JSON form of a call's result: what `elsewhere run --json` prints and what MCP hands on.
//
// The form is a promise to programs. Schema names its version; within one version fields are only added. Every field
// of Object is always there, except that output stands for a merged call and stdout and stderr for a split one, and
// that the *_b64 forms of output appear only where the bytes are not UTF-8. What is unknown or does not apply is null;
// lists are never null. docs/cli.md is the same text for people.
package resultjson

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// Schema is the version of the form.
const Schema = 1

// Object is one result.
type Object struct {
	Schema  int              `json:"schema"`
	CallID  *string          `json:"call_id"` // null when nothing was sent
	Backend *string          `json:"backend"`
	Task    *string          `json:"task"`
	Session *string          `json:"session"` // null for a throw-away session
	Where   *elsewhere.Where `json:"where"`   // null when no sandbox was opened

	// Output holds both streams in true order, or Stdout and Stderr hold them apart. Text, in which each byte that is
	// not UTF-8 is U+FFFD; then the *B64 field beside it has the bytes.
	Output    *string `json:"output,omitempty"`
	OutputB64 *string `json:"output_b64,omitempty"`
	Stdout    *string `json:"stdout,omitempty"`
	StdoutB64 *string `json:"stdout_b64,omitempty"`
	Stderr    *string `json:"stderr,omitempty"`
	StderrB64 *string `json:"stderr_b64,omitempty"`

	ExitCode    *int             `json:"exit_code"` // null when unknown
	Cause       *elsewhere.Cause `json:"cause"`     // null when nothing was sent
	Signal      *string          `json:"signal"`
	ExitMeaning *string          `json:"exit_meaning"`

	Cwd    *string `json:"cwd"`
	CwdB64 *string `json:"cwd_b64"` // only where the directory's name is not UTF-8

	StateSaved bool                 `json:"state_saved"`
	Survivors  []elsewhere.Survivor `json:"survivors"`
	DurationMS int64                `json:"duration_ms"`

	Truncated   bool    `json:"truncated"`
	OutputBytes int64   `json:"output_bytes"`
	OutputFile  *string `json:"output_file"`

	Recreated *string  `json:"recreated"`
	Notices   []string `json:"notices"`

	Error *Error `json:"error"`
}

// Error is a failure of elsewhere's own, never of a command.
type Error struct {
	Kind    driver.Kind `json:"kind"`
	Message string      `json:"message"`
	Hint    *string     `json:"hint"`
}

// Target says where a call was meant to run, for a failure that came before there was a result.
type Target struct {
	Backend string
	Task    string
	Session string
	Split   bool
}

// New gives the object of a result, of a failure, or of both: a call that was lost has a result with what is known and
// an error. r may be nil where err is not; then the object says only where the call was meant to run.
func New(r *elsewhere.Result, err error, target Target) Object {
	o := Object{Schema: Schema, Survivors: []elsewhere.Survivor{}, Notices: []string{}, Error: NewError(err)}
	if r == nil {
		o.Backend, o.Task, o.Session = known(target.Backend), known(target.Task), known(target.Session)
		o.streams(target.Split, nil, nil, nil)
		return o
	}
	o.CallID, o.Backend, o.Task, o.Session = known(r.CallID), known(r.Backend), known(r.Task), known(r.Session)
	if r.Where != (elsewhere.Where{}) {
		where := r.Where
		o.Where = &where
	}
	o.streams(r.Split, r.Output, r.Stdout, r.Stderr)
	if err == nil && r.ExitCode >= 0 {
		code := r.ExitCode
		o.ExitCode = &code
	}
	cause := r.Cause
	o.Cause = &cause
	o.Signal, o.ExitMeaning = known(r.Signal), known(r.ExitMeaning)
	if r.Cwd != "" {
		o.Cwd, o.CwdB64 = text([]byte(r.Cwd))
	}
	o.StateSaved = r.StateSaved
	if len(r.Survivors) > 0 {
		o.Survivors = r.Survivors
	}
	o.DurationMS = r.Duration.Milliseconds()
	o.Truncated, o.OutputBytes, o.OutputFile = r.Truncated, r.OutputBytes, known(r.OutputFile)
	o.Recreated = known(r.Recreated)
	if len(r.Notices) > 0 {
		o.Notices = r.Notices
	}
	return o
}

func (o *Object) streams(split bool, output, stdout, stderr []byte) {
	if split {
		o.Stdout, o.StdoutB64 = text(stdout)
		o.Stderr, o.StderrB64 = text(stderr)
		return
	}
	o.Output, o.OutputB64 = text(output)
}

// Encode writes the object as one line.
func (o Object) Encode(w io.Writer) error { return Encode(w, o) }

// Encode writes v as one line of JSON in which <, > and & stand for themselves.
func Encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// NewError gives the JSON form of a failure; nil for nil.
func NewError(err error) *Error {
	if err == nil {
		return nil
	}
	e := &Error{Kind: driver.KindUnavailable, Message: err.Error()}
	hint := ""
	var own *elsewhere.Error
	var setting *config.Error
	switch {
	case errors.As(err, &own):
		e.Kind, hint = own.Kind, own.Hint
	case errors.Is(err, context.Canceled):
		e.Kind = driver.KindCanceled
	case errors.Is(err, context.DeadlineExceeded):
		e.Kind = driver.KindTimeout
	}
	if errors.As(err, &setting) {
		if own == nil {
			e.Kind = setting.Kind
		}
		if rest, ends := strings.CutSuffix(e.Message, "; "+setting.Hint); ends && hint == "" {
			e.Message, hint = rest, setting.Hint
		}
	}
	e.Hint = known(hint)
	return e
}

func known(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// text gives bytes as text and, where they are not UTF-8, in base64 too.
func text(b []byte) (plain, b64 *string) {
	s := string(b)
	if utf8.ValidString(s) {
		return &s, nil
	}
	enc := base64.StdEncoding.EncodeToString(b)
	var valid strings.Builder
	for _, r := range s { // an invalid byte is one U+FFFD
		valid.WriteRune(r)
	}
	s = valid.String()
	return &s, &enc
}

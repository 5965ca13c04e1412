package elsewhere

import (
	"context"
	"errors"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// Error is a failure of elsewhere's own work: never that of a command. It says what failed (Op), where (Backend,
// Target) and what to do next (Hint). errors.Is(err, ErrUnavailable) and its siblings test the kind; errors.As and
// Unwrap reach the underlying error.
type Error struct {
	Kind    driver.Kind // never empty
	Op      string      // what was tried: "open", "run", "session"
	Backend string      // may be empty
	Target  string      // the sandbox, session, file or setting; may be empty
	Hint    string      // the user's next step; may be empty
	Err     error       // never nil
}

// shownTarget is how much of a target an error shows: a task or session can be any text.
const shownTarget = 80

// Error gives one line: what failed, where, why.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Backend != "" {
		b.WriteString(" on " + e.Backend)
	}
	if e.Target != "" {
		target := []rune(e.Target)
		if len(target) > shownTarget {
			target = append(target[:shownTarget], []rune("...")...)
		}
		b.WriteString(" (" + string(target) + ")")
	}
	b.WriteString(": " + e.Err.Error())
	return b.String()
}

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, ErrLost) and its siblings compare kinds.
func (e *Error) Is(target error) bool {
	k, ok := target.(kindError)
	return ok && driver.Kind(k) == e.Kind
}

type kindError driver.Kind

func (k kindError) Error() string { return string(k) }

// The kinds of failure, for errors.Is.
var (
	ErrUnavailable error = kindError(driver.KindUnavailable)
	ErrLost        error = kindError(driver.KindLost)
	ErrConfig      error = kindError(driver.KindConfig)
	ErrDenied      error = kindError(driver.KindDenied)
	ErrUnsupported error = kindError(driver.KindUnsupported)
	ErrTimeout     error = kindError(driver.KindTimeout)
	ErrCanceled    error = kindError(driver.KindCanceled)
)

// wrap makes err an *Error, once: one that is an *Error already is returned as it is. kind is used unless ctx tells
// that elsewhere's own work was canceled or ran out of time.
func wrap(err error, kind driver.Kind, op, backend, target, hint string) error {
	if err == nil {
		return nil
	}
	var own *Error
	if errors.As(err, &own) {
		return err
	}
	switch {
	case errors.Is(err, context.Canceled):
		kind = driver.KindCanceled
	case errors.Is(err, context.DeadlineExceeded):
		kind = driver.KindTimeout
	}
	return &Error{Kind: kind, Op: op, Backend: backend, Target: target, Hint: hint, Err: err}
}

package modal

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/modal-labs/modal-client/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

func failure(kind driver.Kind, format string, args ...any) error {
	return kinderr.New(kind, format, args...)
}

// classify trusts what was said where the error was made.
func classify(err error) driver.Kind {
	if kind := kinderr.Of(err); kind != "" {
		return kind
	}
	switch {
	case errors.Is(err, context.Canceled):
		return driver.KindCanceled
	case errors.Is(err, context.DeadlineExceeded):
		return driver.KindTimeout
	}
	return driver.KindUnavailable
}

// notFound tells whether the service says for certain that something is not there.
func notFound(err error) bool {
	if _, is := errors.AsType[sdk.NotFoundError](err); is {
		return true
	}
	return status.Code(err) == codes.NotFound
}

// explain makes an error of the SDK one that names what failed, where, and what to do. ctx is the one of the failed call.
func (a *account) explain(ctx context.Context, what string, err error) error {
	if err == nil || kinderr.Of(err) != "" {
		return err
	}
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s: Modal at %s does not answer in time; check the network and https://status.modal.com: %w", what, a.server, ctx.Err())
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
	text := plainText(err)
	if _, is := errors.AsType[sdk.InvalidError](err); is {
		return failure(driver.KindConfig, "%s: %s", what, text)
	}
	if _, is := errors.AsType[sdk.RemoteError](err); is { // an image that cannot be built
		return failure(driver.KindConfig, "%s: %s; check modal_image", what, text)
	}
	switch code := codeOf(err); code {
	case codes.Unauthenticated:
		return failure(driver.KindUnavailable, "%s: Modal does not take these credentials (%s): %s; %s", what, a.from, text, a.fix)
	case codes.PermissionDenied:
		return failure(driver.KindUnavailable, "%s: Modal refuses it: %s", what, text)
	case codes.ResourceExhausted:
		return failure(driver.KindUnavailable, "%s: Modal has no room for it now: %s; end a sandbox (elsewhere sandbox ls) or wait", what, text)
	case codes.InvalidArgument, codes.FailedPrecondition:
		return failure(driver.KindConfig, "%s: %s", what, text)
	case codes.Unimplemented:
		return failure(driver.KindUnsupported, "%s: %s", what, text)
	case codes.NotFound:
		return failure(driver.KindLost, "%s: it is gone: %s", what, text)
	default:
		return failure(driver.KindUnavailable, "%s: Modal at %s does not answer as it should: %s; check the network and https://status.modal.com", what, a.server, text)
	}
}

// codeOf finds the status also where the SDK has wrapped it in a text of its own.
func codeOf(err error) codes.Code {
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return s.GRPCStatus().Code()
	}
	return codes.Unknown
}

// plainText is what an error says, on one line and without the protocol's own words.
func plainText(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	if at := strings.LastIndex(text, " desc = "); at >= 0 {
		text = text[at+len(" desc = "):]
	}
	const most = 400
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

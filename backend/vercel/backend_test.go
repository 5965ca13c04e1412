package vercel

import (
	"errors"
	"fmt"
	"testing"

	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
)

func TestALimitIsKnownByWhatTheServiceSaysAndNotByAName(t *testing.T) {
	const path = "/v2/sandboxes/elsewhere-quota-limit_exceeded-00"
	for _, c := range []struct {
		err  error
		want bool
	}{
		{&cloudhttp.Error{Service: "Vercel", Method: "GET", Path: path, Status: 403, Code: "forbidden", Message: "Not authorized"}, false},
		{&cloudhttp.Error{Service: "Vercel", Method: "GET", Path: path, Status: 429, Code: "rate_limited", Message: "quota"}, false},
		{errors.New("dial " + path), false},
		{&cloudhttp.Error{Service: "Vercel", Method: "POST", Path: "/v2/sandboxes", Status: 403, Code: "sandbox_limit_exceeded"}, true},
		{fmt.Errorf("making it: %w", &cloudhttp.Error{Service: "Vercel", Method: "POST", Path: "/v2/sandboxes", Status: 400, Message: "Your Quota is used up"}), true},
		{&cloudhttp.Error{Service: "Vercel", Method: "POST", Path: "/v2/sandboxes", Status: 402}, true},
	} {
		if quota(c.err) != c.want {
			t.Errorf("%v: %t", c.err, !c.want)
		}
	}
}

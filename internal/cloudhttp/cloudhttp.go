// Package cloudhttp is the small HTTP client that the backends share whose providers have a JSON API: JSON in, JSON out, with
// bounded retries that never repeat what may have been done, unless the caller says that it may be.
//
// A request that the server says it has not taken (429), or that never left this machine, is tried again whatever it is. One that
// may have been done (5xx, a connection that broke, no answer in time) is tried again only if doing it twice does no harm: GET,
// HEAD, PUT and DELETE, and what has Repeat set. Retry-After is respected.
package cloudhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

const (
	// tries is how often a request is sent at most, and firstPause how long the first pause between two is; it doubles.
	tries      = 5
	firstPause = 200 * time.Millisecond
	// longestPause is the most that a server's Retry-After is waited for; one that wants more time gets its error back.
	longestPause = 30 * time.Second
	// answerWait bounds one try where the request says nothing, and silent is how many may have no answer within their time.
	answerWait = 30 * time.Second
	silent     = 2
	// mostBytes bounds an answer.
	mostBytes = 32 << 20
)

// Client sends requests to one API. It must not be copied once used.
type Client struct {
	// Base is the API's address, without a slash at its end.
	Base string
	// Header is added to each request.
	Header http.Header
	// HTTP sends; nil is http.DefaultClient.
	HTTP *http.Client
	// Service names the API in errors ("Daytona").
	Service string
	// Log is told of retries; nil discards.
	Log *slog.Logger
}

// Request is one request.
type Request struct {
	Method string
	Path   string // below Base, escaped; a whole address where it holds "://"
	Query  url.Values
	Body   any // sent as JSON; nil sends none
	Into   any // what a JSON answer is read into; a *[]byte takes it as it is, nil throws it away
	Repeat bool
	// Wait bounds each try; 0 is half a minute.
	Wait time.Duration
}

// Error is an answer that says no.
type Error struct {
	Service      string
	Method, Path string
	Status       int
	Code         string // the API's own word, where it has one
	Message      string
	// After is how long the service asks to wait before another try; 0 is nothing said.
	After time.Duration
}

func (e *Error) Error() string {
	text := e.Message
	if text == "" {
		text = http.StatusText(e.Status)
	}
	if e.After > 0 {
		text += fmt.Sprintf(" (it asks to wait %v)", e.After)
	}
	return fmt.Sprintf("%s answers %s %s with %d: %s", e.Service, e.Method, e.Path, e.Status, text)
}

// StatusOf is the HTTP status of an *Error in err, 0 where there is none.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Status
	}
	return 0
}

// Do sends a request until it has an answer, as far as it may be repeated, and reads the answer. ctx bounds all of it.
func (c *Client) Do(ctx context.Context, q Request) error {
	var body []byte
	if q.Body != nil {
		var err error
		if body, err = json.Marshal(q.Body); err != nil {
			return err
		}
	}
	repeat := q.Repeat || q.Method == http.MethodGet || q.Method == http.MethodHead || q.Method == http.MethodPut || q.Method == http.MethodDelete
	pause, unheard := firstPause, 0
	for try := 1; ; try++ {
		after, again, err := c.once(ctx, q, body)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		if again == unheardOf {
			again = unknown
			unheard++
		}
		if try == tries || unheard == silent || !(again == untaken || again == unknown && repeat) {
			return err
		}
		wait := pause/2 + rand.N(pause)
		if after > 0 {
			if after > longestPause {
				return err
			}
			wait = after
		}
		if c.Log != nil {
			c.Log.Debug("a request is sent again", "service", c.Service, "method", q.Method, "path", q.Path, "in", wait, "error", err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		pause *= 2
	}
}

// fate says what became of a request that failed.
type fate int

const (
	final     fate = iota // another try would fail too
	untaken               // it was not done
	unknown               // it may have been done
	unheardOf             // the same: there was no answer in time
)

func (c *Client) once(ctx context.Context, q Request, body []byte) (after time.Duration, again fate, err error) {
	wait := q.Wait
	if wait == 0 {
		wait = answerWait
	}
	tctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	req, err := c.New(tctx, q, body)
	if err != nil {
		return 0, final, err
	}
	res, err := c.http().Do(req)
	if err != nil {
		if _, ok := errors.AsType[*net.DNSError](err); ok {
			return 0, final, err
		}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			return 0, untaken, err
		}
		if tctx.Err() != nil && ctx.Err() == nil {
			return 0, unheardOf, fmt.Errorf("%s does not answer %s %s within %v", c.Service, q.Method, q.Path, wait)
		}
		return 0, unknown, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, mostBytes))
	switch {
	case res.StatusCode >= 300:
		e := c.read(q, res.StatusCode, text)
		after := retryAfter(res.Header.Get("Retry-After"), time.Now())
		e.After = after
		switch res.StatusCode {
		case http.StatusTooManyRequests:
			return after, untaken, e
		case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
			return after, unknown, e
		}
		return 0, final, e
	case err != nil:
		return 0, unknown, fmt.Errorf("the answer of %s to %s %s broke off: %w", c.Service, q.Method, q.Path, err)
	case q.Into == nil:
		return 0, final, nil
	}
	if raw, ok := q.Into.(*[]byte); ok {
		*raw = text
		return 0, final, nil
	}
	if err := json.Unmarshal(text, q.Into); err != nil {
		return 0, final, fmt.Errorf("the answer of %s to %s %s cannot be read: %w (%.100q)", c.Service, q.Method, q.Path, err, text)
	}
	return 0, final, nil
}

// New makes the HTTP request of q, with the client's header, for whoever sends it by other means. body is q.Body as JSON.
func (c *Client) New(ctx context.Context, q Request, body []byte) (*http.Request, error) {
	address := q.Path
	if !strings.Contains(address, "://") {
		address = c.Base + q.Path
	}
	if len(q.Query) > 0 {
		address += "?" + q.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, q.Method, address, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range c.Header {
		req.Header[name] = values
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

func (c *Client) http() *http.Client {
	if c.HTTP == nil {
		return http.DefaultClient
	}
	return c.HTTP
}

// read makes an error of an answer: {message, code} or {error: {message, code}}, else its text.
func (c *Client) read(q Request, status int, text []byte) *Error {
	e := &Error{Service: c.Service, Method: q.Method, Path: q.Path, Status: status}
	var said struct {
		Message any    `json:"message"`
		Code    string `json:"code"`
		Error   any    `json:"error"`
	}
	_ = json.Unmarshal(text, &said) // of what cannot be read the text is told
	e.Code = said.Code
	switch m := said.Message.(type) {
	case string:
		e.Message = m
	case []any:
		e.Message = strings.Trim(fmt.Sprint(m), "[]")
	}
	switch inner := said.Error.(type) {
	case string:
		if e.Message == "" {
			e.Message = inner
		}
	case map[string]any:
		if m, ok := inner["message"].(string); ok {
			e.Message = m
		}
		if m, ok := inner["code"].(string); ok {
			e.Code = m
		}
	}
	if e.Message == "" {
		e.Message = strings.Join(strings.Fields(string(text[:min(len(text), 300)])), " ")
	}
	return e
}

// retryAfter reads the header: seconds or a date; 0 where it says nothing.
func retryAfter(header string, now time.Time) time.Duration {
	if n, err := strconv.ParseFloat(header, 64); err == nil && n >= 0 && n < 1e9 {
		return time.Duration(n * float64(time.Second))
	}
	if at, err := http.ParseTime(header); err == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

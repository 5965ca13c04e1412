package cloudhttp

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// answers serves one handler after the other, and the last one for ever.
func answers(t *testing.T, handlers ...http.HandlerFunc) (*Client, *atomic.Int32) {
	t.Helper()
	var n atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := int(n.Add(1)) - 1
		handlers[min(i, len(handlers)-1)](w, r)
	}))
	t.Cleanup(srv.Close)
	return &Client{Base: srv.URL, Service: "the service"}, &n
}

func status(code int, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"message":"no (%d)","code":"C"}`, code)
	}
}

func fine(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"a":1}`) }

func cut(w http.ResponseWriter, _ *http.Request) {
	conn, _, _ := http.NewResponseController(w).Hijack()
	_ = conn.Close()
}

func TestWhatMayHaveBeenDoneIsNotRepeated(t *testing.T) {
	for _, c := range []struct {
		name   string
		first  http.HandlerFunc
		method string
		repeat bool
		sent   int32
		fails  bool
	}{
		{"a GET after a 500", status(500), "GET", false, 2, false},
		{"a GET after a cut", cut, "GET", false, 2, false},
		{"a POST after a 500", status(500), "POST", false, 1, true},
		{"a POST after a cut", cut, "POST", false, 1, true},
		{"a POST that may be repeated after a cut", cut, "POST", true, 2, false},
		{"a POST after a 429", status(429), "POST", false, 2, false},
		{"a GET after a 404", status(404), "GET", false, 1, true},
		{"a DELETE after a 503", status(503, "Retry-After", "0.01"), "DELETE", false, 2, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, sent := answers(t, c.first, fine)
			var got struct{ A int }
			err := client.Do(t.Context(), Request{Method: c.method, Path: "/x", Body: map[string]int{"b": 1}, Into: &got, Repeat: c.repeat})
			if (err != nil) != c.fails || sent.Load() != c.sent || err == nil && got.A != 1 {
				t.Errorf("sent %d times: %v, %v", sent.Load(), got, err)
			}
		})
	}
}

func TestRetryAfterIsRespected(t *testing.T) {
	var first, second time.Time
	client, _ := answers(t, func(w http.ResponseWriter, r *http.Request) {
		first = time.Now()
		status(429, "Retry-After", "1")(w, r)
	}, func(w http.ResponseWriter, r *http.Request) {
		second = time.Now()
		fine(w, r)
	})
	if err := client.Do(t.Context(), Request{Method: "POST", Path: "/x"}); err != nil || second.Sub(first) < time.Second {
		t.Errorf("after %v: %v", second.Sub(first), err)
	}
	client, sent := answers(t, status(429, "Retry-After", "3600"))
	if err := client.Do(t.Context(), Request{Method: "GET", Path: "/x"}); StatusOf(err) != 429 || sent.Load() != 1 || !strings.Contains(err.Error(), "wait 1h") {
		t.Errorf("an hour is waited for: %v", err)
	}
}

func TestTriesAndTimeAreBounded(t *testing.T) {
	client, sent := answers(t, status(503, "Retry-After", "0.001"))
	if err := client.Do(t.Context(), Request{Method: "GET", Path: "/x"}); StatusOf(err) != 503 || sent.Load() != tries || !strings.Contains(err.Error(), "no (503)") {
		t.Errorf("sent %d times: %v", sent.Load(), err)
	}
	client, sent = answers(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, fine)
	if err := client.Do(t.Context(), Request{Method: "GET", Path: "/x", Wait: 50 * time.Millisecond}); err != nil || sent.Load() != 2 {
		t.Errorf("a server that hangs: sent %d times, %v", sent.Load(), err)
	}
	client, sent = answers(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if err := client.Do(t.Context(), Request{Method: "GET", Path: "/x", Wait: 50 * time.Millisecond}); err == nil || sent.Load() != silent || !strings.Contains(err.Error(), "does not answer GET /x within") {
		t.Errorf("a server that hangs for ever: sent %d times, %v", sent.Load(), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	client, sent = answers(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if err := client.Do(ctx, Request{Method: "GET", Path: "/x"}); ctx.Err() == nil || err == nil || sent.Load() != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("sent %d times, %v", sent.Load(), err)
	}
}

//go:build unix

package mcpserver_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/elsewhere-sh/elsewhere/mcpserver"
)

const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`

// request is one that would be answered, with changes.
func request(t *testing.T, url string, change func(*http.Request)) (status int, body string, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+mcpserver.Path, strings.NewReader(initialize))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Authorization", "Bearer "+token)
	change(r)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(data), res.Header
}

func TestARequestOverHTTPIsCheckedBeforeAnythingElse(t *testing.T) {
	u := newSetup(t, nil, nil)
	handler, err := u.server.Handler(mcpserver.HTTPOptions{Token: token, Hosts: []string{"box.example"}, Origins: []string{"https://ui.example"}})
	if err != nil {
		t.Fatal(err)
	}
	web := serve(t, u, handler)
	for _, c := range []struct {
		name   string
		status int
		change func(*http.Request)
	}{
		{"as it should be", 200, func(*http.Request) {}},
		{"without a token", 401, func(r *http.Request) { r.Header.Del("Authorization") }},
		{"with another token", 401, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token+"x") }},
		{"with the token in another scheme", 401, func(r *http.Request) { r.Header.Set("Authorization", "Basic "+token) }},
		{"with the token in the address", 401, func(r *http.Request) { r.Header.Del("Authorization"); r.URL.RawQuery = "token=" + token }},
		{"by another name", 403, func(r *http.Request) { r.Host = "evil.example" }},
		{"by another name that looks alike", 403, func(r *http.Request) { r.Host = "localhost.evil.example:80" }},
		{"by the name that was allowed", 200, func(r *http.Request) { r.Host = "box.example:8080" }},
		{"by localhost", 200, func(r *http.Request) { r.Host = "localhost:1" }},
		{"from a web page", 403, func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }},
		{"from a web page on this machine", 403, func(r *http.Request) { r.Header.Set("Origin", "http://localhost:3000") }},
		{"from no page at all", 403, func(r *http.Request) { r.Header.Set("Origin", "null") }},
		{"from the page that was allowed", 200, func(r *http.Request) { r.Header.Set("Origin", "https://ui.example") }},
		{"with too much", 413, func(r *http.Request) {
			r.Body = io.NopCloser(io.LimitReader(zeros{}, 17<<20))
			r.ContentLength = -1
		}},
		{"of a session that is not there", 404, func(r *http.Request) { r.Header.Set("Mcp-Session-Id", "guessed") }},
		{"for another path", 404, func(r *http.Request) { r.URL.Path = "/other" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			if status, body, _ := request(t, web, c.change); status != c.status {
				t.Errorf("%d, want %d: %s", status, c.status, body)
			}
		})
	}
	// What a browser asks first, it asks without the token.
	status, _, header := request(t, web, func(r *http.Request) {
		r.Method = http.MethodOptions
		r.Header.Del("Authorization")
		r.Header.Set("Origin", "https://ui.example")
	})
	if status != 204 || header.Get("Access-Control-Allow-Origin") != "https://ui.example" || !strings.Contains(header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Error(status, header)
	}
	if status, body, _ := request(t, web, func(r *http.Request) {
		r.Method, r.URL.Path, r.Body = http.MethodGet, mcpserver.HealthPath, http.NoBody
		r.ContentLength = 0
		r.Header.Del("Authorization")
	}); status != 200 || body != "ok\n" {
		t.Error(status, body)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestWhatCannotBeSafeOverHTTPIsRefusedAtTheStart(t *testing.T) {
	u := newSetup(t, nil, nil)
	if _, err := u.server.Handler(mcpserver.HTTPOptions{Token: "short"}); err == nil {
		t.Error("a short token was taken")
	}
	if _, err := u.server.Handler(mcpserver.HTTPOptions{Token: token, Origins: []string{"*"}}); err == nil {
		t.Error("any origin was taken")
	}
	named := u.start(func(o *mcpserver.Options) { o.Session = "one" })
	if _, err := named.Handler(mcpserver.HTTPOptions{Token: token}); err == nil {
		t.Error("one session for all clients was taken")
	}
}

//go:build linux

// Package front is what emulated cloud services over HTTP share: a server on 127.0.0.1 with machines behind it, faults on demand, latency,
// counts of requests, and what connections to terminals suffer. What a service answers is its own package's.
package front

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// Tree is the testbed's tree of Debian, on which sandboxes start.
const Tree = "/var/cache/elsewhere-testbed/rootfs"

// Options say how a service is served.
type Options struct {
	Name string // of the service, for its directory
	Tree string // on which its machines start
	// Words are the parts of its paths that are no names: in kinds of requests what is no word is {}.
	Words string
	// Error answers a request with an error in the service's form.
	Error func(w http.ResponseWriter, r *http.Request, status int, message string)
	// Terminal tells the requests by which a terminal is connected to: SetCut leaves them alone, and cuts their streams.
	Terminal func(r *http.Request) bool
}

// Front is one emulated service on 127.0.0.1. Its methods may be called at the same time. It must be closed.
type Front struct {
	Host *machine.Host
	Addr string
	Ctx  context.Context // done at Close
	Work sync.WaitGroup  // what Close waits for

	options Options
	words   map[string]bool
	cancel  context.CancelFunc
	http    *http.Server

	mu      sync.Mutex
	faults  []*fault
	counts  map[string]int
	latency time.Duration
	slow    time.Duration
	cut     float64
	random  *rand.Rand
	streams map[Stream]struct{}
	bodies  bytes.Buffer
}

// Stream is a client's connection to a terminal.
type Stream interface{ Cut() }

// New makes a service with no routes yet.
func New(o Options) (*Front, error) {
	keepDescriptors()
	dir, err := os.MkdirTemp("", "elsewhere-"+o.Name+"-")
	if err != nil {
		return nil, err
	}
	host, err := machine.NewHost(dir, o.Tree)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	f := &Front{
		Host: host, options: o, words: map[string]bool{"": true}, counts: map[string]int{}, streams: map[Stream]struct{}{},
		random: rand.New(rand.NewPCG(1, 1)),
	}
	for _, word := range strings.Fields(o.Words) {
		f.words[word] = true
	}
	f.Ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

// Serve begins to serve these routes.
func (f *Front) Serve(routes http.Handler) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, f.Host.Close())
	}
	f.Addr = listener.Addr().String()
	f.http = &http.Server{Handler: f.before(routes)}
	go func() { _ = f.http.Serve(listener) }()
	return nil
}

// keepDescriptors keeps from sandboxes what this process has inherited beside its standard streams.
func keepDescriptors() {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// Shut ends the service: end ends what runs in its machines.
func (f *Front) Shut(end func()) error {
	f.cancel()
	err := f.http.Close()
	f.CutStreams()
	end()
	f.Work.Wait()
	return errors.Join(err, f.Host.Close())
}

// URL is the API's address.
func (f *Front) URL() string { return "http://" + f.Addr + "/api" }

// Fault is what happens to a request instead of its answer.
type Fault struct {
	Status     int    // 429, 500 ...
	Message    string // of the error
	RetryAfter string // the header, "" for none
	Hang       bool   // no answer until the client goes
	Cut        bool   // the connection is cut
	// After does what was asked before it answers with the fault: the client cannot know.
	After bool
}

type fault struct {
	Fault
	kind string
	left int
}

// Fail lets the next n requests of a kind fail. A kind is the method and the path behind /api with {} for what varies ("POST
// /sandbox/{}/start"), or its beginning.
func (f *Front) Fail(kind string, n int, what Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &fault{what, kind, n})
}

// Heal takes back the faults that have not happened.
func (f *Front) Heal() { f.mu.Lock(); f.faults = nil; f.mu.Unlock() }

// SetLatency adds to each round trip.
func (f *Front) SetLatency(d time.Duration) { f.mu.Lock(); f.latency = d; f.mu.Unlock() }

// SetSlow makes sandboxes take so much longer to start, and Slow tells how much.
func (f *Front) SetSlow(d time.Duration) { f.mu.Lock(); f.slow = d; f.mu.Unlock() }

// Slow is described at SetSlow.
func (f *Front) Slow() time.Duration { f.mu.Lock(); defer f.mu.Unlock(); return f.slow }

// SetCut cuts this part of all connections somewhere, and terminals behind this part of what is typed, chosen with a fixed seed.
func (f *Front) SetCut(part float64, seed uint64) {
	f.mu.Lock()
	f.cut, f.random = part, rand.New(rand.NewPCG(seed, seed))
	f.mu.Unlock()
}

// Requests gives how many requests came of the kinds that begin so; "cut" is how many connections SetCut has cut.
func (f *Front) Requests(kind string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for k, count := range f.counts {
		if strings.HasPrefix(k, kind) && (k != "cut" || kind == "cut") {
			n += count
		}
	}
	return n
}

// Bodies is all that came in requests so far, but for files and terminals, addresses and headers included.
func (f *Front) Bodies() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bodies.String()
}

// keep notes what a request says.
func (f *Front) keep(r *http.Request) {
	var body []byte
	if r.ContentLength > 0 && r.ContentLength < 1<<20 {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bodies.Len() < 64<<20 {
		fmt.Fprintf(&f.bodies, "%s %s %v %s\n", r.Method, r.URL, r.Header, body)
	}
}

// kindOf names a request for counting and faults.
func (f *Front) kindOf(r *http.Request) string {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/api"), "/")
	for i, part := range parts {
		if !f.words[part] {
			parts[i] = "{}"
		}
	}
	return r.Method + " " + strings.Join(parts, "/")
}

// before puts latency and faults before the routes.
func (f *Front) before(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hit, latency := f.take(r)
		f.keep(r)
		f.Pause(r.Context(), latency)
		if hit == nil {
			next.ServeHTTP(w, r)
			return
		}
		if hit.After {
			next.ServeHTTP(discard{http.Header{}}, r)
		}
		f.answer(hit, w, r)
	})
}

// take counts a request and gives what befalls it.
func (f *Front) take(r *http.Request) (hit *Fault, latency time.Duration) {
	kind := f.kindOf(r)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[kind]++
	for _, one := range f.faults {
		if one.left > 0 && strings.HasPrefix(kind, one.kind) {
			one.left--
			return &one.Fault, f.latency
		}
	}
	if f.cut > 0 && f.random.Float64() < f.cut && !f.options.Terminal(r) {
		f.counts["cut"]++
		return &Fault{Cut: true, After: f.random.IntN(2) == 1}, f.latency
	}
	return nil, f.latency
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// Pause waits, unless the client goes or the service ends.
func (f *Front) Pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	case <-f.Ctx.Done():
	}
}

func (f *Front) answer(hit *Fault, w http.ResponseWriter, r *http.Request) {
	switch {
	case hit.Hang:
		_, _ = io.Copy(io.Discard, r.Body) // so that the client's going is seen
		<-r.Context().Done()
	case hit.Cut:
		if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = conn.Close()
		}
	default:
		if hit.RetryAfter != "" {
			w.Header().Set("Retry-After", hit.RetryAfter)
		}
		message := hit.Message
		if message == "" {
			message = http.StatusText(hit.Status)
		}
		f.options.Error(w, r, hit.Status, message)
	}
}

// Answer answers with JSON; a nil body is none.
func Answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(w).Encode(body)
	}
}

// Number is a number of a request's query, otherwise where it has none.
func Number(r *http.Request, name string, otherwise int) int {
	if n, err := strconv.Atoi(r.URL.Query().Get(name)); err == nil {
		return n
	}
	return otherwise
}

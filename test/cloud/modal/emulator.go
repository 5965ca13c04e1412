//go:build linux

// Package modal is an emulator of the part of Modal that sandboxes need: its control plane and its command router, gRPC
// services that the vendor's own SDK talks to, on one port of 127.0.0.1. Sandboxes are machines (test/cloud/machine) with
// files, processes and a network of their own; a snapshot is a copy of the files.
//
// It answers as the vendor's documents, tests and SDK say. What they leave open is in test/cloud/README.md. Faults are made
// on demand (faults.go), requests are counted.
package modal

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/elsewhere-sh/elsewhere/test/cloud/machine"
)

// Options say how an emulator is made; its zero value will do.
type Options struct {
	Tree  string // what machines start on; "" is the testbed's
	Dir   string // where their files are, on a file system that overlays can write to; "" is the temp directory
	Port  int    // 0 is any
	Token Token  // what clients have to show; zero is DefaultToken
}

// Token is an account's.
type Token struct{ ID, Secret string }

// DefaultToken is the one that an emulator accepts unless it is told another.
var DefaultToken = Token{ID: "ak-emulator", Secret: "as-emulator"}

// Tree is the testbed's tree of Debian (test/testbed/cloud.sh).
const Tree = "/var/cache/elsewhere-testbed/rootfs"

// Emulator is one account at Modal, as it is told apart by nothing but its address. It must be closed. Its methods may be called
// at the same time.
type Emulator struct {
	token  Token
	server *grpc.Server
	net    *network
	port   int
	dir    string
	host   *machine.Host

	faults faults
	counts counters
	watch  watch

	mu        sync.Mutex
	apps      map[string]string // id by name
	images    map[string]*image
	secrets   map[string]map[string]string
	boxes     map[string]*box // by sandbox id
	tasks     map[string]*box // the same by task id
	quota     int             // how many may run at once; 0 is any number
	slow      time.Duration   // how long a sandbox takes to start
	snapshots map[string]string
	closing   chan struct{}
}

// image is what a sandbox can be made from.
type image struct {
	id      string
	machine machine.Image
	env     []string
	expires time.Time // zero is never
	broken  string    // why its build failed
	gone    bool
	own     bool // the machine image is its own and goes with it
}

// New starts an emulator.
func New(o Options) (*Emulator, error) {
	if o.Tree == "" {
		o.Tree = Tree
	}
	if o.Token == (Token{}) {
		o.Token = DefaultToken
	}
	dir, err := os.MkdirTemp(o.Dir, "modal-emulator-")
	if err != nil {
		return nil, err
	}
	host, err := machine.NewHost(dir, o.Tree)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", o.Port))
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	e := &Emulator{
		token: o.Token, host: host, dir: dir, port: listener.Addr().(*net.TCPAddr).Port, net: newNetwork(listener),
		apps: map[string]string{}, images: map[string]*image{}, secrets: map[string]map[string]string{},
		boxes: map[string]*box{}, tasks: map[string]*box{}, snapshots: map[string]string{}, closing: make(chan struct{}),
	}
	const message = 100 << 20
	e.server = grpc.NewServer(
		grpc.MaxRecvMsgSize(message), grpc.MaxSendMsgSize(message),
		// The SDK asks for a sign of life every 30 s, also without a call.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.InitialWindowSize(8<<20), grpc.InitialConnWindowSize(16<<20),
		grpc.ChainUnaryInterceptor(e.unary), grpc.ChainStreamInterceptor(e.stream),
	)
	pb.RegisterModalClientServer(e.server, &control{e: e})
	pb.RegisterTaskCommandRouterServer(e.server, &router{e: e})
	go func() { _ = e.server.Serve(e.net) }()
	return e, nil
}

// URL is what MODAL_SERVER_URL, or server_url in a file of credentials, has to be.
func (e *Emulator) URL() string { return fmt.Sprintf("http://127.0.0.1:%d", e.port) }

// Close ends all sandboxes and removes their files.
func (e *Emulator) Close() error {
	close(e.closing)
	e.server.Stop()
	e.mu.Lock()
	var all []*box
	for _, b := range e.boxes {
		all = append(all, b)
	}
	e.mu.Unlock()
	var errs []error
	for _, b := range all {
		errs = append(errs, b.end(pb.GenericResult_GENERIC_STATUS_TERMINATED))
	}
	errs = append(errs, e.host.Close(), os.RemoveAll(e.dir))
	return errors.Join(errs...)
}

// alphabet is that of Modal's ids.
const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

func newID(prefix string, length int) string {
	b := make([]byte, length)
	_, _ = rand.Read(b)
	for i := range b {
		b[i] = alphabet[int(b[i])%len(alphabet)]
	}
	return prefix + string(b)
}

// unary is around every call that is no stream.
func (e *Emulator) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	e.counts.add(method)
	e.watch.look(method, req)
	if e.net.cutNow(ctx) {
		return nil, status.Error(codes.Unavailable, "the connection was cut")
	}
	fault := e.faults.take(method)
	if fault != nil && !fault.After {
		if err := fault.fail(ctx, e.closing); err != nil {
			return nil, err
		}
	}
	if err := e.admit(ctx, info.FullMethod); err != nil {
		return nil, err
	}
	answer, err := handle(ctx, req)
	if fault != nil && fault.After {
		if err := fault.fail(ctx, e.closing); err != nil {
			return nil, err
		}
	}
	if e.net.cutNow(ctx) {
		return nil, status.Error(codes.Unavailable, "the connection was cut")
	}
	return answer, err
}

// stream is around every stream.
func (e *Emulator) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	method := info.FullMethod[strings.LastIndexByte(info.FullMethod, '/')+1:]
	e.counts.add(method)
	fault := e.faults.take(method)
	if fault != nil && fault.Bytes == 0 && !fault.After {
		if err := fault.fail(ss.Context(), e.closing); err != nil {
			return err
		}
	}
	if err := e.admit(ss.Context(), info.FullMethod); err != nil {
		return err
	}
	if fault != nil && fault.Bytes > 0 {
		ss = &cutStream{ServerStream: ss, left: fault.Bytes, fault: fault, closing: e.closing}
	}
	return handle(srv, &noisyStream{ServerStream: ss, net: e.net})
}

// admit looks at what a caller shows.
func (e *Emulator) admit(ctx context.Context, method string) error {
	md, _ := metadata.FromIncomingContext(ctx)
	has := func(key, value string) bool {
		got := md.Get(key)
		return len(got) > 0 && got[len(got)-1] == value // the SDK says some things twice
	}
	switch {
	case strings.HasPrefix(method, "/modal.task_command_router."):
		got := md.Get("authorization")
		if len(got) != 1 || !strings.HasPrefix(got[0], "Bearer ") {
			return status.Error(codes.Unauthenticated, "no token for the task")
		}
		if task := taskOfToken(strings.TrimPrefix(got[0], "Bearer ")); task == "" {
			return status.Error(codes.Unauthenticated, "the token is not one of ours, or has expired")
		}
		return nil
	case !has("x-modal-token-id", e.token.ID) || !has("x-modal-token-secret", e.token.Secret):
		return status.Error(codes.Unauthenticated, "Token ID is malformed or unknown")
	case !strings.HasSuffix(method, "/AuthTokenGet") && !strings.HasSuffix(method, "Streaming") && !has("x-modal-auth-token", authToken):
		return status.Error(codes.Unauthenticated, "the auth token is missing")
	}
	return nil
}

const authToken = "emulator-auth-token"

// tokenLife is how long a token for a task is good.
const tokenLife = 10 * time.Minute

// routerToken is what a client shows the command router: a JWT whose signature nobody looks at.
func routerToken(task string) string {
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	return part(map[string]string{"alg": "none"}) + "." + part(map[string]any{"sub": task, "exp": time.Now().Add(tokenLife).Unix()}) + ".x"
}

// taskOfToken is the task that a token is for, or "".
func taskOfToken(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		Sub string
		Exp int64
	}
	if err != nil || json.Unmarshal(text, &claims) != nil || claims.Exp < time.Now().Unix() {
		return ""
	}
	return claims.Sub
}

// routerURL has to be https: the SDK speaks in the clear all the same with a server on this machine.
func (e *Emulator) routerURL() string { return fmt.Sprintf("https://127.0.0.1:%d", e.port) }

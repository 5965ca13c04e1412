package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
	"github.com/elsewhere-sh/elsewhere/internal/atomicfile"
	"github.com/elsewhere-sh/elsewhere/internal/privatedir"
	"github.com/elsewhere-sh/elsewhere/mcpserver"
)

// tokenVariable holds the token of the HTTP server: an argument could be seen in ps.
const tokenVariable = "ELSEWHERE_MCP_TOKEN"

// mcpFlags are the flags of mcp.
type mcpFlags struct {
	target
	backends         []string
	session, http    string
	tokenFile, print string
	hosts, origins   []string
}

func (a *app) cmdMCP() *cobra.Command {
	var o mcpFlags
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve an agent over the Model Context Protocol",
		Long: `Serve an agent: the tools terminal, process, read_file and write_file, which work on the backends named by -b and on no others.
The client starts this command and speaks to it on standard input and output; with --http it listens instead.

Shell state belongs to a client and ends with it; --session NAME keeps it for the next start of the server. Background jobs and
files outlive the server.

Over HTTP each request needs a token: that of ELSEWHERE_MCP_TOKEN or --token-file, or else one that is made once in
HERMES_HOME/elsewhere/mcp-token. ADDR without a host is this machine alone.`,
		Example: `  claude mcp add elsewhere -- elsewhere mcp -b docker
  elsewhere mcp -b docker -b gpu1 --task agent
  elsewhere mcp -b docker --print-config cursor
  elsewhere mcp -b docker --http :8420`,
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return a.mcp(cmd, &o) },
	}
	o.flags = cmd
	f := cmd.Flags()
	f.StringArrayVarP(&o.backends, "backend", "b", nil, "a backend that clients reach, or the `NAME` of an entry of terminal.backends; may be repeated, the first is the default (default: terminal.backend)")
	f.StringVar(&o.task, "task", elsewhere.DefaultTask, "the sandbox's `NAME`")
	f.StringVarP(&o.session, "session", "s", "", "keep shell state under this `NAME`, for the next start")
	f.StringVar(&o.http, "http", "", "listen on this `ADDR` (host:port) instead of standard input and output")
	f.StringVar(&o.tokenFile, "token-file", "", "with --http: the `FILE` that holds the token")
	f.StringArrayVar(&o.hosts, "allow-host", nil, "with --http: a `NAME` by which the server may be called, besides localhost and numeric addresses")
	f.StringArrayVar(&o.origins, "allow-origin", nil, "with --http: a web page (`https://host`) whose scripts may call the server")
	f.StringVar(&o.print, "print-config", "", "print what to put into the settings of the client `NAME`: "+strings.Join(clientNames(), ", "))
	o.addSet(a, cmd)
	complete(cmd, "backend", a.completeBackends)
	complete(cmd, "session", a.completeSessions)
	complete(cmd, "print-config", cobra.FixedCompletions(clientNames(), nothingElse))
	return cmd
}

// mcp serves until the client leaves or a signal comes.
func (a *app) mcp(cmd *cobra.Command, o *mcpFlags) error {
	if err := o.checkMCP(); err != nil {
		return err
	}
	if o.print != "" {
		return a.printClient(o)
	}
	if len(o.backends) > 0 {
		o.backend = o.backends[0]
	}
	cfg, err := a.load(&o.target)
	if err != nil {
		return err
	}
	var token string
	if o.http != "" {
		if token, err = a.mcpToken(cfg, o.tokenFile); err != nil {
			return err
		}
	}
	// Before what is closed behind them.
	ctx, in, stop := a.interruptible(cmd.Context())
	defer stop()
	in.within(serverWait)
	if err := o.opens(cfg, in); err != nil {
		return err
	}
	a.startTelemetry(cmd.Context(), o.http != "")
	server, err := mcpserver.New(mcpserver.Options{
		Config: cfg, Backends: o.backends, Task: o.task, Session: o.session, Version: buildVersion(), Logger: a.log,
		TracerProvider: a.telemetry.tracers, MeterProvider: a.telemetry.meters,
	})
	if err != nil {
		return err
	}
	defer a.closing("mcp server", server.Close)
	if o.http != "" {
		err = a.serveHTTP(ctx, server, o, token)
	} else {
		err = server.Serve(ctx, io.NopCloser(a.in), nopCloser{a.out})
	}
	if sig := in.signal(); sig != 0 {
		return exitStatus(128 + int(sig))
	}
	return err
}

// opens says how long the sandboxes of the server may take to be closed.
func (o *mcpFlags) opens(cfg *config.Config, in *interruption) error {
	in.opened(closeWait(cfg))
	for _, name := range o.backends {
		view, _, err := cfg.Named(name)
		if err != nil {
			return err
		}
		in.opened(closeWait(view))
	}
	return nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// checkMCP refuses what cannot be meant.
func (o *mcpFlags) checkMCP() error {
	for _, name := range o.backends {
		if err := checkName("--backend", name); err != nil {
			return err
		}
	}
	if o.given("task") {
		if err := checkName("--task", o.task); err != nil {
			return err
		}
	}
	if o.given("session") {
		if err := checkName("--session", o.session); err != nil {
			return err
		}
	}
	for _, flag := range []string{"token-file", "allow-host", "allow-origin"} {
		if o.http == "" && o.given(flag) {
			return ownError("--"+flag, "add --http ADDR", "it is for a server over HTTP")
		}
	}
	if o.http != "" && o.session != "" {
		return ownError("mcp", "leave --session out, or use standard input and output", "with --http the session would be one for all clients, who must not see each other's")
	}
	return nil
}

// withoutOp drops what package net says before the reason.
func withoutOp(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err
	}
	return err
}

// serveHTTP listens until ctx is done.
func (a *app) serveHTTP(ctx context.Context, server *mcpserver.Server, o *mcpFlags, token string) error {
	addr, err := listenAddress(o.http)
	if err != nil {
		return err
	}
	handler, err := server.Handler(mcpserver.HTTPOptions{Token: token, Hosts: o.hosts, Origins: o.origins, Metrics: a.telemetry.metrics})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return ownError("--http", "choose another address", "cannot listen on %s: %w", addr, withoutOp(err))
	}
	notice(a.err, fmt.Sprintf("serving http://%s%s", listener.Addr(), mcpserver.Path))
	if tcp, ok := listener.Addr().(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
		notice(a.err, "other machines can connect, and the token goes over the network as it is: put a proxy with TLS before it")
	}
	web := mcpserver.HTTPServer(handler)
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(listener) }()
	select {
	case err := <-failed:
		return ownError("mcp", "see the log", "serve: %w", err)
	case <-ctx.Done():
	}
	// Streams of clients end with the server's sessions; only then there is nothing that the other end waits for.
	defer a.signals.closing()()
	err = server.Close(context.Background())
	cctx, cancel := context.WithTimeout(context.Background(), lastWait)
	defer cancel()
	if serr := web.Shutdown(cctx); serr != nil {
		serr = web.Close()
		return errors.Join(err, serr)
	}
	return err
}

// listenAddress makes an address without a host this machine's alone.
func listenAddress(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		if _, bad := net.LookupPort("tcp", text); bad != nil {
			return "", ownError("--http", "write HOST:PORT, or :PORT for this machine alone", "%q is no address", text)
		}
		host, port = "", text
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// mcpToken is the token of the HTTP server. One that nobody gave is made once and kept.
func (a *app) mcpToken(cfg *config.Config, file string) (string, error) {
	if file == "" {
		if token := os.Getenv(tokenVariable); token != "" {
			return token, nil
		}
		if cfg.Home() == "" {
			return "", ownError("mcp", "set "+tokenVariable, "there is no token, and no HERMES_HOME to keep one in")
		}
		return a.keptToken(filepath.Join(cfg.Home(), "elsewhere", "mcp-token"))
	}
	return readToken(file)
}

func readToken(file string) (string, error) {
	info, err := os.Stat(file)
	if err != nil {
		return "", ownError("mcp", "check the file's name", "read the token from %s: %w", file, unwrapPath(err))
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 && filepath.Separator == '/' {
		return "", ownError("mcp", "chmod 600 "+quoted(file), "others can read the token in %s", file)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", ownError("mcp", "check the file's rights", "read the token from %s: %w", file, unwrapPath(err))
	}
	return strings.TrimSpace(string(data)), nil
}

// keptToken reads the token that an earlier start made, or makes one.
func (a *app) keptToken(file string) (string, error) {
	token, err := readToken(file)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return token, err
	}
	root, err := privatedir.Create(filepath.Dir(file))
	if err != nil {
		return "", ownError("mcp", "set "+tokenVariable, "keep a token: %w", err)
	}
	defer root.Close()
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // it never fails
	token = hex.EncodeToString(secret)
	if err := atomicfile.Write(file, []byte(token+"\n"), 0o600); err != nil {
		return "", ownError("mcp", "set "+tokenVariable, "keep a token: %w", err)
	}
	notice(a.err, "made a token: "+file)
	return token, nil
}

// Package ssh runs commands in an account of another machine, over the system's OpenSSH client.
//
// The ssh program makes the connections, so ~/.ssh/config, agents, jump hosts, certificates and hardware keys work as a user
// knows them. A connection is a master (ControlMaster) in the background that calls and processes share: pool.go takes up those
// that are there, makes more where the server's MaxSessions asks for it, and replaces one that is dead or does not answer
// (master.go). A bash is one session channel of a master's connection. This package speaks to the master itself (mux.go,
// channel.go), in the mode in which it relays the packets of SSH's connection layer: a bash costs no local process, and how it
// ended is known exactly, by which signal or because the connection went. Where there are no masters (Windows) each bash
// has an ssh of its own (direct.go).
//
// The account is asked once for its home, its directories and what earlier processes left (remote.go). State of kept sessions
// is below ~/.local/state there, that of this process alone in a private directory that goes on Close.
package ssh

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/hostpath"
	"github.com/elsewhere-sh/elsewhere/internal/owner"
	"github.com/elsewhere-sh/elsewhere/internal/scrub"
)

// Backend returns the backend "ssh".
func Backend() driver.Backend {
	return driver.Backend{
		Name:      "ssh",
		Summary:   "In your account on another machine, over the system's OpenSSH: that machine is the boundary.",
		Settings:  Settings,
		Open:      open,
		Type:      (*sandbox)(nil),
		Available: available,
		Classify:  classify,
	}
}

// keepEnv are the variables that belong to one connection or login and must not be kept alive by a saved state.
var keepEnv = []string{"SSH_AUTH_SOCK", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "DISPLAY", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "KRB5CCNAME", "TERM"}

// probeWait bounds how long the account may take to run the first bash, beside connecting.
const probeWait = 20 * time.Second

// available asks ssh for its configuration; nobody is contacted.
func available(ctx context.Context, req driver.OpenRequest) error {
	_, err := newDestination(ctx, req)
	return err
}

func open(ctx context.Context, req driver.OpenRequest) (driver.Sandbox, error) {
	log := req.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	d, err := newDestination(ctx, req)
	if err != nil {
		return nil, err
	}
	s := &sandbox{d: d, log: log}
	if s.conns, err = newConnections(d, req, log); err != nil {
		return nil, err
	}
	if err := s.settle(ctx, req); err != nil {
		_ = s.conns.close()
		return nil, err
	}
	return s, nil
}

// connections starts bashes over whatever connects to the destination.
type connections interface {
	// start starts a bash; ctx bounds the start. With spare it is one that nobody waits for.
	start(ctx context.Context, req request, spare bool) (driver.Process, error)
	close() error
}

func newConnections(d *destination, req driver.OpenRequest, log *slog.Logger) (connections, error) {
	home := req.Identity.Home
	if req.ThrowAway {
		home = ""
	}
	dir, err := openControlDir(home, req.Environ)
	if err != nil {
		return nil, failure(driver.KindUnavailable, "%w", err)
	}
	if dir.shared {
		d.belongTo(cmp.Or(home, owner.NewID()))
	}
	if !canShare || !req.Config.Bool("ssh_multiplex") {
		return newDirect(d, dir), nil
	}
	return newPool(d, dir, log), nil
}

// settle asks the account and makes what is needed there.
func (s *sandbox) settle(ctx context.Context, req driver.OpenRequest) error {
	ctx, cancel := context.WithTimeout(ctx, s.d.connectTimeout+probeWait)
	defer cancel()
	id := req.Identity
	lease := id.Owner
	if lease == "" {
		lease = owner.NewID()
	}
	dir, notice := startDir(req.Config.String("cwd"), req)
	sum := sha256.Sum256([]byte(id.ID + "\x00" + id.Profile))
	connected := s.tellSlow(req.Progress)
	a, err := s.probe(ctx, probe{
		dir: dir, identity: hex.EncodeToString(sum[:6]), tag: owner.Tag(id.Home), owner: lease,
		keep: id.Home != "" && !req.ThrowAway,
	})
	connected()
	if err != nil {
		return err
	}
	if a.dirState != "" && hostpath.Likely(a.dir, req) {
		notice = fmt.Sprintf("terminal.cwd (%s) is a directory of this machine; sessions start in the home directory of the account", a.dir)
		a.dir, a.dirState = a.home, ""
	}
	s.info = s.makeInfo(req, a)
	if notice != "" {
		s.info.Notices = append(s.info.Notices, notice)
	}
	if a.dirState != "" {
		_ = s.removeTree(ctx, a.private)
		return failure(driver.KindConfig, "terminal.cwd names the directory %s, which cannot be entered on %s: %s; name one that exists there, or leave it out", a.dir, s.d.name(), lastPart(a.dirState))
	}
	s.dirs = []string{a.private}
	if a.state != "" {
		s.dirs = append(s.dirs, a.state)
	}
	if _, err := commandLine(nil, nil, s.dirs); err != nil {
		s.dirs = nil // a home with odd characters: what is removed is not made again
	}
	s.removeLeftovers(id, a)
	s.files, notice = newFiles(s, req, a)
	if notice != "" {
		s.info.Notices = append(s.info.Notices, notice)
	}
	return nil
}

// slowConnect is after what time connecting is worth a text.
const slowConnect = 500 * time.Millisecond

// tellSlow says that the machine is being connected to, where that takes longer. Nothing is said after done.
func (s *sandbox) tellSlow(tell func(string)) (done func()) {
	if tell == nil {
		return func() {}
	}
	over := make(chan struct{})
	var told sync.WaitGroup
	told.Go(func() {
		select {
		case <-time.After(slowConnect):
			tell("connecting to " + s.d.name())
		case <-over:
		}
	})
	return func() {
		close(over)
		told.Wait()
	}
}

// startDir is what the account is asked for as the directory of a new session. A path that can only be this machine's is
// replaced by the home directory there, with a warning.
func startDir(setting string, req driver.OpenRequest) (dir, notice string) {
	if hostpath.Only(setting) {
		return "", fmt.Sprintf("terminal.cwd (%s) is a path of this machine; sessions start in the home directory of the account", setting)
	}
	// Hermes gives its subprocesses a home below its own; there the account has one itself.
	if home := req.Identity.Home; home != "" {
		own := path.Join(home, "home")
		if setting == own || strings.HasPrefix(setting, own+"/") {
			return "~" + strings.TrimPrefix(setting, own), ""
		}
	}
	return setting, ""
}

// lastPart is a shell's reason without the names before it.
func lastPart(message string) string {
	message = oneLine(message)
	return strings.TrimSpace(message[strings.LastIndexByte(message, ':')+1:])
}

func (s *sandbox) makeInfo(req driver.OpenRequest, a *account) driver.Info {
	info := driver.Info{
		Host: a.host, SandboxID: s.d.name(), User: a.user, Home: a.home, Dir: a.dir,
		StateDir: a.state, PrivateDir: a.private, Exposure: driver.Exposure{Machine: true},
		KeepsChildren: true, Watchdog: true, KeepEnv: append([]string(nil), keepEnv...),
	}
	info.CallEnv, info.Notices = scrub.Forward(req.Environ, req.Config.Strings("env_passthrough"))
	if a.state == "" {
		info.StateDir = a.private
		if a.stateError != "" {
			info.Notices = append(info.Notices, "sessions are not kept beyond this process: no directory for them can be made on "+s.d.name()+" ("+a.stateError+")")
		}
	}
	shared := driver.Feature{Name: "connection", State: driver.Active, Detail: "shared with other calls and processes (ControlMaster)"}
	if _, direct := s.conns.(*direct); direct {
		shared.State, shared.Detail = driver.Degraded, "every bash connects anew: this client or terminal.ssh_multiplex shares none"
	}
	info.Features = []driver.Feature{
		{Name: "isolation", State: driver.Degraded, Detail: "this machine is out of reach; on " + a.host + " commands have all the rights of " + a.user},
		{Name: "limits", State: driver.Unsupported, Detail: "none but the account's own"},
		{Name: "network", State: driver.Active, Detail: "that machine's own"},
		{Name: "persistence", State: driver.Active, Detail: "files are that machine's own"},
		shared,
	}
	if a.user == "root" {
		info.Notices = append(info.Notices, "commands run as root on "+a.host+": nothing there is protected from them")
	}
	return info
}

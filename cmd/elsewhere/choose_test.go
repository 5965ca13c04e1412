//go:build unix

package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/elsewhere-sh/elsewhere/backend/all"
)

func TestOnlySocketsThatNobodyListensOnAreRemoved(t *testing.T) {
	dir, err := os.MkdirTemp("", "fix") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := func(name string, age time.Duration) (string, *net.UnixListener) {
		path := filepath.Join(dir, name)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		t.Cleanup(func() { l.Close() })
		then := time.Now().Add(-age)
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
		return path, l
	}
	used, _ := socket("used", time.Hour)
	stale, listener := socket("stale", time.Hour)
	listener.Close()
	young, listener := socket("young", 0)
	listener.Close()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if checks := fixSockets(dir); len(checks) != 1 || checks[0].State != fixed {
		t.Errorf("%v", checks)
	}
	for path, there := range map[string]bool{used: true, stale: false, young: true, file: true} {
		if _, err := os.Lstat(path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestEachBackendCanBeChosen(t *testing.T) {
	reached := map[string]bool{}
	for _, where := range []whereabouts{here, machine, cloud} {
		for _, iso := range []isolation{isolated, notIsolated} {
			for _, c := range candidates(iso, where) {
				if reached[c.backend] = true; iso == isolated && c.backend == "local" || c.why == "" || c.cost == "" || c.latency == "" || c.interrupt == "" {
					t.Errorf("%s %s: %+v", iso, where, c)
				}
			}
		}
	}
	for _, b := range all.Backends() {
		if !reached[b.Name] {
			t.Errorf("nothing leads to %s", b.Name)
		}
	}
}

func TestChooseAsksOnATerminal(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "choose")
	terminal := p.onTerminal()
	s := watch(t, terminal)
	for _, turn := range [][2]string{{"Where shall commands run?", "here\n"}, {"protected", "NO \n"}} {
		s.await(turn[0])
		if _, err := terminal.WriteString(turn[1]); err != nil {
			t.Fatal(err)
		}
	}
	s.await("use local: ")
	p.wantExit(0)

	p = newProgram(t, "choose")
	terminal = p.onTerminal()
	watch(t, terminal).await("Where shall commands run?")
	if _, err := terminal.WriteString("\x03"); err != nil {
		t.Fatal(err)
	}
	p.wantExit(130)
}

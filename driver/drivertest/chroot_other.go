//go:build !unix

package drivertest

import (
	"os"
	"testing"
)

// BashOnly makes a place whose root holds bash and nothing else. It needs a Unix system.
func BashOnly(t testing.TB, _ PlaceSpec) *Place {
	t.Helper()
	t.Fatal("this system has no chroot: declare NeedBashOnly as lacking")
	return nil
}

func signalCode(state *os.ProcessState) int { return state.ExitCode() }

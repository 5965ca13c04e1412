//go:build unix

package docker

import "syscall"

// detached keeps a program out of the reach of the terminal's signals: an interrupt is the call's, not the connection's.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

package docker

import (
	"syscall"

	"golang.org/x/sys/windows"
)

// detached keeps a program out of the reach of the console's signals: an interrupt is the call's, not the connection's.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_NEW_PROCESS_GROUP | windows.CREATE_NO_WINDOW}
}

// Package modal runs commands in a sandbox of the cloud service Modal, over the vendor's own Go SDK.
//
// The sandbox of a task is found by its name in an app while it runs, and else made from the last snapshot of its files. Each bash is
// an exec in it; what a call is told travels over the exec's standard input. Nothing in the service ends a bash when this
// process is gone: a watchdog in the sandbox does when its lease is not renewed, or when the next process that opens the sandbox
// says so.
//
// client.go finds credentials and reaches the service; plan.go decides what is asked of it; lifecycle.go finds, makes, restores
// and ends the sandbox, setup.go looks around in it; exec.go and stdin.go are a running bash; snapshot.go stores files before they
// are lost, store.go remembers where; files.go sends HERMES_HOME's files; keeper.go looks after what outlives a process.
package modal

import "github.com/elsewhere-sh/elsewhere/driver"

// Backend returns the backend "modal".
func Backend() driver.Backend {
	return driver.Backend{
		Name:      "modal",
		Summary:   "In a sandbox of the cloud service Modal: another machine's, isolated by the vendor.",
		Settings:  Settings,
		Open:      open,
		Available: available,
		Keeper:    openKeeper,
		Type:      (*sandbox)(nil),
		Classify:  classify,
	}
}

//go:build !linux

package main

// cloudRigs is empty: the emulators need Linux.
func cloudRigs() map[string]rig { return nil }

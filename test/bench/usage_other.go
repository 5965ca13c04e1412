//go:build !unix

package main

import "time"

// processorUsed is not known here.
func processorUsed() time.Duration { return 0 }

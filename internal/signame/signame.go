// Package signame names the signals of Linux by their number, for exit codes that come from another machine or a container:
// 128+n is a death by signal n there, whatever this machine's numbers are.
package signame

// Of gives the name without SIG of a signal that ends a process, or "" where n is none.
func Of(n int) string { return names[n] }

var names = map[int]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2",
	13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 29: "IO", 30: "PWR", 31: "SYS",
}

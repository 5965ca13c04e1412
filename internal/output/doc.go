// Package output bounds what a command prints without losing it.
//
// A command may print a line or a terabyte. A Window takes all of it at the speed of memory and keeps the first 40 %
// and the last 60 % of its limit: the head shows how it began, the tail, where errors are, how it ended. As soon as
// something has to be left out, the whole stream goes to a file as well, from its first byte on, up to a limit of its
// own. A disk that fails costs the file, never the output and never the command.
//
// Bytes stay bytes until somebody looks at them. Text and Decoder turn them into valid UTF-8 for display; Clip cuts
// text for an agent, counted in characters, and says in the middle what it left out.
package output

// Package filesync moves files between this machine (near) and a sandbox (far), through nothing but a bash there.
//
// Whatever goes to the far side is one tar stream into a stage, a directory beside the place where the files are to go. Its
// last member is the plan: what to move where, and what has to be there before (nothing, or what an earlier transfer put
// there). Only when the plan has arrived are files moved to their places, each by one rename, so that nothing is ever half
// written; what arrived of a stream that was cut stays in the stage for the next attempt. In the other direction the same
// is done here (unpack.go), through os.Root, since what comes from a sandbox is not trusted.
//
// What is where is told by tokens: "f" and the SHA-256 of a file, "l" and the target of a link, "d" for a directory, "-"
// for nothing. A book (book.go) remembers the tokens that a pair of places had when they were last the same, with what stat
// said on both sides, so that content is only read where something differs. A file on the receiving side that has another
// token than the book is not ours and is never overwritten or removed, unless the user says so.
//
// Copy is `elsewhere cp`, Pair is `elsewhere sync`, Profile keeps skills, caches and credential files of HERMES_HOME on a
// far home. far.sh is all that runs there.
package filesync

// Package elsewhere runs an agent's bash commands somewhere else: on this machine, in a container, on an SSH host, in
// a cloud sandbox, behind one contract.
//
// A Sandbox is one running place, named by a task. A Session is shell state inside it: exported variables, functions,
// aliases, directory and umask go from one call to the next, although every call runs in a bash of its own. Run runs
// one command and says how it ended. The contract (what carries over, how a call ends, what a timeout ends, how
// failures are told apart) is the same on every backend; docs/contract.md is its text.
//
//	cfg, err := config.Load(config.Options{Backends: all.Backends()})
//	session, err := elsewhere.Open(ctx, cfg, nil)
//	defer session.Close(ctx)
//	result, err := session.Run(ctx, "uname -a; pwd", nil)
//
// Errors are elsewhere's own failures (*Error); a command that fails, times out or is interrupted is a Result.
package elsewhere

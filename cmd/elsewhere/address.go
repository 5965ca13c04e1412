package main

import (
	"fmt"
	"strings"

	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// address is a file or directory: here, or in a sandbox.
type address struct {
	remote        bool
	backend, task string // "" for the configured ones
	path          string
}

// parseAddress reads [BACKEND[/TASK]]:PATH. What has no such prefix is a path of this machine; so is everything that
// begins with ./, ../ or /, and a prefix of one letter, which is a drive.
func parseAddress(text string) address {
	prefix, path, ok := strings.Cut(text, ":")
	if !ok || len(prefix) == 1 || strings.HasPrefix(text, ".") || strings.HasPrefix(text, "/") || strings.HasPrefix(text, `\`) {
		return address{path: text}
	}
	backend, task, hasTask := strings.Cut(prefix, "/")
	if prefix != "" && !safename.Plain(backend) || hasTask && !safename.Plain(task) {
		return address{path: text}
	}
	return address{remote: true, backend: backend, task: task, path: path}
}

// transferFlags are the flags that cp and sync share.
type transferFlags struct {
	target
	exclude []string
	json    bool
}

// addresses reads source and destination, of which one has to be in a sandbox, and takes its backend and task.
func (o *transferFlags) addresses(op string, args []string) (local, remote string, toSandbox bool, err error) {
	src, dst := parseAddress(args[0]), parseAddress(args[1])
	const hint = "write one of them as BACKEND:PATH or BACKEND/TASK:PATH, or :PATH for the configured backend"
	switch {
	case args[0] == "" || args[1] == "":
		return "", "", false, ownError(op, "name a file or directory", "an address is empty")
	case src.remote && dst.remote:
		return "", "", false, ownError(op, fmt.Sprintf("go by way of this machine: `elsewhere %s %s ./x`, then `elsewhere %[1]s ./x %[3]s`", op, shown(args[0]), shown(args[1])),
			"%s and %s are both in a sandbox", args[0], args[1])
	case !src.remote && !dst.remote:
		return "", "", false, ownError(op, hint, "%s and %s are both on this machine", args[0], args[1])
	}
	there, here := dst, src
	if src.remote {
		there, here = src, dst
	}
	if there.backend != "" {
		if o.given("backend") && o.backend != there.backend {
			return "", "", false, ownError(op, "leave out -b", "-b says %s, and the address %s", o.backend, there.backend)
		}
		o.backend = there.backend
	}
	if there.task != "" {
		if o.given("task") && o.task != there.task {
			return "", "", false, ownError(op, "leave out --task", "--task says %s, and the address %s", o.task, there.task)
		}
		o.task = there.task
	}
	return here.path, there.path, dst.remote, o.check()
}

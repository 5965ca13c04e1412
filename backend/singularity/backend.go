// Package singularity runs commands in an Apptainer or Singularity instance, as an ordinary user.
//
// An instance is started with --containall --no-home and a client environment of its own, so that nothing of the host is
// visible inside but what is bound: a home directory, /tmp and /var/tmp on the scratch disk, and a directory for state
// files. Writes elsewhere go to a directory overlay beside them. A bash is started by `exec` on the instance; the pipes
// lead straight to it, so that a waiting bash answers with nothing of Apptainer in the way.
//
// The engine has no labels. So each instance has a record (record.go) in HERMES_HOME/elsewhere/singularity, and the engine
// is asked only what it alone knows: which instances run, and as which process. Who uses and who makes an instance is
// settled by the locks of internal/kept.
//
// Files: program.go finds and calls the client; plan.go turns settings into what is asked for; scratch.go, image.go,
// limits.go and mounts.go are its parts; open.go finds, starts or starts again; sandbox.go and exec.go are a running one;
// keeper.go looks after all of them; remove.go takes away what is not kept.
package singularity

import (
	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kinderr"
)

// name is the backend's, and the directory's of its records.
const name = "singularity"

// Backend returns the backend "singularity".
func Backend() driver.Backend {
	return complete(driver.Backend{
		Name:     name,
		Aliases:  []string{"apptainer"},
		Summary:  "In an Apptainer or Singularity instance, as an ordinary user: nothing of the host is visible.",
		Settings: Settings,
		Classify: classify,
	})
}

func failure(kind driver.Kind, format string, args ...any) error {
	return kinderr.New(kind, format, args...)
}

func classify(err error) driver.Kind {
	if kind := kinderr.Of(err); kind != "" {
		return kind
	}
	return driver.KindUnavailable
}

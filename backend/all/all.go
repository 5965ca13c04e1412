// Package all knows every backend that elsewhere brings. A program that wants fewer imports their packages instead.
package all

import (
	"github.com/elsewhere-sh/elsewhere/backend/daytona"
	"github.com/elsewhere-sh/elsewhere/backend/docker"
	"github.com/elsewhere-sh/elsewhere/backend/local"
	"github.com/elsewhere-sh/elsewhere/backend/modal"
	"github.com/elsewhere-sh/elsewhere/backend/singularity"
	"github.com/elsewhere-sh/elsewhere/backend/ssh"
	"github.com/elsewhere-sh/elsewhere/backend/vercel"
	"github.com/elsewhere-sh/elsewhere/driver"
)

// Backends lists all seven backends, the default one first.
func Backends() []driver.Backend {
	return []driver.Backend{
		local.Backend(),
		docker.Backend(),
		singularity.Backend(),
		ssh.Backend(),
		modal.Backend(),
		daytona.Backend(),
		vercel.Backend(),
	}
}

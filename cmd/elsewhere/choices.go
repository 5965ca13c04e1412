package main

import "slices"

// isolation says whether commands are to be kept from what is around them, and whereabouts where they are to run: the two questions.
type (
	isolation   string
	whereabouts string
)

const (
	isolated    isolation = "yes"
	notIsolated isolation = "no"

	here    whereabouts = "here"    // this machine
	machine whereabouts = "machine" // another one of the user's
	cloud   whereabouts = "cloud"   // a service's
)

// choice is what has to be known of a backend to choose it.
type choice struct {
	backend                           string
	why, cost, latency, interrupt, or string // or is what else could be done, or ""
	need                              []string
}

// choices are the backends, in the order in which they are preferred where several would do.
var choices = []choice{
	{
		backend: "local",
		why:     "commands run on this machine with all your rights: nothing to install, and nothing is protected from them",
		cost:    "none", latency: "below that of a bash of your own, once a shell waits",
		interrupt: "the command's whole tree; what hides its mark from the tree is found as far as /proc shows it",
	},
	{
		backend: "docker",
		why:     "commands run in a container without privileges, under limits; the host's files are there only where you mount them",
		cost:    "none but the image's and the container's space; it needs Docker or Podman", latency: "a few per cent of `docker exec` in a container that runs; seconds for a new one, more for the first pull",
		interrupt: "the command's whole tree in the container; the container and other calls stay",
	},
	{
		backend: "singularity",
		why:     "commands run in an instance of Apptainer or Singularity, which needs no daemon and no root: for clusters, and where there is no Docker",
		cost:    "none but the image's space", latency: "a third of an `exec` in an instance that runs; the first build of an image takes minutes",
		interrupt: "the command's whole tree in the instance; the instance and other calls stay",
	},
	{
		backend: "ssh",
		why:     "commands run in your account on the other machine: this one is out of their reach, and that account is not protected from them",
		cost:    "none", latency: "a round trip for each call, over one shared connection",
		interrupt: "the command's whole tree there, also when the connection is lost",
		or:        "for isolation there too, give the agent an account of its own on that machine",
		need:      []string{"ssh_host", "ssh_user"},
	},
	{
		backend: "modal",
		why:     "commands run in a sandbox of Modal, which the service isolates; GPUs, files are stored when it ends",
		cost:    "by the second while the sandbox lives, idle or not", latency: "a round trip to the service for each call; seconds for a new sandbox",
		interrupt: "the command's whole tree by a second bash; the sandbox stays, and is paid for",
		or:        "daytona sandboxes stop and start with their files, and can be served by yourself",
	},
	{
		backend: "daytona",
		why:     "commands run in a sandbox of Daytona, hosted or your own, which the service isolates; it stops on close and starts again with its files",
		cost:    "while it runs, and for its disk while it is stopped; none on your own server", latency: "a round trip to the service for each call; seconds for a start",
		interrupt: "the command's tree by a second bash; the sandbox and other calls stay",
	},
	{
		backend: "vercel",
		why:     "commands run in a sandbox of Vercel, which the service isolates; files are stored when it stops",
		cost:    "while it runs, and for what is stored", latency: "a round trip to the service for each call; seconds for a new session",
		interrupt: "the command's tree by a second bash; the sandbox and other calls stay",
	},
}

// candidates are the backends that answer the two questions, the best first. local never isolates.
func candidates(iso isolation, where whereabouts) []choice {
	names := map[whereabouts][]string{
		here: {"docker", "singularity"}, machine: {"ssh"}, cloud: {"modal", "daytona", "vercel"},
	}[where]
	if where == here && iso == notIsolated {
		names = []string{"local"}
	}
	var found []choice
	for _, c := range choices {
		if slices.Contains(names, c.backend) {
			found = append(found, c)
		}
	}
	return found
}

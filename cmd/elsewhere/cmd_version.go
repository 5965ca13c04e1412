package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/elsewhere-sh/elsewhere/internal/resultjson"
)

// version is set by the linker for a release: -ldflags "-X main.version=v1.2.3".
var version string

// build is what a binary knows about itself.
type build struct {
	Schema   int    `json:"schema"`
	Version  string `json:"version"`
	Revision string `json:"revision"` // the commit, or "" outside a checkout
	Time     string `json:"time"`     // of the commit
	Modified bool   `json:"modified"` // with changes that are not committed
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

func thisBuild() build {
	b := build{Schema: resultjson.Schema, Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				b.Revision = s.Value
			case "vcs.time":
				b.Time = s.Value
			case "vcs.modified":
				b.Modified = s.Value == "true"
			}
		}
	}
	switch {
	case b.Version != "":
	case ok && info.Main.Version != "":
		b.Version = info.Main.Version
	default:
		b.Version = "(devel)"
	}
	return b
}

func buildVersion() string { return thisBuild().Version }

func (a *app) cmdVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "version",
		Short:             "Say which elsewhere this is",
		Example:           "  elsewhere version --json",
		Args:              noArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			if asJSON {
				return a.printJSON(b)
			}
			revision := ""
			if b.Revision != "" {
				revision = fmt.Sprintf(", commit %.12s", b.Revision)
				if b.Modified {
					revision += " with changes"
				}
			}
			_, err := fmt.Fprintf(a.out, "elsewhere %s (%s, %s/%s%s)\n", b.Version, b.Go, b.OS, b.Arch, revision)
			return a.written(err)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

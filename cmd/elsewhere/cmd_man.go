package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// cmdMan writes the man pages; packagers and `make man` call it.
func cmdMan(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the man pages into a directory",
		Example: "  elsewhere man /usr/local/share/man/man1",
		Hidden:  true,
		Args:    takes("DIR"),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := args[0]
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return ownError("man", "name a directory that can be written", "%w", err)
			}
			header := &doc.GenManHeader{Title: "ELSEWHERE", Section: "1", Source: "elsewhere " + buildVersion(), Manual: "elsewhere"}
			if err := doc.GenManTree(root, header, dir); err != nil {
				return ownError("man", "name a directory that can be written", "%w", err)
			}
			return nil
		},
	}
}

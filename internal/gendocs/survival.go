package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/internal/survival"
)

const survivalIntro = `# What survives what

<!-- Made by "go run ./internal/gendocs" from the tables of internal/survival; do not edit. -->

What is there after an event, and what is not. One test for each backend and event plants all things of its table, lets the event happen for real, and
compares every cell with what it finds (` + "`driver/drivertest`, group `survival`" + `); this page is printed from the table that the tests read.

| in a cell | |
|---|---|
| yes | it is there as it was left, and a job or child runs |
| no | it is not; where a session's state is gone, the next result says so |
| — | there is no such thing or event here |
| not verified | no test here can see it |

The session is a named one (` + "`-s NAME`" + `) and the sandbox one that persists, by the default settings. Of a throw-away session nothing but files is there for
another process, and what it left in the background is described in [the contract](contract.md#how-a-call-ends); what does not persist goes with its sandbox. Forwarded variables
are there as long as the caller has them. A child left with ` + "`&`" + ` has its output redirected. A job that does not run any more is ` + "`lost`" + ` ([jobs](jobs.md)). Network rules beyond on and off
(egress control) are not built.
`

// survivalPage renders docs/survival.md.
func survivalPage() string {
	var b strings.Builder
	b.WriteString(survivalIntro)
	for _, t := range survival.Tables() {
		fmt.Fprintf(&b, "\n## %s\n\nSeen on %s.", t.Backend, t.Seen)
		if len(t.Settings) > 0 {
			var set []string
			for _, key := range slices.Sorted(maps.Keys(t.Settings)) {
				set = append(set, fmt.Sprintf("`%s: %s`", key, t.Settings[key]))
			}
			fmt.Fprintf(&b, " With %s.", strings.ReplaceAll(strings.Join(set, ", "), "{HOST}", "/some/directory"))
		}
		if t.Workspace != "" {
			fmt.Fprintf(&b, " The workspace is `%s`.", t.Workspace)
		}
		b.WriteString("\n\n| |")
		for _, event := range survival.Events() {
			fmt.Fprintf(&b, " %s |", event)
		}
		b.WriteString("\n|" + strings.Repeat("---|", len(survival.Events())+1) + "\n")
		for _, thing := range survival.Things() {
			fmt.Fprintf(&b, "| %s |", t.Row(thing))
			for _, event := range survival.Events() {
				fmt.Fprintf(&b, " %s |", t.Cell(thing, event).Text)
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
		for _, event := range survival.Events() {
			fmt.Fprintf(&b, "- *%s*: %s\n", event, t.Events[event])
		}
	}
	return b.String()
}

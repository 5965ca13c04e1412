package config

import "github.com/elsewhere-sh/elsewhere/driver"

// policyRows say which commands are looked at before they run, and who is asked. Those of approvals are Hermes' own.
// What is in the rules is checked when a sandbox is opened.
var policyRows = []driver.Setting{
	{
		Key: "policy.enabled", Env: "TERMINAL_POLICY", Type: driver.Bool, Default: "true",
		Doc:    "Look at commands before they run where they could do harm outside a container; false looks at nothing.",
		Status: driver.Implemented,
	},
	{
		Key: "policy.rules", Type: driver.Map,
		Doc:    "Other actions for built-in rules, by name: `{force-push: allow, write-startup: block}`.",
		Status: driver.Implemented,
	},
	{
		Key: "policy.allow", Type: driver.List,
		Doc:    "Commands that run without a question: `git push --force-with-lease origin my/*`; `**` at the end is any other arguments.",
		Status: driver.Implemented,
	},
	{
		Key: "policy.ask", Type: driver.List,
		Doc:    "Commands that are asked about, with other arguments between: `npm publish`.",
		Status: driver.Implemented,
	},
	{
		Key: "policy.block", Type: driver.List,
		Doc:    "Commands that do not run, with other arguments between.",
		Status: driver.Implemented,
	},
	{
		Key: "policy.workspace", Type: driver.SandboxPaths,
		Doc:    "Directories that commands may do with as they like, besides the one in which the session began.",
		Status: driver.Implemented,
	},
	{
		Key: "policy.blocked_paths", Type: driver.SandboxPaths,
		Doc:    "Paths that may be neither read nor written, with what is below them.",
		Status: driver.Implemented,
	},
	{
		Key: "approvals.mode", Env: "TERMINAL_APPROVALS_MODE", Type: driver.String, Default: "manual",
		Values: []string{"manual", "smart", "off"}, ValueAliases: map[string]string{"false": "off"},
		Doc:    "`off` asks nobody and runs what would be asked about; what is blocked stays blocked. `smart` is `manual` here.",
		Status: driver.Implemented,
	},
	{
		Key: "approvals.yolo", Env: "HERMES_YOLO_MODE", Type: driver.Bool, Default: "false",
		Doc:    "The variable with which Hermes switches questions off: the same as `approvals.mode: off`.",
		Status: driver.Implemented,
	},
	{
		Key: "approvals.timeout", Type: driver.Seconds, Default: "300",
		Doc:    "How long an answer is awaited, in seconds; none is no.",
		Status: driver.Implemented, Check: positive,
	},
	{
		Key: "approvals.deny", Type: driver.List,
		Doc:    "Patterns of commands that are blocked on every backend, whatever the mode: `git push --force*`; `*` is any text.",
		Status: driver.Implemented,
	},
}

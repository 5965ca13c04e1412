package config

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/policy"
)

// policyRows say which commands are looked at before they run, and who is asked. Those of approvals are Hermes' own.
var policyRows = []driver.Setting{
	{
		Key: "policy.enabled", Env: "TERMINAL_POLICY", Type: driver.Bool, Default: "true",
		Doc:    "Look at commands before they run where they could do harm outside a container; false looks at nothing.",
		Status: driver.Implemented,
	},
	{
		Key: "policy.rules", Type: driver.Map, Check: policyActions,
		Doc:    "Other actions for built-in rules, by name: `{force-push: allow, write-startup: block}`.",
		Status: driver.Implemented,
	},
	{
		Key: "policy.allow", Type: driver.List, Check: policyCommands(policy.Allow),
		Doc:    "Commands that run without a question: `git push --force-with-lease origin my/*`; `**` at the end is any other arguments.",
		Status: driver.Implemented,
	},
	{
		Key: "policy.ask", Type: driver.List, Check: policyCommands(policy.Ask),
		Doc:    "Commands that are asked about, with other arguments between: `npm publish`.",
		Status: driver.Implemented,
	},
	{
		Key: "policy.block", Type: driver.List, Check: policyCommands(policy.Block),
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

// policyActions checks the value of policy.rules.
func policyActions(value string) error {
	var actions map[string]string
	if err := json.Unmarshal([]byte(value), &actions); err != nil && value != "" {
		return errors.New("a map of rules' names to allow, ask or block")
	}
	for _, rule := range sortedKeys(actions) {
		if err := (policy.UserRule{Rule: rule, Action: policy.Action(actions[rule])}).Validate(); err != nil {
			return errors.New("a map of rules' names to allow, ask or block: " + err.Error())
		}
	}
	return nil
}

// policyCommands checks a list of commands.
func policyCommands(action policy.Action) func(string) error {
	return func(value string) error {
		var commands []string
		if err := json.Unmarshal([]byte(value), &commands); err != nil && value != "" {
			return errors.New("a list of commands")
		}
		for _, command := range commands {
			if _, err := policy.ParseRule(command, action); err != nil {
				return errors.New("a list of commands: " + err.Error())
			}
		}
		return nil
	}
}

// PolicyRules are the user's own rules.
func (c *Config) PolicyRules() []policy.UserRule {
	var rules []policy.UserRule
	actions := c.StringMap("policy.rules")
	for _, rule := range sortedKeys(actions) {
		rules = append(rules, policy.UserRule{Rule: rule, Action: policy.Action(actions[rule])})
	}
	for _, action := range []policy.Action{policy.Allow, policy.Ask, policy.Block} {
		for _, command := range c.Strings("policy." + string(action)) {
			// What does not parse was refused when the settings were loaded.
			if rule, err := policy.ParseRule(command, action); err == nil {
				rules = append(rules, rule)
			}
		}
	}
	return slices.Clip(rules)
}

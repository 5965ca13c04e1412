package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/elsewhere-sh/elsewhere"
	"github.com/elsewhere-sh/elsewhere/config"
)

// mcpClient is a client whose settings are known: where they are, and what to put there.
type mcpClient struct {
	name, where string
	text        func(command string, args []string) string
}

// toolTimeout is how many seconds a client has to wait for a tool: more than a command in the foreground may take by default
// (terminal.max_foreground_timeout).
const toolTimeout = 660

// mcpClients are the common ones.
var mcpClients = []mcpClient{
	{"claude-code", "run this, or put the JSON below into .mcp.json of a project", func(command string, args []string) string {
		return "claude mcp add elsewhere -- " + shellLine(command, args) + "\n\n" + servers("mcpServers", command, args)
	}},
	{"claude-desktop", "claude_desktop_config.json (Settings, Developer, Edit Config)", mcpServers},
	{"codex", "~/.codex/config.toml", func(command string, args []string) string {
		return fmt.Sprintf("[mcp_servers.elsewhere]\ncommand = %s\nargs = %s\ntool_timeout_sec = %d", jsonText(command), jsonText(args), toolTimeout)
	}},
	{"cursor", "~/.cursor/mcp.json, or .cursor/mcp.json of a project", mcpServers},
	{"gemini", "~/.gemini/settings.json", func(command string, args []string) string {
		return entry("mcpServers", map[string]any{"command": command, "args": args, "timeout": toolTimeout * 1000})
	}},
	{"hermes", "config.yaml of HERMES_HOME", func(command string, args []string) string {
		return fmt.Sprintf("mcp_servers:\n  elsewhere:\n    command: %s\n    args: %s\n    timeout: %d", jsonText(command), jsonText(args), toolTimeout)
	}},
	{"vscode", ".vscode/mcp.json of a project, or the command MCP: Open User Configuration", func(command string, args []string) string {
		return entry("servers", map[string]any{"type": "stdio", "command": command, "args": args})
	}},
	{"windsurf", "~/.codeium/windsurf/mcp_config.json", mcpServers},
	{"zed", "settings.json", func(command string, args []string) string {
		return entry("context_servers", map[string]any{"command": command, "args": args, "timeout": toolTimeout})
	}},
}

func clientNames() []string {
	var names []string
	for _, c := range mcpClients {
		names = append(names, c.name)
	}
	return names
}

func mcpServers(command string, args []string) string { return servers("mcpServers", command, args) }

func servers(key, command string, args []string) string {
	return entry(key, map[string]any{"command": command, "args": args})
}

func entry(key string, server map[string]any) string {
	return indented(map[string]any{key: map[string]any{"elsewhere": server}})
}

func indented(v any) string {
	data, _ := json.MarshalIndent(v, "", "  ") // of maps and strings
	return string(data)
}

func jsonText(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}

func shellLine(command string, args []string) string {
	words := []string{quoted(command)}
	for _, arg := range args {
		words = append(words, quoted(arg))
	}
	return strings.Join(words, " ")
}

// printClient prints what to put into a client's settings: on standard output, and on standard error where.
func (a *app) printClient(o *mcpFlags) error {
	if o.http != "" {
		return ownError("--print-config", "leave --http out", "it is for clients that start the server themselves")
	}
	for _, c := range mcpClients {
		if c.name != o.print {
			continue
		}
		if err := a.checkPrinted(o); err != nil {
			return err
		}
		command, err := os.Executable()
		if err != nil {
			command = "elsewhere"
		}
		notice(a.err, c.name+": "+c.where)
		_, err = fmt.Fprintln(a.out, c.text(command, o.arguments()))
		return a.written(err)
	}
	return ownError("--print-config", "use "+strings.Join(clientNames(), ", "), "%q is no client that is known", o.print)
}

// checkPrinted refuses what would be a secret in a client's settings, and in the arguments of the server that it starts.
func (a *app) checkPrinted(o *mcpFlags) error {
	for _, entry := range o.set {
		key, _, _ := strings.Cut(entry, "=")
		variable, secret, err := config.Secret(a.backends, key)
		if err != nil {
			return err
		}
		if secret {
			return ownError("--print-config", "leave it out, and write "+variable+"=... into HERMES_HOME/.env, or give the client's server that variable",
				"%s is a secret, and would be read in the client's settings", key)
		}
	}
	return nil
}

// arguments are those with which the client starts the server: as this one was started.
func (o *mcpFlags) arguments() []string {
	args := []string{"mcp"}
	for _, name := range o.backends {
		args = append(args, "-b", name)
	}
	if o.task != elsewhere.DefaultTask {
		args = append(args, "--task", o.task)
	}
	if o.session != "" {
		args = append(args, "--session", o.session)
	}
	for _, set := range o.set {
		args = append(args, "--set", set)
	}
	return args
}

package policy

import (
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Agents write whole files with here-documents. The parser is quick with them, but a long text cannot be told from a
// long program without parsing it, so their bodies are cut out beforehand, by lines, and afterwards the tree has to show
// a here-document with an empty body at each cut: then bash reads the text as it was cut. Only bodies that nothing expands
// are cut. What is fed to a shell is not looked at then, but found to be unknown (cutBody).

var heredocStart = regexp.MustCompile(`<<(-?)[ \t]*(?:'([A-Za-z0-9_]+)'|"([A-Za-z0-9_]+)"|([A-Za-z0-9_]+))`)

// cutBody stands for a body that was cut out. It is longer than what a tree that is not cut would hold by chance.
const cutBody = "elsewhere: a long here-document was here\n"

// cutHeredocs returns command with the bodies of its long here-documents replaced by cutBody.
func cutHeredocs(command string) string {
	var out strings.Builder
	for len(command) > 0 {
		line, rest, _ := strings.Cut(command, "\n")
		out.WriteString(line)
		out.WriteByte('\n')
		command = rest
		if out.Len() > maxSize { // too long all the same
			out.WriteString(command)
			break
		}
		if !strings.Contains(line, "<<") {
			continue
		}
		starts := heredocStart.FindAllStringSubmatch(line, 2)
		if len(starts) != 1 {
			continue
		}
		m := starts[0]
		body, after, ok := hereBody(command, m[2]+m[3]+m[4], m[1] == "-")
		switch {
		case !ok: // all that is left
			out.WriteString(command)
			return out.String()
		case len(body) < 1024 || m[4] != "" && strings.ContainsAny(body, "$`\\"):
			out.WriteString(body)
		default:
			out.WriteString(cutBody)
		}
		command = after
	}
	return out.String()
}

// hereBody splits text at the line that ends the here-document; after begins with that line.
func hereBody(text, end string, tabs bool) (body, after string, ok bool) {
	for at := 0; at < len(text); {
		line, _, _ := strings.Cut(text[at:], "\n")
		if line == end || tabs && strings.TrimLeft(line, "\t") == end {
			return text[:at], text[at:], true
		}
		at += len(line) + 1
	}
	return "", "", false
}

// cutsHold reports whether each cutBody in body is a here-document's whole body.
func cutsHold(file *syntax.File, body string) bool {
	found := 0
	syntax.Walk(file, func(node syntax.Node) bool {
		if r, ok := node.(*syntax.Redirect); ok && r.Hdoc != nil && isCut(r.Hdoc) {
			found++
		}
		return true
	})
	return found == strings.Count(body, cutBody)
}

// isCut reports whether a here-document's body was cut out; the tabs are those before the end of <<-.
func isCut(body *syntax.Word) bool { return strings.TrimRight(body.Lit(), "\t") == cutBody }

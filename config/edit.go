package config

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// apply makes the new text of a config.yaml. It changes as few bytes as it can, so that blank lines, quotes and comments
// stay; where the place is not simple the whole file is written anew from its nodes, which keeps comments and order. Either
// text is parsed again and must hold what was wanted and nothing else.
func apply(shown string, old []byte, e *edit) ([]byte, error) {
	was, err := parseNodes(old)
	if err != nil {
		return nil, fileError(shown, "the file is not YAML", "correct it", err)
	}
	// The wanted tree is made from a second parse, since was is still needed for its positions.
	want, _ := parseNodes(old)
	if want == nil {
		want = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	if key := setNode(want, e); key != nil {
		return nil, lineError(shown, key.Line, key.Value+" holds something that is no map of its own")
	}
	if text, ok := splice(old, was, e); ok {
		if got, err := parseNodes(text); err == nil && sameTree(got, want) {
			return text, nil
		}
	}
	text, err := rewrite(old, want)
	if err != nil {
		return nil, fileError(shown, "the file cannot be written anew", "edit it by hand", err)
	}
	if got, err := parseNodes(text); err != nil || !sameTree(got, want) {
		return nil, fileError(shown, "the file is too unusual to be edited by a program", "edit it by hand", err)
	}
	return text, nil
}

// parseNodes gives the top-level node, or nil where the text holds nothing.
func parseNodes(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 || isNull(doc.Content[0]) {
		return nil, nil
	}
	return doc.Content[0], nil
}

// find gives the key and value nodes of a map's key.
func find(node *yaml.Node, name string) (key, val *yaml.Node) {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name && node.Content[i].Tag != "!!merge" {
			return node.Content[i], node.Content[i+1]
		}
	}
	return nil, nil
}

// setNode sets the edit's value in a tree, first in its map where the key is new. It returns the key node of what is in
// the way: something else than a map, or an alias, whose change would show elsewhere too.
func setNode(root *yaml.Node, e *edit) *yaml.Node {
	node := root
	for i, name := range e.keys {
		last := i == len(e.keys)-1
		key, val := find(node, name)
		if key == nil {
			fresh := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
			if last {
				fresh = e.value
			}
			pair := []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}, fresh}
			if node == root {
				node.Content = append(node.Content, pair...)
			} else {
				node.Content = append(pair, node.Content...)
			}
			node = fresh
			continue
		}
		switch {
		case last:
			fresh := *e.value
			fresh.LineComment = val.LineComment
			*val = fresh
		case isNull(val):
			*val = yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", LineComment: val.LineComment}
		case val.Kind != yaml.MappingNode:
			return key
		}
		node = val
	}
	return nil
}

// rewrite encodes a tree with the byte order mark and line ends of the old text.
func rewrite(old []byte, tree *yaml.Node) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(tree); err != nil {
		return nil, err
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	text := bytes.ReplaceAll(b.Bytes(), []byte("\n"), []byte(lineEnd(old)))
	if bytes.HasPrefix(old, []byte("\ufeff")) {
		text = append([]byte("\ufeff"), text...)
	}
	return text, nil
}

func lineEnd(text []byte) string {
	if bytes.Contains(text, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// sameTree compares two trees by what they say, not by how it is written.
func sameTree(a, b *yaml.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Kind != b.Kind || a.Anchor != b.Anchor || a.Value != b.Value || a.ShortTag() != b.ShortTag() || len(a.Content) != len(b.Content) {
		return false
	}
	for i := range a.Content {
		if !sameTree(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// splice changes the text at one place. ok is false where the place is not simple.
func splice(old []byte, root *yaml.Node, e *edit) (text []byte, ok bool) {
	encoded, err := yaml.Marshal(e.value)
	inline := strings.TrimSuffix(string(encoded), "\n")
	if err != nil || strings.Contains(inline, "\n") {
		return nil, false
	}
	lines := strings.SplitAfter(string(old), "\n")
	node := root
	var above *yaml.Node // the key that node belongs to
	for i, name := range e.keys {
		var key, val *yaml.Node
		if node != nil {
			key, val = find(node, name)
		}
		switch {
		case key == nil && above == nil:
			return appendLines(old, e.keys, inline), root == nil || root.Style&yaml.FlowStyle == 0
		case key == nil:
			return insertBelow(lines, above, node, e.keys[i:], inline, lineEnd(old))
		case i == len(e.keys)-1:
			return replaceScalar(lines, val, inline)
		}
		node, above = val, key
	}
	return nil, false
}

// nested writes keys one below the other, the last with the value.
func nested(keys []string, inline, indent, eol string) string {
	var b strings.Builder
	for i, key := range keys {
		b.WriteString(indent + strings.Repeat("  ", i) + key + ":")
		if i == len(keys)-1 {
			b.WriteString(" " + inline)
		}
		b.WriteString(eol)
	}
	return b.String()
}

func appendLines(old []byte, keys []string, inline string) []byte {
	eol := lineEnd(old)
	text := bytes.Clone(old)
	if len(text) > 0 && !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, eol...)
	}
	return append(text, nested(keys, inline, "", eol)...)
}

// insertBelow puts new keys first below the line of their parent's key, so that no comment changes its owner.
func insertBelow(lines []string, above, node *yaml.Node, keys []string, inline, eol string) ([]byte, bool) {
	if node.Kind != yaml.MappingNode || node.Style&yaml.FlowStyle != 0 || len(node.Content) == 0 {
		return nil, false
	}
	at := above.Line
	if node.Content[0].Line <= at || at > len(lines) || !strings.HasSuffix(lines[at-1], "\n") {
		return nil, false
	}
	indent := strings.Repeat(" ", node.Content[0].Column-1)
	return []byte(strings.Join(lines[:at], "") + nested(keys, inline, indent, eol) + strings.Join(lines[at:], "")), true
}

// replaceScalar puts inline in the place of a scalar that lies on one line.
func replaceScalar(lines []string, val *yaml.Node, inline string) ([]byte, bool) {
	if val.Kind != yaml.ScalarNode || val.Anchor != "" || val.Style&yaml.TaggedStyle != 0 || val.Line < 1 || val.Line > len(lines) {
		return nil, false
	}
	line := lines[val.Line-1]
	runes := []rune(line)
	if val.Column < 1 || val.Column > len(runes) {
		return nil, false
	}
	from := len(string(runes[:val.Column-1]))
	length, ok := scalarLength(line[from:], val)
	if !ok {
		return nil, false
	}
	lines[val.Line-1] = line[:from] + inline + line[from+length:]
	return []byte(strings.Join(lines, "")), true
}

// scalarLength is how many bytes a scalar takes at the start of rest.
func scalarLength(rest string, val *yaml.Node) (int, bool) {
	quote := byte(0)
	switch val.Style {
	case 0:
		return len(val.Value), val.Value != "" && strings.HasPrefix(rest, val.Value)
	case yaml.SingleQuotedStyle:
		quote = '\''
	case yaml.DoubleQuotedStyle:
		quote = '"'
	}
	if quote == 0 || rest[0] != quote {
		return 0, false
	}
	for i := 1; i < len(rest); i++ {
		switch {
		case rest[i] == '\\' && quote == '"':
			i++
		case rest[i] == quote && quote == '\'' && i+1 < len(rest) && rest[i+1] == quote:
			i++
		case rest[i] == quote:
			return i + 1, true
		}
	}
	return 0, false
}

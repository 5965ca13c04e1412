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
	if key := setNode(root(want), e); key != nil {
		return nil, lineError(shown, key.Line, key.Value+" holds something that is no map of its own")
	}
	for _, text := range splices(old, root(was), e) {
		if got, err := parseNodes(text); err == nil && sameTree(root(got), root(want)) {
			return text, nil
		}
	}
	text, err := rewrite(old, want)
	if err != nil {
		return nil, fileError(shown, "the file cannot be written anew", "edit it by hand", err)
	}
	if got, err := parseNodes(text); err != nil || !sameTree(root(got), root(want)) {
		return nil, fileError(shown, "the file is too unusual to be edited by a program", "edit it by hand", err)
	}
	return text, nil
}

// parseNodes gives the document, which holds a map also where the text holds nothing.
func parseNodes(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		doc = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!null"}}}
	}
	if top := doc.Content[0]; isNull(top) {
		top.Kind, top.Tag, top.Value = yaml.MappingNode, "!!map", ""
	}
	return &doc, nil
}

// root is a document's top-level map.
func root(doc *yaml.Node) *yaml.Node { return doc.Content[0] }

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

// splices changes the text at one place. The texts are candidates, the likeliest first; there are none where the place is
// not simple.
func splices(old []byte, top *yaml.Node, e *edit) [][]byte {
	encoded, err := yaml.Marshal(e.value)
	inline := strings.TrimSuffix(string(encoded), "\n")
	if err != nil || strings.Contains(inline, "\n") {
		return nil
	}
	lines := strings.SplitAfter(string(old), "\n")
	node := top
	var above *yaml.Node // the key that node belongs to
	for i, name := range e.keys {
		key, val := find(node, name)
		switch {
		case key == nil && above == nil:
			return [][]byte{appendLines(old, e.keys, inline)}
		case key == nil:
			return insertBelow(lines, above, node, e.keys[i:], inline, lineEnd(old))
		case i == len(e.keys)-1:
			return replaceValue(lines, key, val, inline)
		case isNull(val):
			return fillNull(lines, key, e.keys[i+1:], inline, lineEnd(old))
		}
		node, above = val, key
	}
	return nil
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
func insertBelow(lines []string, above, node *yaml.Node, keys []string, inline, eol string) [][]byte {
	if node.Kind != yaml.MappingNode || node.Style&yaml.FlowStyle != 0 || len(node.Content) == 0 || node.Content[0].Line <= above.Line {
		return nil
	}
	return putBelow(lines, above.Line, nested(keys, inline, strings.Repeat(" ", node.Content[0].Column-1), eol))
}

// fillNull gives a key that holds nothing its first keys.
func fillNull(lines []string, key *yaml.Node, keys []string, inline, eol string) [][]byte {
	return putBelow(lines, key.Line, nested(keys, inline, strings.Repeat(" ", key.Column+1), eol))
}

// putBelow puts text below line number at.
func putBelow(lines []string, at int, text string) [][]byte {
	if at < 1 || at > len(lines) || !strings.HasSuffix(lines[at-1], "\n") {
		return nil
	}
	return [][]byte{[]byte(strings.Join(lines[:at], "") + text + strings.Join(lines[at:], ""))}
}

// replaceValue puts inline in the place of a value.
func replaceValue(lines []string, key, val *yaml.Node, inline string) [][]byte {
	if key.Line < 1 || key.Line > len(lines) || val.Anchor != "" || val.Style&yaml.TaggedStyle != 0 {
		return nil
	}
	block := val.Kind != yaml.ScalarNode && val.Style&yaml.FlowStyle == 0
	if isNull(val) && val.Value == "" || block && lastLine(val) > key.Line {
		// Behind the key's colon; a block below it goes.
		at, ok := offset(lines[key.Line-1], key.Column)
		colon := at + len(key.Value)
		if line := lines[key.Line-1]; ok && strings.HasPrefix(line[at:], key.Value+":") {
			changed := line[:colon+1] + " " + inline + line[colon+1:]
			return [][]byte{join(lines, key.Line, max(key.Line, lastLine(val)), changed)}
		}
		return nil
	}
	return replaceInline(lines, val, inline)
}

// replaceInline replaces a scalar or a flow list or map that lies on one line.
func replaceInline(lines []string, val *yaml.Node, inline string) (texts [][]byte) {
	if val.Line < 1 || val.Line > len(lines) {
		return nil
	}
	line := lines[val.Line-1]
	from, ok := offset(line, val.Column)
	if !ok {
		return nil
	}
	for _, length := range lengths(line[from:], val) {
		texts = append(texts, join(lines, val.Line, val.Line, line[:from]+inline+line[from+length:]))
	}
	return texts
}

// join puts text in the place of the lines from first to last.
func join(lines []string, first, last int, text string) []byte {
	return []byte(strings.Join(lines[:first-1], "") + text + strings.Join(lines[min(last, len(lines)):], ""))
}

// offset is the byte in a line at which a column begins; columns count characters from 1.
func offset(line string, column int) (int, bool) {
	runes := []rune(line)
	if column < 1 || column > len(runes) {
		return 0, false
	}
	return len(string(runes[:column-1])), true
}

// lastLine is the last line on which a node or what it holds begins.
func lastLine(node *yaml.Node) int {
	last := node.Line
	for _, child := range node.Content {
		last = max(last, lastLine(child))
	}
	return last
}

// lengths are the numbers of bytes that a value may take at the start of rest.
func lengths(rest string, val *yaml.Node) (all []int) {
	switch {
	case val.Kind == yaml.ScalarNode && val.Style == 0:
		if val.Value != "" && strings.HasPrefix(rest, val.Value) {
			all = append(all, len(val.Value))
		}
		return all
	case val.Kind == yaml.ScalarNode && val.Style == yaml.SingleQuotedStyle:
		return ends(rest[1:], "'", 2)
	case val.Kind == yaml.ScalarNode && val.Style == yaml.DoubleQuotedStyle:
		return ends(rest[1:], `"`, 2)
	case val.Kind == yaml.SequenceNode:
		return ends(rest, "]", 1)
	case val.Kind == yaml.MappingNode:
		return ends(rest, "}", 1)
	}
	return nil
}

// ends lists where mark stands in rest, with add bytes counted on top.
func ends(rest, mark string, add int) (all []int) {
	const most = 64
	for i := 0; i < len(rest) && len(all) < most; i++ {
		if strings.HasPrefix(rest[i:], mark) {
			all = append(all, i+add)
		}
	}
	return all
}

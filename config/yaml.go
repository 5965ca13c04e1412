package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/elsewhere-sh/elsewhere/driver"
)

// mostNodes bounds how many nodes of a file are looked at, so that aliases of aliases cannot blow up.
const mostNodes = 100_000

// document is a parsed config.yaml. Only the parts that are ours are looked at; the rest is Hermes'.
type document struct {
	file string
	root *yaml.Node // the top-level map, or nil where the file holds nothing
	seen int        // nodes looked at so far
}

// field is one key of a map with what it holds, aliases and merges resolved.
type field struct {
	key  string
	line int
	val  *yaml.Node
}

// parseDocument parses the text of a config.yaml. file names it in errors.
func parseDocument(file string, data []byte) (*document, error) {
	if err := isText(file, data); err != nil {
		return nil, err
	}
	d := &document{file: file}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return d, nil
	case err != nil:
		return nil, syntaxError(file, data, err)
	}
	var more yaml.Node
	if err := dec.Decode(&more); err == nil {
		return nil, lineError(file, more.Line, "a second YAML document begins here, and a settings file is one")
	} else if !errors.Is(err, io.EOF) {
		return nil, syntaxError(file, data, err)
	}
	root := doc.Content[0]
	if isNull(root) {
		return d, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, lineError(file, root.Line, "the file must be a map of settings, not "+kindName(root))
	}
	d.root = root
	return d, nil
}

// isText refuses what no editor would show as text.
func isText(file string, data []byte) error {
	const hint = "save it as UTF-8 text"
	switch {
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return fileError(file, "the file is UTF-16", hint, nil)
	case bytes.IndexByte(data, 0) >= 0:
		return fileError(file, "the file is binary, not text", hint, nil)
	case !utf8.Valid(data):
		for i, line := range bytes.Split(data, []byte("\n")) {
			if !utf8.Valid(line) {
				return fileError(fmt.Sprintf("%s:%d", file, i+1), "the line is not UTF-8", hint, nil)
			}
		}
	}
	return nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// syntaxError turns the parser's error into one that names the line.
func syntaxError(file string, data []byte, err error) error {
	m := yamlLine.FindStringSubmatch(oneLine(err.Error()))
	if m == nil {
		return fileError(file, "the file is not YAML", "correct it", err)
	}
	line, _ := strconv.Atoi(m[1])
	if tab := tabIndented(data); tab > 0 && (line == 0 || tab <= line+1) {
		return fileError(fmt.Sprintf("%s:%d", file, tab), "the line is indented with a tab, which YAML forbids", "use spaces", nil)
	}
	if line == 0 {
		// The parser leaves out the line where it is the first, or where it met a character that YAML forbids.
		line = max(1, controlLine(data))
	}
	return lineError(file, line, "the file is not YAML: "+m[2])
}

// controlLine is the number of the first line with a control character that YAML forbids, or 0.
func controlLine(data []byte) int {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if bytes.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\r' && r != '\u0085' }) {
			return i + 1
		}
	}
	return 0
}

// tabIndented is the number of the first line that a tab indents, or 0.
func tabIndented(data []byte) int {
	for i, line := range bytes.Split(data, []byte("\n")) {
		if blank := len(line) - len(bytes.TrimLeft(line, " \t")); bytes.IndexByte(line[:blank], '\t') >= 0 && blank < len(line) {
			return i + 1
		}
	}
	return 0
}

// fields lists the keys of a map in their order. Merged maps (<<) fill keys that it does not set itself. strict refuses
// a key that is there twice.
func (d *document) fields(node *yaml.Node, strict bool) ([]field, error) {
	var fields []field
	at := map[string]int{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, val := deref(node.Content[i]), deref(node.Content[i+1])
		if d.seen++; d.seen > mostNodes {
			return nil, lineError(d.file, node.Line, "the settings repeat each other too often through aliases")
		}
		if key.Tag == "!!merge" {
			merged = append(merged, val)
			continue
		}
		if first, twice := at[key.Value]; twice {
			if strict {
				return nil, lineError(d.file, key.Line, fmt.Sprintf("%s is set twice, first in line %d", key.Value, first))
			}
			continue
		}
		at[key.Value] = key.Line
		fields = append(fields, field{key: key.Value, line: key.Line, val: val})
	}
	for _, from := range merged {
		more, err := d.merge(from)
		if err != nil {
			return nil, err
		}
		for _, f := range more {
			if _, own := at[f.key]; !own {
				at[f.key] = f.line
				fields = append(fields, f)
			}
		}
	}
	return fields, nil
}

// merge lists the keys of what stands behind <<: a map, or a list of maps of which the first wins.
func (d *document) merge(from *yaml.Node) ([]field, error) {
	if from.Kind == yaml.MappingNode {
		return d.fields(from, true)
	}
	var all []field
	for _, item := range from.Content {
		if item = deref(item); item.Kind != yaml.MappingNode {
			continue
		}
		more, err := d.fields(item, true)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// group is a top-level key that must hold a map; null is an empty one. Nil where the file has none.
func (d *document) group(name string) (*yaml.Node, error) {
	if d.root == nil {
		return nil, nil
	}
	var found *field
	top, err := d.fields(d.root, false)
	if err != nil {
		return nil, err
	}
	for i := range top {
		if top[i].key == name {
			found = &top[i]
		}
	}
	if found == nil || isNull(found.val) {
		return nil, d.once(name)
	}
	if found.val.Kind != yaml.MappingNode {
		return nil, lineError(d.file, found.line, fmt.Sprintf("%s must be a map of settings, not %s", name, kindName(found.val)))
	}
	return found.val, d.once(name)
}

// once refuses a top-level key of ours that is there twice.
func (d *document) once(name string) error {
	first := 0
	for i := 0; i+1 < len(d.root.Content); i += 2 {
		key := d.root.Content[i]
		if key.Value != name {
			continue
		}
		if first > 0 {
			return lineError(d.file, key.Line, fmt.Sprintf("%s is there twice, first in line %d", name, first))
		}
		first = key.Line
	}
	return nil
}

// source makes a node the source of row. ok is false for null, which sets nothing.
func (d *document) source(row *driver.Setting, f field, layer layer) (src source, ok bool) {
	src = source{layer: layer, name: row.Key, file: d.file, line: f.line}
	if isNull(f.val) {
		return src, false
	}
	text, err := d.text(row.Type, f.val)
	if err != nil {
		src.problem = err.Error()
	}
	src.text = text
	return src, true
}

// text is a node in the form of a variable: a scalar as written, a list or map as JSON.
func (d *document) text(typ driver.Type, val *yaml.Node) (string, error) {
	takesList := typ == driver.List || typ == driver.SandboxPaths
	switch {
	case val.Kind == yaml.ScalarNode:
		return val.Value, nil
	case val.Kind == yaml.SequenceNode && (takesList || typ == driver.Map && len(val.Content) == 0):
		return d.listText(val)
	case val.Kind == yaml.MappingNode && typ == driver.Map:
		return d.mapText(val)
	}
	return "", fmt.Errorf("%s stands there", kindName(val))
}

func (d *document) listText(list *yaml.Node) (string, error) {
	items := make([]string, 0, len(list.Content))
	for _, item := range list.Content {
		if item = deref(item); item.Kind != yaml.ScalarNode || isNull(item) {
			return "", fmt.Errorf("an item of the list is %s", kindName(item))
		}
		items = append(items, item.Value)
	}
	return toJSON(items), nil
}

func (d *document) mapText(node *yaml.Node) (string, error) {
	fields, err := d.fields(node, true)
	if err != nil {
		return "", err
	}
	m := map[string]string{}
	for _, f := range fields {
		switch {
		case isNull(f.val):
			m[f.key] = ""
		case f.val.Kind == yaml.ScalarNode:
			m[f.key] = f.val.Value
		default:
			return "", fmt.Errorf("%s holds %s", f.key, kindName(f.val))
		}
	}
	return toJSON(m), nil
}

// deref follows an alias. Aliases of aliases do not exist in YAML.
func deref(node *yaml.Node) *yaml.Node {
	if node.Kind == yaml.AliasNode && node.Alias != nil {
		return node.Alias
	}
	return node
}

func isNull(node *yaml.Node) bool { return node.Kind == yaml.ScalarNode && node.Tag == "!!null" }

func kindName(node *yaml.Node) string {
	switch {
	case isNull(node):
		return "empty"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	case node.Kind == yaml.MappingNode:
		return "a map"
	}
	return "the text " + quote(strings.TrimSpace(node.Value))
}

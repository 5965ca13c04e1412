package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// expander turns a path as it is written into the one that is meant.
type expander struct {
	lookup func(name string) (string, bool)
	home   string // the user's home directory; may be empty
	base   string // where a relative path starts; may be empty
	local  bool   // sandbox paths are paths of this machine
}

// path expands ~ and variables and makes the path absolute.
func (x expander) path(text string) (string, error) {
	text, err := x.expand(text)
	if err != nil || text == "" || filepath.IsAbs(text) || x.base == "" {
		return text, err
	}
	return filepath.Join(x.base, text), nil
}

func (x expander) sandboxPath(text string) (string, error) {
	if strings.ContainsRune(text, 0) {
		return "", errors.New("a path without a null byte")
	}
	if !x.local {
		return text, nil
	}
	return x.expand(text)
}

func (x expander) sandboxPaths(text string) ([]string, error) {
	list, err := parseList(text)
	if err != nil {
		return nil, err
	}
	for i, item := range list {
		if list[i], err = x.sandboxPath(item); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// expand replaces a leading ~ and each $VAR and ${VAR}. A variable that is not set is an error: the path would silently
// be another one.
func (x expander) expand(text string) (string, error) {
	if strings.ContainsRune(text, 0) {
		return "", errors.New("a path without a null byte")
	}
	if rest, ok := strings.CutPrefix(text, "~"); ok && (rest == "" || rest[0] == '/' || rest[0] == filepath.Separator) {
		if x.home == "" {
			return "", errors.New("a path without ~ where HOME is not set")
		}
		text = x.home + rest
	}
	var missing string
	text = os.Expand(text, func(name string) string {
		v, ok := x.lookup(name)
		if !ok && missing == "" {
			missing = name
		}
		return v
	})
	if missing != "" {
		return "", fmt.Errorf("a path whose variables are set ($%s is not)", missing)
	}
	return text, nil
}

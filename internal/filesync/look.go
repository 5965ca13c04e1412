package filesync

import (
	"context"
	"path/filepath"
)

// Look walks a tree here as a transfer of it does, with the patterns of Exclude and, with gitIgnore, what the .gitignore files of the
// tree say. see is told each path below dir, a directory before what it holds; where it says no, what a directory holds is passed by.
// What cannot be read is passed by too, as the transfer does. An error is the pattern's or dir's own.
func Look(dir string, exclude []string, gitIgnore bool, see func(rel string, isDir bool) (enter bool)) error {
	root := ""
	if gitIgnore {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		root = abs
	}
	filter, err := newFilter(exclude, root)
	if err != nil {
		return err
	}
	keep := func(rel string, isDir bool) bool { return filter.keep(rel, isDir) && see(rel, isDir) && isDir }
	return walkNear(dir, "", keep, map[string]nearItem{}, func(string, string) {})
}

// There tells which of these paths below a directory of the far side are there, and are not left out by the patterns of exclude. ""
// is the directory itself. Links are looked at, not followed.
func There(ctx context.Context, remote Remote, dir string, exclude, names []string) (map[string]bool, error) {
	filter, err := newFilter(exclude, "")
	if err != nil {
		return nil, err
	}
	l, err := (&far{remote, dir}).scan(ctx, scanRequest{names: names})
	if err != nil {
		return nil, err
	}
	there := map[string]bool{"": l.exists}
	for name, it := range l.items {
		there[name] = filter.covers(name, it.Type == 'd')
	}
	return there, nil
}

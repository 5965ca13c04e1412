// Package hermesfiles says which files of HERMES_HOME a sandbox gets, and where: skills and caches, which are mounted as they
// are, and credential files, which are copied to a staging directory (staging.go).
//
// Everything has its place below the .hermes directory in the sandbox's home, where Hermes' own skills look for it. Nothing
// that would give a sandbox the agent's own secrets is ever handed out: not the files that hold them, and no directory that
// contains HERMES_HOME.
package hermesfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Kind says what a mounted directory is.
type Kind string

// The kinds of directories.
const (
	Skills Kind = "skills"
	Cache  Kind = "cache"
)

// Mount is a directory of this machine that the sandbox reads.
type Mount struct {
	// Source is absolute and without symbolic links; Target is relative to the sandbox's .hermes directory, with slashes.
	Source, Target string
	// ReadOnly is always set: what a sandbox writes must not become a skill that the host runs.
	ReadOnly bool
	Kind     Kind
}

// places are the directories of HERMES_HOME that sandboxes get, by their place in the sandbox; the first source that exists
// counts. Old versions of Hermes named some differently.
var places = []struct {
	kind    Kind
	target  string
	sources []string
}{
	{Skills, "skills", []string{"skills"}},
	{Cache, "cache/documents", []string{"cache/documents", "document_cache"}},
	{Cache, "cache/images", []string{"cache/images", "image_cache"}},
	{Cache, "cache/audio", []string{"cache/audio", "audio_cache"}},
	{Cache, "cache/videos", []string{"cache/videos", "video_cache"}},
	{Cache, "cache/screenshots", []string{"cache/screenshots", "browser_screenshots"}},
	{Cache, "cache/web", []string{"cache/web"}},
	{Cache, "cache/delegation", []string{"cache/delegation"}},
	{Cache, "cache/spillover", []string{"cache/spillover"}},
	{Cache, "images", []string{"images"}},
	{Cache, "attachments", []string{"attachments"}},
}

// Mounts lists the skills and caches that exist below home (HERMES_HOME, absolute). A notice tells of one that is there and
// cannot be used. With an empty home there are none.
func Mounts(home string) (mounts []Mount, notices []string) {
	if home == "" {
		return nil, nil
	}
	for _, p := range places {
		for _, rel := range p.sources {
			source, err := directory(home, filepath.Join(home, filepath.FromSlash(rel)))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				notices = append(notices, fmt.Sprintf("%s is not in the sandbox: %v", filepath.Join(home, filepath.FromSlash(rel)), err))
				break
			}
			mounts = append(mounts, Mount{Source: source, Target: p.target, ReadOnly: true, Kind: p.kind})
			break
		}
	}
	return mounts, notices
}

// directory resolves the links of dir and refuses what is no directory, and one that holds HERMES_HOME.
func directory(home, dir string) (string, error) {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(resolved)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", errors.New("it is not a directory")
	}
	if home, err = filepath.EvalSymlinks(home); err != nil {
		return "", err
	}
	if rel, err := filepath.Rel(resolved, home); err == nil && !outside(rel) {
		return "", fmt.Errorf("it leads to %s, which holds HERMES_HOME", resolved)
	}
	return resolved, nil
}

// outside tells whether a relative path leads out of where it starts.
func outside(rel string) bool {
	return rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// private are the files and directories of HERMES_HOME that no sandbox ever gets, in lower case: some file systems do not
// tell case apart (NousResearch/hermes-agent#116149).
var private = []string{".env", "auth.json", "config.yaml", "mcp-tokens", "elsewhere", "proxy"}

// Clean gives the canonical form of a credential file's name as it is written in terminal.credential_files: relative, with
// slashes. An error says what is wrong with it; the file itself is not looked at.
func Clean(name string) (string, error) {
	slashed := strings.ReplaceAll(strings.TrimSpace(name), `\`, "/")
	switch {
	case slashed == "" || strings.ContainsRune(slashed, 0):
		return "", errors.New("it names no file")
	case path.IsAbs(slashed) || len(slashed) > 1 && slashed[1] == ':' || strings.HasPrefix(slashed, "~"):
		return "", errors.New("it must be relative to HERMES_HOME")
	}
	clean := path.Clean(slashed)
	if clean == "." || clean == ".." || strings.HasPrefix(clean, "../") {
		return "", errors.New("it leads out of HERMES_HOME")
	}
	return clean, notPrivate(clean)
}

func notPrivate(rel string) error {
	first, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
	for _, name := range private {
		if strings.EqualFold(strings.TrimRight(first, ". "), name) {
			return fmt.Errorf("%s of HERMES_HOME is never handed to a sandbox", name)
		}
	}
	return nil
}

// Resolve gives the file that a credential file's clean name leads to. Links are followed and have to end inside home, and not
// in one of its private places. A file that is not there is fs.ErrNotExist.
func Resolve(home, clean string) (string, error) {
	resolved, err := filepath.EvalSymlinks(filepath.Join(home, filepath.FromSlash(clean)))
	if err != nil {
		return "", err
	}
	if home, err = filepath.EvalSymlinks(home); err != nil {
		return "", err
	}
	rel, err := filepath.Rel(home, resolved)
	if err != nil || outside(rel) || rel == "." {
		return "", fmt.Errorf("it is a link that leads out of HERMES_HOME, to %s", resolved)
	}
	return resolved, notPrivate(rel)
}

// maxCredential is how large a credential file may be. Keys and tokens have a few thousand bytes; whatever is larger is
// named by mistake.
const maxCredential = 4 << 20

// Credential gives the file that a credential file's clean name stands for now: a regular file inside home. The error says for
// people why there is none to hand out.
func Credential(home, clean string) (source string, info fs.FileInfo, err error) {
	source, err = Resolve(home, clean)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, errors.New("it is not in HERMES_HOME; it appears when it is")
	}
	if err == nil {
		info, err = os.Lstat(source)
	}
	switch {
	case err != nil:
		return "", nil, err
	case !info.Mode().IsRegular():
		return "", nil, errors.New("it is not a regular file")
	case info.Size() > maxCredential:
		return "", nil, fmt.Errorf("it is larger than %d MiB", maxCredential>>20)
	}
	return source, info, nil
}

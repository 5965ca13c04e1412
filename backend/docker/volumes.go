package docker

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// volume is one mount that the user asked for.
type volume struct {
	source string // a path where the engine is; the name of a volume; "" for one without a name
	named  bool   // source is a volume's name
	target string
	opts   []string // as written, checked
}

func (v volume) readOnly() bool { return slices.Contains(v.opts, "ro") }

// bind is the volume in the form of HostConfig.Binds.
func (v volume) bind() string {
	parts := []string{v.source, v.target}
	if v.source == "" {
		parts = parts[1:]
	}
	if len(v.opts) > 0 {
		parts = append(parts, strings.Join(v.opts, ","))
	}
	return strings.Join(parts, ":")
}

// volumeOptions are what may follow the target. Each group excludes itself.
var volumeOptions = [][]string{
	{"ro", "rw"},
	{"z", "Z"},
	{"nocopy"},
	{"U"}, // Podman: give it to the container's user
	{"private", "rprivate", "shared", "rshared", "slave", "rslave"},
	{"cached", "delegated", "consistent"},
}

var volumeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)

// parseVolume reads one entry written as for `docker run -v`: SOURCE:TARGET[:OPTIONS]. A source that is a path is absolute,
// begins with ~ (home, the caller's), or with a drive letter. An error says what is wrong and what is right.
func parseVolume(text, home string) (volume, error) {
	var v volume
	text = strings.TrimSpace(text)
	if strings.ContainsRune(text, 0) {
		return v, errors.New("it holds a null byte")
	}
	parts := splitVolume(text)
	switch len(parts) {
	case 1:
		if drive.MatchString(text) {
			return v, fmt.Errorf("%s is a path on a Windows drive, and there is no target; write SOURCE:TARGET", text)
		}
		return v, errors.New("there is no colon; write SOURCE:TARGET, such as /data:/data")
	case 2, 3:
	default:
		return v, errors.New("there are too many colons; write SOURCE:TARGET[:OPTIONS]")
	}
	v.source, v.target = parts[0], parts[1]
	if err := v.checkSource(home); err != nil {
		return v, err
	}
	if !path.IsAbs(v.target) {
		return v, fmt.Errorf("the target %q is not an absolute path in the container; write SOURCE:TARGET, such as /data:/data", v.target)
	}
	if v.target = path.Clean(v.target); v.target == "/" {
		return v, errors.New("the target may not be /, which is the image's; choose a directory, such as /data")
	}
	if len(parts) == 3 {
		return v, v.setOptions(parts[2])
	}
	return v, nil
}

// splitVolume splits at colons, but not at that of a drive letter.
func splitVolume(text string) []string {
	if drive.MatchString(text) {
		parts := strings.Split(text[2:], ":")
		parts[0] = text[:2] + parts[0]
		return parts
	}
	return strings.Split(text, ":")
}

// drive matches what begins with a Windows drive.
var drive = regexp.MustCompile(`^[A-Za-z]:[\\/]`)

func (v *volume) checkSource(home string) error {
	switch s := v.source; {
	case s == "":
		return errors.New("the source is empty")
	case s == "~" || strings.HasPrefix(s, "~/"):
		if home == "" {
			return errors.New("~ stands for HOME, which is not set")
		}
		v.source = filepath.Join(home, s[1:])
	case drive.MatchString(s) || strings.HasPrefix(s, `\\`):
	case path.IsAbs(s):
		v.source = path.Clean(s)
	case strings.ContainsAny(s, `/\`) || s == "." || s == "..":
		return fmt.Errorf("the source %q is a relative path; write it from / or ~ on", s)
	case !volumeName.MatchString(s):
		return fmt.Errorf("the source %q is neither an absolute path nor the name of a volume ([a-zA-Z0-9][a-zA-Z0-9_.-]+)", s)
	default:
		v.named = true
	}
	return nil
}

func (v *volume) setOptions(text string) error {
	used := make([]string, len(volumeOptions))
	for _, opt := range strings.Split(text, ",") {
		group := slices.IndexFunc(volumeOptions, func(g []string) bool { return slices.Contains(g, opt) })
		if group < 0 {
			return fmt.Errorf("the option %q is unknown; there are %s", opt, strings.Join(slices.Concat(volumeOptions...), ", "))
		}
		if used[group] != "" {
			return fmt.Errorf("the options %q and %q exclude each other", used[group], opt)
		}
		used[group] = opt
		v.opts = append(v.opts, opt)
	}
	return nil
}

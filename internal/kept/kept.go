// Package kept holds what the backends share whose sandboxes outlive a process: how a sandbox is named, how it is known
// again, who uses it now, and what becomes of one that was made with other settings (docs/backends).
//
// A name is a hash of identity, profile and task, so that the engine's own name conflict elects one of two processes that
// start at once. The settings that matter are kept with the sandbox, each by its key, so that a mismatch can name them.
// Who uses a sandbox holds a shared lock on a file named after it; the kernel frees it when the process is gone, however
// it went. Whoever makes, replaces or removes one holds another lock meanwhile, so that of the processes of a machine only
// one does.
package kept

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/safename"
)

// Name names the sandbox of a task: "elsewhere-", what people recognise of the task, and 20 hexadecimal digits. A shared key
// that is not "" stands in place of identity and profile: whoever sets the same one gets the same sandbox.
func Name(id driver.Identity, sharedKey, task string) string {
	key := "own\x00" + id.ID + "\x00" + id.Profile
	if sharedKey != "" {
		key = "shared\x00" + sharedKey
	}
	sum := sha256.Sum256([]byte(key + "\x00" + task))
	safe := safename.Of(task)
	safe = strings.TrimRight(safe[:min(len(safe), 24)], ".-_")
	return "elsewhere-" + safe + "-" + hex.EncodeToString(sum[:10])
}

// Address is what the commands of `elsewhere sandbox` take for the sandbox of a task with this name (Name): BACKEND/TASK, or
// BACKEND/NAME where the task is no plain name. Of an entry of terminal.backends the profile tells the name.
func Address(backend string, id driver.Identity, task, name string) string {
	if _, entry, ok := strings.Cut(id.Profile, "/"); ok {
		backend = entry
	}
	if !safename.Plain(task) {
		task = name
	}
	return backend + "/" + task
}

// Settings are what a sandbox was made with, by the key of the setting; values are in a canonical form, without secrets.
type Settings map[string]string

// Fingerprint is the hash of all of them: 32 hexadecimal digits.
func (s Settings) Fingerprint() string {
	sum := sha256.Sum256([]byte(s.String()))
	return hex.EncodeToString(sum[:16])
}

// String is what Parse reads.
func (s Settings) String() string {
	text, _ := json.Marshal(map[string]string(s)) // sorted by key; strings always marshal
	return string(text)
}

// Parse reads what String wrote; of anything else it makes empty settings, which match nothing.
func Parse(text string) Settings {
	var s Settings
	if json.Unmarshal([]byte(text), &s) != nil {
		return Settings{}
	}
	return s
}

// Diff names the keys whose values differ, sorted.
func (s Settings) Diff(other Settings) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(s)) {
		if v, ok := other[key]; !ok || v != s[key] {
			keys = append(keys, key)
		}
	}
	for key := range other {
		if _, ok := s[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// Describe lists settings that differ, by their keys, with both values.
func Describe(keys []string, had, want Settings) string {
	if len(had) == 0 {
		return "which is not known here"
	}
	parts := make([]string, len(keys))
	for i, key := range keys {
		parts[i] = fmt.Sprintf("%s (made with %q, now %q)", key, had[key], want[key])
	}
	return strings.Join(parts, ", ")
}

// Found is a sandbox that is there.
type Found struct {
	Settings   Settings
	Persistent bool // made to outlive its process
	InUse      bool // by a process that lives
}

// Action is what to do with a sandbox that is there.
type Action int

// The actions.
const (
	Reuse   Action = iota
	Replace        // remove it, keep its data directories, make a new one
	Refuse         // it was made with other settings and is not replaced
)

// isolation are the settings whose mismatch is never lived with, even of a sandbox that persists: one with a network is never
// used by a call that must have none.
var isolation = []string{"docker_network", "singularity_network", "network", "egress.enabled"}

// Decide says what becomes of a sandbox that is there, and which settings differ. One that was not made to persist is replaced
// when nobody uses it; a persistent one is replaced for network and egress alone, when nobody uses it.
func Decide(found Found, want Settings) (Action, []string) {
	diff := want.Diff(found.Settings)
	switch {
	case len(diff) == 0:
		return Reuse, nil
	case found.InUse:
		return Refuse, diff
	case !found.Persistent:
		return Replace, diff
	case !slices.ContainsFunc(diff, func(key string) bool { return !slices.Contains(isolation, key) }):
		return Replace, diff
	default:
		return Refuse, diff
	}
}

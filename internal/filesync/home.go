package filesync

import (
	"fmt"
	"path"
	"slices"

	"github.com/elsewhere-sh/elsewhere/internal/hermesfiles"
)

// HomeMappings says what of HERMES_HOME (home) goes where, and notices say for people what does not. A credential file that cannot be
// handed out is among the mappings without a source: it is removed there, and what is in its place does not come back.
func HomeMappings(home string, credentials []string) (mappings []Mapping, notices []string) {
	mounts, notices := hermesfiles.Mounts(home)
	for _, m := range mounts {
		kind := Cache
		if m.Kind == hermesfiles.Skills {
			kind = Skill
		}
		mappings = append(mappings, Mapping{Source: m.Source, Target: path.Join(".hermes", m.Target), Kind: kind})
	}
	var names []string
	for _, name := range credentials {
		clean, err := hermesfiles.Clean(name)
		if err != nil {
			notices = append(notices, fmt.Sprintf("credential file %q is left out: %v", name, err))
			continue
		}
		names = append(names, clean)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) { // behind the rest: what is named here is a credential, wherever it lies
		source, _, err := hermesfiles.Credential(home, name)
		if err != nil {
			notices = append(notices, fmt.Sprintf("credential file %s is not in the sandbox: %v", name, err))
		}
		mappings = append(mappings, Mapping{Source: source, Target: path.Join(".hermes", name), Kind: Credential})
	}
	return mappings, notices
}

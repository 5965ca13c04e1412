package elsewhere

import "github.com/elsewhere-sh/elsewhere/driver"

// Abilities lists the optional abilities that a sandbox of this type has of its own, in words for people. What is not in
// the list is done through a bash where that is possible, and is unsupported where it is not. sb may be a nil of its
// type: only the type is looked at.
func Abilities(sb driver.Sandbox) []string {
	abilities := []string{}
	add := func(has bool, name string) {
		if has {
			abilities = append(abilities, name)
		}
	}
	_, is := sb.(driver.PTY)
	add(is, "pty")
	_, is = sb.(driver.Signaler)
	add(is, "signal")
	_, is = sb.(driver.Uploader)
	add(is, "upload")
	_, is = sb.(driver.Downloader)
	add(is, "download")
	_, is = sb.(driver.Snapshotter)
	add(is, "snapshot")
	_, is = sb.(driver.Preparer)
	add(is, "prepare")
	_, is = sb.(driver.StateRemover)
	add(is, "state-remove")
	_, is = sb.(driver.StateLister)
	add(is, "state-list")
	_, is = sb.(driver.Stopper)
	add(is, "stop")
	_, is = sb.(driver.ExitExplainer)
	add(is, "exit-explain")
	return abilities
}

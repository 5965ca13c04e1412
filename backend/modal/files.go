package modal

import "github.com/elsewhere-sh/elsewhere/internal/cloudbox"

// newFiles is nil where nothing is synchronised: for a run that leaves nothing behind, and where the settings say so. Files go as a
// tar stream through the input of a bash, which is the widest channel there is. The book of what was sent is among the files that are
// stored, so that a restored sandbox is not sent everything again.
func newFiles(s *sandbox) *cloudbox.Files {
	cfg := s.req.Config
	if alone(s.req) || !cfg.Bool("modal_file_sync") || s.info.StateDir == s.info.PrivateDir {
		return nil
	}
	return cloudbox.NewFiles(cloudbox.FilesOptions{
		Bash: s.bash, Config: cfg, Identity: s.req.Identity, Name: "the sandbox", Place: "modal:" + s.plan.name, Home: s.info.Home, State: s.info.StateDir, Log: s.log,
	})
}

package vercel

import "github.com/elsewhere-sh/elsewhere/internal/cloudbox"

// newFiles is nil where nothing is synchronised: for a run that leaves nothing behind, without a HERMES_HOME, and
// where nothing can be kept there, since what came from us could not be told from what did not.
func newFiles(s *sandbox) (f *cloudbox.Files, notice string) {
	cfg, id, a := s.req.Config, s.req.Identity, s.around
	if id.Home == "" || s.req.ThrowAway {
		return nil, ""
	}
	if a.State == a.Private {
		if cloudbox.AnyFiles(cfg, id) {
			notice = "skills, caches and credential files of HERMES_HOME are not sent: what was sent cannot be remembered on " + s.plan.name
		}
		return nil, notice
	}
	return cloudbox.NewFiles(cloudbox.FilesOptions{
		Bash: s.bash, Config: cfg, Identity: id, Name: s.plan.name, Place: s.plan.name, Home: a.Home, State: a.State, Log: s.log,
	}), ""
}

package modal

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	sdk "github.com/modal-labs/modal-client/go"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
)

const (
	// makeWait bounds the making of a sandbox, its image's build included.
	makeWait = 5 * time.Minute
	// changeWait bounds the wait for a sandbox that somebody else makes or ends, and changePoll is how often it is looked at.
	changeWait = kept.ChangeWait
	changePoll = 200 * time.Millisecond
	// endWait bounds the end of a sandbox.
	endWait = 30 * time.Second
)

// enter makes sure that the sandbox runs and looks around in it. Of the processes of this machine only one does so at a time; of
// those of other machines the service's own names elect one.
func (s *sandbox) enter(ctx context.Context) (*surroundings, error) {
	if s.plan.name != "" {
		var err error
		if s.lock, err = kept.Open(s.req.Identity.Home, lockName(s.plan.name), false); err != nil {
			return nil, failure(driver.KindUnavailable, "%w", err)
		}
		done, err := s.lock.Make(ctx)
		if err != nil {
			return nil, failure(driver.KindUnavailable, "%w", err)
		}
		defer done()
	}
	for deadline := time.Now().Add(changeWait); ; {
		around, err := s.tryEnter(ctx)
		if err == nil {
			s.remember()
		}
		if !errors.Is(err, errAgain) {
			return around, err
		}
		select {
		case <-time.After(changePoll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if time.Now().After(deadline) {
			return nil, failure(driver.KindUnavailable, "the sandbox %s could not be entered within %s: %w", s.plan.name, changeWait, err)
		}
	}
}

// remember notes, until the sandbox's files are stored, that the task has this one, and finds out whether it had another that ended before.
func (s *sandbox) remember() {
	if !s.plan.persistent {
		return
	}
	other, err := s.lock.Remember(s.sb.SandboxID)
	if err != nil {
		s.log.Debug("it is not remembered which sandbox the task has", "sandbox", s.plan.name, "error", err)
	}
	if other != "" && s.restored == "" {
		s.recreated = "the sandbox " + other + " that this task had ended before its files were stored: they, and what ran in it, are gone"
	}
}

// tryEnter is one try of enter. What it made and cannot use it ends.
func (s *sandbox) tryEnter(ctx context.Context) (*surroundings, error) {
	if err := s.ensure(ctx); err != nil {
		return nil, err
	}
	around, err := s.lookAround(ctx)
	if err == nil && s.lock != nil {
		err = s.lock.Use()
	}
	if err != nil && s.fresh {
		s.endMade(ctx)
	}
	return around, err
}

// endMade ends what this opening made, also when its context is done.
func (s *sandbox) endMade(ctx context.Context) {
	ectx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWait)
	defer cancel()
	if err := s.account.end(ectx, s.sb); err != nil {
		s.log.Warn("a half-made sandbox could not be ended; it ends by itself", "sandbox", s.sb.SandboxID, "after", s.plan.lifetime, "error", err)
	}
	s.sb = nil
}

// end ends a sandbox and waits until it has ended. One that is gone is no error.
func (a *account) end(ctx context.Context, sb *sdk.Sandbox) error {
	ctx, cancel := context.WithTimeout(ctx, endWait)
	defer cancel()
	if _, err := sb.Terminate(ctx, &sdk.SandboxTerminateParams{Wait: true}); err != nil && !notFound(err) {
		return a.explain(ctx, "ending the sandbox "+sb.SandboxID, err)
	}
	return nil
}

// ensure finds the sandbox or makes it; it then runs.
func (s *sandbox) ensure(ctx context.Context) error {
	app, err := s.account.inApp(ctx)
	if err != nil {
		return err
	}
	if s.plan.name != "" {
		found, err := s.find(ctx)
		if err != nil || found {
			return err
		}
	}
	return s.make(ctx, app)
}

// find looks for the sandbox by its name and decides what becomes of it.
func (s *sandbox) find(ctx context.Context) (found bool, err error) {
	actx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	what := "looking for the sandbox " + s.plan.name
	s.progress(what)
	sb, err := s.account.client.Sandboxes.FromName(actx, s.account.appName, s.plan.name, nil)
	if notFound(err) {
		return false, nil
	}
	if err != nil {
		return false, s.account.explain(actx, what, err)
	}
	tags, err := sb.GetTags(actx, nil)
	if notFound(err) {
		return false, errAgain
	}
	if err != nil {
		return false, s.account.explain(actx, what, err)
	}
	if !mine(tags, s.req.Identity) {
		return false, failure(driver.KindConfig, "the sandbox %s is there and is not elsewhere's for this task: end it, or use another task", s.plan.name)
	}
	again, err := s.decide(ctx, sb, tags)
	if err != nil {
		return false, err
	}
	if again {
		return false, errAgain
	}
	if s.plan.persistent {
		if err := s.store.enter(ctx, s.plan.name); err != nil {
			s.log.Warn("it is not noted that a sandbox was opened again: should this process be killed its maker may end it unstored", "sandbox", s.plan.name, "error", err)
		}
	}
	s.sb, s.fresh = sb, false
	s.ends = tagTime(tags[tagEnds])
	return true, nil
}

// tagTime reads a time of a tag; the zero time where there is none.
func tagTime(text string) time.Time {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(n, 0)
}

// mine tells whether a sandbox with these tags is of an identity and profile.
func mine(tags map[string]string, id driver.Identity) bool {
	own := (&plan{}).tags(driver.OpenRequest{Identity: id})
	return tags[tagAgent] == agent && tags[tagIdentity] == id.ID && tags[tagProfile] == own[tagProfile]
}

// decide says whether a sandbox that is there is used; one that was made with other settings and may go is ended.
func (s *sandbox) decide(ctx context.Context, sb *sdk.Sandbox, tags map[string]string) (again bool, err error) {
	if tags[tagFingerprint] == s.plan.settings.Fingerprint() {
		return false, nil
	}
	n, err := s.store.ReadNotes()
	if err != nil {
		return false, failure(driver.KindConfig, "%w", err)
	}
	had := kept.Parse(n.Boxes[s.plan.name].Settings)
	found := kept.Found{Settings: had, Persistent: tags[tagPersist] == "true"}
	if found.InUse, err = s.lock.InUse(); err != nil {
		return false, failure(driver.KindUnavailable, "%w", err)
	}
	action, diff := kept.Decide(found, s.plan.settings)
	if action != kept.Replace {
		why := "it is kept, with what runs in it"
		if !found.Persistent {
			why = "another process uses it"
		}
		return false, failure(driver.KindConfig, "the sandbox of the task %q (%s) was made with other settings, and %s: %s; use another task (--task OTHER), or make it anew (elsewhere sandbox reset %s)",
			s.req.Task, s.plan.name, why, kept.Describe(diff, had, s.plan.settings), s.req.Task)
	}
	if found.Persistent {
		s.sb = sb
		if err := s.keepFiles(ctx); err != nil {
			return false, err
		}
	}
	if err := s.account.end(ctx, sb); err != nil {
		return false, err
	}
	s.say("the sandbox was made again, since it had been made with other settings: " + kept.Describe(diff, had, s.plan.settings))
	return true, nil
}

func (s *sandbox) say(notice string) { s.plan.notices = append(s.plan.notices, notice) }

// make makes the sandbox, from the files that are stored where there are some.
func (s *sandbox) make(ctx context.Context, app *sdk.App) error {
	s.progress("making a Modal sandbox")
	ctx, cancel := context.WithTimeout(ctx, makeWait)
	defer cancel()
	s.restored = ""
	image, from, err := s.stored(ctx)
	if err != nil {
		return err
	}
	if image == nil {
		if image, err = s.base(ctx); err != nil {
			return err
		}
	}
	if from != "" {
		s.progress("making a Modal sandbox from the task's stored files")
	}
	sb, err := s.account.client.Sandboxes.Create(ctx, app, image, &s.plan.params)
	if _, taken := errors.AsType[sdk.AlreadyExistsError](err); taken {
		return errAgain // somebody on another machine was first
	}
	if err != nil && from != "" && notFound(err) {
		s.forget(ctx, from) // it expired in this moment
		return errAgain
	}
	if err != nil {
		return s.account.explain(ctx, "making a sandbox of the image "+s.plan.image, err)
	}
	s.sb, s.fresh, s.ends = sb, true, time.Now().Add(s.plan.lifetime)
	if s.restored != "" {
		s.say(s.restored)
	}
	if s.plan.name != "" {
		note := boxNote{Task: s.req.Task, Settings: s.plan.settings.String(), Image: s.plan.image, From: from, Made: time.Now()}
		if err := s.store.note(ctx, s.plan.name, note); err != nil {
			s.log.Debug("it is not noted what a sandbox was made with", "sandbox", s.plan.name, "error", err)
		}
	}
	return nil
}

func (s *sandbox) progress(text string) {
	if s.req.Progress != nil {
		s.req.Progress(text)
	}
}

// base is the image that the settings name.
func (s *sandbox) base(ctx context.Context) (*sdk.Image, error) {
	if !strings.HasPrefix(s.plan.image, "im-") {
		return s.account.client.Images.FromRegistry(s.plan.image, nil), nil
	}
	image, err := s.account.client.Images.FromID(ctx, s.plan.image, nil)
	if notFound(err) {
		return nil, failure(driver.KindConfig, "there is no image %s in this account of Modal: set modal_image to one that is there", s.plan.image)
	}
	return image, s.account.explain(ctx, "asking for the image "+s.plan.image, err)
}

// stored is the image that holds the task's files; nil where there is none, or where the service says for certain that it is gone.
func (s *sandbox) stored(ctx context.Context) (image *sdk.Image, id string, err error) {
	if !s.plan.persistent {
		return nil, "", nil
	}
	gone := ""
	for {
		id, of, noted, err := s.store.find(s.plan.key)
		if err != nil {
			return nil, "", failure(driver.KindConfig, "%w", err)
		}
		if id == "" || id == gone {
			return nil, "", nil
		}
		if noted && of.Image != s.plan.image {
			return nil, "", failure(driver.KindConfig, "the stored files of the task %q belong to the image %s, and modal_image is now %s: use another task (--task OTHER), or give them up (elsewhere sandbox reset %s)",
				s.req.Task, of.Image, s.plan.image, s.req.Task)
		}
		image, err = s.account.client.Images.FromID(ctx, id, nil)
		if notFound(err) {
			gone = id // unless another process has stored them anew meanwhile
			s.forget(ctx, id)
			continue
		}
		if err != nil {
			return nil, "", s.account.explain(ctx, "asking for the stored files of the task "+s.req.Task, err)
		}
		from := "an earlier run of Hermes"
		if noted {
			from = of.At.Local().Format("2006-01-02 15:04:05")
		}
		s.restored = "the sandbox was made again from its stored files; they are as of " + from + ", and what ran in it then is gone"
		return image, id, nil
	}
}

// tellOfOthers says that Hermes has stored files that are not in the sandbox.
func (s *sandbox) tellOfOthers() {
	if !s.plan.persistent {
		return
	}
	other, err := s.store.others(s.plan.key, s.plan.name)
	if err != nil {
		s.say("it is not known whether Hermes has stored other files for this task, and this sandbox's cannot be stored: " + err.Error())
	}
	if other != "" {
		s.say("Hermes has stored files for this task (" + other + ") that are not in this sandbox, which goes on with its own; `elsewhere sandbox rm --data` gives these up, and the next run starts with those")
	}
}

// forget drops the record of files that are gone at the service.
func (s *sandbox) forget(ctx context.Context, id string) {
	s.restored = ""
	s.say("the stored files of this task (" + id + ") are not there any more, expired or deleted: the sandbox starts without them")
	if err := s.store.drop(ctx, id); err != nil {
		s.log.Warn("the record of stored files that are gone could not be dropped", "image", id, "error", err)
	}
}

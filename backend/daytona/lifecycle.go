package daytona

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
)

const (
	// startWait bounds how long a sandbox may take to run: an image may have to be built.
	startWait = 10 * time.Minute
	// stopWait bounds how long it may take to stop.
	stopWait = time.Minute
	// firstPoll and lastPoll are how often its state is asked for meanwhile.
	firstPoll = 50 * time.Millisecond
	lastPoll  = 2 * time.Second
	// looks is how often the opening begins again when a sandbox changes under it.
	looks = 20
)

// errAgain says that a sandbox changed meanwhile.
var errAgain = errors.New("it changes all the time")

// ensure finds the sandbox in whatever state, or makes it; it then runs.
func (s *sandbox) ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	s.progress("looking for the sandbox " + s.plan.name)
	for range looks {
		err := s.tryEnsure(ctx)
		if !errors.Is(err, errAgain) {
			return s.api.explain("opening the sandbox "+s.plan.name, err)
		}
		if err := sleep(ctx, firstPoll); err != nil {
			return err
		}
	}
	return failure(driver.KindUnavailable, "the sandbox %s cannot be opened: %w", s.plan.name, errAgain)
}

func (s *sandbox) tryEnsure(ctx context.Context) error {
	if s.alone() {
		return s.make(ctx)
	}
	b, err := s.api.get(ctx, s.plan.name)
	if cloudhttp.StatusOf(err) == http.StatusNotFound {
		return s.make(ctx)
	}
	if err != nil {
		return err
	}
	if b.Name != s.plan.name || !s.plan.ours(b.Labels, s.req) {
		return failure(driver.KindConfig, "the sandbox %s is there and is not elsewhere's for this task: rename or delete it, or use another task", s.plan.name)
	}
	replaced, err := s.decide(ctx, b)
	if err != nil || replaced {
		return errors.Join(err, again(replaced))
	}
	return s.run(ctx, b)
}

func again(replaced bool) error {
	if replaced {
		return errAgain
	}
	return nil
}

// decide removes a sandbox that was made with other settings, where it may be; else an error says why it is not used.
func (s *sandbox) decide(ctx context.Context, b *box) (replaced bool, err error) {
	had := kept.Parse(b.Labels[labelSettings])
	found := kept.Found{Settings: had, Persistent: b.Labels[labelPersist] == "true"}
	if len(s.plan.settings.Diff(had)) == 0 {
		return false, nil
	}
	if found.InUse, err = s.lock.InUse(); err != nil {
		return false, err
	}
	action, diff := kept.Decide(found, s.plan.settings)
	differs := kept.Describe(diff, had, s.plan.settings)
	if action == kept.Refuse || found.Persistent { // whose files are in it, and would go with it
		why := "it is kept, with its files"
		if found.InUse {
			why = "another process uses it"
		}
		return false, failure(driver.KindConfig, "the sandbox of the task %q (%s) was made with other settings, and %s: %s; use another task (--task OTHER), or make it anew (elsewhere sandbox reset %s)",
			s.req.Task, s.plan.name, why, differs, s.req.Task)
	}
	s.say("the sandbox was made again, since it had been made with other settings: " + differs)
	if err := s.api.remove(ctx, b.ID); err != nil {
		return false, err
	}
	return true, errors.Join(s.lock.Forget(), s.awaitGone(ctx, b.ID))
}

func (s *sandbox) awaitGone(ctx context.Context, id string) error {
	return poll(ctx, func() (bool, error) {
		b, err := s.api.get(ctx, id)
		if cloudhttp.StatusOf(err) == http.StatusNotFound {
			return true, nil
		}
		return err == nil && b.State == "destroyed", err
	})
}

// make makes the sandbox and waits until it runs. Where that fails nothing is left.
func (s *sandbox) make(ctx context.Context) error {
	s.progress("making the sandbox " + s.plan.name)
	b, err := s.api.create(ctx, s.plan.body)
	switch status := cloudhttp.StatusOf(err); {
	case err == nil:
	case status == http.StatusConflict:
		if s.alone() {
			return err // one of 32 bits more than it should have
		}
		return errAgain // somebody was first
	case status == 0 || status >= 500:
		return s.madeAfterAll(ctx, err)
	case quota(err):
		return s.explainQuota(ctx, err)
	default:
		return err
	}
	s.made = true
	return s.settle(ctx, b)
}

// settle waits until a sandbox that was just made runs, and removes it where it does not.
func (s *sandbox) settle(ctx context.Context, b *box) error {
	err := s.run(ctx, b)
	if err != nil {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if failed := s.api.remove(rctx, b.ID); failed != nil {
			s.log.Warn("a half-made sandbox could not be deleted", "sandbox", s.plan.name, "error", failed)
		}
	}
	return err
}

// madeAfterAll looks whether a request without an answer was done all the same.
func (s *sandbox) madeAfterAll(ctx context.Context, err error) error {
	gctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	b, failed := s.api.get(gctx, s.plan.name)
	switch {
	case cloudhttp.StatusOf(failed) == http.StatusNotFound && s.unanswered < 2:
		s.unanswered++
		return errors.Join(errAgain, ctx.Err())
	case failed != nil || !s.plan.ours(b.Labels, s.req) || b.Labels[labelOwner] != s.req.Identity.Owner:
		return err
	}
	s.made = true
	return s.settle(ctx, b)
}

// explainQuota names the own sandboxes that take up what the account may have.
func (s *sandbox) explainQuota(ctx context.Context, err error) error {
	own, failed := s.api.list(ctx, map[string]string{labelAgent: agent, labelIdentity: s.req.Identity.ID}, 0)
	if failed != nil || len(own) == 0 {
		return err
	}
	slices.SortFunc(own, func(a, b box) int { return strings.Compare(a.Updated, b.Updated) })
	var names []string
	for _, b := range own[:min(len(own), 5)] {
		names = append(names, fmt.Sprintf("%s (task %q, %s, %g GiB)", b.Name, taskOf(b.Labels), b.State, b.Disk))
	}
	return fmt.Errorf("%w; of your own sandboxes these were used longest ago: %s; `elsewhere sandbox rm TASK` deletes one", err, strings.Join(names, ", "))
}

// run brings a sandbox that is there to run, whatever state it is in.
func (s *sandbox) run(ctx context.Context, b *box) error {
	id, asked, was := b.ID, false, b.State
	return poll(ctx, func() (bool, error) {
		if b == nil {
			var err error
			if b, err = s.api.get(ctx, id); err != nil {
				if cloudhttp.StatusOf(err) == http.StatusNotFound {
					return false, errAgain
				}
				return false, err
			}
		}
		now := b
		b = nil
		switch now.State {
		case "started":
			s.box = now
			rested := s.lock.Wakes(id)
			if (asked || !s.made && was != "started") && !rested {
				s.say("the sandbox had been " + was + " and was started again: what ran in it is gone, its files are there")
			}
			return true, nil
		case "stopped", "archived", "paused":
			if asked {
				return false, nil
			}
			asked, was, s.woke = true, now.State, id
			s.progress("starting the sandbox " + s.plan.name)
			err := s.api.change(ctx, id, "start")
			if status := cloudhttp.StatusOf(err); status == http.StatusConflict || status == http.StatusBadRequest {
				asked, err = false, nil // it changes: the next look shows how
			}
			if quota(err) {
				err = s.explainQuota(ctx, err)
			}
			return false, err
		case "error", "build_failed":
			return false, failure(driver.KindUnavailable, "the sandbox %s is in the state %q: %s; `elsewhere sandbox reset %s` makes a new one", s.plan.name, now.State, now.ErrorReason, s.req.Task)
		case "destroyed", "destroying":
			return false, errAgain
		}
		s.progress("waiting for the sandbox " + s.plan.name + ": " + now.State)
		return false, nil // it changes
	})
}

// lieDown stops a sandbox that an opening started which then failed, unless another process uses it: nobody would close it.
func (s *sandbox) lieDown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askWait) // who gave the opening up waits for this
	defer cancel()
	if used, err := s.lock.InUse(); err != nil || used {
		return
	}
	if err := s.api.stop(ctx, s.plan.name, s.woke); err != nil {
		s.log.Warn("a sandbox that was started and cannot be used was not stopped; it stops by itself", "sandbox", s.plan.name, "after", fmt.Sprintf("%d idle minutes", s.plan.body.AutoStop), "error", err)
	}
}

// stop asks for a stop; it goes on behind. One that does not run is no error.
func (a *api) stop(ctx context.Context, name, id string) error {
	err := a.change(ctx, id, "stop")
	if status := cloudhttp.StatusOf(err); status == http.StatusBadRequest || status == http.StatusNotFound || status == http.StatusConflict {
		return nil
	}
	return a.explain("stopping the sandbox "+name, err)
}

// stopAndWait stops a sandbox and waits until it has stopped.
func (a *api) stopAndWait(ctx context.Context, name, id string) error {
	if err := a.stop(ctx, name, id); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, stopWait)
	defer cancel()
	return a.explain("stopping the sandbox "+name, poll(ctx, func() (bool, error) {
		now, err := a.get(ctx, id)
		if cloudhttp.StatusOf(err) == http.StatusNotFound {
			return true, nil
		}
		return err == nil && stateOf(now.State) != driver.StateRunning && now.State != "stopping", err
	}))
}

// poll asks again and again, less often with time, until done.
func poll(ctx context.Context, done func() (bool, error)) error {
	for pause := firstPoll; ; pause = min(pause*3/2, lastPoll) {
		if over, err := done(); over || err != nil {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

package vercel

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/elsewhere-sh/elsewhere/driver"
	"github.com/elsewhere-sh/elsewhere/internal/amount"
	"github.com/elsewhere-sh/elsewhere/internal/cloudbox"
	"github.com/elsewhere-sh/elsewhere/internal/cloudhttp"
	"github.com/elsewhere-sh/elsewhere/internal/kept"
)

const (
	// startWait bounds how long a sandbox may take to run.
	startWait = 5 * time.Minute
	// firstPoll and lastPoll are how often its state is asked for meanwhile.
	firstPoll = 50 * time.Millisecond
	lastPoll  = 2 * time.Second
)

// errAgain says that a sandbox changed meanwhile.
var errAgain = errors.New("it changes all the time")

// ensure finds the sandbox in whatever state, or makes it; it then runs.
func (s *sandbox) ensure(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	s.progress("looking for the sandbox " + s.plan.name)
	for pause := firstPoll; ; pause = min(pause*3/2, lastPoll) {
		err := s.tryEnsure(ctx)
		if err == nil && !s.made {
			s.record(ctx, s.box.Snapshot)
		}
		if !errors.Is(err, errAgain) {
			return s.api.explain("opening the sandbox "+s.plan.name, err)
		}
		if sleep(ctx, pause) != nil {
			return failure(driver.KindUnavailable, "the sandbox %s cannot be opened within %v: %w", s.plan.name, startWait, err)
		}
	}
}

func (s *sandbox) tryEnsure(ctx context.Context) error {
	if alone(s.req) {
		return s.make(ctx)
	}
	st, err := s.api.get(ctx, s.plan.name, false)
	if cloudhttp.StatusOf(err) == http.StatusNotFound {
		return s.make(ctx)
	}
	if err != nil {
		return err
	}
	if !s.plan.ours(st.Box.Tags) {
		return failure(driver.KindConfig, "the sandbox %s is there and is not elsewhere's for this task: delete it, or use another task", s.plan.name)
	}
	running := st.Run.Status == "running" || st.Run.Status == "pending"
	switch replaced, err := s.decide(ctx, st, running); {
	case err != nil:
		return err
	case replaced:
		return errAgain
	case running:
		return s.await(ctx, st)
	case st.Run.Status == "stopping" || st.Run.Status == "snapshotting":
		return errAgain
	}
	return s.resume(ctx, st)
}

// resume has the next session of a sandbox begin whose last one has ended.
func (s *sandbox) resume(ctx context.Context, old *state) error {
	s.progress("starting the sandbox " + s.plan.name)
	s.woke = true
	how := make(chan string, 1)
	go func() { how <- s.asOf(ctx, old) }()
	st, err := s.api.get(ctx, s.plan.name, true)
	switch status := cloudhttp.StatusOf(err); {
	case err == nil:
	case expired(err):
		return s.giveUp(ctx, old.Box.Snapshot)
	case quota(err):
		return s.explainQuota(ctx, err)
	case status == http.StatusNotFound, status == http.StatusConflict, status == http.StatusUnprocessableEntity:
		return errAgain
	default:
		return err
	}
	s.say("the sandbox had ended and was started again: what ran in it is gone, " + <-how)
	return s.await(ctx, st)
}

// asOf says from when the files are on which the next session of a sandbox begins.
func (s *sandbox) asOf(ctx context.Context, old *state) string {
	how := "its files are as they were when it was made"
	if id := old.Box.Snapshot; id != "" {
		ctx, cancel := context.WithTimeout(ctx, askWait)
		defer cancel()
		how = "its files are as they were stored last (" + id + ")"
		if at, err := s.api.storedAt(ctx, id); err == nil {
			how = "its files are as they were stored at " + at.Format(time.DateTime)
		} else {
			s.log.Debug("it is not known when files were stored", "sandbox", s.plan.name, "stored", id, "error", err)
		}
	}
	if old.Run.Status == "failed" || old.Run.Status == "aborted" {
		how += ", since it had " + old.Run.Status
	}
	return how
}

// lieDown ends the session that an opening began which then failed, unless another process uses it: nobody would close it. What is
// stored stays.
func (s *sandbox) lieDown(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askWait) // who gave the opening up waits for this
	defer cancel()
	if used, err := s.lock.InUse(); err != nil || used {
		return
	}
	st, err := s.api.get(ctx, s.plan.name, false)
	if err == nil && (st.Run.Status == "running" || st.Run.Status == "pending") {
		_, err = s.api.stop(ctx, st.Run.ID)
	}
	if err != nil && cloudhttp.StatusOf(err) != http.StatusNotFound {
		s.log.Warn("a sandbox that was started and cannot be used was not stopped; it stops by itself", "sandbox", s.plan.name, "after", s.plan.life, "error", err)
	}
}

// giveUp removes a sandbox whose files of last are gone at the service, so that the next one starts from what the record has, or else
// from what was stored before: that stays.
func (s *sandbox) giveUp(ctx context.Context, last string) error {
	before, err := s.api.before(ctx, s.plan.name, last)
	if err != nil {
		return err
	}
	if before != "" {
		_, err = s.store.put(ctx, s.plan.name, s.req.Task, before, last) // so that it is found by whoever makes the next one
	} else {
		err = s.store.drop(ctx, s.req.Task, last)
	}
	if err != nil {
		return failure(driver.KindUnavailable, "%w", err)
	}
	if err := s.api.remove(ctx, s.plan.name, false); err != nil {
		return err
	}
	said := "the files of the sandbox that were stored last have expired at the service"
	if last != "" {
		said += " (" + last + ")"
	}
	if before != "" {
		said += "; those that were stored before are there (" + before + ")"
	}
	s.say(said)
	s.lost, s.before = true, before
	return errors.Join(s.lock.Forget(), errAgain)
}

// decide removes a sandbox that was made with other settings, or that ended without keeping anything, where it may be; else an error
// says why it is not used.
func (s *sandbox) decide(ctx context.Context, st *state, running bool) (replaced bool, err error) {
	had := settingsOf(&st.Box)
	if len(s.plan.settings.Diff(had)) == 0 && (running || st.Box.Persistent) {
		return false, nil
	}
	why := "it had ended, and its files with it"
	if len(s.plan.settings.Diff(had)) > 0 {
		found := kept.Found{Settings: had, Persistent: st.Box.Persistent}
		if found.InUse, err = s.lock.InUse(); err != nil {
			return false, err
		}
		action, diff := kept.Decide(found, s.plan.settings)
		differs := kept.Describe(diff, had, s.plan.settings)
		why = "it had been made with other settings: " + differs
		if action == kept.Refuse {
			state := "it is kept, with its files"
			if found.InUse {
				state = "another process uses it"
			}
			return false, failure(driver.KindConfig, "the sandbox of the task %q (%s) was made with other settings, and %s: %s; use another task (--task OTHER), or make it anew (elsewhere sandbox reset %s)",
				s.req.Task, s.plan.name, state, differs, s.req.Task)
		}
	}
	s.say("the sandbox was made again, since " + why)
	if err := s.api.remove(ctx, s.plan.name, false); err != nil {
		return true, err
	}
	return true, s.lock.Forget()
}

// stored gives the id of the files that a new sandbox starts from: those that Hermes' record has for the task, else what was stored of
// one that was given up; "" for none.
func (s *sandbox) stored() (string, error) {
	if !s.plan.persist {
		return "", nil
	}
	id, err := s.store.find(s.req.Task)
	if err != nil {
		return "", failure(driver.KindUnavailable, "%w", err)
	}
	if id == "" {
		id = s.before
	}
	return id, nil
}

// make makes the sandbox, from the files that are stored for the task where there are some, and waits until it runs. Where that fails
// nothing is left.
func (s *sandbox) make(ctx context.Context) error {
	s.progress("making the sandbox " + s.plan.name)
	body := s.plan.body
	from, err := s.stored()
	if err != nil {
		return err
	}
	if from != "" {
		body.Source, body.Runtime, body.Image = &source{"snapshot", from}, "", ""
	}
	if s.plan.persist {
		if err := s.store.begin(ctx, s.plan.name, s.req.Task, from); err != nil {
			s.log.Warn("it is not noted what a sandbox starts from", "sandbox", s.plan.name, "error", err)
		}
	}
	st, err := s.api.create(ctx, body)
	switch status := cloudhttp.StatusOf(err); {
	case err == nil:
	case from != "" && (expired(err) || status == http.StatusNotFound):
		s.say("the stored files of the task (" + from + ") have expired at the service")
		s.lost = true
		if from == s.before {
			s.before = ""
		}
		if err := s.store.drop(ctx, s.req.Task, from); err != nil {
			return failure(driver.KindUnavailable, "%w", err)
		}
		return errAgain
	case status == http.StatusConflict && !alone(s.req):
		return errAgain // somebody was first
	case quota(err):
		return s.explainQuota(ctx, err)
	case status == 0 || status >= 500:
		return s.madeAfterAll(ctx, err)
	default:
		return err
	}
	s.from = from
	switch {
	case from != "":
		s.say("the sandbox starts with the files that are stored for the task as " + from)
	case s.lost:
		s.say("the sandbox starts without earlier files")
	}
	return s.settle(ctx, st)
}

// settle waits until a sandbox that was just made runs, and removes it where it does not.
func (s *sandbox) settle(ctx context.Context, st *state) error {
	s.made = true
	err := s.await(ctx, st)
	if err != nil {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if failed := s.api.remove(rctx, s.plan.name, false); failed != nil {
			s.log.Warn("a half-made sandbox could not be deleted", "sandbox", s.plan.name, "error", failed)
		}
	}
	return err
}

// madeAfterAll looks whether a request without an answer was done all the same.
func (s *sandbox) madeAfterAll(ctx context.Context, err error) error {
	gctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	st, failed := s.api.get(gctx, s.plan.name, false)
	switch {
	case cloudhttp.StatusOf(failed) == http.StatusNotFound && s.unanswered < 2 && ctx.Err() == nil:
		s.unanswered++
		return errAgain
	case failed != nil || !s.plan.ours(st.Box.Tags) || st.Box.Tags[tagOwner] != s.req.Identity.Owner:
		return err
	}
	return s.settle(ctx, st)
}

// explainQuota names the own sandboxes that run.
func (s *sandbox) explainQuota(ctx context.Context, err error) error {
	own, failed := s.api.list(ctx, s.req.Identity, 0)
	own = slices.DeleteFunc(own, func(b box) bool { return stateOf(b.Status) != driver.StateRunning })
	if failed != nil || len(own) == 0 {
		return err
	}
	slices.SortFunc(own, func(a, b box) int { return int(a.Updated - b.Updated) })
	var names []string
	for _, b := range own[:min(len(own), 5)] {
		names = append(names, fmt.Sprintf("%s (task %q, %s)", b.Name, taskOf(b.Tags), amount.Of(b.VCPUs, "vCPU")))
	}
	return fmt.Errorf("%w; of your own sandboxes these run: %s; `elsewhere sandbox stop TASK` stops one", err, strings.Join(names, ", "))
}

// await waits until a session runs.
func (s *sandbox) await(ctx context.Context, st *state) error {
	now := &st.Run
	for pause := firstPoll; ; pause = min(pause*3/2, lastPoll) {
		switch now.Status {
		case "running":
			s.box = &st.Box
			s.setRun(now)
			return nil
		case "pending":
			s.progress("starting the sandbox " + s.plan.name)
		default:
			return errAgain
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		next, err := s.api.look(ctx, now.ID)
		if cloudhttp.StatusOf(err) == http.StatusNotFound {
			return errAgain
		}
		if err != nil {
			return err
		}
		now = next
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

// mind has the service let the sandbox run longer while commands run in it, until it is closed.
func (s *sandbox) mind(ctx context.Context) {
	ticker := time.NewTicker(min(time.Minute, s.plan.life/4))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if s.busy() {
			s.prolong(ctx)
		}
	}
}

// prolong extends the session where less than half of a lifetime is left.
func (s *sandbox) prolong(ctx context.Context) {
	now := s.getRun()
	if ends := now.ends(); ends.IsZero() || time.Until(ends) > s.plan.life/2 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	next, err := s.api.extend(ctx, now.ID, s.plan.life)
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("the service does not let the sandbox run longer", "sandbox", s.plan.name, "until", now.ends(), "error", err)
		}
		return
	}
	s.setRun(next)
}

// removeLeftovers removes, behind the opening, the private directories of this home's processes that are dead.
func (s *sandbox) removeLeftovers() {
	dirs := s.around.DeadDirs(cloudbox.DeadOwners(s.req.Identity.Home, s.owner, s.log))
	if len(dirs) == 0 {
		return
	}
	s.bashes.Behind(func(ctx context.Context) { s.inside.RemoveDirs(ctx, dirs) })
}

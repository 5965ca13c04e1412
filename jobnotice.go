package elsewhere

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"time"
)

// JobWatch says what of a job is told. Nil is its end alone.
type JobWatch struct {
	// Pattern, where not nil, is looked for in each line of the output.
	Pattern *regexp.Regexp
	// After is the offset from which on the output is looked at.
	After int64
	// Every is the least time between two notices of lines: 0 is 5 s. Those between are counted.
	Every time.Duration
}

// JobNotice is one thing that happened to a job. The last one has Status or Err.
type JobNotice struct {
	Job string // its short id
	// Line is a line that fits the pattern, at most 4 KiB of it and as text. Skipped counts those that fitted since the last notice
	// and were not told.
	Line    string
	Skipped int
	Status  *JobStatus // the job is over
	Err     error      // it cannot be watched any more
}

// noticeLine is how much of a line is looked at and told.
const noticeLine = 4 << 10

// Watch tells of lines that fit a pattern and of the job's end, until that has come or ctx is done; then the channel is closed. A
// receiver that is slow slows down nothing but the watching.
func (j *Job) Watch(ctx context.Context, watch *JobWatch) <-chan JobNotice {
	if watch == nil {
		watch = &JobWatch{}
	}
	w := &jobWatcher{job: j, watch: *watch, notices: make(chan JobNotice, 16)}
	if w.watch.Every <= 0 {
		w.watch.Every = 5 * time.Second
	}
	go w.run(ctx)
	return w.notices
}

type jobWatcher struct {
	job     *Job
	watch   JobWatch
	notices chan JobNotice
	line    []byte // the beginning of a line whose end has not come
	last    time.Time
	skipped int
}

func (w *jobWatcher) run(ctx context.Context) {
	defer close(w.notices)
	if w.watch.Pattern == nil {
		st, err := w.job.Wait(ctx)
		w.finish(ctx, st, err)
		return
	}
	for next := w.watch.After; ; {
		out, err := w.job.Logs(ctx, next, 0, jobPoll)
		if err != nil {
			w.finish(ctx, out.Status, err)
			return
		}
		if out.Lost > 0 {
			w.line = nil
		}
		w.look(ctx, out.Data)
		next = out.Next
		if out.End {
			w.match(ctx)
			w.finish(ctx, out.Status, nil)
			return
		}
	}
}

// look takes more output.
func (w *jobWatcher) look(ctx context.Context, data []byte) {
	for len(data) > 0 {
		part, rest, ended := bytes.Cut(data, []byte("\n"))
		w.line = append(w.line, part[:min(len(part), max(0, noticeLine-len(w.line)))]...)
		data = rest
		if !ended {
			return
		}
		w.match(ctx)
	}
}

// match tells of the line that is whole now.
func (w *jobWatcher) match(ctx context.Context) {
	line := bytes.TrimSuffix(w.line, []byte("\r")) // as lines end on a terminal
	w.line = w.line[:0]
	if len(line) == 0 || !w.watch.Pattern.Match(line) {
		return
	}
	if !w.last.IsZero() && time.Since(w.last) < w.watch.Every {
		w.skipped++
		return
	}
	w.tell(ctx, JobNotice{Line: strings.ToValidUTF8(string(line), "\uFFFD")})
	w.last = time.Now()
}

func (w *jobWatcher) finish(ctx context.Context, st JobStatus, err error) {
	if err != nil {
		w.tell(ctx, JobNotice{Err: err})
		return
	}
	w.tell(ctx, JobNotice{Status: &st})
}

func (w *jobWatcher) tell(ctx context.Context, n JobNotice) {
	n.Job, n.Skipped = w.job.ID(), w.skipped
	w.skipped = 0
	select {
	case w.notices <- n:
	default:
		select {
		case w.notices <- n:
		case <-ctx.Done():
		}
	}
}

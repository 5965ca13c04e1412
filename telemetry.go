package elsewhere

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// instrumentation is the name under which spans and metrics are made.
const instrumentation = "github.com/elsewhere-sh/elsewhere"

// The keys of attributes. Metrics have only those of which there are few values.
const (
	keyBackend = attribute.Key("elsewhere.backend")
	keyOp      = attribute.Key("elsewhere.operation")
	keyCause   = attribute.Key("elsewhere.cause")
	keyTask    = attribute.Key("elsewhere.task")
	keySession = attribute.Key("elsewhere.session")
	keyCall    = attribute.Key("elsewhere.call.id")
	keyHost    = attribute.Key("elsewhere.where.host")
	keyBox     = attribute.Key("elsewhere.where.sandbox_id")
	keyBytes   = attribute.Key("elsewhere.output.bytes")
	keyWait    = attribute.Key("elsewhere.wait.seconds")
	keyRun     = attribute.Key("elsewhere.run.seconds")
	keyCode    = attribute.Key("process.exit.code")
	keySignal  = attribute.Key("elsewhere.signal")
	keyError   = attribute.Key("error.type") // a driver.Kind
)

// durations are the bounds of the histograms' buckets, in seconds: from a builtin on this machine to a long build.
var durations = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600, 1800}

// telemetry is what a sandbox tells OpenTelemetry. Where nobody set up providers, all of it does nothing. It holds no command text:
// a call's id leads to its record in the audit log.
type telemetry struct {
	backend attribute.KeyValue
	tracer  trace.Tracer

	calls, output, errors     metric.Int64Counter
	run, wait                 metric.Float64Histogram
	sandboxes, sessions, jobs metric.Int64UpDownCounter

	mu      sync.Mutex
	running map[string]bool // jobs that are known to run; nil after forget
}

func newTelemetry(backend string, opts *SandboxOptions, log *slog.Logger) *telemetry {
	tracers, meters := opts.TracerProvider, opts.MeterProvider
	if tracers == nil {
		tracers = otel.GetTracerProvider()
	}
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	m := meters.Meter(instrumentation)
	var errs []error
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	histogram := func(name, what string) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(what), metric.WithExplicitBucketBoundaries(durations...))
		errs = append(errs, err)
		return h
	}
	gauge := func(name, unit, what string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	t := &telemetry{
		backend:   keyBackend.String(backend),
		tracer:    tracers.Tracer(instrumentation),
		calls:     counter("elsewhere.calls", "{call}", "Calls that ended, by cause."),
		output:    counter("elsewhere.output", "By", "Output of calls, before any window."),
		errors:    counter("elsewhere.errors", "{error}", "Elsewhere's own failures, by kind."),
		run:       histogram("elsewhere.call.duration", "From the sending of a command to its end."),
		wait:      histogram("elsewhere.call.wait", "From the request of a call to the sending of its command."),
		sandboxes: gauge("elsewhere.sandboxes", "{sandbox}", "Sandboxes that are open in this process."),
		sessions:  gauge("elsewhere.sessions", "{session}", "Sessions that are open in this process."),
		jobs:      gauge("elsewhere.jobs", "{job}", "Background jobs that this process knows to run."),
		running:   map[string]bool{},
	}
	if err := errors.Join(errs...); err != nil {
		log.Warn("some metrics are not kept", "error", err)
	}
	return t
}

// failed counts a failure of elsewhere's own, and gives it back; nil is none.
func (t *telemetry) failed(ctx context.Context, op string, err error) error {
	if err != nil && t.errors.Enabled(ctx) {
		t.errors.Add(context.WithoutCancel(ctx), 1, metric.WithAttributes(t.backend, keyOp.String(op), keyError.String(kindText(err))))
	}
	return err
}

// kindText is the kind of an error.
func kindText(err error) string {
	if own, ok := errors.AsType[*Error](err); ok {
		return string(own.Kind)
	}
	return "other"
}

// count adds to a gauge of what is open.
func (t *telemetry) count(gauge metric.Int64UpDownCounter, by int64) {
	if ctx := context.Background(); by != 0 && gauge.Enabled(ctx) {
		gauge.Add(ctx, by, metric.WithAttributes(t.backend))
	}
}

// opening begins the span of an opening; end ends it.
func (t *telemetry) opening(ctx context.Context, task string) (_ context.Context, end func(error)) {
	ctx, span := t.tracer.Start(ctx, "elsewhere open", trace.WithSpanKind(trace.SpanKindClient))
	if span.IsRecording() {
		span.SetAttributes(t.backend, keyOp.String("open"), keyTask.String(task))
	}
	return ctx, func(err error) {
		_ = t.failed(ctx, "open", err)
		endSpan(span, err)
	}
}

// endSpan ends a span. The text of an error may hold what is nobody's business, such as a path or an image's name; its kind does not.
func endSpan(span trace.Span, err error) {
	if err != nil && span.IsRecording() {
		span.SetAttributes(keyError.String(kindText(err)))
		span.SetStatus(codes.Error, kindText(err))
	}
	span.End()
}

// requested begins the span of a call.
func (c *call) requested(ctx context.Context, op string) context.Context {
	c.op, c.asked = op, time.Now()
	ctx, c.span = c.s.sb.telemetry.tracer.Start(ctx, "elsewhere "+op, trace.WithSpanKind(trace.SpanKindClient))
	return ctx
}

// told ends it. r is nil where nothing ran.
func (c *call) told(ctx context.Context, r *Result, err error) {
	ctx = context.WithoutCancel(ctx)
	t, sent := c.s.sb.telemetry, c.started
	if r == nil || sent.IsZero() {
		sent = time.Now()
	}
	waited := sent.Sub(c.asked)
	if c.span.IsRecording() {
		c.span.SetAttributes(c.attributes(r, waited)...)
	}
	_ = t.failed(ctx, c.op, err)
	if r != nil && t.calls.Enabled(ctx) {
		with := metric.WithAttributeSet(attribute.NewSet(t.backend, keyOp.String(c.op), keyCause.String(string(r.Cause))))
		t.calls.Add(ctx, 1, with)
		t.output.Add(ctx, r.OutputBytes, with)
		t.run.Record(ctx, r.Duration.Seconds(), with)
		t.wait.Record(ctx, waited.Seconds(), with)
	}
	endSpan(c.span, err)
}

// attributes are those of a call's span.
func (c *call) attributes(r *Result, waited time.Duration) []attribute.KeyValue {
	sb := c.s.sb
	all := []attribute.KeyValue{sb.telemetry.backend, keyOp.String(c.op), keyTask.String(sb.task), keyWait.Float64(waited.Seconds())}
	if c.s.name != "" {
		all = append(all, keySession.String(c.s.name))
	}
	if r == nil {
		return all
	}
	all = append(all, keyCall.String(r.CallID), keyCause.String(string(r.Cause)), keyBytes.Int64(r.OutputBytes), keyRun.Float64(r.Duration.Seconds()),
		keyHost.String(r.Where.Host), keyBox.String(r.Where.SandboxID))
	if r.ExitCode >= 0 {
		all = append(all, keyCode.Int(r.ExitCode))
	}
	if r.Signal != "" {
		all = append(all, keySignal.String(r.Signal))
	}
	return all
}

// sawJob notes whether a job runs.
func (t *telemetry) sawJob(name string, runs bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running == nil || t.running[name] == runs {
		return
	}
	if runs {
		t.running[name] = true
		t.count(t.jobs, 1)
	} else {
		delete(t.running, name)
		t.count(t.jobs, -1)
	}
}

// closed takes a sandbox that was open, and the jobs in it, out of what is counted.
func (t *telemetry) closed() {
	t.mu.Lock()
	jobs := len(t.running)
	t.running = nil
	t.mu.Unlock()
	t.count(t.jobs, -int64(jobs))
	t.count(t.sandboxes, -1)
}

package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// flushWait bounds how long the end of the program waits for a collector.
const flushWait = 2 * time.Second

// telemetry is where spans and metrics go: to a collector, where OTEL_* names one, and to those who ask the MCP server for /metrics.
// The zero is nowhere. Providers are handed on and never made global: the engines' clients would add spans of their own.
type telemetry struct {
	tracers trace.TracerProvider // nil is none
	meters  metric.MeterProvider // nil is none
	metrics http.Handler         // nil is none
	ends    []func(context.Context) error
}

// startTelemetry sets up what OTEL_* asks for, and with served what /metrics serves. What cannot be set up is logged and left out: no
// command fails for it.
func (a *app) startTelemetry(ctx context.Context, served bool) {
	if a.telemetry != nil {
		return
	}
	a.telemetry = &telemetry{}
	spans, numbers := exported("TRACES"), exported("METRICS")
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") || !spans && !numbers && !served {
		return
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { a.log.Info("telemetry was not sent", "error", err) }))
	otel.SetLogger(logr.FromSlogHandler(a.log.Handler()))
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "elsewhere"), attribute.String("service.version", buildVersion())),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		a.log.Warn("OTEL_RESOURCE_ATTRIBUTES cannot be read", "error", err)
	}
	if spans {
		a.noTelemetry("spans", a.telemetry.sendSpans(ctx, about, served))
	}
	if numbers || served {
		a.noTelemetry("metrics", a.telemetry.sendMetrics(ctx, about, numbers, served))
	}
}

func (a *app) noTelemetry(what string, err error) {
	if err != nil {
		a.log.Warn("no "+what+" are sent", "error", err)
	}
}

// exported tells whether a signal is to be sent to a collector. Only OTLP over HTTP is spoken.
func exported(signal string) bool {
	if exporter := os.Getenv("OTEL_" + signal + "_EXPORTER"); exporter != "" && exporter != "otlp" {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

// checkProtocol refuses what would be sent to a port that does not understand it.
func checkProtocol(signal string) error {
	protocol := os.Getenv("OTEL_EXPORTER_OTLP_" + signal + "_PROTOCOL")
	if protocol == "" {
		protocol = os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol == "" || protocol == "http/protobuf" {
		return nil
	}
	return errors.New("the protocol " + protocol + " is not spoken: set OTEL_EXPORTER_OTLP_PROTOCOL to http/protobuf, and the endpoint to the collector's port for it (4318)")
}

// sendSpans sends spans in the background. A program that lasts tries again when the collector does not answer.
func (t *telemetry) sendSpans(ctx context.Context, about *resource.Resource, lasting bool) error {
	if err := checkProtocol("TRACES"); err != nil {
		return err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
		Enabled: lasting, InitialInterval: time.Second, MaxInterval: 10 * time.Second, MaxElapsedTime: time.Minute,
	}))
	if err != nil {
		return err
	}
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	t.tracers = p
	t.ends = append(t.ends, p.Shutdown)
	return nil
}

// sendMetrics keeps metrics and sends them, hands them out, or both.
func (t *telemetry) sendMetrics(ctx context.Context, about *resource.Resource, sent, served bool) error {
	opts := []sdkmetric.Option{sdkmetric.WithResource(about)}
	var errs []error
	if sent {
		reader, err := otlpReader(ctx)
		if errs = append(errs, err); err == nil {
			opts = append(opts, sdkmetric.WithReader(reader))
		}
	}
	if served {
		registry := prometheus.NewRegistry()
		reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry))
		if errs = append(errs, err); err == nil {
			opts = append(opts, sdkmetric.WithReader(reader))
			t.metrics = promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 8})
		}
	}
	if len(opts) > 1 {
		p := sdkmetric.NewMeterProvider(opts...)
		t.meters = p
		t.ends = append(t.ends, p.Shutdown)
	}
	return errors.Join(errs...)
}

func otlpReader(ctx context.Context) (sdkmetric.Reader, error) {
	if err := checkProtocol("METRICS"); err != nil {
		return nil, err
	}
	// What did not arrive is in the next numbers: no need to try again.
	exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}))
	if err != nil {
		return nil, err
	}
	return sdkmetric.NewPeriodicReader(exporter), nil
}

// end sends what is left, and gives up when the collector does not take it in time.
func (t *telemetry) end() {
	if t == nil || len(t.ends) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushWait)
	defer cancel()
	ended := make(chan struct{}, len(t.ends))
	for _, end := range t.ends {
		go func() {
			if err := end(ctx); err != nil {
				otel.Handle(err)
			}
			ended <- struct{}{}
		}()
	}
	for range t.ends {
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// withParent makes the span that TRACEPARENT names the parent of those to come.
func withParent(ctx context.Context) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": os.Getenv("TRACEPARENT"), "tracestate": os.Getenv("TRACESTATE"),
	})
}

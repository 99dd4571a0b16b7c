package database

import (
	"context"
	"errors"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// TracerName is the name of the tracer for runs of jobs.
const TracerName = "sexton"

// flushTimeout limits the time in which the last spans are sent when the process ends.
const flushTimeout = 5 * time.Second

// StartTraces sends traces by OpenTelemetry until stop is called, if the standard
// environment variables name a receiver. Otherwise the library's no-op provider drops all
// spans, and connections have no tracer. StartTraces passes errors to failed. The library
// reads the other environment variables itself.
func StartTraces(ctx context.Context, getenv func(string) string, failed func(error)) (stop func()) {
	stop = func() {}
	if !receiverNamed(getenv) {
		return stop
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(failed))
	if protocol := getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") +
		getenv("OTEL_EXPORTER_OTLP_PROTOCOL"); protocol == "grpc" || protocol == "http/json" {
		failed(errors.New("only the OpenTelemetry protocol http/protobuf is supported: set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"))
		return stop
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		failed(err)
		return stop
	}
	// The attributes of the environment are last, so that they override the other
	// attributes.
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", TracerName)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		failed(err) // On an error, the resource still has the attributes that could be read.
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about))
	otel.SetTracerProvider(provider)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			failed(err)
		}
	}
}

// receiverNamed reports whether the environment names a receiver and does not disable
// traces.
func receiverNamed(getenv func(string) string) bool {
	exporter := getenv("OTEL_TRACES_EXPORTER")
	named := getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" ||
		exporter == "otlp"
	return named && (exporter == "" || exporter == "otlp") && getenv("OTEL_SDK_DISABLED") != "true"
}

// Tracing reports whether traces are sent.
func Tracing() bool {
	_, started := otel.GetTracerProvider().(*trace.TracerProvider)
	return started
}

// Tracer returns a tracer for statements, with their text and without their arguments. It
// returns nil if no traces are sent.
func Tracer() pgx.QueryTracer {
	if !Tracing() {
		return nil
	}
	return otelpgx.NewTracer(otelpgx.WithDisableAcquireTracer())
}

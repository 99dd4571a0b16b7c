package app

import (
	"context"
	"fmt"
	"log/slog"

	"sexton/internal/config"
	"sexton/internal/metrics"
	"sexton/internal/web"
	riverjobs "sexton/river_jobs"
)

// operatorView is what a worker shows over HTTP.
type operatorView struct {
	metrics *metrics.Metrics
	gauges  *gauges
}

func newOperatorView(all *bound, noted *riverjobs.Bindings, log *slog.Logger) (*operatorView, error) {
	v := &operatorView{gauges: &gauges{all: all.connections, noted: noted, log: log}}
	versions := readVersions()
	measured, err := metrics.New(metrics.Options{
		Kinds: all.kinds(), Databases: all.names(), CleanUp: riverjobs.LooseForeignKeys,
		Version: versions.Version, Go: versions.Go, River: versions.River,
		Read: v.gauges.read, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	v.metrics = measured
	return v, nil
}

// serve serves until ctx ends.
func (v *operatorView) serve(ctx context.Context, settings config.HTTP, ready *readiness, log *slog.Logger) {
	v.gauges.lanes = ready.lanes
	server := web.Server{Settings: settings, Metrics: v.metrics.Handler(), Ready: ready.check, Logger: log}
	server.Run(ctx)
}

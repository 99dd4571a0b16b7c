package app

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"riverqueue.com/riverui"

	"sexton/internal/audittrail"
	"sexton/internal/config"
	"sexton/internal/metrics"
	"sexton/internal/web"
	riverjobs "sexton/river_jobs"
)

// operatorView is what a worker shows over HTTP.
type operatorView struct {
	all     *connections
	metrics *metrics.Metrics
	gauges  *gauges
}

func newOperatorView(all *bound, noted *riverjobs.Bindings, log *slog.Logger) (*operatorView, error) {
	v := &operatorView{all: all.connections, gauges: &gauges{all: all.connections, noted: noted, log: log}}
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
	if settings.Listen == "" {
		return
	}
	v.gauges.lanes = ready.lanes
	server := web.Server{Settings: settings, Metrics: v.metrics.Handler(), Ready: ready.check, Record: v.record, Logger: log}
	// A worker does not end because somebody cannot watch it.
	if river, err := riverPages(v.all, log); err != nil {
		log.ErrorContext(ctx, "River's pages cannot be shown", "error", err)
	} else {
		server.River = river
	}
	server.Run(ctx)
}

// record keeps what somebody asks River's pages to change.
func (v *operatorView) record(ctx context.Context, by web.Visitor, change web.Change) error {
	entry := audittrail.Entry{Actor: by.Actor, Remote: by.Remote, Action: change.Action, Target: change.Target}
	return audittrail.Record(ctx, v.all.jobs(), v.all.jobs().Pool, entry)
}

// riverPages are River's own pages. They are not started: that would have them count all jobs every ten seconds, with nobody looking.
func riverPages(all *connections, log *slog.Logger) (http.Handler, error) {
	client, err := all.riverClient()
	if err != nil {
		return nil, err
	}
	pages, err := riverui.NewHandler(&riverui.HandlerOpts{
		Endpoints: riverui.NewEndpoints(client, nil), Logger: log, Prefix: web.RiverPath, JobListHideArgsByDefault: !all.config.HTTP.ShowArgs,
	})
	if err != nil {
		return nil, fmt.Errorf("make River's pages: %w", err)
	}
	return pages, nil
}

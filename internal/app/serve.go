package app

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"riverqueue.com/riverui"

	"sexton/internal/audittrail"
	"sexton/internal/config"
	"sexton/internal/extdiff"
	"sexton/internal/listen"
	"sexton/internal/metrics"
	"sexton/internal/web"
	"sexton/internal/web/page"
	riverjobs "sexton/river_jobs"
)

// operatorView is the page of a worker.
type operatorView struct {
	all     *connections
	metrics *metrics.Metrics
	gauges  *gauges
	source  *pageSource
	// sampler keeps the history that the page shows.
	sampler *pageSource
}

func newOperatorView(all *bound, noted *riverjobs.Bindings, log *slog.Logger) (*operatorView, error) {
	v := &operatorView{all: all.connections, gauges: &gauges{all: all.connections, noted: noted, log: log}}
	versions := readVersions()
	var skips []string
	if all.config.ExternalDiffs.Enabled {
		for _, reason := range extdiff.Skips() {
			skips = append(skips, string(reason))
		}
	}
	measured, err := metrics.New(metrics.Options{
		Kinds: all.kinds(), Databases: all.names(), CleanUp: riverjobs.LooseForeignKeys, DiffSkips: skips,
		Version: versions.Version, Go: versions.Go, River: versions.River,
		Read: v.gauges.read, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("make metrics: %w", err)
	}
	v.metrics = measured
	v.source, v.sampler = newPageSource(all.connections, noted, log), newPageSource(all.async(), noted, log)
	return v, nil
}

// endpoint is where a worker serves. The zero value is for one without an HTTP server.
type endpoint struct {
	settings config.HTTP
	// listener, if set, is served in place of settings.Listen.
	listener net.Listener
}

// serve serves until ctx ends.
func (v *operatorView) serve(ctx context.Context, on endpoint, ready *readiness, log *slog.Logger) {
	settings := on.settings
	if settings.Listen == "" && on.listener == nil {
		return
	}
	v.gauges.lanes = ready.lanes
	server := web.Server{Settings: settings, Listener: on.listener, Metrics: v.metrics.Handler(), Ready: ready.check, Record: v.record, Logger: log}
	shown, err := page.New(page.Options{Source: v.source, ReadOnly: settings.ReadOnly, Version: readVersions().Version, Logger: log})
	if err != nil {
		log.ErrorContext(ctx, "the page cannot be shown", "error", err)
	} else {
		server.Page = shown
	}
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

// riverPages are River's own pages. They are not started: that would have them count all jobs every ten seconds, without a reader.
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
	return wakingAfterResume(all, log, pages), nil
}

// wakingAfterResume wakes the workers of a kind whose queue has been resumed: River does not know that what came in meanwhile
// woke no worker.
func wakingAfterResume(all *connections, log *slog.Logger, pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages.ServeHTTP(w, r)
		queue, resumed := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, web.RiverPath+"api/queues/"), "/resume")
		if !resumed || r.Method != http.MethodPut || !slices.Contains(all.kinds(), queue) {
			return
		}
		// There is one queue per kind, of its name. Without the wake-up the schedule is the floor.
		if _, err := all.jobs().Pool.Exec(r.Context(), "SELECT pg_catalog.pg_notify($1, $2)", listen.Channel, queue); err != nil {
			log.WarnContext(r.Context(), "workers are not woken after a queue was resumed", "queue", queue, "error", err)
		}
	})
}

package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"riverqueue.com/riverui"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/metrics"
	"sexton/internal/operator"
	"sexton/internal/web"
	"sexton/internal/web/page"
	riverjobs "sexton/river_jobs"
)

// operatorView holds the metrics and the page that a worker serves.
type operatorView struct {
	all     *installation.Connections
	metrics *metrics.Metrics
	gauges  *operator.Gauges
	source  *operator.PageSource
}

func newOperatorView(all *installation.Bound, bindings *riverjobs.Bindings, log *slog.Logger) (*operatorView, error) {
	v := &operatorView{all: all.Connections, gauges: &operator.Gauges{All: all.Connections, Noted: bindings, Log: log}}
	versions := cli.ReadVersions()
	options := metrics.Options{
		Kinds: all.Kinds(), Databases: all.Config.DatabaseNames(), CleanUp: riverjobs.LooseForeignKeys,
		Version: versions.Version, Go: versions.Go, River: versions.River,
		Read: v.gauges.Read, Logger: log,
	}
	components.Measure(all.Config, &options)
	measured, err := metrics.New(options)
	if err != nil {
		return nil, fmt.Errorf("create metrics: %w", err)
	}
	v.metrics = measured
	v.source = operator.NewPageSource(all, bindings, log)
	return v, nil
}

// Endpoint configures the HTTP server of a worker. With the zero value, there is no
// server.
type Endpoint struct {
	settings config.HTTP
	// Listener replaces settings.Listen if it is not nil.
	Listener net.Listener
	// refused is the reason why the last reload failed. It is nil if the worker does not
	// reload.
	refused *refusal
}

// serve runs the HTTP server until ctx ends.
func (v *operatorView) serve(ctx context.Context, on Endpoint, ready *operator.Readiness, log *slog.Logger) {
	settings := on.settings
	if settings.Listen == "" && on.Listener == nil {
		return
	}
	v.gauges.Subscriptions = ready.Subscriptions
	server := web.Server{
		Settings: settings, Listener: on.Listener, Metrics: v.metrics.Handler(), Ready: ready.Check,
		Record: v.record, Logger: log,
	}
	shown, err := page.New(page.Options{
		Source: v.source, ReadOnly: settings.ReadOnly,
		Version: cli.ReadVersions().Version, Logger: log,
	})
	if err != nil {
		log.ErrorContext(ctx, "page_unavailable", "error", err)
	} else {
		server.Page = shown
	}
	// If River's pages cannot be created, the worker continues without them.
	if river, err := riverPages(v.all, log); err != nil {
		log.ErrorContext(ctx, "river_pages_unavailable", "error", err)
	} else {
		server.River = river
	}
	server.Run(ctx)
	v.source.Stop()
}

// record writes an audit record of a change that a visitor made on River's pages.
func (v *operatorView) record(ctx context.Context, by web.Visitor, change web.Change) error {
	return v.all.Record(ctx, database.Change{
		Actor: by.Actor, Remote: by.Remote, Action: change.Action,
		Target: change.Target,
	})
}

// riverPages returns the handler of River UI. Its background services are not started,
// because they count all jobs every ten seconds, even if nobody reads the pages.
func riverPages(all *installation.Connections, log *slog.Logger) (http.Handler, error) {
	client, err := all.RiverClient()
	if err != nil {
		return nil, err
	}
	pages, err := riverui.NewHandler(&riverui.HandlerOpts{
		Endpoints: riverui.NewEndpoints(client, nil), Logger: log, Prefix: web.RiverPath,
		JobListHideArgsByDefault: !all.Config.HTTP.ShowArgs,
	})
	if err != nil {
		return nil, fmt.Errorf("create River's pages: %w", err)
	}
	return pages, nil
}

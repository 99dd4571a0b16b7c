package jobs

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/heartbeat"
	"sexton/internal/installation"
	"sexton/internal/jobrun"
	"sexton/internal/listen"
	"sexton/internal/operator"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// stopTime limits the stop of River's client, including its soft stop.
const stopTime = 9 * time.Second

// WorkerCommand returns the command `sexton run`.
func WorkerCommand(env *cli.Env) *cobra.Command {
	flags := worker{refused: &refusal{}}
	cmd := env.Command(&cobra.Command{
		Use:   "run",
		Short: "Run the worker until SIGTERM or SIGINT",
		Long: `Runs all enabled jobs. Commits wake them. Schedules also run them, in case a wake-up was missed. Any
number of workers may run against the same databases. Each serves a page at http.listen (default:
http://127.0.0.1:8686/).

On a signal, the worker ends its current batches and releases its leases. A second signal ends the
process immediately. On SIGHUP, it reads the configuration and the definitions again. If they are
invalid, it logs the errors and keeps the old configuration and definitions. If its definitions
differ from the installed definitions, it does not run their job until it reloads the installed
files, or until "sexton triggers install" is run with its files.`,
		Example: "  sexton run\n  sexton run --fail-fast",
	}, func(ctx context.Context, _ []string) error { return runWorker(ctx, env, flags) })
	cmd.Flags().BoolVar(&flags.failFast, "fail-fast", false,
		"exit 4 if a database cannot be reached at the start, instead of retrying")
	return cmd
}

func hasJobs(c *config.Config) error {
	if len(riverjobs.Jobs(c)) > 0 {
		return nil
	}
	return problem.List{c.Problem("loose_foreign_keys.enabled",
		"is false, and no other component is enabled, so there is no job to run", "enable one")}
}

// prepare logs warnings, records the settings of the components, and prepares the
// databases for work.
func prepare(ctx context.Context, all *installation.Bound, log *slog.Logger) error {
	for _, warning := range all.Warnings {
		log.WarnContext(ctx, "startup_warning", "warning", warning.String())
	}
	for _, db := range all.Databases {
		warnings, err := installation.StartupWarnings(ctx, all, db)
		if err != nil {
			warnings = append(warnings, err.Error())
		}
		for _, warning := range warnings {
			log.WarnContext(ctx, "startup_warning", "database", db.Name, "warning", warning)
		}
	}
	if err := components.Start(ctx, all.Connections); err != nil {
		return err
	}
	return database.ForWork(ctx, all.Databases)
}

// Work runs the worker and its HTTP server until ctx ends. It then ends the current
// batches and stops.
func Work(ctx context.Context, all *installation.Bound, log *slog.Logger, on Endpoint) error {
	if err := prepare(ctx, all, log); err != nil {
		return err
	}
	id := installation.Holder()
	bindings := &riverjobs.Bindings{}
	all.NoteHeld(ctx, bindings, log)
	view, err := newOperatorView(all, bindings, log)
	if err != nil {
		return err
	}
	reloadError := func() string { return "" }
	if on.refused != nil {
		reloadError = on.refused.text
	}
	view.gauges.ReloadError = reloadError
	riverLog := limitRiverLog(log)
	defer riverLog.Flush()
	deps := riverjobs.Deps{
		Bindings: bindings, Config: all.Config, Databases: all.Databases, Definitions: all.Definitions, Stopping: ctx,
		Logger: log, RiverLogger: slog.New(riverLog),
		Runner: &jobrun.Runner{Leases: all.Leases(id), Logger: log, Observer: view.metrics},
	}
	var subscriptions []*listen.Subscription
	var listeners []*listen.Listener
	heart := &heartbeat.Heart{
		DB: all.Jobs(), ClientID: id, Silence: all.Config.Jobs.Silence, Logger: log,
		Polling: func() []string { return pollingSubscriptions(subscriptions) },
		Held:    bindings.Held, ReloadError: reloadError, Digests: deps.Runner.Leases.Digests,
		Schedules: riverjobs.Schedules(all.Config),
	}
	deps.Working = heart.TrackJob
	subscriptions, listeners = riverjobs.Subscriptions(deps)
	// The sampler records the backlog history that the page shows.
	sampler := &jobrun.Sampler{
		Jobs: all.Jobs().Name, Tables: riverjobs.DeletionTables(all.Config),
		Kinds: riverjobs.TablesOfKinds(all.Config), Logger: log,
	}
	client, err := riverjobs.NewClient(deps, id, listeners...)
	if err != nil {
		return err
	}
	// After ctx has ended, workerCtx lets everything except the listeners run until the
	// jobs have ended.
	workerCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	if err := heart.Beat(ctx); err != nil {
		return fmt.Errorf("begin heartbeat: %w", err)
	}
	var beating, waking, serving sync.WaitGroup
	beating.Go(func() { heart.Run(workerCtx) })
	if err := client.Start(workerCtx); err != nil {
		cancel()
		beating.Wait()
		return fmt.Errorf("start river: %w", err)
	}
	for _, listener := range listeners {
		waking.Go(func() {
			if all.Await(ctx, listener.Database, deps.Bindings, log) {
				waking.Go(func() { sampler.Run(ctx, all.Database(listener.Database)) })
				listener.Run(ctx)
			}
		})
	}
	// The HTTP server runs until the worker has stopped, so that the page shows the stop.
	ready := operator.NewReadiness(ctx, all.Connections, subscriptions, heart)
	serving.Go(func() { view.serve(workerCtx, on, ready, log) })
	log.InfoContext(ctx, "worker_started", "client_id", id, "databases", len(all.Databases))

	<-ctx.Done()
	log.InfoContext(workerCtx, "worker_stopping")
	stopRiver(workerCtx, log, client)
	waking.Wait()
	cancel()
	beating.Wait()
	serving.Wait()
	log.InfoContext(workerCtx, "worker_stopped")
	return nil
}

// pollingSubscriptions returns the subscriptions that poll because no notifications
// arrive, as KIND/DATABASE.
func pollingSubscriptions(subscriptions []*listen.Subscription) []string {
	var names []string
	for _, subscription := range subscriptions {
		if subscription.Polls() {
			names = append(names, subscription.Kind+"/"+subscription.Database)
		}
	}
	return names
}

func stopRiver(ctx context.Context, log *slog.Logger, client *river.Client[pgx.Tx]) {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := client.Stop(ctx); err != nil {
		log.WarnContext(ctx, "river_stop_timed_out", "error", err)
	}
}

package riverjobs

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/riverqueue/rivercontrib/otelriver"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/jobrun"
	"sexton/internal/listen"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

const (
	// maxJobTime bounds every kind, besides the time of long statements; longer work
	// commits what it has and goes on in a successor.
	maxJobTime = 60 * time.Second
	// slowNetwork is the time that round trips of a second add to a pass: a hundred of
	// them prepare its first statements, bind definitions, and record how it ended.
	slowNetwork = 90 * time.Second
	// fetchCooldown is short because River drops the notifications of a second insert
	// within it, which would then wait for the poll.
	fetchCooldown = 2 * time.Millisecond
	// fetchPoll may be long: the driver looks for waiting jobs every 2 s. If that query
	// fails, they wait for the poll. Behind a transaction pooler no notification arrives,
	// and River polls as subscriptions do.
	fetchPoll, pooledFetchPoll = 30 * time.Second, time.Second
	// softStop is how long running jobs may take to end once River is told to stop.
	softStop = 8 * time.Second
)

// NewClient returns River's client for one process, with one queue per kind. The id is
// the one that the process's heartbeat is known by. Of inserted jobs the client hears by
// the listener of the jobs database.
func NewClient(deps Deps, id string, listeners ...*listen.Listener) (*river.Client[pgx.Tx], error) {
	reindex, err := deps.Config.Jobs.Reindex.Parse()
	if err != nil {
		return nil, fmt.Errorf("read jobs.reindex: %w", err)
	}
	workers := river.NewWorkers()
	Register(workers, deps)
	queues, poll := map[string]river.QueueConfig{}, fetchPoll
	if deps.jobsDB().Pooled() {
		poll = pooledFetchPoll
	}
	for _, job := range Jobs(deps.Config) {
		workers := cmp.Or(job.MaxWorkers, deps.Config.Jobs.MaxWorkers)
		queues[job.Queue] = river.QueueConfig{
			MaxWorkers: workers, FetchCooldown: fetchCooldown,
			FetchPollInterval: poll,
		}
	}
	ticks, err := Ticks(deps.Config)
	if err != nil {
		return nil, err
	}
	ticker, periodic := newTicker(deps, ticks)
	log := slog.New(reticent{cmp.Or(deps.RiverLogger, deps.Logger).Handler()})
	on := &driver{
		Driver: riverpgxv5.New(deps.jobsDB().Async()), jobs: deps.jobsDB(), client: id, log: log, ticker: ticker,
		look:     dbsqlc.QueueLooksParams{Queues: slices.Collect(maps.Keys(queues))},
		inserted: make(chan string, mostInserted),
	}
	for _, listener := range listeners {
		if listener.Database == on.jobs.Name {
			listener.Topic, listener.OnTopic = insertedTopic(), on.hear
		}
	}
	on.setGenerations(Generations(deps.Config, deps.Definitions))
	client, err := river.NewClient(on, &river.Config{
		ID:     id,
		Schema: pgcatalog.Schema,
		Logger: log,
		Queues: queues, Workers: workers,
		// A client sends one notification about its inserts within this time and drops
		// the others, while a job may have a successor within milliseconds.
		FetchCooldown: river.FetchCooldownMin,
		JobTimeout:    maxJobTime + longer(deps.Config),
		// The heartbeat gives a dead client's jobs back within seconds; this is only its
		// floor.
		RescueStuckJobsAfter:        2 * (maxJobTime + longer(deps.Config) + slowNetwork),
		CompletedJobRetentionPeriod: 2 * time.Hour,
		ErrorHandler:                failures{log},
		Middleware:                  deps.middleware(),
		ReindexerSchedule:           reindex,
		PeriodicJobs:                periodic,
		Plugins:                     []rivertype.Plugin{ticker},
		SoftStopTimeout:             softStop,
	})
	return client, problem.Doing(err, "make river client")
}

// middleware runs around each job, the first outermost.
func (d Deps) middleware() []rivertype.Middleware {
	all := []rivertype.Middleware{d.working()}
	if database.Tracing() {
		tracing := otelriver.NewMiddleware(&otelriver.MiddlewareConfig{EnableWorkSpanJobKindSuffix: true})
		all = append([]rivertype.Middleware{tracing}, all...)
	}
	return all
}

// working tells of each job that this process works on.
func (d Deps) working() rivertype.Middleware {
	return river.WorkerMiddlewareFunc(func(ctx context.Context, job *rivertype.JobRow,
		work func(context.Context) error,
	) error {
		if d.Working != nil {
			defer d.Working(job.ID)()
		}
		defer d.Bindings.ends.end(job.ID)
		return work(ctx)
	})
}

// failures logs errors of jobs that have no line in the log yet: of all that is not the
// pass itself.
type failures struct{ log *slog.Logger }

func (f failures) HandleError(ctx context.Context, job *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	if !jobrun.IsLogged(err) {
		f.log.ErrorContext(ctx, "job_failed", "kind", job.Kind, "job_id", job.ID, "attempt", job.Attempt, "error", err)
	}
	return nil
}

// HandlePanic leaves a panic to River, which logs it with its trace.
func (failures) HandlePanic(context.Context, *rivertype.JobRow, any, string) *river.ErrorHandlerResult {
	return nil
}

// reticent leaves out what River says of a failed job, at level info, beside the line
// that the failure has.
type reticent struct{ slog.Handler }

func (h reticent) WithAttrs(attrs []slog.Attr) slog.Handler {
	return reticent{h.Handler.WithAttrs(attrs)}
}

func (h reticent) WithGroup(name string) slog.Handler { return reticent{h.Handler.WithGroup(name)} }

func (h reticent) Handle(ctx context.Context, record slog.Record) error {
	for _, end := range []string{": Job errored", ": Job errored; retrying", ": Job panicked"} {
		if record.Level == slog.LevelInfo && strings.HasSuffix(record.Message, end) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, record)
}

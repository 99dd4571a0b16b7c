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
	// maxJobTime limits the time of a job of any kind. Kinds add extra time for long
	// statements. A pass with more work ends, and a successor continues.
	maxJobTime = 60 * time.Second
	// slowNetwork is the extra time for a network with round trips of one second. A pass
	// has about a hundred round trips outside its batches.
	slowNetwork = 90 * time.Second
	// fetchCooldown is the minimum time between two fetches of a queue. It is short
	// because River drops the notification of a second insert within it, and that job
	// would wait for the poll.
	fetchCooldown = 2 * time.Millisecond
	// fetchPoll is the interval at which River polls a queue. It can be long because the
	// driver queries for waiting jobs every 2 s, so only a failure of that query makes
	// jobs wait for the poll. pooledFetchPoll is the interval through a transaction
	// pooler, where no notification arrives.
	fetchPoll, pooledFetchPoll = 30 * time.Second, time.Second
	// softStop limits the time that running jobs may take to end after a stop.
	softStop = 8 * time.Second
)

// NewClient returns River's client for one process, with one queue per kind. The ID is
// also the client ID of the process's heartbeat. The client receives the notifications of
// inserted jobs from the jobs database's listener.
func NewClient(deps Deps, id string, listeners ...*listen.Listener) (*river.Client[pgx.Tx], error) {
	reindex, err := deps.Config.Jobs.Reindex.Parse()
	if err != nil {
		return nil, fmt.Errorf("parse jobs.reindex: %w", err)
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
	log := slog.New(quietHandler{cmp.Or(deps.RiverLogger, deps.Logger).Handler()})
	on := &driver{
		Driver: riverpgxv5.New(deps.jobsDB().Async()), jobs: deps.jobsDB(), client: id, log: log, ticker: ticker,
		params:   dbsqlc.ProducerQueuesParams{Queues: slices.Collect(maps.Keys(queues))},
		inserted: make(chan string, mostInserted),
	}
	for _, listener := range listeners {
		if listener.Database == on.jobs.Name {
			listener.Topic, listener.OnTopic = insertedTopic(), on.receive
		}
	}
	on.setGenerations(Generations(deps.Config, deps.Definitions))
	client, err := river.NewClient(on, &river.Config{
		ID:     id,
		Schema: pgcatalog.Schema,
		Logger: log,
		Queues: queues, Workers: workers,
		// Within this time a client sends only one notification about its inserts, but a
		// job can have a successor within milliseconds.
		FetchCooldown: river.FetchCooldownMin,
		JobTimeout:    maxJobTime + extraTime(deps.Config),
		// The heartbeat gives back a dead client's jobs within seconds. River's rescuer
		// is the fallback.
		RescueStuckJobsAfter:        2 * (maxJobTime + extraTime(deps.Config) + slowNetwork),
		CompletedJobRetentionPeriod: 2 * time.Hour,
		ErrorHandler:                failures{log},
		Middleware:                  deps.middleware(),
		ReindexerSchedule:           reindex,
		PeriodicJobs:                periodic,
		Plugins:                     []rivertype.Plugin{ticker},
		SoftStopTimeout:             softStop,
	})
	return client, problem.Doing(err, "create the River client")
}

// middleware returns the middleware of all jobs, the outermost first.
func (d Deps) middleware() []rivertype.Middleware {
	all := []rivertype.Middleware{d.trackJobs()}
	if database.Tracing() {
		tracing := otelriver.NewMiddleware(&otelriver.MiddlewareConfig{EnableWorkSpanJobKindSuffix: true})
		all = append([]rivertype.Middleware{tracing}, all...)
	}
	return all
}

// trackJobs returns middleware that calls Working and notifies the subscriptions that
// wait for the job.
func (d Deps) trackJobs() rivertype.Middleware {
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

// failures logs the errors of jobs that occurred outside the pass, which jobrun has not
// logged.
type failures struct{ log *slog.Logger }

func (f failures) HandleError(ctx context.Context, job *rivertype.JobRow, err error) *river.ErrorHandlerResult {
	if !jobrun.IsLogged(err) {
		f.log.ErrorContext(ctx, "job_failed", "kind", job.Kind, "job_id", job.ID, "attempt", job.Attempt, "error", err)
	}
	return nil
}

// HandlePanic does nothing, because River logs a panic with its stack trace.
func (failures) HandlePanic(context.Context, *rivertype.JobRow, any, string) *river.ErrorHandlerResult {
	return nil
}

// quietHandler drops River's info messages about failed jobs. The failures are logged
// elsewhere.
type quietHandler struct{ slog.Handler }

func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quietHandler{h.Handler.WithAttrs(attrs)}
}

func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name)}
}

func (h quietHandler) Handle(ctx context.Context, record slog.Record) error {
	for _, end := range []string{": Job errored", ": Job errored; retrying", ": Job panicked"} {
		if record.Level == slog.LevelInfo && strings.HasSuffix(record.Message, end) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, record)
}

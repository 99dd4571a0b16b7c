package jobrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/lease"
)

// Outcome is how a pass ended.
type Outcome string

// The outcomes.
const (
	Done      Outcome = "done"
	OverLimit Outcome = "over_limit"
	Skipped   Outcome = "skipped"
	Failed    Outcome = "failed"
)

// Spec says what is run.
type Spec struct {
	Kind string
	// Database is the configured name of the database that the pass serves.
	Database string
	// LeaseKey names the lease. Without one the work gets none: it must be safe beside
	// another pass of its own.
	LeaseKey string
	LeaseTTL time.Duration
	// Shared reports that passes of the kind run side by side in the database, under
	// leases of their own or without.
	Shared bool
	// Long says that a run may take hours, as long as it gets on.
	Long bool
	// Fences are all databases that the pass may write to.
	Fences []database.Database
}

// LatencyKey is the key of the histogram in the statistics of all kinds.
const LatencyKey = "latency_seconds"

// Work is one pass under its lease. What it returns beside an error still counts.
type Work func(context.Context, *lease.Lease, Progress) (Result, error)

// Progress takes the statistics so far, for readers that watch the pass; it may be called
// after every batch. They are recorded now and then, or at once where now is set.
type Progress func(ctx context.Context, stats any, now bool)

// progressEvery is how often the row of a running pass is brought up to date at most.
const progressEvery = 500 * time.Millisecond

// Report is the outcome of a pass, as printed by `sexton job run --json`.
type Report struct {
	Kind     string  `json:"kind"`
	RunID    int64   `json:"run_id"`
	Database string  `json:"database"`
	Outcome  Outcome `json:"outcome"`
	// Holder is set when the lease is taken, Reason when the pass was skipped or cut
	// short.
	Holder string `json:"holder,omitempty"`
	// Outdated is set when other definitions are installed than the process has read.
	Outdated bool            `json:"outdated,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Error    string          `json:"error,omitempty"`
	Stats    json.RawMessage `json:"stats,omitempty"`
}

// Runner runs passes for one process.
type Runner struct {
	Leases *lease.Manager
	Logger *slog.Logger
	// Observer, if set, is told of every pass.
	Observer Observer

	mu     sync.Mutex
	tidied map[string]tidied
	// held logs which leases other processes hold.
	held *Dedup
	// live are the IDs of the runs under way.
	live map[int64]bool
}

// Do runs work under the lease of spec. The error repeats what the report says of a
// failed pass, for callers that need its type, and has its line in the log (IsLogged)
// unless there was no run. A skipped pass has none, except that of ctx where it was asked
// to stop before it began. ctx ending asks work to stop soon; history and lease are
// settled all the same.
func (r *Runner) Do(ctx context.Context, spec Spec, work Work) (report Report, err error) {
	ctx, span := otel.Tracer(database.TracerName).Start(ctx, "run "+spec.Kind,
		trace.WithAttributes(attribute.String("sexton.database", spec.Database)))
	defer func() { endSpan(span, report) }()
	log := r.Logger.With("kind", spec.Kind, "database", spec.Database)
	settle := context.WithoutCancel(ctx)
	queries := r.Leases.Jobs.AsyncQueries()
	report = Report{Kind: spec.Kind, Database: spec.Database, Stats: json.RawMessage("{}")}
	var result Result
	clock := time.Now()
	defer func() { r.observe(report, result, time.Since(clock), err) }()

	var granted *lease.Lease
	ended := false
	defer func() {
		if ended {
			return
		}
		r.forget(spec.history())
		if granted != nil {
			_ = granted.Release(settle) // If that fails, too, the next acquisition makes up for it.
		}
	}()
	var runID int64
	runID, granted, err = r.begin(ctx, queries, spec)
	if runID == 0 {
		report.Outcome, report.Error = Failed, err.Error()
		return report, fmt.Errorf("begin run of %s: %w", spec.Kind, err)
	}
	report.RunID = runID
	over := r.alive(runID)
	defer over()
	log = log.With("run_id", runID)

	result, err = r.underLease(ctx, log, queries, spec, &report, granted, err, work)
	if outdated, ok := errors.AsType[*lease.GenerationError](err); ok {
		report.Outcome, report.Outdated, report.Reason, err = Skipped, true, outdated.Error(), nil
		r.logOutdated(ctx, spec, runID, outdated)
	}
	if result.Stats != nil {
		stats, marshalErr := json.Marshal(result.Stats)
		if marshalErr != nil {
			return report, fmt.Errorf("encode statistics of %s: %w", spec.Kind, marshalErr)
		}
		report.Stats = stats
	}
	log = log.With("processed", result.Processed, "failed", result.Failed, "duration_ms",
		time.Since(clock).Milliseconds(), "stats", report.Stats)
	switch {
	case result.Stats == nil && errors.Is(err, context.Canceled) && ctx.Err() != nil:
		// A stop on request is no failure.
		report.Outcome, report.Reason = Skipped, "asked to stop before it began"
		log.InfoContext(settle, "run_ended", "outcome", report.Outcome, "reason", report.Reason)
	case err != nil:
		report.Outcome, report.Error = Failed, err.Error()
		err = logFailure(ctx, log, err)
	case report.Outcome != Skipped:
		if held := result.held(); held != "" {
			log = log.With("held", held)
		}
		log.InfoContext(ctx, "run_ended", "outcome", report.Outcome)
	}
	unrecorded := record(settle, queries, granted, report, result)
	ended = unrecorded == nil
	rest := errors.Join(unrecorded, r.tidy(settle, queries, spec))
	if rest != nil {
		rest = logFailure(settle, log, rest)
	}
	return report, Logged(errors.Join(err, rest))
}

// endSpan ends the span of a run.
func endSpan(span trace.Span, report Report) {
	span.SetAttributes(attribute.Int64("sexton.run_id", report.RunID),
		attribute.String("sexton.outcome", string(report.Outcome)))
	if report.Error != "" {
		span.SetStatus(codes.Error, report.Error)
	}
	span.End()
}

// begin enters the run in the history and takes its lease, if it has one. The ID is 0
// where neither is so.
func (r *Runner) begin(ctx context.Context, queries *dbsqlc.Queries, spec Spec) (int64, *lease.Lease, error) {
	start := func() (int64, error) {
		return queries.RunStart(ctx, spec.Kind, spec.Database, r.Leases.Holder)
	}
	if spec.LeaseKey == "" {
		id, err := start()
		return id, nil, err
	}
	if err := ctx.Err(); err != nil {
		return 0, nil, err //nolint:wrapcheck // The caller names the run.
	}
	// A stop must not interrupt the acquisition: if its answer were lost, the lease and the
	// run's row would be left to the next one. Its lock timeout bounds it.
	run := lease.Run{Kind: spec.Kind, Database: spec.Database}
	id, granted, err := r.Leases.Begin(context.WithoutCancel(ctx), run, spec.LeaseKey, spec.LeaseTTL, spec.Fences...)
	if id == 0 && ctx.Err() == nil {
		// What keeps the lease from being taken took the run back with it; the history is
		// to tell of it all the same.
		id, _ = start()
	}
	return id, granted, err
}

// underLease works under what begin returned.
func (r *Runner) underLease(
	ctx context.Context, log *slog.Logger, queries *dbsqlc.Queries, spec Spec, report *Report, granted *lease.Lease,
	refused error, work Work,
) (result Result, err error) {
	if spec.LeaseKey == "" {
		if err := r.abandonOld(ctx, queries, spec); err != nil {
			return Result{}, err
		}
		return r.work(ctx, log, queries, nil, report, work)
	}
	if held, ok := errors.AsType[*lease.HeldError](refused); ok {
		report.Outcome, report.Holder, report.Reason = Skipped, held.Holder, held.Error()
		r.logHeld(ctx, spec, report.RunID, held)
		return Result{}, nil
	}
	if refused != nil {
		return Result{}, refused
	}
	if spec.Shared {
		err = r.abandonOld(ctx, queries, spec)
	} else {
		err = r.abandon(ctx, queries, spec, granted.Token(), report.RunID)
	}
	if err != nil {
		return Result{}, err
	}
	result, err = r.work(ctx, log, queries, granted, report, work)
	if err != nil && granted.LostToInstall(context.WithoutCancel(ctx), err) {
		report.Outcome, report.Reason, err = OverLimit, "definitions were installed; the next run goes on", nil
	}
	if err != nil && granted.LostToUndo(context.WithoutCancel(ctx), err) {
		report.Outcome, report.Reason, err = OverLimit, "a deletion is taken back; the next run goes on", nil
	}
	return result, err
}

func (*Runner) work(
	ctx context.Context, log *slog.Logger, queries *dbsqlc.Queries, granted *lease.Lease, report *Report, work Work,
) (Result, error) {
	log.InfoContext(ctx, "run_started", "started_at", time.Now().UTC())
	result, err := work(ctx, granted, progress(log, queries, report.RunID))
	report.Outcome, report.Reason = result.outcome()
	return result, err
}

// progress keeps the statistics of a running pass in its row. A pass does not end because
// its progress cannot be shown.
func progress(log *slog.Logger, queries *dbsqlc.Queries, runID int64) Progress {
	written := time.Now()
	return func(ctx context.Context, stats any, now bool) {
		if !now && time.Since(written) < progressEvery {
			return
		}
		written = time.Now()
		encoded, err := json.Marshal(stats)
		if err == nil {
			err = queries.RunProgress(ctx, encoded, runID)
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "progress cannot be recorded", "error", err)
		}
	}
}

// alive notes that a run is under way, until the function that it returns is called.
func (r *Runner) alive(runID int64) (over func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.live == nil {
		r.live = map[int64]bool{}
	}
	r.live[runID] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.live, runID)
	}
}

// record ends the run's row and its lease. Runs that changed nothing are folded, except
// where something kept them from their work.
func record(ctx context.Context, queries *dbsqlc.Queries, granted *lease.Lease, report Report, result Result) error {
	held := result.held()
	ended := dbsqlc.RunFinishParams{
		ID: report.RunID, Outcome: string(report.Outcome), Changed: result.Changed || held != "", Stats: report.Stats,
	}
	if report.Error != "" {
		ended.Error = &report.Error
	}
	if held != "" {
		ended.Held = &held
	}
	if granted != nil {
		ended.Key, ended.Holder, ended.AcquiredAt = granted.Key(), granted.Holder(), granted.AcquiredAt()
	}
	if err := queries.RunFinish(ctx, ended); err != nil {
		return fmt.Errorf("record end of run %d: %w", report.RunID, err)
	}
	if granted != nil {
		granted.Finish()
	}
	return nil
}

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

// Outcome is the result category of an ended pass.
type Outcome string

// The outcomes of a pass.
const (
	Done      Outcome = "done"
	OverLimit Outcome = "over_limit"
	Skipped   Outcome = "skipped"
	Failed    Outcome = "failed"
)

// Spec describes a pass.
type Spec struct {
	Kind string
	// Database is the configured name of the database in which the pass works.
	Database string
	// LeaseKey is the key of the lease. Without a key the pass takes no lease, and its
	// work must be safe while another pass of its kind is running.
	LeaseKey string
	LeaseTTL time.Duration
	// Shared is true if several passes of the kind may run in the database at the same
	// time, with different leases or without a lease.
	Shared bool
	// Long is true if a run may take hours.
	Long bool
	// Fences are all databases to which the pass may write.
	Fences []database.Database
}

// LatencyKey is the key of the latency histogram in the statistics of all kinds.
const LatencyKey = "latency_seconds"

// Work executes one pass under its lease. Do records the result even if Work also returns
// an error.
type Work func(context.Context, *lease.Lease, Progress) (Result, error)

// Progress writes the current statistics to the run's row. Unless now is true, it skips
// the write if the last one is less than progressEvery ago, so it may be called after
// every batch.
type Progress func(ctx context.Context, stats any, now bool)

// progressEvery is the minimum time between two updates of the row of a running pass.
const progressEvery = 500 * time.Millisecond

// Report is the result of a pass as `sexton job run --json` prints it.
type Report struct {
	Kind     string  `json:"kind"`
	RunID    int64   `json:"run_id"`
	Database string  `json:"database"`
	Outcome  Outcome `json:"outcome"`
	// Holder is the holder of the lease if another process holds it. Reason is the reason
	// why the pass was skipped or ended early.
	Holder string `json:"holder,omitempty"`
	// Outdated is true if other definitions are installed than the process has loaded.
	Outdated bool            `json:"outdated,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	Error    string          `json:"error,omitempty"`
	Stats    json.RawMessage `json:"stats,omitempty"`
}

// Runner runs passes for one process.
type Runner struct {
	Leases *lease.Manager
	Logger *slog.Logger
	// Observer, if set, receives every pass that has ended.
	Observer Observer

	mu      sync.Mutex
	history map[string]history
	// heldLog limits the log lines about leases that other processes hold.
	heldLog *Dedup
	// running contains the IDs of the runs in progress.
	running map[int64]bool
}

// Do runs work under the lease of spec and records the run. If another process holds the
// lease, Do skips the pass and returns no error. If ctx ends before the pass begins, Do
// returns the error of ctx. If ctx ends later, work must return soon. Do then still
// records the end of the run and releases the lease.
//
// The returned error is the error in the report of a failed pass, and callers can test
// its type. Do has logged the error (IsLogged) unless no run was inserted.
func (r *Runner) Do(ctx context.Context, spec Spec, work Work) (report Report, err error) {
	ctx, span := otel.Tracer(database.TracerName).Start(ctx, "run "+spec.Kind,
		trace.WithAttributes(attribute.String("sexton.database", spec.Database)))
	defer func() { endSpan(span, report) }()
	log := r.Logger.With("kind", spec.Kind, "database", spec.Database)
	uncanceled := context.WithoutCancel(ctx)
	queries := r.Leases.Jobs.AsyncQueries()
	report = Report{Kind: spec.Kind, Database: spec.Database, Stats: json.RawMessage("{}")}
	var result Result
	clock := time.Now()
	defer func() { r.observe(report, result, time.Since(clock), err) }()

	var granted *lease.Lease
	recorded := false
	defer func() {
		if recorded {
			return
		}
		r.forgetHistory(spec.historyKey())
		if granted != nil {
			_ = granted.Release(uncanceled) // If the release also fails, the next acquisition takes over the lease.
		}
	}()
	var runID int64
	runID, granted, err = r.begin(ctx, queries, spec)
	if runID == 0 {
		report.Outcome, report.Error = Failed, err.Error()
		return report, fmt.Errorf("begin run of %s: %w", spec.Kind, err)
	}
	report.RunID = runID
	done := r.trackRun(runID)
	defer done()
	log = log.With("run_id", runID)

	result, err = r.underLease(ctx, log, queries, spec, &report, granted, err, work)
	if outdated, ok := errors.AsType[*lease.GenerationError](err); ok {
		report.Outcome, report.Outdated, report.Reason, err = Skipped, true, outdated.Error(), nil
		r.logOtherGeneration(ctx, spec, runID, outdated)
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
		// A pass that was stopped before it began has not failed.
		report.Outcome, report.Reason = Skipped, "stopped before it began"
		log.InfoContext(uncanceled, "run_ended", "outcome", report.Outcome, "reason", report.Reason)
	case err != nil:
		report.Outcome, report.Error = Failed, err.Error()
		err = logFailure(ctx, log, err)
	case report.Outcome != Skipped:
		if held := result.heldReason(); held != "" {
			log = log.With("held", held)
		}
		log.InfoContext(ctx, "run_ended", "outcome", report.Outcome)
	}
	recordErr := recordEnd(uncanceled, queries, granted, report, result)
	recorded = recordErr == nil
	endErr := errors.Join(recordErr, r.prune(uncanceled, queries, spec))
	if endErr != nil {
		endErr = logFailure(uncanceled, log, endErr)
	}
	return report, Logged(errors.Join(err, endErr))
}

// endSpan adds the run's ID and outcome to its tracing span and ends the span.
func endSpan(span trace.Span, report Report) {
	span.SetAttributes(attribute.Int64("sexton.run_id", report.RunID),
		attribute.String("sexton.outcome", string(report.Outcome)))
	if report.Error != "" {
		span.SetStatus(codes.Error, report.Error)
	}
	span.End()
}

// begin inserts the run into the history and acquires its lease, if it has one. It
// returns ID 0 if no run was inserted.
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
	// A stop must not interrupt the acquisition. If the server's response were lost, the
	// next acquisition would have to clean up the lease and the run's row. The lock
	// timeout limits the acquisition.
	run := lease.Run{Kind: spec.Kind, Database: spec.Database}
	id, granted, err := r.Leases.Begin(context.WithoutCancel(ctx), run, spec.LeaseKey, spec.LeaseTTL, spec.Fences...)
	if id == 0 && ctx.Err() == nil {
		// The error that prevented the acquisition also rolled back the insert of the
		// run. A separate insert records the failed run in the history.
		id, _ = start()
	}
	return id, granted, err
}

// underLease runs work under the lease that begin returned, or handles refused, the error
// of begin.
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
		report.Outcome, report.Reason, err = OverLimit, "definitions were installed; the next run continues", nil
	}
	if err != nil && granted.LostToUndo(context.WithoutCancel(ctx), err) {
		report.Outcome, report.Reason, err = OverLimit, "a deletion is being undone; the next run continues", nil
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

// progress returns a Progress for a run. If a write fails, it logs a warning and the pass
// continues.
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
			log.WarnContext(ctx, "progress_not_recorded", "error", err)
		}
	}
}

// trackRun marks a run as in progress until done is called.
func (r *Runner) trackRun(runID int64) (done func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running == nil {
		r.running = map[int64]bool{}
	}
	r.running[runID] = true
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.running, runID)
	}
}

// recordEnd writes the end of the run into its row and ends the lease. Consecutive runs
// that changed nothing share one row, unless an obstacle prevented their work.
func recordEnd(ctx context.Context, queries *dbsqlc.Queries, granted *lease.Lease, report Report, result Result) error {
	held := result.heldReason()
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

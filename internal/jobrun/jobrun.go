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

// Spec describes a pass.
type Spec struct {
	Kind string
	// Database is the configured name of the database that the pass works in.
	Database string
	// LeaseKey is the key of the lease. If it is empty there is no lease, and the work
	// must be safe while another pass of its kind is running.
	LeaseKey string
	LeaseTTL time.Duration
	// Shared reports that several passes of the kind may run in the database at the same
	// time, with different leases or with none.
	Shared bool
	// Long reports that a run may take hours.
	Long bool
	// Fences are all databases that the pass may write to.
	Fences []database.Database
}

// LatencyKey is the key of the histogram in the statistics of all kinds.
const LatencyKey = "latency_seconds"

// Work does one pass under its lease. A result that it returns with an error still
// counts.
type Work func(context.Context, *lease.Lease, Progress) (Result, error)

// Progress records the statistics so far, at most once per progressEvery unless now is
// set. It may be called after every batch.
type Progress func(ctx context.Context, stats any, now bool)

// progressEvery is the minimum time between two updates of the row of a running pass.
const progressEvery = 500 * time.Millisecond

// Report is the result of a pass as `sexton job run --json` prints it.
type Report struct {
	Kind     string  `json:"kind"`
	RunID    int64   `json:"run_id"`
	Database string  `json:"database"`
	Outcome  Outcome `json:"outcome"`
	// Holder is set if another process has the lease. Reason is set if the pass was
	// skipped or ended early.
	Holder string `json:"holder,omitempty"`
	// Outdated is set if other definitions are installed than the process has loaded.
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
	// heldLog logs which leases other processes hold.
	heldLog *Dedup
	// running has the IDs of the runs in progress.
	running map[int64]bool
}

// Do runs work under the lease of spec. The error is the one in the report of a failed
// pass, for callers that need its type. It has been logged (IsLogged) unless no run was
// inserted. A skipped pass returns no error, except ctx's if ctx ended before the pass
// began. When ctx ends, work must stop soon. Do still writes the history and releases the
// lease.
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
	recorded := false
	defer func() {
		if recorded {
			return
		}
		r.forgetHistory(spec.historyKey())
		if granted != nil {
			_ = granted.Release(settle) // If that fails, too, the next acquisition takes the lease over.
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
		// A stop on request is no failure.
		report.Outcome, report.Reason = Skipped, "stopped before it began"
		log.InfoContext(settle, "run_ended", "outcome", report.Outcome, "reason", report.Reason)
	case err != nil:
		report.Outcome, report.Error = Failed, err.Error()
		err = logFailure(ctx, log, err)
	case report.Outcome != Skipped:
		if held := result.heldReason(); held != "" {
			log = log.With("held", held)
		}
		log.InfoContext(ctx, "run_ended", "outcome", report.Outcome)
	}
	recordErr := recordEnd(settle, queries, granted, report, result)
	recorded = recordErr == nil
	endErr := errors.Join(recordErr, r.prune(settle, queries, spec))
	if endErr != nil {
		endErr = logFailure(settle, log, endErr)
	}
	return report, Logged(errors.Join(err, endErr))
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

// begin inserts the run into the history and acquires its lease, if it has one. The ID is
// 0 if it did neither.
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
	// A stop must not interrupt the acquisition. If its answer were lost, the next
	// acquisition would have to clean up the lease and the run's row. Its lock timeout
	// bounds it.
	run := lease.Run{Kind: spec.Kind, Database: spec.Database}
	id, granted, err := r.Leases.Begin(context.WithoutCancel(ctx), run, spec.LeaseKey, spec.LeaseTTL, spec.Fences...)
	if id == 0 && ctx.Err() == nil {
		// The error that prevented the acquisition also rolled back the run. The history
		// must have it.
		id, _ = start()
	}
	return id, granted, err
}

// underLease runs work under the lease that begin returned, or handles its error.
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

// progress returns a function that writes the statistics of a running pass to its row. A
// failed write does not end the pass.
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

// trackRun records that a run is in progress until done is called.
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

// recordEnd ends the run's row and its lease. Consecutive runs that changed nothing share
// a row, unless something kept them from their work.
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

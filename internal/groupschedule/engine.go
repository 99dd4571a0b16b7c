package groupschedule

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pace"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Table is the name of the table of scheduled groups.
const Table = "group_deletion_schedules"

const (
	defaultPage = 100
	// reserve is the part of the lease that a pass leaves unused, so that the current
	// decision can finish.
	reserve = time.Second
)

// Engine decides about each due group of one database: it enqueues the deletion of the
// group, restores the group or defers it.
type Engine struct {
	Session *batch.Session
	// Page is the maximum number of groups that one query returns. 0 means 100.
	Page int
	// Spacing is the time between the starts of two destructions. With 0 all destructions
	// may begin immediately.
	Spacing time.Duration
	// Runtime limits a pass, in addition to the lease. 0 means no limit.
	Runtime time.Duration
	// Blocker, if set, returns the session that the current transaction waits for.
	Blocker func(ctx context.Context, database string) string
	// Progress, if set, is called with the statistics after every group. The callback
	// must not retain the statistics.
	Progress func(ctx context.Context, stats *Stats)
	// Decided, if set, is called with the decision about each group.
	Decided func(ctx context.Context, decision Decision)
}

// Run decides about due groups in the order of their ids, until none is left, the runtime
// has passed, or ctx ends. If ctx ends, it finishes the current group first. The
// statistics are valid even if there is an error. The error wraps lease.ErrLost if
// another worker has taken the lease. In that case the last transaction was rolled back.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	r := &run{Engine: e, stats: &Stats{Errors: []batch.FaultCounts{}}, limits: e.Session.Limits}
	err := pace.Under(ctx, e.Session, e.Runtime, reserve, r.work)
	return r.stats, err
}

// run is the state of one Run.
type run struct {
	*Engine

	stats *Stats
	// limits apply to each decision. The lock timeout is shorter after the first locked
	// group, so that many locked groups do not delay the others.
	limits batch.Limits
	// blocker is the session that the last decision waited for, if it is known.
	blocker string
	// after is the id of the last group that was loaded. start is the time at which the
	// next destruction may begin.
	after any
	start time.Time
}

func (r *run) work(ctx context.Context, frame *pace.Frame) (err error) {
	if err := r.open(ctx); err != nil || r.stats.Cutoff == nil {
		return err
	}
	groups := pace.Items[dml.ID]{
		Page: r.page, One: r.decide, Failed: r.deferGroup,
		Doing: func(id dml.ID) string { return "decide about group " + id.Text },
	}
	r.stats.OverLimit, r.stats.Interrupted, err = groups.Each(ctx, frame)
	return err
}

// open reads the cutoff and the time at which the first destruction may begin. It also
// deletes the failures of groups that are no longer scheduled, and the records of
// destructions whose group does not exist.
func (r *run) open(ctx context.Context) error {
	names := r.Session.Names
	_, err := r.Session.RunOwn(ctx,
		batch.Statement{SQL: names.Render(statement("forget"))},
		batch.Statement{SQL: names.Render(statement("forget_gone"))},
		batch.Statement{
			SQL: names.Render(statement("opening")), Args: []any{r.Spacing.Seconds()},
			Scan: batch.One(&r.stats.Cutoff, &r.start),
		})
	return problem.Doing(err, "read period of groups")
}

// page returns the next due groups.
func (r *run) page(ctx context.Context) (ids []dml.ID, more bool, _ error) {
	size := cmp.Or(r.Page, defaultPage)
	err := r.Session.ReadOwn(ctx, batch.Statement{
		SQL: r.Session.Names.Render(statement("page")), Args: []any{r.after, size},
		Scan: batch.Collect(&ids, pgx.RowTo[dml.ID]),
	})
	if err != nil {
		return nil, false, fmt.Errorf("load due groups: %w", err)
	}
	if len(ids) > 0 {
		r.after = ids[len(ids)-1].Text
	}
	return ids, len(ids) == size, nil
}

// decide enqueues or restores one group in one transaction.
func (r *run) decide(ctx context.Context, id dml.ID) error {
	decision := Decision{GroupID: id, RunAt: r.start}
	end := (&pace.Run{Throttle: pace.Throttle{Blocker: r.Blocker}}).Watch(ctx, "")
	_, err := r.Session.RunWithin(ctx, r.limits, batch.Statement{
		SQL: r.Session.Names.Render(statement("decide")), Args: []any{id.Text, r.start},
		Scan: batch.One(&decision.Outcome, &decision.UserID, &decision.Path, &decision.Reason),
	}, batch.CommitWithoutLockTimeout())
	r.blocker = end()
	if err != nil {
		return err
	}
	if decision.Outcome == Enqueued {
		// A restored group does not delay the next destruction.
		r.start = r.start.Add(r.Spacing)
	}
	r.report(ctx, decision)
	return nil
}

// deferGroup defers a group and records the reason for which the decision failed. It
// counts no attempt if the transaction waited too long for a lock of another session.
func (r *run) deferGroup(ctx context.Context, id dml.ID, f batch.Fault, _ error) error {
	f.Table = "groups"
	outcome, attempts := Failed, 1
	if f.Lock() {
		f = f.WithBlocker(r.blocker)
		outcome, attempts, r.limits.LockTimeout = Locked, 0, pace.ShortLockTimeout
	}
	_, err := r.Session.RunOwn(ctx, batch.Statement{
		SQL:  r.Session.Names.Render(statement("defer")),
		Args: []any{id.Text, fmt.Sprintf("SQLSTATE %s: %s", f.SQLState, f.Message), attempts},
	})
	if err != nil {
		return fmt.Errorf("defer the group: %w", err)
	}
	r.report(ctx, Decision{GroupID: id, UserID: dml.IntegerID(0), RunAt: r.start, Outcome: outcome, Fault: f})
	return nil
}

// report counts a decision and calls Decided and Progress.
func (r *run) report(ctx context.Context, decision Decision) {
	r.stats.count(decision)
	if r.Decided != nil {
		r.Decided(ctx, decision)
	}
	if r.Progress != nil {
		r.Progress(ctx, r.stats)
	}
}

// Outcome is the decision about a group.
type Outcome string

const (
	// Enqueued means that a job was inserted that destroys the group.
	Enqueued Outcome = "enqueued"
	// Waiting means that an unfinished job already destroys the group.
	Waiting Outcome = "waiting"
	// Restored means that the group was restored.
	Restored Outcome = "restored"
	// Undue means that the group is no longer due: it was deleted or restored, or its
	// schedule was deleted.
	Undue Outcome = "undue"
	// Locked means that another session has locked the group. The group is deferred.
	Locked Outcome = "locked"
	// Failed means that the decision failed and the group is deferred.
	Failed Outcome = "failed"
)

// Decision is the decision about one group, for the log.
type Decision struct {
	GroupID dml.ID
	// UserID is the user who scheduled the deletion, or 0 if that is not known.
	UserID  dml.ID
	Path    string
	Outcome Outcome
	// RunAt is the time at which the destruction of an enqueued group begins.
	RunAt time.Time
	// Reason is the reason for which a group was restored: not_permitted or user_missing.
	Reason string
	// Fault is the error for locked and failed groups.
	Fault batch.Fault
}

// Stats are the statistics of one pass.
type Stats struct {
	// Cutoff is the date before which a mark makes a group due. If no period is set,
	// Cutoff is nil and the pass does nothing.
	Cutoff *time.Time `json:"cutoff"`
	// GroupsEnqueued counts groups whose destruction was enqueued, and GroupsRestored
	// groups whose requester may no longer remove them. GroupsSkipped counts groups that
	// another session has handled or locked, and GroupsFailed groups that are deferred
	// with an error.
	GroupsEnqueued int64 `json:"groups_enqueued"`
	GroupsRestored int64 `json:"groups_restored"`
	GroupsSkipped  int64 `json:"groups_skipped"`
	GroupsFailed   int64 `json:"groups_failed"`
	// OverLimit reports that due groups are left because the runtime has passed, and
	// Interrupted that they are left because the worker was stopped.
	OverLimit   bool                `json:"over_limit"`
	Interrupted bool                `json:"interrupted,omitempty"`
	Errors      []batch.FaultCounts `json:"errors"`
}

// Changed reports whether the history gets a separate row for the pass. Passes that
// changed nothing share one row.
func (s *Stats) Changed() bool {
	return s.GroupsEnqueued+s.GroupsRestored+s.GroupsFailed > 0 || s.OverLimit || s.Interrupted
}

func (s *Stats) count(d Decision) {
	switch d.Outcome {
	case Enqueued:
		s.GroupsEnqueued++
	case Restored:
		s.GroupsRestored++
	case Failed:
		s.GroupsFailed++
		s.Errors = batch.CountFault(s.Errors, d.Fault)
	case Locked:
		s.GroupsSkipped++
		s.Errors = batch.CountFault(s.Errors, d.Fault)
	default:
		s.GroupsSkipped++
	}
}

//go:embed queries
var queries embed.FS

// statement returns the SQL of a file in the folder queries. The caller must render it
// for the configured schemas.
func statement(name string) string { return pgcatalog.Texts{Files: queries}.Statement(name) }

// NextDueSQL returns an expression for the seconds (float8) until the next group is due,
// or 0 if there is no such group. The caller must render it for the configured schemas.
// Groups become due at midnight (UTC) or when they are retried.
func NextDueSQL() string { return statement("next_due") }

// DueSQL returns the condition that any group is due now. The caller must render it for
// the configured schemas.
func DueSQL() string { return "EXISTS (SELECT\n" + statement("due") + ")" }

// CountDueSQL returns an expression for the number of groups that are due now, at most
// 10,001. The caller must render it for the configured schemas.
func CountDueSQL() string {
	return "(SELECT pg_catalog.count(*) FROM (SELECT\n" + statement("due") + "\nLIMIT 10001) AS counted)"
}

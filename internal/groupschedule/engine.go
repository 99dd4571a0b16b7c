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

// Table is the name of the table in which groups wait.
const Table = "group_deletion_schedules"

const (
	defaultPage = 100
	// reserve is the part of its lease that a pass leaves: for the group in hand, and to
	// settle.
	reserve = time.Second
)

// Engine decides about the due groups of one database.
type Engine struct {
	Session *batch.Session
	// Page is how many groups are looked up at a time; 0 stands for 100.
	Page int
	// Spacing is the time between the starts of two destructions; with 0 all may begin
	// now.
	Spacing time.Duration
	// Runtime ends a pass, and so does the end of its lease; 0 stands for the lease
	// alone.
	Runtime time.Duration
	// Blocker, if set, names the session that the transaction in hand waits for.
	Blocker func(ctx context.Context, database string) string
	// Progress, if set, is shown the statistics after every group. It must not keep them.
	Progress func(ctx context.Context, stats *Stats)
	// Decided, if set, is told of every group.
	Decided func(ctx context.Context, decision Decision)
}

// Run decides about one due group after the other, by their ids, until none is left, its
// time is over, or ctx ends; the group in hand is finished first. The statistics are
// valid beside an error, too. The error wraps lease.ErrLost where the lease has passed
// on; then nothing of the last transaction remains.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	r := &run{Engine: e, stats: &Stats{Errors: []batch.FaultCounts{}}, limits: e.Session.Limits}
	err := pace.Under(ctx, e.Session, e.Runtime, reserve, r.work)
	return r.stats, err
}

// run is the state of one Run.
type run struct {
	*Engine

	stats *Stats
	// limits bound a decision: its waits get short once one has met a lock, so that many
	// of them take the others no time.
	limits batch.Limits
	// blocker is the session that the last decision has waited for, if it is known.
	blocker string
	// after is the last group that was loaded, start when the next destruction may begin.
	after any
	start time.Time
}

func (r *run) work(ctx context.Context, frame *pace.Frame) (err error) {
	if err := r.open(ctx); err != nil || r.stats.Cutoff == nil {
		return err
	}
	groups := pace.Items[dml.ID]{
		Page: r.page, One: r.decide, Failed: r.putOff,
		Doing: func(id dml.ID) string { return "decide about group " + id.Text },
	}
	r.stats.OverLimit, r.stats.Interrupted, err = groups.Each(ctx, frame)
	return err
}

// open reads the cutoff and when the first destruction may begin, and tidies up.
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

// decide takes one transaction.
func (r *run) decide(ctx context.Context, id dml.ID) error {
	decision := Decision{GroupID: id, RunAt: r.start}
	end := (&pace.Run{Throttle: pace.Throttle{Blocker: r.Blocker}}).Watch(ctx, "")
	_, err := r.Session.RunWithin(ctx, r.limits, batch.Statement{
		SQL: r.Session.Names.Render(statement("decide")), Args: []any{id.Text, r.start},
		Scan: batch.One(&decision.Outcome, &decision.UserID, &decision.Path, &decision.Reason),
	})
	r.blocker = end()
	if err != nil {
		return err
	}
	if decision.Outcome == Enqueued {
		// Only groups that are destroyed take up time.
		r.start = r.start.Add(r.Spacing)
	}
	r.tell(ctx, decision)
	return nil
}

// putOff counts no attempt where others were in the way, such as a transaction that asks
// for the same job and does not end.
func (r *run) putOff(ctx context.Context, id dml.ID, f batch.Fault, _ error) error {
	f.Table = "groups"
	outcome, attempts := Failed, 1
	if f.Lock() {
		f = f.WithBlocker(r.blocker)
		outcome, attempts, r.limits.LockTimeout = Locked, 0, pace.ShortLockTimeout
	}
	_, err := r.Session.RunOwn(ctx, batch.Statement{
		SQL:  r.Session.Names.Render(statement("put_off")),
		Args: []any{id.Text, fmt.Sprintf("SQLSTATE %s: %s", f.SQLState, f.Message), attempts},
	})
	if err != nil {
		return fmt.Errorf("put it off: %w", err)
	}
	r.tell(ctx, Decision{GroupID: id, UserID: dml.IntegerID(0), RunAt: r.start, Outcome: outcome, Fault: f})
	return nil
}

// tell counts a decision and reports it.
func (r *run) tell(ctx context.Context, decision Decision) {
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

// The outcomes: a job that destroys it was inserted; there is such a job; it was
// restored; it is gone, was restored or has lost its schedule meanwhile; others had it
// locked, or nothing could be decided, and it is put off.
const (
	Enqueued Outcome = "enqueued"
	Waiting  Outcome = "waiting"
	Restored Outcome = "restored"
	Undue    Outcome = "undue"
	Locked   Outcome = "locked"
	Failed   Outcome = "failed"
)

// Decision is the decision about one group, for the log.
type Decision struct {
	GroupID dml.ID
	// UserID is who scheduled the deletion; 0 if that is not known.
	UserID  dml.ID
	Path    string
	Outcome Outcome
	// RunAt is when the destruction is to begin, for groups that were enqueued.
	RunAt time.Time
	// Reason is why a group was restored: not_permitted, or user_missing.
	Reason string
	// Fault is the reason why nothing could be decided, for locked and failed groups.
	Fault batch.Fault
}

// Stats are the statistics of one pass.
type Stats struct {
	// Cutoff is the date before which a mark makes a group due; nil where there is no
	// period, and nothing was done.
	Cutoff *time.Time `json:"cutoff"`
	// GroupsEnqueued counts groups that are to be destroyed, GroupsRestored groups whose
	// requester may no longer remove them, GroupsSkipped groups with which others were
	// faster or which they had locked, GroupsFailed groups that are put off with an
	// error.
	GroupsEnqueued int64 `json:"groups_enqueued"`
	GroupsRestored int64 `json:"groups_restored"`
	GroupsSkipped  int64 `json:"groups_skipped"`
	GroupsFailed   int64 `json:"groups_failed"`
	// OverLimit reports that due groups are left as the time was over, Interrupted that
	// they are left as the pass was asked to stop.
	OverLimit   bool                `json:"over_limit"`
	Interrupted bool                `json:"interrupted,omitempty"`
	Errors      []batch.FaultCounts `json:"errors"`
}

// Changed reports whether the pass did anything worth a line of its own in the history.
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

// statement is one of these files.
func statement(name string) string { return pgcatalog.Texts{Files: queries}.Statement(name) }

// NextDueSQL is an expression, to be rendered for the configured schemas: in how many
// seconds (float8) the next group falls due, at a midnight (UTC) or when it has been put
// off for long enough; 0 where none does.
func NextDueSQL() string { return statement("next_due") }

// DueSQL is a condition, to be rendered for the configured schemas: some group can be
// decided about now.
func DueSQL() string { return "EXISTS (SELECT\n" + statement("due") + ")" }

// CountDueSQL is an expression, to be rendered for the configured schemas: about how many
// it can be, 10,001 where there are more.
func CountDueSQL() string {
	return "(SELECT pg_catalog.count(*) FROM (SELECT\n" + statement("due") + "\nLIMIT 10001) AS counted)"
}

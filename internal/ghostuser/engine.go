package ghostuser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/pace"
	"sexton/internal/problem"
)

// Limits holds the limits of a run. The zero values mean 1000 users, 60 s and 30 min.
type Limits struct {
	// Users is the maximum number of users that a run loads.
	Users int
	// Runtime is the maximum time of a run. The run checks its time between batches. A
	// run also ends before its lease expires.
	Runtime time.Duration
	// RetryAfter is the time for which a user is deferred after an error.
	RetryAfter time.Duration
}

// Engine deletes the due users of one database.
type Engine struct {
	Session *batch.Session
	Plan    *Plan
	Limits  Limits
	Sizes   Sizes
	// Connections is the maximum number of sessions of a run if Sizes.Target is set.
	// Otherwise a run uses one session. More returns another session under the same
	// lease, or nil.
	Connections int
	More        func(ctx context.Context) *batch.Session
	Throttle    pace.Throttle
	// Progress, if set, is called with the statistics after each batch and when the
	// reason for which the run waits changes. The callback must not retain the
	// statistics.
	Progress func(ctx context.Context, stats *Stats)
	// Ended, if set, is called with the outcome of each user.
	Ended func(ctx context.Context, item Item)
}

// Run deletes users until no due user is left, a limit is reached or ctx ends. If ctx
// ends, it finishes the current batch first. A user with many rows yields to other users
// from time to time.
//
// A user with an error is deferred, and the run continues with the other users. A user
// that is not finished is moved to the end of the queue. The statistics are valid even if
// there is an error. The error wraps lease.ErrLost if another worker has taken the lease.
// In that case the last batch was rolled back.
func (e *Engine) Run(ctx context.Context) (*Stats, error) {
	r := &run{Engine: e, stats: newStats(), users: map[int64]*user{}, limits: Limits{
		Users: cmp.Or(max(e.Limits.Users, 0), 1000), Runtime: cmp.Or(max(e.Limits.Runtime, 0), time.Minute),
		RetryAfter: cmp.Or(max(e.Limits.RetryAfter, 0), 30*time.Minute),
	}}
	err := pace.Under(ctx, e.Session, r.limits.Runtime, e.Session.Limits.StatementTimeout, r.work)
	r.stats.Current, r.stats.Duty, r.stats.WaitingFor = nil, pace.Duty{}, ""
	return r.stats, err
}

// run is the state of one Run. It implements the source of the drain pass.
type run struct {
	*Engine

	limits Limits
	frame  *pace.Frame
	ghost  dml.ID
	// parents holds the two parents of the drain pass: the first for soft-deleted users,
	// the second for hard-deleted users.
	parents [2]*drain.Parent
	edges   map[*drain.Edge]*edgeStep

	// mu guards the fields below, because several sessions call the callbacks.
	mu    sync.Mutex
	stats *Stats
	// users holds the users that the run has loaded, by the id of the row in the queue.
	users map[int64]*user
}

// edgeStep is the step and action of an edge.
type edgeStep struct {
	*step

	do dml.Action
}

// user is a user that the run has loaded.
type user struct {
	id         int64
	userID     dml.ID
	hardDelete bool
	queued     time.Time
	// held is set while the drain pass is processing the user. begun is set after this
	// run has changed rows of the user, and ended after it has finished with the user.
	held, begun, ended bool
	// lockReason names the lock that the user waits for, and retryAt is the time of the
	// next try.
	lockReason string
	retryAt    time.Time
	// done counts the rows of this run. estimated is the time of the last estimate of the
	// remaining rows.
	done      Current
	estimated time.Time
	// outcome, total, liveSteps and refusedType are the results of the last completion:
	// the outcome, the rows of all runs, the steps that had rows, and the user's type if
	// users of that type must not be deleted.
	outcome     Outcome
	total       Current
	liveSteps   []*step
	refusedType int32
	tree        *tree
}

// work runs a pass. If the ghost user was deleted during the pass, it runs another one.
func (r *run) work(ctx context.Context, frame *pace.Frame) error {
	r.frame = frame
	for {
		due, err := r.anyDue(ctx)
		switch {
		case err != nil:
			return err
		case !due || frame.Ended():
			return r.close(ctx)
		}
		if err := r.findGhost(ctx); err != nil {
			return err
		}
		r.bind()
		switch err = r.pass().Run(ctx); {
		case err == nil:
			return r.close(ctx)
		case !errors.Is(err, drain.ErrChanged):
			return err //nolint:wrapcheck // It names what it did.
		}
	}
}

// findGhost finds the ghost user. If GitLab's ghost user does not exist, it creates it.
func (r *run) findGhost(ctx context.Context) error {
	const find = `SELECT coalesce(pg_catalog.to_jsonb("sexton".ghost_user()), '""')`
	_, err := r.Session.Run(ctx, batch.Statement{SQL: r.Session.Names.Render(find), Scan: batch.One(&r.ghost)})
	switch {
	case err != nil:
		return fmt.Errorf("find ghost user: %w", err)
	case !r.Plan.gitlab && r.ghost != r.Plan.ghost:
		return fmt.Errorf("the ghost user is %q in the database and %q in the configuration: run `sexton migrate up`",
			r.ghost, r.Plan.ghost)
	}
	return nil
}

func (r *run) pass() *drain.Pass {
	throttle := r.Throttle
	throttle.Share = throttle.Share.Configured(r.Sizes.Duty, r.setDuty)
	pass := &drain.Pass{
		Source: r, Parents: r.parents[:], Session: r.Session, Connections: 1, Connect: r.More,
		Target: r.Sizes.Target, Chunk: r.limits.Users,
		Pace: &pace.Run{
			Until: r.frame.Until, Stop: r.frame.Stop, Ended: r.frame.Ended, Target: r.Sizes.Target, Throttle: throttle,
			Waits: func(ctx context.Context, _ pace.WaitClass, reason string) { r.setWaitingFor(ctx, reason) },
		},
		Report: drain.Report{
			Changed: r.countChanged, Removed: r.finishUsers, Late: func(int64) {}, Failed: func(batch.Fault) {},
			Progress: r.progress,
		},
	}
	if r.Sizes.Target > 0 {
		pass.Connections = max(1, r.Connections)
	}
	return pass
}

// bind creates the two parents with the edges of the plan's steps, in the plan's order.
func (r *run) bind() {
	names := r.Session.Names
	for _, u := range r.users {
		u.held = false
	}
	r.edges = map[*drain.Edge]*edgeStep{}
	for i, hard := range []bool{false, true} {
		key := r.Plan.key
		key.Queued = r.Plan.queued(names, hard, r.ghost)
		parent := &drain.Parent{Key: &key, Name: fmt.Sprintf("hard=%t", hard), Tree: r.clearUser}
		for _, s := range r.Plan.steps(hard) {
			for _, leaf := range s.Leaves {
				edge := r.edge(s, leaf, s.Action)
				if s.Action == dml.Move {
					edge.OnDuplicate = r.edge(s, leaf, s.otherwise)
					if equal := s.equal(leaf, r.Plan.literal(r.ghost)); equal != "" {
						edge.Duplicates = r.edge(s, leaf, s.otherwise)
						edge.Duplicates.Where = equal
					}
				}
				parent.Edges = append(parent.Edges, edge)
			}
		}
		r.parents[i] = parent
	}
}

func (r *run) edge(s *step, leaf Table, do dml.Action) *drain.Edge {
	edge := r.Plan.edge(r.Session.Names, s, leaf, do, r.ghost)
	edge.Limit = r.Sizes.rows(do)
	if do == dml.Remove && s.below {
		edge.Tree = r.treeOf(s, leaf)
	}
	r.edges[edge] = &edgeStep{s, do}
	return edge
}

// setDuty sets the duty in the statistics, which is the share of time during which the
// run works.
func (r *run) setDuty(duty pace.Duty) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Duty = duty
}

// countChanged counts the rows of an edge that a batch has changed for a user.
func (r *run) countChanged(e *drain.Edge, tombstones []drain.Tombstone, rows int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.edges[e]
	r.stats.count(r.users[tombstones[0].ID], s.do, s.label, rows, s.do != s.Action)
}

// finishUsers counts and reports users that a completion has removed from the queue. It
// forgets a user whose kind of deletion (soft or hard) has changed.
func (r *run) finishUsers(_ *drain.Parent, tombstones []drain.Tombstone, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range tombstones {
		u := r.users[t.ID]
		switch u.outcome {
		case Destroyed:
			r.stats.UsersProcessed++
			r.stats.Batches++
			r.stats.Latency.Add(time.Since(u.queued))
			u.done = u.total
		case Cancelled, Gone:
			r.stats.UsersDropped++
		default: // The kind of deletion has changed, so the run must load the user again.
			delete(r.users, u.id)
			continue
		}
		r.end(r.frame.Stop, u, u.outcome, batch.Fault{})
	}
}

// end reports that the run has finished with a user.
func (r *run) end(ctx context.Context, u *user, outcome Outcome, f batch.Fault) {
	u.ended = true
	if r.Ended != nil {
		r.Ended(ctx, Item{
			UserID: u.userID, HardDelete: u.hardDelete, Outcome: outcome, Moved: u.done.Moved, Deleted: u.done.Deleted,
			Nullified: u.done.Nullified,
			Table:     f.Table, SQLState: f.SQLState, Message: f.Message, Stack: f.Stack,
		})
	}
}

func (r *run) progress(ctx context.Context) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.WaitingFor = ""
	if r.Progress != nil {
		r.Progress(ctx, r.stats)
	}
}

// setWaitingFor reports the reason for which the run waits, or "" if it does not wait.
func (r *run) setWaitingFor(ctx context.Context, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stats.WaitingFor == reason {
		return
	}
	r.stats.WaitingFor = reason
	if r.Progress != nil {
		r.Progress(ctx, r.stats)
	}
}

// close counts the remaining users, and moves unfinished users to the end of the queue.
func (r *run) close(ctx context.Context) error {
	left := false
	var begun []int64
	for _, u := range r.users {
		if u.ended {
			continue
		}
		left = true
		r.stats.Held = cmp.Or(r.stats.Held, u.lockReason)
		if u.begun || u.lockReason != "" {
			begun = append(begun, u.id)
			r.stats.UsersUnfinished++
			r.end(ctx, u, Unfinished, batch.Fault{})
		}
	}
	if !left {
		var err error
		if left, err = r.anyDue(ctx); err != nil {
			return err
		}
	}
	r.stats.Interrupted = left && r.frame.Stop.Err() != nil
	r.stats.OverLimit = left && !r.stats.Interrupted
	if len(begun) == 0 {
		return nil
	}
	_, err := r.Session.Run(ctx, batch.Statement{SQL: r.statement("defer"), Args: []any{begun}})
	return problem.Doing(err, "move unfinished users to the end of the queue")
}

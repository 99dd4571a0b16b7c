package ghostuser

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/problem"
)

// keptRows is the error message if rows remain and no session has locked them.
const keptRows = "rows remain that no session has locked: a trigger or rule keeps or restores them, or a partition was created after the run began"

// estimateEvery is the interval at which the remaining rows of a user are estimated.
const estimateEvery = 5 * time.Second

// Load returns due users that the run has not loaded yet, and loaded users that waited
// for a lock and must be tried again now.
func (r *run) Load(
	ctx context.Context, on *batch.Session, from []drain.LoadPosition, limit int, recheck bool,
) (map[*drain.Parent][]drain.Tombstone, error) {
	found := map[*drain.Parent][]drain.Tombstone{}
	if recheck {
		return found, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.estimate(ctx, on); err != nil {
		return nil, err
	}
	add := func(u *user) {
		parent := r.parents[0]
		if u.hardDelete {
			parent = r.parents[1]
		}
		if slices.ContainsFunc(from, func(spot drain.LoadPosition) bool { return spot.Parent == parent }) {
			u.held = true
			found[parent] = append(found[parent], drain.Tombstone{
				Position: drain.Position{ID: u.id}, Integer: u.userID.Number(), Text: u.userID.Text, Made: u.queued,
			})
		}
	}
	for _, u := range r.users {
		if !u.held && !u.ended && !time.Now().Before(u.retryAt) {
			add(u)
		}
	}
	kinds := []bool{}
	for _, spot := range from {
		kinds = append(kinds, spot.Parent == r.parents[1])
	}
	fresh, err := r.due(ctx, on, min(limit, r.limits.Users-len(r.users)), kinds)
	if err != nil {
		return nil, err
	}
	for _, u := range fresh {
		r.users[u.id] = u
		add(u)
	}
	return found, nil
}

// due returns due users that the run has not loaded yet.
func (r *run) due(ctx context.Context, on *batch.Session, limit int, kinds []bool) (fresh []*user, _ error) {
	if limit <= 0 {
		return nil, nil
	}
	known := slices.AppendSeq([]int64{}, maps.Keys(r.users))
	_, err := on.RunOwn(ctx, batch.Statement{
		SQL: r.statement("load"), Args: []any{known, limit, kinds},
		Scan: batch.Collect(&fresh, func(row pgx.CollectableRow) (*user, error) {
			u := &user{}
			var age float64
			err := row.Scan(&u.id, &u.userID, &u.hardDelete, &age)
			u.done.UserID, u.queued = u.userID, time.Now().Add(-time.Duration(age*float64(time.Second)))
			return u, err
		}),
	})
	return fresh, problem.Doing(err, "load users to be deleted")
}

// anyDue reports whether a due user exists that the run has not loaded yet.
func (r *run) anyDue(ctx context.Context) (bool, error) {
	found, err := r.due(ctx, r.Session, 1, []bool{false, true})
	return len(found) > 0, err
}

// estimate estimates the remaining rows of users whose rows this run has begun to change,
// at most every estimateEvery. It ignores errors that are not fatal, because the numbers
// are only displayed.
func (r *run) estimate(ctx context.Context, on *batch.Session) error {
	for _, u := range r.users {
		if !u.begun || u.ended || time.Since(u.estimated) < estimateEvery {
			continue
		}
		u.estimated = time.Now()
		sql, args := r.Plan.remainingStatement(r.Session.Names, u)
		_, err := on.RunWithin(ctx, on.Limits.ShortWaits(),
			batch.Statement{SQL: sql, Args: args, Scan: batch.One(&u.done.Remaining)})
		if err != nil && batch.Judge(err).Verdict == batch.Fatal {
			return fmt.Errorf("estimate the remaining rows: %w", err)
		}
	}
	return nil
}

// Complete returns the statement that deletes a user without remaining rows. The scan of
// its result stores the outcome in the user.
func (r *run) Complete(_ *drain.Parent, tombstones []drain.Tombstone, _ bool, done *drain.Removed) batch.Statement {
	t := tombstones[0]
	r.mu.Lock()
	u := r.users[t.ID]
	r.mu.Unlock()
	sql, args := r.Plan.destroyStatement(r.Session.Names, u, r.ghost)
	return batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) error {
		var destroyed, ghost bool
		var userType *int32
		var deletable *bool
		var live []bool
		var kind *bool
		var total Current
		if err := batch.One(&destroyed, &ghost, &userType, &deletable, &live, &kind, &total.Moved, &total.Deleted,
			&total.Nullified)(rows); err != nil {
			return err
		}
		if !ghost {
			return drain.ErrChanged
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		u.total, u.outcome, u.liveSteps, u.refusedType = total, "", nil, 0
		for i, s := range r.Plan.steps(u.hardDelete) {
			if live[i] {
				u.liveSteps = append(u.liveSteps, s)
			}
		}
		if deletable != nil && !*deletable {
			u.refusedType = *userType
		}
		switch {
		case destroyed:
			u.outcome, (*done)[t.ID] = Destroyed, false
		case kind == nil:
			u.outcome, (*done)[t.ID] = Cancelled, true
		case userType == nil:
			u.outcome, (*done)[t.ID] = Gone, true
		case *kind != u.hardDelete:
			(*done)[t.ID] = true
		}
		return nil
	}}
}

// Fail counts an attempt and defers a user. If the user waits for a lock, Fail counts no
// attempt: the user is still due, and this run loads it again after the given time.
func (r *run) Fail(
	ctx context.Context, on *batch.Session, _ *drain.Parent, tombstones []drain.Tombstone, f batch.Fault,
	after time.Duration,
) (int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.users[tombstones[0].ID]
	if f.Lock() && after > 0 {
		u.held, u.lockReason, u.retryAt = false, f.Message, time.Now().Add(after)
		return 1, nil
	}
	f, err := r.explain(ctx, on, u, f)
	if err != nil {
		return 0, err
	}
	return 1, r.fail(ctx, on, u, f)
}

// explain returns the fault with the table and the reason of rows that remain or prevent
// the deletion. If it does not find such rows, it keeps the fault's own message.
func (r *run) explain(ctx context.Context, on *batch.Session, u *user, f batch.Fault) (batch.Fault, error) {
	for _, s := range r.Plan.steps(u.hardDelete) {
		refuses := s.Action == dml.Forbid && (f.Message == s.refusal || f.Message == drain.KeptRowsMessage &&
			slices.Contains(u.liveSteps, s))
		if !refuses {
			continue
		}
		f.Table, f.Message = s.tableLabel, s.refusal
		sql, args := r.Plan.shownStatement(s, u.userID)
		var shown string
		_, err := on.Run(ctx, batch.Statement{SQL: sql, Args: args, Scan: batch.One(&shown)})
		f.Detail = "row " + shown
		return f, problem.Doing(err, "read a row of %s", s.label)
	}
	switch {
	case f.Message == drain.KeptRowsMessage && u.refusedType == ghostType:
		f.Table, f.Message = "", "the ghost user cannot be deleted"
	case f.Message == drain.KeptRowsMessage && u.refusedType != 0:
		f.Table, f.Message = "", fmt.Sprintf("an internal user (user_type %d) cannot be deleted", u.refusedType)
	case f.Message == drain.KeptRowsMessage && len(u.liveSteps) > 0:
		f.Table, f.Message = u.liveSteps[0].tableLabel, keptRows
	case f.Verdict == batch.Timeout:
		f.Message += ": a single row takes longer. Check its triggers, and foreign keys that refer to " + f.Table +
			" without an index"
	}
	return f, nil
}

// fail counts an attempt for a user, records the reason and defers the user.
func (r *run) fail(ctx context.Context, on *batch.Session, u *user, f batch.Fault) error {
	affected, err := on.RunWithin(ctx, on.Limits.ShortWaits(), batch.Statement{
		SQL: r.statement("blame"), Args: []any{u.id, f.Text(), r.limits.RetryAfter.Seconds()},
	})
	switch {
	case err == nil && affected[0] == 0:
		r.stats.UsersDropped++
		r.end(ctx, u, Cancelled, batch.Fault{})
		return nil
	case err != nil && batch.Judge(err).Verdict == batch.Fatal:
		return fmt.Errorf("defer user %s: %w", u.userID, err)
	case err != nil:
		// This happens if another session has locked the user's row in the queue. The
		// user is still due for the next run.
		f.Message += fmt.Sprintf("; defer user %s: %v", u.userID, err)
	}
	r.stats.UsersFailed++
	r.stats.fail(f)
	r.end(ctx, u, Failed, f)
	return nil
}

// Recheck does nothing, because deleted users are not rechecked.
func (*run) Recheck(context.Context, *batch.Session) (int64, error) { return 0, nil }

// Lacking returns "", so that a fault keeps the server's message about a missing
// privilege.
func (*run) Lacking(context.Context, *batch.Session, *drain.Edge) string { return "" }

// Unreadable returns "", so that a fault keeps the server's message.
func (*run) Unreadable(context.Context, *batch.Session, *drain.Parent) (string, error) {
	return "", nil
}

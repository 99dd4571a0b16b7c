package ghostuser

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
)

const (
	// turnBatches is how many batches a user has in one turn: half a second's worth at the usual target.
	turnBatches = 25
	// mostRounds is how often a user may be found with rows again that were done. Nobody writes that fast for long;
	// a trigger that puts rows back does.
	mostRounds = 20
	// mostBeaten is how many deadlocks and the like are tried again in one run.
	mostBeaten = 5
	// windowRows is the most pointers that are read at once, rowByRow the most rows that are tried one by one after a
	// duplicate among them.
	windowRows = 10_000
	rowByRow   = 50
)

// result is how a turn ended.
type result int

const (
	// finished: the user is out of the queue.
	finished result = iota
	// yielded: there is more to do.
	yielded
	// blocked: all that is left is locked by others.
	blocked
	// failed: the user is to be put off.
	failed
)

// turn gives a user some batches. It keeps nothing in memory: each turn looks afresh at what there is to do, as a run
// after a crash would. The failure is set where the result is failed; the error is one that ends the run.
func (r *run) turn(ctx context.Context, j *job) (result, failure, error) {
	r.left = turnBatches
	for {
		if r.paused(ctx) {
			return yielded, failure{}, nil
		}
		look, err := r.look(ctx, j)
		if err != nil {
			return r.beaten(j, judge(err), err)
		}
		switch {
		case !look.queued:
			r.stats.UsersDropped++
			r.tell(ctx, r.item(j, Cancelled))
			return finished, failure{}, nil
		case look.userType == nil:
			return finished, failure{}, r.drop(ctx, j)
		case *look.userType == ghostType:
			return failed, failure{message: "the ghost user cannot be deleted"}, nil
		case !deletable(*look.userType):
			return failed, failure{message: fmt.Sprintf("an internal user (user_type %d) cannot be deleted", *look.userType)}, nil
		case !look.ghost:
			if err := r.findGhost(ctx); err != nil {
				return 0, failure{}, err
			}
			continue
		case len(look.live) == 0:
			return r.finish(ctx, j)
		}
		if result, f, err := r.drainAll(ctx, j, look.live); result != finished || err != nil {
			return result, f, err
		}
	}
}

func deletable(userType int32) bool {
	switch userType {
	case humanType, projectBotType, serviceAccountType, placeholderType:
		return true
	default:
		return false
	}
}

// drainAll works the steps off in their order. One that others are in the way of does not hold up those behind it.
// finished means that there was nothing left of any.
func (r *run) drainAll(ctx context.Context, j *job, live []*step) (result, failure, error) {
	stuck := false
	for _, s := range live {
		for _, leaf := range s.leaves {
			result, f, err := r.drain(ctx, j, s, leaf)
			switch {
			case err != nil || result == failed:
				return result, f, err
			case result == yielded:
				return yielded, f, r.estimate(ctx, j, live)
			case result == blocked:
				stuck = true
			}
		}
	}
	if stuck {
		return blocked, failure{}, nil
	}
	if len(live) > 0 {
		// What is found again after this has come in since, or come back.
		j.rounds++
		if j.rounds > mostRounds {
			return failed, failure{table: live[0].tableLabel, message: "rows come back as fast as they are taken away: " +
				"a trigger puts them there, or a partition came after the run began"}, nil
		}
	}
	return finished, failure{}, nil
}

// beaten decides about an error that no step is to blame for alone.
func (r *run) beaten(j *job, f failure, err error) (result, failure, error) {
	switch {
	case f.verdict == fatal:
		return 0, f, err
	case r.ended():
		// The timeouts were cut to the lease's end.
		return yielded, f, nil
	case f.verdict == conflict && j.beaten < mostBeaten:
		j.beaten++
		return yielded, f, nil
	case f.verdict == lockTimeout && !j.patient:
		return blocked, f, nil
	}
	return failed, f, nil
}

// look is how a user stands.
type look struct {
	queued   bool
	userType *int32
	ghost    bool
	live     []*step
}

func (r *run) look(ctx context.Context, j *job) (look, error) {
	var found look
	sql, args := r.engine.Plan.lookStatement(r.engine.Session.Names, j, r.ghost)
	_, err := r.engine.Session.RunWithin(ctx, r.within(r.engine.Session.Limits), batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) error {
		var live []bool
		_, err := pgx.ForEachRow(rows, []any{&found.queued, &found.userType, &found.ghost, &live}, func() error {
			found.live = r.liveSteps(j, live)
			return nil
		})
		return err
	}})
	return found, err
}

func (r *run) liveSteps(j *job, live []bool) []*step {
	var steps []*step
	for i, s := range r.engine.Plan.steps(j.hardDelete) {
		if live[i] {
			steps = append(steps, s)
		}
	}
	return steps
}

// findGhost finds or makes the ghost user.
func (r *run) findGhost(ctx context.Context) error {
	_, err := r.engine.Session.Run(ctx, batch.Statement{
		SQL: r.engine.Session.Names.Render(`SELECT "sexton".ghost_user()`),
		Scan: func(rows pgx.Rows) (err error) {
			r.ghost, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int64])
			return err
		},
	})
	if err != nil {
		return fmt.Errorf("find ghost user: %w", err)
	}
	return nil
}

// drain works off one step in one leaf, window by window.
func (r *run) drain(ctx context.Context, j *job, s *step, leaf Table) (result, failure, error) {
	if j.patient {
		return r.wait(ctx, j, s, leaf)
	}
	for {
		if r.paused(ctx) {
			return yielded, failure{}, nil
		}
		limit := min(windowRows, r.left*r.engine.Sizes.rows(s))
		pointers, err := r.window(ctx, j, s, leaf, limit)
		if err != nil {
			return r.beaten(j, judgeStep(err, s), err)
		}
		changed, result, f, err := r.sweep(ctx, j, s, leaf, pointers)
		switch {
		case err != nil || result != finished:
			return result, f, err
		case changed == int64(len(pointers)) && len(pointers) < limit:
			return finished, failure{}, nil
		case changed == 0:
			return blocked, failure{}, nil
		}
	}
}

func (r *run) window(ctx context.Context, j *job, s *step, leaf Table, limit int) (pointers []pgtype.TID, err error) {
	sql, args := s.windowStatement(leaf, j, limit)
	_, err = r.engine.Session.RunWithin(ctx, r.within(r.engine.Session.Limits), batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) (err error) {
		pointers, err = pgx.CollectRows(rows, pgx.RowTo[pgtype.TID])
		return err
	}})
	return pointers, err
}

// sweep works off the rows of one window, piece by piece. Where a piece has a row that the ghost user cannot have, as it
// has its like already, its rows are tried one by one, and of that row becomes what would become of it on a hard
// delete: it says nothing that the other one does not.
func (r *run) sweep(ctx context.Context, j *job, s *step, leaf Table, pointers []pgtype.TID) (changed int64, _ result, _ failure, _ error) {
	single := 0
	for len(pointers) > 0 {
		if r.paused(ctx) {
			return changed, yielded, failure{}, nil
		}
		n := min(r.engine.Sizes.rows(s), len(pointers))
		if single > 0 {
			n = 1
		}
		rows, kept, err := r.piece(ctx, j, s, leaf, s.action, pointers[:n])
		f := judgeStep(err, s)
		if err != nil && f.verdict == duplicate && s.action == move {
			if n > 1 {
				if n <= rowByRow {
					single = n
				} else {
					s.size.rows = rowByRow
				}
				continue
			}
			rows, kept, err = r.piece(ctx, j, s, leaf, s.otherwise, pointers[:1])
			f = judgeStep(err, s)
		}
		switch {
		case err == nil && kept > 0:
			return changed, failed, keeps(s), nil
		case err == nil:
		case f.verdict == timeout && !r.ended() && r.engine.Sizes.shrink(s):
			continue
		default:
			result, f, err := r.beaten(j, f, err)
			return changed, result, f, err
		}
		changed += rows
		pointers = pointers[n:]
		if single > 0 {
			single--
		}
		if single == 0 {
			r.left--
		}
	}
	return changed, finished, failure{}, nil
}

func keeps(s *step) failure {
	return failure{table: s.tableLabel, message: fmt.Sprintf("rows keep their %s although nobody has locked them: a trigger, a rule or a default of the table sees to that", s.column)}
}

// piece runs one statement on the rows that pointers lead to.
func (r *run) piece(ctx context.Context, j *job, s *step, leaf Table, do action, pointers []pgtype.TID) (rows, kept int64, err error) {
	sql, args := s.pieceStatement(r.engine.Session.Names, leaf, j, do, r.ghost, pointers)
	limits := r.within(r.engine.Sizes.limits(r.engine.Session.Limits, s, false))
	began := time.Now()
	_, err = r.engine.Session.RunWithin(ctx, limits, batch.Statement{SQL: sql, Args: args, Scan: scanChange(&rows, &kept)})
	if err != nil {
		return 0, 0, err
	}
	took := time.Since(began)
	r.stats.count(j, s, do, rows)
	if do == s.action {
		r.engine.Sizes.learn(s, rows, took)
	}
	r.progress(ctx)
	r.breathe(ctx, took)
	return rows, kept, nil
}

func scanChange(rows, kept *int64) func(pgx.Rows) error {
	return func(result pgx.Rows) error {
		_, err := pgx.ForEachRow(result, []any{rows, kept}, func() error { return nil })
		return err
	}
}

// wait works off one step in one leaf whose rows others have locked: each transaction waits until it has them.
func (r *run) wait(ctx context.Context, j *job, s *step, leaf Table) (result, failure, error) {
	for {
		if r.paused(ctx) {
			return yielded, failure{}, nil
		}
		limit := r.engine.Sizes.rows(s)
		var rows, kept int64
		waitSQL, waitArgs := s.waitStatement(leaf, j, limit)
		cleanSQL, cleanArgs := s.cleanStatement(r.engine.Session.Names, leaf, j, r.ghost, limit)
		unwatch := r.watch(ctx)
		affected, err := r.engine.Session.RunWithin(ctx, r.within(r.engine.Session.Limits),
			batch.Statement{SQL: waitSQL, Args: waitArgs},
			batch.Statement{SQL: cleanSQL, Args: cleanArgs, Scan: scanChange(&rows, &kept)})
		blocker := unwatch()
		f := judgeStep(err, s)
		switch {
		case err != nil && f.verdict == duplicate && s.action == move:
			// Nothing is locked any more, so the rows can be tried one by one.
			j.rounds++
			if j.rounds > mostRounds {
				return failed, f, nil
			}
			return yielded, f, nil
		case f.verdict == timeout && err != nil && !r.ended() && r.engine.Sizes.shrink(s):
			continue
		case err != nil:
			if f.verdict == lockTimeout && blocker != "" {
				f.message += " (" + blocker + ")"
			}
			return r.beaten(j, f, err)
		}
		r.left--
		r.stats.count(j, s, s.action, rows)
		r.progress(ctx)
		switch {
		case kept > 0 || rows == 0 && affected[0] > 0:
			return failed, keeps(s), nil
		case affected[0] < int64(limit):
			return finished, failure{}, nil
		}
	}
}

// finish deletes a user who has nothing left. What is found under the lock, a batch of each step at most, goes in the
// same transaction; where there is more than that the user stays and has another turn.
func (r *run) finish(ctx context.Context, j *job) (result, failure, error) {
	destroyed, left, result, f, err := r.destroy(ctx, j, nil)
	if err == nil && !destroyed && len(left) > 0 && result == yielded {
		destroyed, _, result, f, err = r.destroy(ctx, j, left)
	}
	switch {
	case err != nil || result == failed || result == blocked:
		return result, f, err
	case destroyed:
		return finished, failure{}, nil
	}
	j.rounds++
	if j.rounds > mostRounds {
		if f.message == "" {
			f = failure{message: "rows that refer to the user come in as fast as they are taken away"}
		}
		return failed, f, nil
	}
	return yielded, failure{}, nil
}

// destroy locks the user, works off a batch of each of the steps and deletes the user if nothing is left. The result is
// yielded where the user stays without anybody's fault.
func (r *run) destroy(ctx context.Context, j *job, steps []*step) (gone bool, left []*step, _ result, _ failure, _ error) {
	names := r.engine.Session.Names
	lockSQL, lockArgs := r.engine.Plan.lockStatement(j)
	statements := []batch.Statement{{SQL: lockSQL, Args: lockArgs}}
	about := []*step{nil}
	changes := map[int]*[2]int64{}
	for _, s := range steps {
		limit := r.engine.Sizes.rows(s)
		for _, leaf := range s.leaves {
			waitSQL, waitArgs := s.waitStatement(leaf, j, limit)
			cleanSQL, cleanArgs := s.cleanStatement(names, leaf, j, r.ghost, limit)
			change := &[2]int64{}
			changes[len(statements)+1] = change
			statements = append(statements, batch.Statement{SQL: waitSQL, Args: waitArgs},
				batch.Statement{SQL: cleanSQL, Args: cleanArgs, Scan: scanChange(&change[0], &change[1])})
			about = append(about, s, s)
		}
	}
	sql, args := r.engine.Plan.destroyStatement(names, j)
	var live []bool
	var total Current
	statements = append(statements, batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&gone, &live, &total.Moved, &total.Deleted, &total.Nullified}, func() error { return nil })
		return err
	}})
	limits := r.engine.Session.Limits
	if !j.patient && len(steps) == 0 {
		limits.LockTimeout = min(limits.LockTimeout, hasty)
	}
	unwatch := r.watch(ctx)
	_, err := r.engine.Session.RunWithin(ctx, r.within(limits), statements...)
	blocker := unwatch()
	if err != nil {
		f := failure{}
		at, ok := errors.AsType[*batch.StatementError](err)
		if ok && at.Index > 0 && at.Index < len(about) {
			f = judgeStep(err, about[at.Index])
		} else if f = judge(err); f.verdict != fatal {
			f.table = "users"
		}
		if f.verdict == duplicate || f.verdict == timeout && len(steps) > 0 {
			return false, nil, yielded, f, nil // They go the usual way, in pieces.
		}
		if f.verdict == lockTimeout && blocker != "" {
			f.message += " (" + blocker + ")"
		}
		result, f, err := r.beaten(j, f, err)
		return false, nil, result, f, err
	}
	for at, change := range changes {
		r.stats.count(j, about[at], about[at].action, change[0])
	}
	if !gone {
		return false, r.liveSteps(j, live), yielded, failure{}, nil
	}
	r.stats.UsersProcessed++
	item := r.item(j, Destroyed)
	item.Moved, item.Deleted, item.Nullified = total.Moved, total.Deleted, total.Nullified
	r.progress(ctx)
	r.tell(ctx, item)
	return true, nil, finished, failure{}, nil
}

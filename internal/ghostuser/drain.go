package ghostuser

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/fault"
)

const (
	// windowRows is the most pointers that are read at once, rowByRow the most rows that are tried one by one after a
	// duplicate among them.
	windowRows = 10_000
	rowByRow   = 50
)

// drain works off one step in one leaf, window by window.
func (r *run) drain(ctx context.Context, j *job, s *step, leaf Table) (result, fault.Fault, error) {
	if s.Action == drain.Remove && j.isHeavy(s) {
		return r.fell(ctx, j, s, leaf, nil)
	}
	if j.patient {
		return r.wait(ctx, j, s, leaf)
	}
	if done, err := r.direct(ctx, j, s, leaf); done || err != nil {
		return finished, fault.Fault{}, err
	}
	for {
		if r.paused(ctx) {
			return yielded, fault.Fault{}, nil
		}
		limit := min(windowRows, r.left*r.engine.Sizes.rows(s))
		pointers, err := r.window(ctx, j, s, leaf, limit)
		if err != nil {
			f, _ := judgeStep(err, s)
			return r.beaten(j, f, err)
		}
		changed, result, f, err := r.sweep(ctx, j, s, leaf, pointers)
		switch {
		case err != nil || result != finished:
			return result, f, err
		case changed == int64(len(pointers)) && len(pointers) < limit:
			return finished, fault.Fault{}, nil
		case changed == 0:
			return blocked, fault.Fault{}, nil
		}
	}
}

// direct works off what fits into one statement, as most of what users have does. It reports whether that was all. Where it
// fails, nothing is said yet: the rows are looked at one window at a time.
func (r *run) direct(ctx context.Context, j *job, s *step, leaf Table) (done bool, _ error) {
	if j.large || s.doubled || r.paused(ctx) {
		return false, nil
	}
	limit := r.engine.Sizes.rows(s)
	sql, args := s.directStatement(r.engine.Session.Names, leaf, j, r.ghost, limit)
	var rows, kept, found int64
	_, err := r.engine.Session.RunWithin(ctx, r.within(r.engine.Sizes.limits(r.engine.Session.Limits, s, false)), batch.Statement{
		SQL: sql, Args: args, Scan: func(result pgx.Rows) error {
			_, err := pgx.ForEachRow(result, []any{&rows, &kept, &found}, func() error { return nil })
			return err
		},
	})
	if err != nil {
		f := fault.Judge(err)
		if f.Verdict == fault.Timeout && !r.ended() {
			r.engine.Sizes.shrink(s)
		}
		if f.Verdict == fault.Fatal {
			return false, err
		}
		return false, nil
	}
	r.left--
	j.large = found == int64(limit)
	r.stats.count(j, s, s.Action, rows)
	r.noted(ctx, s, rows, r.engine.Session.Took())
	return kept == 0 && rows == found && found < int64(limit), nil
}

// noted steers by a statement that went through, and leaves others their share of the time.
func (r *run) noted(ctx context.Context, s *step, rows int64, took time.Duration) {
	r.engine.Sizes.learn(s, rows, took)
	r.progress(ctx)
	r.pace.Breathe(ctx, took)
}

func (r *run) window(ctx context.Context, j *job, s *step, leaf Table, limit int) (pointers []pgtype.TID, err error) {
	sql, args := s.windowStatement(leaf, j, limit)
	_, err = r.engine.Session.RunWithin(ctx, r.within(r.engine.Session.Limits), batch.Statement{SQL: sql, Args: args, Scan: func(rows pgx.Rows) (err error) {
		pointers, err = pgx.CollectRows(rows, pgx.RowTo[pgtype.TID])
		return err
	}})
	return pointers, err
}

// sweep works off the rows of one window, piece by piece; once others are in the way, without the rows that they have
// locked. Of a row that the ghost user cannot have, as it has its like already, becomes what would become of it on a hard
// delete: it says nothing that the other one does not. Once a step has met such rows, each piece begins with a statement that
// finds them by the unique indexes; where those do not explain the duplicate, the rows are tried one by one.
func (r *run) sweep(ctx context.Context, j *job, s *step, leaf Table, pointers []pgtype.TID) (changed int64, _ result, _ fault.Fault, _ error) {
	single, skip := 0, false
	for len(pointers) > 0 {
		if r.paused(ctx) {
			return changed, yielded, fault.Fault{}, nil
		}
		n := min(r.engine.Sizes.rows(s), len(pointers))
		if single > 0 {
			n = 1
		}
		do := s.Action
		rows, kept, err := r.piece(ctx, j, s, leaf, do, pointers[:n], skip)
		f, duplicate := judgeStep(err, s)
		if duplicate && s.Action == drain.Move {
			if !s.doubled && len(s.twins[leaf.OID]) > 0 {
				s.doubled = true
				continue
			}
			if n > 1 {
				if n <= rowByRow {
					single = n
				} else {
					s.size.rows = rowByRow
				}
				continue
			}
			do = s.otherwise
			if do == drain.Remove && j.isHeavy(s) {
				result, f, err := r.fell(ctx, j, s, leaf, pointers[:1])
				if result != finished || err != nil {
					return changed, result, f, err
				}
				continue
			}
			rows, kept, err = r.piece(ctx, j, s, leaf, do, pointers[:1], skip)
			f, _ = judgeStep(err, s)
		}
		switch {
		case err == nil && kept > 0:
			return changed, failed, keeps(s), nil
		case err == nil:
		case (f.Verdict == fault.LockTimeout || f.Verdict == fault.Conflict) && !skip:
			skip = true
			continue
		case f.Verdict == fault.Timeout && !r.ended() && r.engine.Sizes.shrink(s):
			continue
		case f.Verdict == fault.Timeout && !r.ended() && do == drain.Move && s.doubled && s.twins[leaf.OID] != nil:
			delete(s.twins, leaf.OID) // The double is the slow one: row by row it is known as one.
			continue
		case f.Verdict == fault.Timeout && !r.ended() && do == drain.Remove:
			result, f, err := r.makeHeavy(ctx, j, s.tableLabel)
			return changed, result, f, err
		default:
			result, f, err := r.beaten(j, tooSlow(f), err)
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
	return changed, finished, fault.Fault{}, nil
}

func keeps(s *step) fault.Fault {
	return fault.Fault{Table: s.tableLabel, Message: fmt.Sprintf(
		"rows keep their %s although no session has locked them: a trigger, a rule or a default of the table sees to that", s.column())}
}

// piece runs one statement on the rows that pointers lead to.
func (r *run) piece(ctx context.Context, j *job, s *step, leaf Table, do drain.Action, pointers []pgtype.TID, skip bool) (rows, kept int64, err error) {
	var doubles, keptDoubles int64
	var statements []batch.Statement
	if do == drain.Move && s.doubled && len(s.twins[leaf.OID]) > 0 {
		sql, args := s.doublesStatement(r.engine.Session.Names, leaf, j, r.ghost, pointers, skip)
		statements = append(statements, batch.Statement{SQL: sql, Args: args, Scan: scanChange(&doubles, &keptDoubles)})
	}
	sql, args := s.pieceStatement(r.engine.Session.Names, leaf, j, do, r.ghost, pointers, skip)
	statements = append(statements, batch.Statement{SQL: sql, Args: args, Scan: scanChange(&rows, &kept)})
	limits := r.within(r.engine.Sizes.limits(r.engine.Session.Limits, s, false))
	if _, err = r.engine.Session.RunWithin(ctx, limits, statements...); err != nil {
		return 0, 0, err
	}
	took := r.engine.Session.Took()
	r.stats.count(j, s, do, rows)
	r.stats.count(j, s, s.otherwise, doubles)
	rows, kept = rows+doubles, kept+keptDoubles
	if do == s.Action {
		r.engine.Sizes.learn(s, rows, took)
	}
	r.progress(ctx)
	r.pace.Breathe(ctx, took)
	return rows, kept, nil
}

func scanChange(rows, kept *int64) func(pgx.Rows) error {
	return func(result pgx.Rows) error {
		_, err := pgx.ForEachRow(result, []any{rows, kept}, func() error { return nil })
		return err
	}
}

// wait works off one step in one leaf whose rows others have locked: each transaction waits until it has them.
func (r *run) wait(ctx context.Context, j *job, s *step, leaf Table) (result, fault.Fault, error) {
	for {
		if r.paused(ctx) {
			return yielded, fault.Fault{}, nil
		}
		limit := r.engine.Sizes.rows(s)
		var rows, kept int64
		waitSQL, waitArgs := s.waitStatement(leaf, j, limit)
		cleanSQL, cleanArgs := s.cleanStatement(r.engine.Session.Names, leaf, j, r.ghost, limit)
		unwatch := r.pace.Watch(ctx, r.engine.Blocker)
		affected, err := r.engine.Session.RunWithin(ctx, r.within(r.engine.Session.Limits),
			batch.Statement{SQL: waitSQL, Args: waitArgs},
			batch.Statement{SQL: cleanSQL, Args: cleanArgs, Scan: scanChange(&rows, &kept)})
		blocker := unwatch()
		f, duplicate := judgeStep(err, s)
		switch {
		case duplicate && s.Action == drain.Move:
			// Nothing is locked any more, so the rows can be tried one by one.
			j.rounds++
			if j.rounds > mostRounds {
				return failed, f, nil
			}
			return yielded, f, nil
		case f.Verdict == fault.Timeout && err != nil && !r.ended() && r.engine.Sizes.shrink(s):
			continue
		case f.Verdict == fault.Timeout && err != nil && !r.ended() && s.Action == drain.Remove:
			return r.makeHeavy(ctx, j, s.tableLabel)
		case err != nil:
			return r.beaten(j, heldBy(tooSlow(f), blocker), err)
		}
		r.left--
		r.stats.count(j, s, s.Action, rows)
		r.progress(ctx)
		switch {
		case kept > 0 || rows == 0 && affected[0] > 0:
			return failed, keeps(s), nil
		case affected[0] < int64(limit):
			return finished, fault.Fault{}, nil
		}
	}
}

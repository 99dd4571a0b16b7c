package ghostuser

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
)

// windowRows is the most pointers that are read at once.
const windowRows = 10_000

// drain works off one step in one leaf, window by window.
func (r *run) drain(ctx context.Context, j *job, s *step, leaf Table) (result, error) {
	if s.Action == drain.Remove && j.isHeavy(s) {
		return r.fell(ctx, j, s, leaf, nil)
	}
	if j.waits {
		return r.wait(ctx, j, s, leaf)
	}
	if done, err := r.direct(ctx, j, s, leaf); done || err != nil {
		return finished, err
	}
	for !r.paused(ctx) {
		limit := min(windowRows, r.left*r.engine.Sizes.rows(s))
		sql, args := s.windowStatement(leaf, []*job{j}, limit)
		pointers, err := drain.Query(ctx, r.Run, pgx.RowToStructByPos[pointer], sql, args...)
		if err != nil {
			return r.beaten(j, batch.FaultIn(err, s.tableLabel), err)
		}
		changed, result, err := r.sweep(ctx, j, s, leaf, pointers)
		switch {
		case err != nil || result != finished:
			return result, err
		case changed == int64(len(pointers)) && len(pointers) < limit:
			return finished, nil
		case changed == 0:
			return blocked, nil
		}
	}
	return yielded, nil
}

// direct works off what fits into one statement, as most of what users have does. It reports whether it has changed all rows that it found, and these
// were all. Where it fails, nothing is said yet: the rows are looked at one window at a time.
func (r *run) direct(ctx context.Context, j *job, s *step, leaf Table) (done bool, _ error) {
	if j.large || s.doubled || r.paused(ctx) {
		return false, nil
	}
	l := r.engine.Sizes.ladder(s, false)
	limit := l.Rows()
	var changes []change
	sql, args := s.cleanStatement(r.Session.Names, leaf, j, r.ghost, limit, false)
	if err := r.Send(ctx, l.Limits(r.Session.Limits), changing(&changes, sql, args)); err != nil {
		f := batch.Judge(err)
		if f.Verdict == batch.Fatal {
			return false, err
		}
		if !r.Pace.Ended() {
			l.Again(f, err, limit, r.Session.Limits)
		}
		return false, nil
	}
	rows, kept := r.count(s, s.Action, changes)
	var found int64
	for _, one := range changes {
		found += one.Found
	}
	j.large = found == int64(limit)
	r.Passed(ctx, l, rows, r.Session.Took())
	return kept == 0 && rows == found && !j.large, nil
}

// sweep works off the rows of one window, piece by piece; once others are in the way, without the rows that they have
// locked. Of a row that the ghost user cannot have, as it has its like already, becomes what would become of it on a hard
// delete: it says nothing that the other one does not. Once a step has met such rows, each piece begins with a statement that
// finds them by the unique indexes; where those do not explain the duplicate, the pieces are halved until it stands alone.
func (r *run) sweep(ctx context.Context, j *job, s *step, leaf Table, pointers []pointer) (changed int64, _ result, _ error) {
	l, do := r.engine.Sizes.ladder(s, false), s.Action
	double := func(err error) bool { return s.Action == drain.Move && s.duplicate(err) }
	l.Splits = func(err error) bool {
		s.doubled = s.doubled || double(err) && len(s.twins[leaf.OID]) > 0
		return double(err)
	}
	for {
		at, ended, f, err := r.Pieces(ctx, len(pointers), l, func(ctx context.Context, at, n int, limits batch.Limits) error {
			do = s.Action
			rows, err := r.piece(ctx, j, s, leaf, do, pointers[at:at+n], limits, l.Skip)
			if n == 1 && double(err) {
				if do = s.otherwise; do == drain.Remove && j.isHeavy(s) {
					return err
				}
				rows, err = r.piece(ctx, j, s, leaf, do, pointers[at:at+n], limits, l.Skip)
			}
			changed += rows
			return err
		})
		pointers, f.Table = pointers[at:], s.tableLabel
		late := f.Verdict == batch.Timeout && !r.Pace.Ended()
		switch {
		case ended == drain.Finished:
			return changed, finished, nil
		case ended == drain.Yielded:
			return changed, yielded, nil
		case double(err) && do == drain.Remove && j.isHeavy(s):
			result, err := r.fell(ctx, j, s, leaf, pointers[:1])
			if result != finished || err != nil {
				return changed, result, err
			}
		case late && do == drain.Move && s.doubled && s.twins[leaf.OID] != nil:
			delete(s.twins, leaf.OID) // The double is the slow one: row by row it is known as one.
		case late && do == drain.Remove:
			result, err := r.makeHeavy(ctx, j, s.tableLabel)
			return changed, result, err
		default:
			result, err := r.beaten(j, tooSlow(f), err)
			return changed, result, err
		}
	}
}

// keeps is the error of a statement that went through and changed rows to what they were.
func keeps(s *step) error {
	return &batch.FaultError{Fault: drain.Keeps(s.tableLabel, s.column())}
}

// change counts the rows of a user that a statement has found, the ones that it has changed, and those among these that refer to the user still.
type change struct{ Owner, Found, Rows, Kept int64 }

// changing is a statement that returns changes.
func changing(into *[]change, sql string, args []any) batch.Statement {
	return batch.Statement{SQL: sql, Args: args, Scan: batch.Collect(into, pgx.RowToStructByPos[change])}
}

// count notes rows for their users. It returns how many there are, and how many of them are as they were.
func (r *run) count(s *step, do drain.Action, changes []change) (rows, kept int64) {
	for _, one := range changes {
		if one.Rows == 0 {
			continue
		}
		j := r.jobs[one.Owner]
		j.begun = true
		r.stats.Current = &j.done
		r.stats.count(j, s, do, one.Rows)
		j.tide(s).Gone += one.Rows
		rows, kept = rows+one.Rows, kept+one.Kept
	}
	return rows, kept
}

// tide is that of a step.
func (j *job) tide(s *step) *drain.Tide {
	if j.tides[s] == nil {
		j.tides[s] = &drain.Tide{}
	}
	return j.tides[s]
}

// comesBack is the fault of a step whose rows come back.
func comesBack(table string) batch.Fault {
	return batch.Fault{
		Table: table, Verdict: batch.Row,
		Message: "rows come back as fast as they are taken away: a trigger puts them there, or a partition came after the run began",
	}
}

// piece runs one statement on the rows that pointers lead to.
func (r *run) piece(
	ctx context.Context, j *job, s *step, leaf Table, do drain.Action, pointers []pointer, limits batch.Limits, skip bool,
) (int64, error) {
	var changes, doubles []change
	var statements []batch.Statement
	if do == drain.Move && s.doubled && len(s.twins[leaf.OID]) > 0 {
		sql, args := s.doublesStatement(r.Session.Names, leaf, j, r.ghost, pointers, skip)
		statements = append(statements, changing(&doubles, sql, args))
	}
	sql, args := s.pieceStatement(r.Session.Names, leaf, []*job{j}, do, r.ghost, pointers)
	if skip {
		sql, args = s.skipStatement(r.Session.Names, leaf, j, do, r.ghost, pointers)
	}
	if err := r.Send(ctx, limits, append(statements, changing(&changes, sql, args))...); err != nil {
		return 0, err
	}
	rows, kept := r.count(s, do, changes)
	others, keptOthers := r.count(s, s.otherwise, doubles)
	if kept+keptOthers > 0 {
		return rows + others, keeps(s)
	}
	return rows + others, nil
}

// wait works off one step in one leaf whose rows others have locked: each transaction waits until it has them.
func (r *run) wait(ctx context.Context, j *job, s *step, leaf Table) (result, error) {
	for l := r.engine.Sizes.ladder(s, true); !r.paused(ctx); {
		limit := l.Rows()
		var changes []change
		waitSQL, waitArgs := s.waitStatement(leaf, j, limit)
		cleanSQL, cleanArgs := s.cleanStatement(r.Session.Names, leaf, j, r.ghost, limit, true)
		judge := r.Watch(ctx, r.Session.Limits)
		affected, err := r.Session.RunWithin(ctx, r.within(r.Session.Limits),
			batch.Statement{SQL: waitSQL, Args: waitArgs}, changing(&changes, cleanSQL, cleanArgs))
		f := judge(err)
		f.Table = s.tableLabel
		switch {
		case s.Action == drain.Move && s.duplicate(err):
			// Nothing is locked any more, so the rows can be tried one by one.
			j.rounds++
			if j.rounds > drain.MostRounds {
				return j.fails(f)
			}
			return yielded, nil
		case err != nil && !r.Pace.Ended() && l.Again(f, err, limit, r.Session.Limits):
			continue
		case err != nil && f.Verdict == batch.Timeout && !r.Pace.Ended() && s.Action == drain.Remove:
			return r.makeHeavy(ctx, j, s.tableLabel)
		case err != nil:
			return r.beaten(j, tooSlow(f), err)
		}
		rows, kept := r.count(s, s.Action, changes)
		r.Progress(ctx)
		switch {
		case kept > 0 || rows == 0 && affected[0] > 0:
			return j.fails(batch.Judge(keeps(s)))
		case affected[0] < int64(limit):
			return finished, nil
		}
	}
	return yielded, nil
}

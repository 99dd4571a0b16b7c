package ghostuser

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/fault"
)

// judgeStep says what an error of one step's statement means, and whether it comes of a row whose like the step's table
// has already.
func judgeStep(err error, s *step) (f fault.Fault, duplicate bool) {
	f = fault.Judge(err)
	f.Table = s.tableLabel
	return f, fault.DuplicateIn(err, s.Child) || fault.DuplicateIn(err, s.Leaves...)
}

// tooSlow says what to look for where not even one row can be changed in time, although nothing hangs below it any more.
func tooSlow(f fault.Fault) fault.Fault {
	if f.Verdict == fault.Timeout {
		f.Message += ": a single row takes longer; look at its triggers, and at foreign keys that refer to " + f.Table + " without an index"
	}
	return f
}

// heldBy names who held the lock that a statement has waited for in vain, where that is known.
func heldBy(f fault.Fault, blocker string) fault.Fault {
	if f.Verdict == fault.LockTimeout && blocker != "" {
		f.Message += " (" + blocker + ")"
	}
	return f
}

// restricted returns the first of the steps that refuses the deletion, or nil.
func restricted(live []*step) *step {
	if at := slices.IndexFunc(live, func(s *step) bool { return s.Action == drain.Forbid }); at >= 0 {
		return live[at]
	}
	return nil
}

// refuse puts a user off that a step refuses to let go, and names one of the rows. Nothing of the user has been changed in this turn.
func (r *run) refuse(ctx context.Context, j *job, s *step) (result, fault.Fault, error) {
	var rows []string
	sql, args := s.shownStatement(j)
	_, err := r.engine.Session.RunWithin(ctx, r.within(r.engine.Session.Limits), batch.Statement{SQL: sql, Args: args, Scan: func(found pgx.Rows) (err error) {
		rows, err = pgx.CollectRows(found, pgx.RowTo[string])
		return err
	}})
	switch {
	case err != nil:
		f, _ := judgeStep(err, s)
		return r.beaten(j, f, err)
	case len(rows) == 0:
		return yielded, fault.Fault{}, nil // It has gone meanwhile.
	}
	return failed, fault.Fault{Table: s.tableLabel, Message: s.refusal, Detail: "row " + rows[0]}, nil
}

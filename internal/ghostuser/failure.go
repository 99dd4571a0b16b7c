package ghostuser

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
)

// duplicate reports whether an error comes of a row whose like the step's table has already.
func (s *step) duplicate(err error) bool {
	return batch.DuplicateIn(err, s.Child) || batch.DuplicateIn(err, s.Leaves...)
}

// tooSlow says what to look for where not even one row can be changed in time, although nothing hangs below it any more.
func tooSlow(f batch.Fault) batch.Fault {
	if f.Verdict == batch.Timeout {
		f.Message += ": a single row takes longer; look at its triggers, and at foreign keys that refer to " + f.Table + " without an index"
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
func (r *run) refuse(ctx context.Context, j *job, s *step) (result, error) {
	sql, args := s.shownStatement(j)
	rows, err := drain.Query(ctx, r.Run, pgx.RowTo[string], sql, args...)
	switch {
	case err != nil:
		return r.beaten(j, batch.FaultIn(err, s.tableLabel), err)
	case len(rows) == 0:
		return yielded, nil // It has gone meanwhile.
	}
	return j.fails(batch.Fault{Table: s.tableLabel, Message: s.refusal, Detail: "row " + rows[0]})
}

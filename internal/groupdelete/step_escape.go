package groupdelete

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain"
)

// escapeEvery is after how many batches a run looks whether what it has in hand still belongs to the group: what is moved
// away loses as many at most.
const escapeEvery = 8

// lineHolds is the condition that each of the groups in an array (a parameter) is the parent of the next one. One that was
// moved away has escaped with all that is below it, and so has what is in hand further down.
func lineHolds(groups, parameter string) string {
	return fmt.Sprintf(`NOT EXISTS (
	SELECT FROM unnest((%[2]s::bigint[])[:pg_catalog.cardinality(%[2]s::bigint[]) OPERATOR(pg_catalog.-) 1], (%[2]s::bigint[])[2:]) AS link (above, below)
	WHERE NOT EXISTS (SELECT FROM %[1]s AS linked WHERE linked.id OPERATOR(pg_catalog.=) link.below AND linked.parent_id OPERATOR(pg_catalog.=) link.above)
)`, groups, parameter)
}

// escaped looks, now and then, whether a group or a project in hand was moved away. Rows that were changed in some other way
// are taken for moved: to begin again costs little.
func (r *run) escaped(ctx context.Context) bool {
	if r.asked++; r.moved || r.asked%escapeEvery != 0 {
		return r.moved
	}
	if len(r.line) > 1 {
		r.moved = !r.holds(ctx, "SELECT "+lineHolds(drain.Item(r.engine.Plan.groups.Relation), "$1"), r.line)
	}
	for _, on := range r.Stack {
		if on.Table == r.engine.Plan.projects && !r.moved {
			r.moved = !r.holds(ctx, drain.UnchangedStatement(on.Leaf), on.Rows.At, on.Rows.Version)
		}
	}
	return r.moved
}

// holds runs a statement that returns a boolean. One that fails tells nothing; should that last, others fail as well.
func (r *run) holds(ctx context.Context, sql string, args ...any) bool {
	found, err := drain.Query(ctx, r.Run, pgx.RowTo[bool], sql, args...)
	return err != nil || found[0]
}

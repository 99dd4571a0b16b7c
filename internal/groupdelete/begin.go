package groupdelete

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/fault"
	"sexton/internal/pgschema"
)

// standing is how a group stands.
type standing struct {
	// Begun tells that its destruction has begun, by this statement or before.
	Begun                  bool
	Marked, Scheduled, Due bool
	// Undated tells that the application's settings have no period.
	Undated   bool
	Permitted bool
	// Done and Total count the rows of a destruction that had begun before.
	Done, Total int64
	// Touched reports that one of them has gone or changed, after which there is no way back.
	Touched bool
}

// standingSQL tells how a group stands; {groups} is their table. The user who scheduled it last has to have the permission.
const standingSQL = `
SELECT begun.group_id IS NOT NULL AS begun,
    doomed.marked_for_deletion_on IS NOT NULL AS marked,
    schedule.user_id IS NOT NULL AS scheduled,
    coalesce(doomed.marked_for_deletion_on OPERATOR(pg_catalog.<) cutoff.date, false) AS due,
    cutoff.date IS NULL AS undated,
    schedule.user_id IS NOT NULL AND coalesce("sexton".may_remove_group(schedule.user_id, doomed.id), false) AS permitted,
    coalesce(begun.done, 0) AS done, coalesce(begun.total, 0) AS total,
    coalesce(begun.done OPERATOR(pg_catalog.>) 0 OR begun.touched, false) AS touched, doomed.id, schedule.user_id
FROM {groups} AS doomed
CROSS JOIN "sexton".group_deletion_cutoff() AS cutoff (date)
LEFT JOIN "public".group_deletion_schedules AS schedule ON schedule.group_id OPERATOR(pg_catalog.=) doomed.id
LEFT JOIN "sexton".group_destructions AS begun ON begun.group_id OPERATOR(pg_catalog.=) doomed.id
WHERE doomed.id OPERATOR(pg_catalog.=) $1`

// beginSQL begins the destruction, where the group is due and may be destroyed.
const beginSQL = `
WITH standing AS MATERIALIZED (` + standingSQL + `
),
begun AS (
    INSERT INTO "sexton".group_destructions (group_id, user_id, begun_at, total)
    SELECT standing.id, standing.user_id, pg_catalog.clock_timestamp(), $2
    FROM standing
    WHERE NOT standing.begun AND standing.due AND standing.permitted
    RETURNING group_id
),
relieved AS (
    DELETE FROM "sexton".group_deletion_failures AS failure USING begun WHERE failure.group_id OPERATOR(pg_catalog.=) begun.group_id
)
SELECT standing.begun OR EXISTS (SELECT FROM begun), standing.marked, standing.scheduled, standing.due, standing.undated, standing.permitted,
    standing.done, standing.total, standing.touched
FROM standing`

// blameSQL counts an attempt of a group whose destruction has begun.
const blameSQL = `
UPDATE "sexton".group_destructions AS progress
SET attempts = progress.attempts OPERATOR(pg_catalog.+) 1, last_error = $2, updated_at = pg_catalog.clock_timestamp()
WHERE progress.group_id OPERATOR(pg_catalog.=) $1`

// refuseSQL records why a destruction cannot begin, unless it has. The group is put off for $3 seconds.
const refuseSQL = `
INSERT INTO "sexton".group_deletion_failures AS failure (group_id, last_error, retry_at)
SELECT $1::bigint, $2::pg_catalog.text, pg_catalog.clock_timestamp() OPERATOR(pg_catalog.+) pg_catalog.make_interval(secs => $3)
WHERE NOT EXISTS (SELECT FROM "sexton".group_destructions AS begun WHERE begun.group_id OPERATOR(pg_catalog.=) $1)
ON CONFLICT (group_id) DO UPDATE
SET attempts = failure.attempts OPERATOR(pg_catalog.+) 1, last_error = excluded.last_error, retry_at = excluded.retry_at,
    updated_at = pg_catalog.clock_timestamp()`

// refusedFor is how long, in seconds, the daily job leaves a group alone that cannot be destroyed as foreign keys are.
const refusedFor = 3600.0

// begin ensures that the destruction has begun, and reports whether there is anything to do. The checks are made again in the
// transaction that begins it, under the lock of the group that a session that restores it has to have as well.
func (r *run) begin(ctx context.Context) (bool, error) {
	names, groups := r.Session.Names, drain.Item(r.engine.Plan.groups.Relation)
	before, err := r.standing(ctx, func(sql string) batch.Statement {
		const columns = "SELECT begun, marked, scheduled, due, undated, permitted, done, total, touched FROM "
		return batch.Statement{SQL: columns + "(" + sql + ") AS standing", Args: []any{r.engine.GroupID}}
	}, fill(names, standingSQL, "{groups}", groups))
	if err != nil {
		return false, err
	}
	if before == nil {
		r.stats.Outcome = Gone
		return false, r.forget(ctx, r.engine.GroupID)
	}
	if before.Begun {
		r.stats.Done, r.stats.Total, r.doneBefore, r.final = before.Done, before.Total, before.Done, before.Touched
		return true, nil
	}
	if reason := before.kept(); reason != "" {
		r.stats.Outcome, r.stats.Reason = Kept, reason
		return false, nil
	}
	ids, err := r.subtree(ctx)
	if err != nil {
		return false, err
	}
	refused, err := r.forbidden(ctx, ids)
	if err != nil {
		return false, err
	}
	if refused != nil {
		return false, r.refuse(ctx, *refused)
	}
	total, err := r.estimate(ctx, ids)
	if err != nil {
		return false, err
	}
	lock := batch.Statement{SQL: fmt.Sprintf(
		"SELECT FROM %s AS doomed WHERE doomed.id OPERATOR(pg_catalog.=) $1 FOR UPDATE", groups), Args: []any{r.engine.GroupID}}
	after, err := r.standing(ctx, func(sql string) batch.Statement {
		return batch.Statement{SQL: sql, Args: []any{r.engine.GroupID, total}}
	}, fill(names, beginSQL, "{groups}", groups), lock)
	switch {
	case err != nil:
		return false, err
	case after == nil:
		r.stats.Outcome = Gone
		return false, r.forget(ctx, r.engine.GroupID)
	case !after.Begun:
		r.stats.Outcome, r.stats.Reason = Kept, after.kept()
		return false, nil
	}
	r.stats.Total = total
	r.Changes++
	return true, nil
}

// confirmSQL locks the record of the destruction $1. It fails with a division by zero where there is none any more.
const confirmSQL = `
SELECT 1 OPERATOR(pg_catalog./) pg_catalog.count(*)::integer FROM (
    SELECT FROM "sexton".group_destructions AS begun WHERE begun.group_id OPERATOR(pg_catalog.=) $1 FOR NO KEY UPDATE
) AS begun`

// alter runs a transaction that deletes or changes rows. As long as none has, the deletion may be cancelled, which deletes the
// record of the destruction: the statement number at of the transaction, which must come after the lock of a group that the
// cancelling session locks first, holds that record until the commit.
func (r *run) alter(ctx context.Context, limits batch.Limits, at int, statements ...batch.Statement) error {
	if r.final {
		return r.send(ctx, limits, statements...)
	}
	confirm := batch.Statement{SQL: r.Session.Names.Render(confirmSQL), Args: []any{r.engine.GroupID}}
	err := r.send(ctx, limits, slices.Insert(slices.Clone(statements), at, confirm)...)
	if failed, ok := errors.AsType[*batch.StatementError](err); ok && failed.Index == at && fault.Judge(err).SQLState == "22012" {
		return drain.ErrCancelled
	}
	return err
}

// falter records an error that came before the first step; one that ends the run it returns.
func (r *run) falter(ctx context.Context, err error) error {
	f := fault.Judge(err)
	if f.Verdict == fault.Fatal {
		return err
	}
	f.Table = "groups"
	return r.refuse(ctx, f)
}

// refuse counts an attempt and records the reason, whether or not the destruction has begun.
func (r *run) refuse(ctx context.Context, f fault.Fault) error {
	r.stats.fail(f)
	r.stats.Outcome, r.stats.Reason = Stuck, f.Text()
	names := r.Session.Names
	return r.send(ctx, r.Session.Limits,
		batch.Statement{SQL: names.Render(blameSQL), Args: []any{r.engine.GroupID, f.Text()}},
		batch.Statement{SQL: names.Render(refuseSQL), Args: []any{r.engine.GroupID, f.Text(), refusedFor}})
}

// standing runs a statement that tells how the group stands; nil where there is no such group.
func (r *run) standing(ctx context.Context, statement func(sql string) batch.Statement, sql string, first ...batch.Statement) (*standing, error) {
	var found []*standing
	asking := statement(sql)
	asking.Scan = batch.Collect(&found, pgx.RowToAddrOfStructByPos[standing])
	if err := r.send(ctx, r.Session.Limits, append(first, asking)...); err != nil {
		return nil, fmt.Errorf("look whether the group may be destroyed: %w", err)
	}
	if len(found) == 0 {
		return nil, nil //nolint:nilnil // documented: there is no such group
	}
	return found[0], nil
}

// kept says why a destruction does not begin.
func (s *standing) kept() string {
	switch {
	case !s.Marked:
		return "the group is not marked for deletion: it was restored"
	case !s.Scheduled:
		return "the group is marked for deletion, but it is not scheduled"
	case s.Undated:
		return "the application's settings have no period (deletion_adjourned_period)"
	case !s.Due:
		return "the group is not due"
	case !s.Permitted:
		return "the user who scheduled the group may not remove it any more"
	default:
		return ""
	}
}

// forgetSQL deletes the lease and the fence $2 of a group $1 that does not exist. No other statement would: the group's own
// deletion, which takes both along, was another session's.
const forgetSQL = `
WITH gone AS MATERIALIZED (
    SELECT $2::pg_catalog.text AS key WHERE NOT EXISTS (SELECT FROM {groups} AS doomed WHERE doomed.id OPERATOR(pg_catalog.=) $1)
),
unleased AS (DELETE FROM "sexton".leases AS lease USING gone WHERE lease.key OPERATOR(pg_catalog.=) gone.key)
DELETE FROM "sexton".fences AS fence USING gone WHERE fence.key OPERATOR(pg_catalog.=) gone.key`

// forget deletes the lease and the fence of a group that is gone. The session works under that lease, and does nothing after it.
func (r *run) forget(ctx context.Context, g int64) error {
	sql := fill(r.Session.Names, forgetSQL, "{groups}", drain.Item(r.engine.Plan.groups.Relation))
	if err := r.send(ctx, r.Session.Limits, batch.Statement{SQL: sql, Args: []any{g, LeaseKey(g)}}); err != nil {
		return fmt.Errorf("forget the lease of group %d, which is gone: %w", g, err)
	}
	return nil
}

// finishSQL deletes the group $1, as long as the line of groups $2 to it holds, if nothing refers to it or $4 is set. What
// goes with it is its schedule, the record of its own destruction, the lease and the fence $5 of a group that there is
// no more; the destruction $3 counts it, and the run for its table $6. It returns whether it did, and which of the keys have rows.
const finishSQL = `
WITH RECURSIVE looked AS MATERIALIZED (
    SELECT ARRAY[{live}]::boolean[] AS live,
        (SELECT begun.user_id FROM "sexton".group_destructions AS begun WHERE begun.group_id OPERATOR(pg_catalog.=) $3) AS user_id
    FROM {groups} AS doomed
    WHERE doomed.id OPERATOR(pg_catalog.=) $1 AND {line}
),
above AS (
    SELECT doomed.id, doomed.parent_id, doomed.path::pg_catalog.text AS path, 0 AS height FROM {groups} AS doomed WHERE doomed.id OPERATOR(pg_catalog.=) $1
    UNION ALL
    SELECT parent.id, parent.parent_id, parent.path::pg_catalog.text, above.height OPERATOR(pg_catalog.+) 1
    FROM above
    JOIN {groups} AS parent ON parent.id OPERATOR(pg_catalog.=) above.parent_id
    WHERE above.height OPERATOR(pg_catalog.<) 100
),
gone AS (
    DELETE FROM {groups} AS doomed USING looked
    WHERE doomed.id OPERATOR(pg_catalog.=) $1 AND ($4 OR NOT true OPERATOR(pg_catalog.=) ANY (looked.live))
    RETURNING doomed.id, doomed.parent_id, doomed.path, looked.user_id
),
unscheduled AS (DELETE FROM "public".group_deletion_schedules AS schedule USING gone WHERE schedule.group_id OPERATOR(pg_catalog.=) gone.id),
ended AS (DELETE FROM "sexton".group_destructions AS begun USING gone WHERE begun.group_id OPERATOR(pg_catalog.=) gone.id),
relieved AS (DELETE FROM "sexton".group_deletion_failures AS failure USING gone WHERE failure.group_id OPERATOR(pg_catalog.=) gone.id),
counted AS (
    UPDATE "sexton".group_destructions AS progress SET done = progress.done OPERATOR(pg_catalog.+) 1, updated_at = pg_catalog.clock_timestamp()
    FROM gone WHERE progress.group_id OPERATOR(pg_catalog.=) $3 AND progress.group_id OPERATOR(pg_catalog.<>) gone.id
),
unleased AS (DELETE FROM "sexton".leases AS lease USING gone WHERE lease.key OPERATOR(pg_catalog.=) $5),
unfenced AS (DELETE FROM "sexton".fences AS fence USING gone WHERE fence.key OPERATOR(pg_catalog.=) $5),
event AS (
    INSERT INTO "sexton".events (kind, payload)
    SELECT 'group_destroyed', pg_catalog.jsonb_build_object(
        'group_id', gone.id, 'parent_id', gone.parent_id, 'path', gone.path,
        'full_path', (SELECT pg_catalog.string_agg(above.path, '/' ORDER BY above.height DESC) FROM above),
        'user_id', gone.user_id, 'destroyed_with', $3::bigint)
    FROM gone
)
SELECT "sexton".count_rows('deleted', $6::pg_catalog.text, "sexton".count_rows('groups', '', (SELECT pg_catalog.count(*) FROM gone)))
    OPERATOR(pg_catalog.>) 0, looked.live
FROM looked`

func (p *Plan) finishStatement(names pgschema.Names, refs []*ref) string {
	terms := make([]string, len(refs))
	for i, f := range refs {
		terms[i] = f.Exists("doomed")
	}
	groups := drain.Item(p.groups.Relation)
	return fill(names, finishSQL, "{live}", strings.Join(terms, ", "), "{line}", lineHolds(groups, "$2"), "{groups}", groups)
}

// fill renders a text for the configured schemas and then puts in what must not be rendered: names of the application's, which
// may have a schema called public.
func fill(names pgschema.Names, sql string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(names.Render(sql))
}

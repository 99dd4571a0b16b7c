package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Check looks for groups and projects that should be gone, for rows that still name them, for events that are missing or
// tell of a parent before its children, and for restored groups that are not what they were. Projects that the
// application has deleted itself have no event, and may be missing from restored groups.
func (g *groups) Check(ctx context.Context) ([]Finding, error) {
	var destroyed, projects []int64
	for _, group := range g.marked {
		if !group.restored {
			destroyed, projects = append(destroyed, group.groups...), append(projects, group.projects...)
		}
	}
	below, err := g.rowsBelow(ctx, destroyed, projects)
	if err != nil {
		return nil, fmt.Errorf("look below destroyed groups: %w", err)
	}
	var left, missing, early, bySystem int64
	err = g.pool.QueryRow(ctx, g.names.Render(groupEventsSQL), g.since, orNone(destroyed), orNone(projects), g.ledger.of("projects")).
		Scan(&left, &missing, &early, &bySystem)
	if err != nil {
		return nil, fmt.Errorf("look at destroyed groups: %w", err)
	}
	restored, broken, err := g.countRestored(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at restored groups: %w", err)
	}
	return []Finding{
		{Name: "groups", Text: "groups were to go, sub-groups included", Count: int64(len(destroyed))},
		{Name: "projects", Text: "projects in them", Count: int64(len(projects))},
		{Name: "left", Text: "of these groups and projects are left", Count: left, Fault: true},
		{Name: "rows_below", Text: "rows are left below destroyed groups", Count: below, Fault: true},
		{Name: "events_missing", Text: "of them have no event", Count: missing, Fault: true},
		{Name: "events_early", Text: "events came before those of what stood below", Count: early, Fault: true},
		{Name: "restored", Text: "groups were restored in time", Count: restored},
		{Name: "not_whole", Text: "restored groups are not what they were", Count: broken, Fault: true},
		{Name: "restored_by_system", Text: "restored, as their requester may not remove them", Count: bySystem},
	}, nil
}

// orNone is an array that is not NULL.
func orNone(ids []int64) []int64 { return append([]int64{}, ids...) }

// groupEventsSQL looks at the events after $1 of the groups $2 and the projects $3, those among them that the application
// has deleted being $4.
const groupEventsSQL = `
WITH told AS MATERIALIZED (
	SELECT event.id, event.kind, event.payload, (event.payload ->> 'group_id')::bigint AS group_id,
		(event.payload ->> 'parent_id')::bigint AS parent_id, (event.payload ->> 'project_id')::bigint AS project_id
	FROM "sexton".events AS event
	WHERE event.id > $1 AND event.kind IN ('group_destroyed', 'project_destroyed', 'group_restored')
)
SELECT
	(SELECT count(*) FROM "public".groups AS found WHERE found.id = ANY ($2::bigint[]))
	+ (SELECT count(*) FROM "public".projects AS found WHERE found.id = ANY ($3::bigint[])),
	(SELECT count(*) FROM unnest($2) AS gone (id)
		WHERE NOT EXISTS (SELECT FROM told WHERE told.kind = 'group_destroyed' AND told.group_id = gone.id))
	+ (SELECT count(*) FROM unnest($3) AS gone (id)
		WHERE gone.id <> ALL ($4::bigint[])
		AND NOT EXISTS (SELECT FROM told WHERE told.kind = 'project_destroyed' AND told.project_id = gone.id)),
	(SELECT count(*) FROM told AS early JOIN told AS child ON child.id > early.id
		AND early.group_id = CASE child.kind WHEN 'group_destroyed' THEN child.parent_id WHEN 'project_destroyed' THEN child.group_id END
		WHERE early.kind = 'group_destroyed'),
	(SELECT count(*) FROM told WHERE told.kind = 'group_restored' AND told.payload ->> 'reason' <> 'cancelled')`

// rowsBelow counts the rows of all tables that name one of the groups or projects, by the names of their columns: most of
// them have no foreign key that would see to it.
func (g *groups) rowsBelow(ctx context.Context, destroyed, projects []int64) (int64, error) {
	const columns = `
		SELECT class.relname, attribute.attname
		FROM pg_class AS class
		JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid AND NOT attribute.attisdropped
		WHERE class.relnamespace = $1::text::regnamespace AND class.relkind IN ('r', 'p') AND NOT class.relispartition
		AND attribute.attname IN ('group_id', 'namespace_id', 'shared_group_id', 'shared_with_group_id', 'project_id', 'target_project_id')
		ORDER BY 1, 2`
	rows, _ := g.pool.Query(ctx, columns, quoted(g.names.Tracked))
	members := quoted(g.names.Tracked, "members")
	parts := []string{
		"SELECT count(*) FROM " + members + " WHERE source_type = 'Namespace' AND source_id = ANY ($1::bigint[])",
		"SELECT count(*) FROM " + members + " WHERE source_type = 'Project' AND source_id = ANY ($2::bigint[])",
	}
	var table, column string
	_, err := pgx.ForEachRow(rows, []any{&table, &column}, func() error {
		ids := "$1"
		if strings.HasSuffix(column, "project_id") {
			ids = "$2"
		}
		parts = append(parts, fmt.Sprintf("SELECT count(*) FROM %s WHERE %s = ANY (%s)", quoted(g.names.Tracked, table), quoted(column), ids))
		return nil
	})
	if err != nil {
		return 0, err
	}
	var total int64
	sql := "SELECT sum(found.count)::bigint FROM (" + strings.Join(parts, " UNION ALL ") + ") AS found"
	err = g.pool.QueryRow(ctx, sql, orNone(destroyed), orNone(projects)).Scan(&total)
	return total, err
}

// countRestored counts restored groups, and those among them that miss their name or anything that stood below them.
func (g *groups) countRestored(ctx context.Context) (restored, broken int64, err error) {
	const sql = `SELECT
		EXISTS (SELECT FROM "public".groups AS own WHERE own.id = $1 AND own.path = $2 AND own.marked_for_deletion_on IS NULL)
		AND NOT EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = $1)
		AND NOT EXISTS (SELECT FROM unnest($3::bigint[]) AS was (id) WHERE NOT EXISTS (SELECT FROM "public".groups AS own WHERE own.id = was.id))
		AND NOT EXISTS (
			SELECT FROM unnest($4::bigint[]) AS was (id)
			WHERE was.id <> ALL ($5::bigint[]) AND NOT EXISTS (SELECT FROM "public".projects AS project WHERE project.id = was.id)
		)`
	deleted := g.ledger.of("projects")
	for _, group := range g.marked {
		if !group.restored {
			continue
		}
		var whole bool
		err := g.pool.QueryRow(ctx, g.names.Render(sql), group.id, group.path, group.groups, group.projects, deleted).Scan(&whole)
		if err != nil {
			return 0, 0, err
		}
		restored++
		if !whole {
			broken++
		}
	}
	return restored, broken, nil
}

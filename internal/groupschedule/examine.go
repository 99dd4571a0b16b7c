package groupschedule

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
	"sexton/internal/problem"
)

// examineSQL reports whether the component is installed, which keys delete schedules with their users while the trigger that hands
// such groups over does not fire, which columns the default rule misses, and whether many groups have no index by their marks.
const examineSQL = `
SELECT
    pg_catalog.to_regclass('"sexton".group_destructions') IS NOT NULL,
    coalesce((
        SELECT pg_catalog.string_agg(constraints.conname, ', ' ORDER BY constraints.conname)
        FROM pg_catalog.pg_constraint AS constraints
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = constraints.conrelid AND a.attnum = ANY (constraints.conkey) AND a.attname = 'user_id'
        WHERE constraints.conrelid = pg_catalog.to_regclass('"public".group_deletion_schedules') AND constraints.contype = 'f' AND constraints.confdeltype = 'c'
          AND NOT EXISTS (
              SELECT FROM pg_catalog.pg_trigger AS installed
              WHERE installed.tgrelid = constraints.conrelid AND installed.tgname = 'sexton_group_schedule_lost' AND installed.tgenabled IN ('O', 'A')
          )
    ), ''),
    ARRAY(
        SELECT wanted.name OPERATOR(pg_catalog.||) '.' OPERATOR(pg_catalog.||) wanted.attribute
        FROM (VALUES
            ('members', 'user_id'), ('members', 'source_type'), ('members', 'source_id'), ('members', 'access_level'), ('members', 'state'),
            ('members', 'requested_at'), ('members', 'expires_at'),
            ('group_group_links', 'shared_group_id'), ('group_group_links', 'shared_with_group_id'), ('group_group_links', 'group_access'),
            ('group_group_links', 'expires_at')
        ) AS wanted (name, attribute)
        JOIN pg_catalog.pg_class AS c ON c.relname = wanted.name
            AND c.relnamespace = (SELECT relnamespace FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass('"public".groups'))
        WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = wanted.attribute AND NOT a.attisdropped)
    ),
    NOT EXISTS (
        SELECT FROM pg_catalog.pg_index AS i
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] AND a.attname = 'marked_for_deletion_on'
        WHERE i.indrelid = pg_catalog.to_regclass('"public".groups') AND i.indisvalid
    ) AND coalesce((SELECT reltuples FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass('"public".groups')), 0) >= 10000`

// Examine tells what keeps groups from being deleted, or has them forgotten. Keys name what a finding is about.
func Examine(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (problem.List, error) {
	var installed, unindexed bool
	var cascades string
	var lacking []string
	if err := db.QueryRow(ctx, names.Render(examineSQL)).Scan(&installed, &cascades, &lacking, &unindexed); err != nil {
		return nil, fmt.Errorf("look up tables of groups: %w", err)
	}
	if !installed {
		return nil, nil // The check of the schema says so.
	}
	var found problem.List
	add := func(severity problem.Severity, object, message, fix string) {
		found.Add(problem.Problem{Severity: severity, Key: object, Message: message, Fix: names.Render(fix)})
	}
	if len(lacking) > 0 {
		add(problem.Error, strings.Join(lacking, ", "), "these columns do not exist, so it cannot be told who may remove a group",
			`add them, or have a rule of your own: CREATE OR REPLACE FUNCTION "sexton".may_remove_group(user_id bigint, group_id bigint)`)
	}
	if cascades != "" {
		add(problem.Warning, "group_deletion_schedules",
			"a deleted user's schedules go with the user ("+cascades+"), and the trigger sexton_group_schedule_lost, which hands their groups over, "+
				"is missing or disabled: the groups keep their marks for ever",
			`DROP TRIGGER IF EXISTS sexton_group_schedule_lost ON "public".group_deletion_schedules; CREATE TRIGGER sexton_group_schedule_lost `+
				`AFTER DELETE ON "public".group_deletion_schedules FOR EACH ROW EXECUTE FUNCTION "sexton".group_schedule_lost()`)
	}
	if unindexed {
		add(problem.Warning, "groups", "marked groups are looked for without an index",
			`CREATE INDEX CONCURRENTLY ON "public".groups (marked_for_deletion_on) WHERE marked_for_deletion_on IS NOT NULL`)
	}
	err := examineState(ctx, db, names, add)
	return found, err
}

// examineState looks at groups rather than tables.
func examineState(
	ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, add func(severity problem.Severity, object, message, fix string),
) error {
	backlog, err := ReadBacklog(ctx, db, names)
	if err != nil {
		return err
	}
	if backlog.Period == 0 {
		add(problem.Error, "application_settings.deletion_adjourned_period", "no period of 1 to 90 days is set, so no group is ever due",
			`UPDATE "public".application_settings SET deletion_adjourned_period = 30; INSERT INTO "public".application_settings `+
				`(deletion_adjourned_period) SELECT 30 WHERE NOT EXISTS (SELECT FROM "public".application_settings)`)
	}
	if backlog.Unscheduled > 0 {
		sample, err := ids(ctx, db, names.Render(unscheduledSQL))
		if err != nil {
			return err
		}
		add(problem.Warning, "groups",
			fmt.Sprintf("%d marked for their deletion without a schedule, which are never destroyed: %s", backlog.Unscheduled, sample),
			"sexton group schedule ID --by USER, or sexton group cancel ID --by USER")
	}
	if backlog.Stuck > 0 {
		sample, err := ids(ctx, db, names.Render(stuckSQL), stuckAttempts)
		if err != nil {
			return err
		}
		add(problem.Error, "group_destructions", fmt.Sprintf("%d that do not get on: %s", backlog.Stuck, sample), "sexton group list shows why")
	}
	return nil
}

const (
	unscheduledSQL = `
SELECT groups.id FROM "public".groups
WHERE groups.marked_for_deletion_on IS NOT NULL
  AND NOT EXISTS (SELECT FROM "public".group_deletion_schedules AS schedule WHERE schedule.group_id = groups.id)
ORDER BY groups.marked_for_deletion_on, groups.id
LIMIT 4`
	stuckSQL = `SELECT failed.group_id FROM (` + attemptsSQL + `) AS failed WHERE failed.attempts >= $1 ORDER BY failed.attempts DESC, failed.group_id LIMIT 4`
)

// ids names the first groups that a query returns.
func ids(ctx context.Context, db dbsqlc.DBTX, sql string, args ...any) (string, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return "", fmt.Errorf("look up groups: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return "", fmt.Errorf("look up groups: %w", err)
	}
	names := make([]string, 0, len(found))
	for i, id := range found {
		if i == 3 {
			names = append(names, "…")
			break
		}
		names = append(names, fmt.Sprint(id))
	}
	return strings.Join(names, ", "), nil
}

package migrate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

// wholeSchema describes everything that migrations make, in words that do not depend on when they ran.
const wholeSchema = `
SELECT 'relation', c.oid::regclass::text, c.relkind::text || ' ' || coalesce(c.reloptions::text, '') || ' ' || coalesce(obj_description(c.oid, 'pg_class'), '')
	|| CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) ELSE '' END
FROM pg_class AS c WHERE c.relnamespace IN ('sexton'::regnamespace, 'public'::regnamespace)
UNION ALL SELECT 'column', a.attrelid::regclass || '.' || a.attname, format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull::text || ' ' || a.attidentity::text
	|| ' ' || coalesce(pg_get_expr(d.adbin, d.adrelid), '') || ' ' || coalesce(a.attcollation::regcollation::text, '')
FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE c.relnamespace IN ('sexton'::regnamespace, 'public'::regnamespace) AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL SELECT 'index', i.indexrelid::regclass::text, pg_get_indexdef(i.indexrelid)
FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid WHERE c.relnamespace IN ('sexton'::regnamespace, 'public'::regnamespace)
UNION ALL SELECT 'constraint', coalesce(conrelid::regclass::text, '') || '.' || conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace IN ('sexton'::regnamespace, 'public'::regnamespace)
UNION ALL SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '') || coalesce(obj_description(p.oid, 'pg_proc'), '')
FROM pg_proc AS p WHERE p.pronamespace IN ('sexton'::regnamespace, 'public'::regnamespace)
UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'registry', kind || ' ' || identity, component FROM sexton.objects
ORDER BY 1, 2`

func describe(d *pgtest.Database) []string {
	var lines []string
	for _, row := range d.Rows(wholeSchema) {
		lines = append(lines, strings.Join(row, ": "))
	}
	return lines
}

// work is what waits, runs and has happened at the time of an upgrade, for the tables of the first versions and, by their
// name, for those that came later.
var work = map[string]string{
	"sexton.fences": `INSERT INTO sexton.fences VALUES ('lane', 7)`,
	"sexton.events": `INSERT INTO sexton.events (kind, payload) VALUES ('user_destroyed', '{"user_id": 9}')`,
	"sexton.leases": `INSERT INTO sexton.leases VALUES ('lane', 7, 'host:1:a', '2026-01-02', '2026-01-03')`,
	"sexton.runs":   `INSERT INTO sexton.runs (kind, database, holder, stats) VALUES ('loose_foreign_keys_cleanup', 'main', 'host:1:a', '{"delete_count": 5}')`,
	"sexton.river_job": `INSERT INTO sexton.river_job (kind, max_attempts, args, scheduled_at)
		VALUES ('loose_foreign_keys_cleanup', 1, '{"database": "main"}', '2026-01-02')`,
	"sexton.schedules": `INSERT INTO sexton.schedules VALUES ('loose_foreign_keys_cleanup', 'main', '2026-01-02')`,
	"sexton.swept":     `INSERT INTO sexton.swept (database, parent, integer_keys) VALUES ('main', 'public.projects', '{1,2}')`,
	"public.loose_foreign_keys_deleted_records": `INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, cleanup_attempts)
		VALUES ('public.projects', 1, 2)`,
	"public.users_ghost_user_migrations": `INSERT INTO users_ghost_user_migrations (user_id, initiator_user_id, hard_delete) VALUES (1, 2, true)`,
	"public.group_deletion_schedules":    `INSERT INTO group_deletion_schedules (group_id, user_id, marked_for_deletion_on) VALUES (1, 2, '2026-01-02')`,
}

// Whatever release somebody comes from, nothing that waits is lost, and the result is that of a new installation.
func TestUpFromEveryEarlierVersion(t *testing.T) {
	t.Parallel()
	database := func(t *testing.T) (*pgtest.Database, migrate.Database) {
		t.Helper()
		d := pgtest.New(t)
		d.Exec(sample.Schema())
		d.Exec(`INSERT INTO users (id, username, email, name) VALUES (1, 'ada', 'ada@example.com', 'Ada'); INSERT INTO groups (id, name, path) VALUES (1, 'g', 'g')`)
		db := everything(t, d)
		db.Components = append(db.Components, migrate.GhostUsers, migrate.PlaceholderUsers, migrate.AdjournedGroups, migrate.ExternalDiffs)
		return d, db
	}
	fresh, db := database(t)
	up(t, db)
	want := describe(fresh)

	for version := int64(1); version < migrate.NewestVersion(); version++ {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			t.Parallel()
			d, db := database(t)
			require.NoError(t, migrate.UpTo(t.Context(), pgtest.Logger(t), db, version))
			rows := map[string]string{}
			for table, insert := range work {
				if pgtest.Scalar[bool](t, d, "SELECT to_regclass($1) IS NOT NULL", table) {
					d.Exec(insert)
					rows[table] = pgtest.Scalar[string](t, d, "SELECT to_jsonb(t)::text FROM "+table+" AS t")
				}
			}
			require.GreaterOrEqual(t, len(rows), 7, "tables with rows")

			up(t, db)
			require.NoError(t, migrate.Check(t.Context(), db))
			require.Equal(t, want, describe(d))
			for table, row := range rows {
				require.Equal(t, [][]string{{"t"}}, d.Rows("SELECT to_jsonb(t) @> $1::jsonb FROM "+table+" AS t", row), "the row of %s is there with all its values", table)
			}
		})
	}
}

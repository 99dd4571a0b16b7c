package migrate_test

import (
	"compress/gzip"
	"io"
	"os"
	"regexp"
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
FROM pg_constraint WHERE contype <> 'n' AND connamespace IN ('sexton'::regnamespace, 'public'::regnamespace)
UNION ALL SELECT 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid) || coalesce(p.proacl::text, '') || coalesce(obj_description(p.oid, 'pg_proc'), '')
FROM pg_proc AS p WHERE p.pronamespace IN ('sexton'::regnamespace, 'public'::regnamespace)
UNION ALL SELECT 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'registry', kind || ' ' || identity, component FROM sexton.objects
ORDER BY 1, 2`

func describe(d *pgtest.Database, except *regexp.Regexp) []string {
	var lines []string
	for _, row := range d.Rows(wholeSchema) {
		if line := strings.Join(row, ": "); !except.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// restore makes a database of the dump of an older release, with all components and work of every kind. The dump was made by pg_dump
// with --inserts, without its meta-commands.
func restore(t *testing.T, d *pgtest.Database) {
	t.Helper()
	file := pgtest.Must(os.Open("testdata/waiting.sql.gz"))(t)
	defer file.Close()
	dump := pgtest.Must(io.ReadAll(pgtest.Must(gzip.NewReader(file))(t)))(t)
	pgtest.Exec(t, pgtest.Connect(t, d.URL), string(dump))
}

// Nothing that waits is lost, and the result is that of a new installation. The jobs that finish the work are in package integration.
func TestUpFromAnOlderRelease(t *testing.T) {
	t.Parallel()
	every := func(d *pgtest.Database) migrate.Database {
		db := everything(t, d)
		db.Components = append(db.Components, migrate.GhostUsers, migrate.PlaceholderUsers, migrate.AdjournedGroups, migrate.ExternalDiffs)
		return db
	}
	fresh := pgtest.New(t)
	fresh.Exec(sample.Schema())
	up(t, every(fresh))

	d := pgtest.New(t)
	restore(t, d)
	rows := map[string]string{}
	for _, table := range []string{
		"sexton.fences", "sexton.events", "sexton.leases", "sexton.runs", "sexton.run_counts", "sexton.river_job", "sexton.schedules", "sexton.swept",
		"sexton.group_destructions", "sexton.group_deletion_failures", "sexton.external_diffs", "sexton.external_diff_removals", "sexton.audit",
		"loose_foreign_keys_deleted_records", "users_ghost_user_migrations", "import_placeholder_user_details", "group_deletion_schedules",
	} {
		rows[table] = pgtest.Scalar[string](t, d, "SELECT jsonb_agg(to_jsonb(t) ORDER BY to_jsonb(t))::text FROM "+table+" AS t")
	}
	up(t, every(d))
	require.NoError(t, migrate.Check(t.Context(), every(d)))
	for table, before := range rows {
		require.NotEmpty(t, before, table)
		require.Equal(t, [][]string{{"t"}}, d.Rows("SELECT jsonb_agg(to_jsonb(t) ORDER BY to_jsonb(t)) @> $1::jsonb FROM "+table+" AS t", before),
			"the rows of %s are there with all their values", table)
	}
	// Those of tracked tables are not of migrations, and which functions there were before is what differs.
	tracked := regexp.MustCompile(`^(trigger: .*sexton_(track|truncate|wake)|function: sexton\.(track|wake)_|registry: .*(track|wake)_|registry: (grant on|earlier functions))`)
	require.Equal(t, describe(fresh, tracked), describe(d, tracked))

	// Back again: not while work waits, and by force to the application's own tables.
	before := describe(d, regexp.MustCompile(`^$`))
	_, err := migrate.Down(t.Context(), pgtest.Logger(t), every(d), false)
	var pending *migrate.PendingError
	require.ErrorAs(t, err, &pending)
	require.Len(t, pending.Work, 4, "work of every kind that has no table of the application: %v", pending.Work)
	require.Equal(t, before, describe(d, regexp.MustCompile(`^$`)), "nothing is removed")
	pgtest.Must(migrate.Down(t.Context(), pgtest.Logger(t), every(d), true))(t)
	require.Empty(t, d.Rows("SELECT FROM pg_namespace WHERE nspname = 'sexton'"))
	require.Empty(t, d.Rows("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'sexton%'"))
}

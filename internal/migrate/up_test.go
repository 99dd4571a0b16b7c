package migrate_test

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/exampleapp"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

func TestUpInstallsOnce(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)

	report := up(t, db)
	require.Equal(t, "main", report.Database)
	require.Equal(t, migrate.ComponentReport{
		Component: migrate.Base, From: 0, To: 1, Applied: []migrate.Migration{{Version: 1, Name: "00001_base"}},
	}, component(t, report, migrate.Base))
	require.Len(t, report.Components, 4)
	require.Equal(t, component(t, report, migrate.River).To, int64(len(component(t, report, migrate.River).Applied)))
	require.NoError(t, migrate.Check(t.Context(), db))

	before := catalogWithoutWriters(d)
	report = up(t, db)
	for _, c := range report.Components {
		require.Empty(t, c.Applied, c.Component)
		require.Equal(t, c.From, c.To, c.Component)
	}
	require.Equal(t, before, catalogWithoutWriters(d), "the second run only replaced functions")
}

// Every table has a primary key, because logical replication of all tables refuses
// changes of a table without one.
func TestEveryTableHasAPrimaryKey(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(exampleapp.Schema())
	up(t, with(t, d, migrate.GhostUsers, migrate.PlaceholderUsers, migrate.AdjournedGroups, migrate.ExternalDiffs,
		migrate.Undo))
	d.Exec("SELECT sexton.undo_rotate('undo', '1 day', true)")
	require.Empty(t, d.Rows(`
		SELECT c.oid::regclass::text FROM pg_class AS c
		WHERE c.relkind IN ('r', 'p') AND (c.relnamespace = 'sexton'::regnamespace OR obj_description(c.oid, 'pg_class') LIKE 'Sexton:%')
			AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)`))
}

func TestUpByComponents(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	db.Jobs, db.Components = false, nil

	require.Len(t, up(t, db).Components, 1)
	require.Equal(t, [][]string{{"application_tables"}, {"events"}, {"fences"}}, d.Rows(
		`SELECT relname FROM pg_class WHERE relnamespace = 'sexton'::regnamespace AND relkind = 'r' ORDER BY relname`))

	// The database becomes the jobs database later.
	report := up(t, everything(t, d))
	require.Empty(t, component(t, report, migrate.Base).Applied)
	require.Equal(t, []migrate.Migration{{Version: 1, Name: "00001_jobs"}}, component(t, report, migrate.Jobs).Applied)
}

func TestUpConcurrently(t *testing.T) {
	t.Parallel()
	db := everything(t, pgtest.New(t))

	const callers = 4
	type result struct {
		report migrate.Report
		err    error
	}
	results := make(chan result, callers)
	for range callers {
		go func() {
			report, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
			results <- result{report, err}
		}()
	}
	var applied int
	for range callers {
		r := <-results
		require.NoError(t, r.err)
		for _, c := range r.report.Components {
			applied += len(c.Applied)
		}
	}
	status := pgtest.Must(migrate.Status(t.Context(), db))(t)
	var latest int64
	for _, c := range status {
		latest += c.Latest
	}
	require.Equal(t, latest, int64(applied), "every migration was applied by exactly one call")
}

// lines is a log writer that sends each line to a channel.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func TestUpWaitsForTheLockUntilItsContextEnds(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	holder := pgtest.Acquire(t, d.Pool())
	pgtest.Exec(t, holder, "SELECT pg_advisory_lock(x'7365786d696772'::bigint)")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	db := everything(t, d)
	logged := make(lines, 10)
	failed := make(chan error, 1)
	go func() {
		_, err := migrate.Up(ctx, slog.New(slog.NewTextHandler(logged, nil)), db)
		failed <- err
	}()
	held := fmt.Sprintf("pid %d (", holder.Conn().PgConn().PID())
	require.Contains(t, <-logged, "held_by=\""+held)
	cancel()
	err := <-failed
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, held)
	require.False(t, pgtest.Scalar[bool](t, d, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'sexton')"))
}

func TestUpWithAnyName(t *testing.T) {
	t.Parallel()
	names := []string{"Mixed Case", `"; DROP SCHEMA sexton CASCADE; --`}
	if pgtest.Long {
		names = append(names, `quo"te'd`, `$sexton$ $$ \ %I %`, "line\n-- +goose Down\nend;\n", `"sexton".x`,
			strings.Repeat("ü", 31))
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t)
			d.Exec("CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{name}.Sanitize())
			before := catalog(d)

			db := everything(t, d)
			db.TrackedSchema = name
			up(t, db)
			require.Empty(t, component(t, up(t, db), migrate.LooseForeignKeys).Applied)
			require.NoError(t, migrate.Check(t.Context(), db))
			require.Equal(t, name, pgtest.Scalar[string](t, d,
				"SELECT nspname::text FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace WHERE relname = 'loose_foreign_keys_deleted_records'"))

			down(t, db)
			require.Equal(t, before, catalog(d))
		})
	}
}

// If Up waits for a table's lock, the application's later writes wait, too. Up stops
// waiting after a short time, so that the writes continue, and retries.
func TestUpLetsWritersContinue(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(usersTable + detailsTable)
	db := with(t, d, migrate.GhostUsers, migrate.PlaceholderUsers)
	holder := pgtest.Begin(t, d.Pool(), "SET LOCAL application_name = 'importer'",
		"LOCK TABLE import_placeholder_user_details IN ROW EXCLUSIVE MODE")
	logged := make(lines, 100)
	ended := make(chan error, 1)
	go func() {
		_, err := migrate.Up(t.Context(), slog.New(slog.NewTextHandler(logged, nil)), db)
		close(logged)
		ended <- err
	}()
	pgtest.Await(t, d.Pool(), "the migration to wait for the table",
		"SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted "+
			"AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND relation = 'import_placeholder_user_details'::regclass)")
	d.Exec("UPDATE import_placeholder_user_details SET namespace_id = 1") // The UPDATE waits in the queue after the migration.
	var waits string
	for waits = range logged {
		if strings.Contains(waits, "waits_for_lock") {
			break
		}
	}
	require.Contains(t, waits, fmt.Sprintf("held_by=\"pid %d (importer, role ", holder.Conn().PgConn().PID()))
	require.NoError(t, holder.Rollback(t.Context()))
	require.NoError(t, <-ended)
}

// Every statement that locks a table of the application waits for at most 2 s, because
// later writes of the application wait, too.
func TestMigrationsWaitTwoSecondsForLocks(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(usersTable + detailsTable)
	d.LogLockTimeouts()
	d.Exec("ALTER DATABASE " + pgx.Identifier{d.Name}.Sanitize() + " SET lock_timeout = '10s'")
	db := with(t, d, migrate.GhostUsers, migrate.PlaceholderUsers)
	up(t, db)
	for _, command := range []string{"CREATE TABLE", "ALTER TABLE", "CREATE INDEX"} {
		require.Equal(t, [][]string{{"2s"}}, d.Rows("SELECT DISTINCT value FROM lock_timeouts WHERE command = $1",
			command), command)
	}
	d.Exec("TRUNCATE lock_timeouts")
	down(t, db)
	require.Equal(t, [][]string{{"2s"}}, d.Rows("SELECT DISTINCT value FROM lock_timeouts"))
}

// Up is not limited by the database's statement_timeout. A lock makes a statement of Up
// wait longer than that timeout.
func TestUpOutlastsTheStatementTimeoutOfTheDatabase(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	d := pgtest.New(t)
	db := everything(t, d)
	blocker := pgtest.Begin(t, d.Pool(), "CREATE SCHEMA sexton")
	d.Exec("ALTER DATABASE " + pgx.Identifier{d.Name}.Sanitize() + fmt.Sprintf(" SET statement_timeout = %d",
		timeout.Milliseconds()))
	ended := make(chan error, 1)
	go func() {
		_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
		ended <- err
	}()
	pgtest.AwaitLockWait(t, d, blocker.Conn().PgConn().PID(), 2*timeout)
	require.NoError(t, blocker.Rollback(t.Context()))
	require.NoError(t, <-ended)
}

func TestUpUnderHostileSessionSettings(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	name := pgtest.Scalar[string](t, d, "SELECT current_database()::text")
	for _, setting := range []string{
		"standard_conforming_strings = off", "search_path = ''", "quote_all_identifiers = on",
		"default_transaction_isolation = serializable", "check_function_bodies = off",
	} {
		d.Exec("ALTER DATABASE " + pgx.Identifier{name}.Sanitize() + " SET " + setting)
	}
	db := everything(t, d)
	up(t, db)
	down(t, db)
}

// schemaQuery lists all objects that migrations create, in a form that does not depend on
// the time of the migrations.
const schemaQuery = `
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
ORDER BY 1, 2`

func describe(d *pgtest.Database, except *regexp.Regexp) []string {
	var lines []string
	for _, row := range d.Rows(schemaQuery) {
		if line := strings.Join(row, ": "); !except.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// restore loads the dump of an older release, which has all components and pending work
// of every kind. The dump was created by pg_dump with --inserts, and its meta-commands
// were removed.
func restore(t *testing.T, d *pgtest.Database) {
	file := pgtest.Must(os.Open("testdata/waiting.sql.gz"))(t)
	defer file.Close()
	dump := pgtest.Must(io.ReadAll(pgtest.Must(gzip.NewReader(file))(t)))(t)
	pgtest.Exec(t, pgtest.Connect(t, d.URL), string(dump))
}

// Up keeps all pending work of an older release, and the schema is equal to that of a new
// installation. Package integration runs the jobs.
func TestUpFromAnOlderRelease(t *testing.T) {
	t.Parallel()
	every := func(d *pgtest.Database) migrate.Database {
		db := everything(t, d)
		db.Components = append(db.Components, migrate.GhostUsers, migrate.PlaceholderUsers, migrate.AdjournedGroups,
			migrate.ExternalDiffs)
		return db
	}
	fresh := pgtest.New(t)
	fresh.Exec(exampleapp.Schema())
	up(t, every(fresh))

	d := pgtest.New(t)
	restore(t, d)
	rows := map[string]string{}
	for _, table := range []string{
		"sexton.fences", "sexton.events", "sexton.leases", "sexton.runs", "sexton.river_job", "sexton.schedules",
		"sexton.swept",
		"sexton.group_destructions", "sexton.group_deletion_failures", "sexton.external_diffs",
		"sexton.external_diff_removals", "sexton.audit",
		"loose_foreign_keys_deleted_records", "users_ghost_user_migrations", "import_placeholder_user_details",
		"group_deletion_schedules",
	} {
		rows[table] = pgtest.Scalar[string](t, d, "SELECT jsonb_agg(to_jsonb(t) ORDER BY to_jsonb(t))::text FROM "+
			table+" AS t")
	}
	up(t, every(d))
	require.NoError(t, migrate.Check(t.Context(), every(d)))
	for table, before := range rows {
		require.NotEmpty(t, before, table)
		require.Equal(t, [][]string{{"t"}},
			d.Rows("SELECT jsonb_agg(to_jsonb(t) ORDER BY to_jsonb(t)) @> $1::jsonb FROM "+table+" AS t", before),
			"the rows of %s are unchanged", table)
	}
	// The comparison omits the triggers of tracked tables and their functions, which
	// migrations do not install.
	tracked := regexp.MustCompile(`^(trigger: .*sexton_(track|truncate|wake)|function: sexton\.(track|wake)_|\w+: sexton\.(migrations|objects))`)
	require.Equal(t, describe(fresh, tracked), describe(d, tracked))

	// Down returns an error while work is pending. With force, it leaves only the
	// application's own tables.
	before := describe(d, regexp.MustCompile(`^$`))
	_, err := migrate.Down(t.Context(), pgtest.Logger(t), every(d), false)
	require.ErrorContains(t, err, "still has")
	require.Equal(t, 4, strings.Count(err.Error(), "still has"),
		"work of each kind with a table of Sexton: %v", err)
	require.Equal(t, before, describe(d, regexp.MustCompile(`^$`)), "nothing is removed")
	pgtest.Must(migrate.Down(t.Context(), pgtest.Logger(t), every(d), true))(t)
	require.Empty(t, d.Rows("SELECT FROM pg_namespace WHERE nspname = 'sexton'"))
	require.Empty(t, d.Rows("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'sexton%'"))
}

var nothing = regexp.MustCompile(`^$`)

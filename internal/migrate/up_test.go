package migrate_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

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

	before := catalogue(d)
	report = up(t, db)
	for _, c := range report.Components {
		require.Empty(t, c.Applied, c.Component)
		require.Equal(t, c.From, c.To, c.Component)
	}
	require.Equal(t, before, catalogue(d), "the second run wrote nothing to the catalogue")
}

func TestUpRegistersEveryRelationInItsSchema(t *testing.T) {
	t.Parallel()
	d, _ := installed(t)

	unregistered := d.Rows(`
		SELECT c.relname FROM pg_class AS c
		WHERE c.relnamespace = 'sexton'::regnamespace AND c.relkind = 'r' AND c.relname !~ '^river_'
			AND NOT EXISTS (SELECT FROM sexton.objects WHERE kind = 'table' AND identity = '"sexton".' || c.relname)`)
	require.Empty(t, unregistered)
	require.Empty(t, d.Rows(`
		SELECT p.oid::regprocedure FROM pg_proc AS p
		WHERE p.pronamespace = 'sexton'::regnamespace AND p.proname !~ '^river_'
			AND EXISTS (SELECT FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a WHERE a.grantee = 0)`),
		"no function of ours is for PUBLIC")
	require.Empty(t, d.Rows(`
		SELECT p.oid::regprocedure FROM pg_proc AS p
		WHERE p.pronamespace = 'sexton'::regnamespace AND p.proname !~ '^river_'
			AND NOT EXISTS (SELECT FROM sexton.objects WHERE kind = 'function' AND to_regprocedure(identity) = p.oid)`))
}

func TestUpByComponents(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	db.Jobs, db.Components = false, nil

	require.Len(t, up(t, db).Components, 1)
	require.Equal(t, [][]string{{"application_tables"}, {"events"}, {"fences"}, {"migrations_base"}, {"objects"}, {"run_counts"}}, d.Rows(
		`SELECT relname FROM pg_class WHERE relnamespace = 'sexton'::regnamespace AND relkind = 'r' ORDER BY relname`))

	// A database becomes the jobs database later.
	report := up(t, everything(t, d))
	require.Empty(t, component(t, report, migrate.Base).Applied)
	require.Equal(t, []migrate.Migration{{Version: 1, Name: "00001_jobs"}}, component(t, report, migrate.Jobs).Applied)
}

func TestUpConcurrently(t *testing.T) {
	t.Parallel()
	db := everything(t, pgtest.New(t))

	const machines = 4
	type result struct {
		report migrate.Report
		err    error
	}
	results := make(chan result, machines)
	for range machines {
		go func() {
			report, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
			results <- result{report, err}
		}()
	}
	var applied int
	for range machines {
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
	require.Equal(t, latest, int64(applied), "every migration ran on exactly one of the machines")
}

func TestUpWaitsForTheLockAsLongAsItsContext(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	pgtest.Exec(t, pgtest.Acquire(t, d.Pool()), "SELECT pg_advisory_lock(x'7365786d696772'::bigint)")

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	db := everything(t, d)
	failed := make(chan error, 1)
	go func() {
		_, err := migrate.Up(ctx, pgtest.Logger(t), db)
		failed <- err
	}()
	pgtest.Await(t, d.Pool(), "the migration to wait for the lock", `SELECT EXISTS (
			SELECT FROM pg_locks JOIN pg_database AS db ON db.oid = database AND datname = current_database()
			WHERE locktype = 'advisory' AND NOT granted)`)
	cancel()
	require.ErrorIs(t, <-failed, context.Canceled)
	require.False(t, pgtest.Scalar[bool](t, d, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'sexton')"))
}

// A crash leaves one of these states: goose and River commit migration by migration.
func TestUpGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	states := map[string]string{
		"registry only": `DROP VIEW sexton.backlog; DROP TABLE sexton.fences, sexton.events, sexton.run_counts, sexton.application_tables, sexton.migrations_base;
			DROP FUNCTION sexton.begin_batch, sexton.commit_mode, sexton.session_name, sexton.application_path, sexton.count_rows, sexton.backlog_rows, sexton.application_table;
			DELETE FROM sexton.objects WHERE component <> 'registry'`,
		"version table without a version": `DROP VIEW sexton.backlog; DROP TABLE sexton.fences, sexton.events, sexton.run_counts, sexton.application_tables;
			DROP FUNCTION sexton.begin_batch, sexton.commit_mode, sexton.session_name, sexton.application_path, sexton.count_rows, sexton.backlog_rows, sexton.application_table;
			DELETE FROM sexton.migrations_base WHERE version > 0;
			DELETE FROM sexton.objects WHERE component = 'base' AND identity !~ 'migrations'`,
	}
	for name, crash := range states {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t)
			db := everything(t, d)
			db.Jobs, db.Components = false, nil
			up(t, db)
			d.Exec(crash)

			require.Len(t, component(t, up(t, db), migrate.Base).Applied, 1)
			require.NoError(t, migrate.Check(t.Context(), db))
		})
	}
	t.Run("River registered, its tables missing", func(t *testing.T) {
		t.Parallel()
		d := pgtest.New(t)
		db := everything(t, d)
		db.Jobs = false
		up(t, db)
		d.Exec("INSERT INTO sexton.objects (kind, identity, component) VALUES ('river', 'sexton', 'river')")
		db.Jobs = true
		require.NotEmpty(t, component(t, up(t, db), migrate.River).Applied)
		require.NoError(t, migrate.Check(t.Context(), db))
		down(t, db)
	})
}

func TestUpWithAnyName(t *testing.T) {
	t.Parallel()
	names := []struct{ jobs, tracked string }{
		{"order", "Mixed Case"},
		{"sexton", `quo"te'd`},
		{"sexton", `$sexton$ $$ \ %I %`},
		{"sexton", `"; DROP SCHEMA sexton CASCADE; --`},
		{"sexton", "line\n-- +goose Down\nend;\n"},
		{"sexton", `"sexton".x`},
		{strings.Repeat("s", 46), strings.Repeat("ü", 31)},
		{"public", "public"},
	}
	for _, name := range names {
		t.Run(name.jobs+"/"+name.tracked, func(t *testing.T) {
			t.Parallel()
			d := pgtest.New(t)
			d.Exec("CREATE SCHEMA IF NOT EXISTS " + pgx.Identifier{name.tracked}.Sanitize())
			before := catalogue(d)

			db := everything(t, d)
			db.JobsSchema, db.TrackedSchema = name.jobs, name.tracked
			up(t, db)
			require.Empty(t, component(t, up(t, db), migrate.LooseForeignKeys).Applied)
			require.NoError(t, migrate.Check(t.Context(), db))
			require.Equal(t, name.tracked, pgtest.Scalar[string](t, d,
				"SELECT nspname::text FROM pg_class JOIN pg_namespace AS n ON n.oid = relnamespace WHERE relname = 'loose_foreign_keys_deleted_records'"))

			down(t, db)
			require.Equal(t, before, catalogue(d))
		})
	}
}

// Whether the role's statement timeout is lifted shows where a statement has to wait, however fast the machine.
func TestUpOutlastsTheStatementTimeoutOfTheDatabase(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	d := pgtest.New(t)
	db := everything(t, d)
	blocker := pgtest.Begin(t, d.Pool(), "CREATE SCHEMA sexton")
	d.Exec("ALTER DATABASE " + pgx.Identifier{d.Name}.Sanitize() + fmt.Sprintf(" SET statement_timeout = %d", timeout.Milliseconds()))
	ended := make(chan error, 1)
	go func() {
		_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
		ended <- err
	}()
	pgtest.Outlast(t, d, blocker.Conn().PgConn().PID(), 2*timeout)
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

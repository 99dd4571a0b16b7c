package demo

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

// atOnce is so short that everything goes in the first round.
const atOnce = time.Millisecond

func newTestApplication(t *testing.T, db *dbtest.DB, pace Pace) *application {
	scene := newLooseForeignKeys(testStage(db))
	scene.share = pace.Share
	return pgtest.Must(newApplication(t.Context(), testStage(db), scene, pace))(t)
}

func tables(a *application) []parentTable { return a.scene.(*looseForeignKeys).tables }

// left returns how many rows each table of the plan is still to lose.
func left(a *application) map[string]int64 {
	plan := map[string]int64{}
	for _, table := range tables(a) {
		plan[table.name] = table.left
	}
	return plan
}

func TestApplicationPlansAShareOfEveryTable(t *testing.T) {
	t.Parallel()
	db := parentsIn(t)
	db.Exec(`
		INSERT INTO ci_pipelines SELECT generate_series(1, 1000);
		INSERT INTO issues SELECT generate_series(1, 11);
		INSERT INTO merge_requests VALUES (5);
		INSERT INTO projects SELECT generate_series(1, 100);
		INSERT INTO packages_packages SELECT generate_series(-20, -1)`)
	for name, test := range map[string]struct {
		pace      Pace
		want      map[string]int64
		perSecond float64
	}{
		// Shares are rounded up, and of the projects a sixth of theirs goes. The hooks are none.
		"half": {
			Pace{Share: 50, Length: time.Minute, Slowest: 40},
			map[string]int64{"ci_pipelines": 500, "issues": 6, "merge_requests": 1, "projects": 8, "packages_packages": 10},
			40,
		},
		"all": {
			Pace{Share: 100, Length: 10 * time.Second, Slowest: 40},
			map[string]int64{"ci_pipelines": 1000, "issues": 11, "merge_requests": 1, "projects": 16, "packages_packages": 20},
			104.8,
		},
		"a sliver": {
			Pace{Share: 1, Length: time.Second, Slowest: 40},
			map[string]int64{"ci_pipelines": 10, "issues": 1, "merge_requests": 1, "packages_packages": 1},
			40,
		},
	} {
		a := newTestApplication(t, db, test.pace)
		require.Equal(t, test.want, left(a), name)
		require.Equal(t, sum(test.want), a.planned, name)
		require.InDelta(t, test.perSecond, a.perSecond, 1e-9, name)
		require.False(t, a.done.Load(), name)
	}
	db.Exec("TRUNCATE ci_pipelines, issues, merge_requests, projects, packages_packages")
	a := newTestApplication(t, db, (*looseForeignKeys)(nil).Script().Pace)
	require.Zero(t, a.planned, "there is nothing to delete")
	require.NoError(t, a.run(t.Context()))
	require.True(t, a.done.Load())
}

func TestApplicationDeletesWhatIsPlanned(t *testing.T) {
	t.Parallel()
	db := parentsIn(t)
	// Keys with wide gaps: most keys that are drawn are no rows.
	db.Exec(`
		INSERT INTO ci_pipelines SELECT 1000000 * generate_series(1, 70);
		INSERT INTO issues SELECT 1000000 * generate_series(-15, 15);
		INSERT INTO merge_requests SELECT generate_series(1, 20);
		INSERT INTO web_hooks VALUES (9223372036854775807);
		INSERT INTO projects SELECT generate_series(1, 30)`)
	a := newTestApplication(t, db, Pace{Share: 60, Length: atOnce})
	plan := left(a)
	require.Equal(t, map[string]int64{"ci_pipelines": 42, "issues": 19, "merge_requests": 12, "web_hooks": 1, "projects": 3}, plan)
	require.NoError(t, a.run(t.Context()))
	require.True(t, a.done.Load())
	require.Equal(t, a.planned, a.acted.Load())
	require.Equal(t, [][]string{{"28", "12", "8", "0", "27", "0"}}, db.Rows(`SELECT (SELECT count(*) FROM ci_pipelines),
		(SELECT count(*) FROM issues), (SELECT count(*) FROM merge_requests), (SELECT count(*) FROM web_hooks),
		(SELECT count(*) FROM projects), (SELECT count(*) FROM packages_packages)`))

	// The stopwatch knows exactly those that are gone.
	open := map[string]int64{}
	for parent := range a.times.open {
		open[parent.Name]++
		if parent.Name == "public.issues" {
			require.Zero(t, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM issues WHERE id = $1", parent.Number), "%v", parent)
		}
	}
	require.Equal(t, map[string]int64{
		"public.ci_pipelines": 42, "public.issues": 19, "public.merge_requests": 12, "public.web_hooks": 1, "public.projects": 3,
	}, open)
}

// Real foreign keys take along rows that were planned for.
func TestApplicationEndsWhenOthersTookItsRows(t *testing.T) {
	t.Parallel()
	db := parentsIn(t)
	db.Exec(`INSERT INTO projects SELECT generate_series(1, 12); INSERT INTO issues SELECT id, 1 + id % 12 FROM generate_series(1, 240) AS id`)
	a := newTestApplication(t, db, Pace{Share: 100, Length: atOnce})
	require.EqualValues(t, 242, a.planned)
	require.NoError(t, a.run(t.Context()))
	require.Zero(t, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM issues"))
	require.EqualValues(t, 10, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM projects"))
	require.EqualValues(t, len(a.times.open), a.acted.Load())
}

func TestOneStatementIsBounded(t *testing.T) {
	t.Parallel()
	db := parentsIn(t)
	for name, test := range map[string]struct {
		table string
		limit int
		want  int64
	}{
		"by the number asked for":     {"issues", 7, 7},
		"by the plan":                 {"issues", 1000, 150},
		"by the table":                {"merge_requests", 1000, 100},
		"by what one row takes along": {"projects", 1000, 1},
	} {
		db.Exec("TRUNCATE issues, merge_requests, projects; INSERT INTO " + test.table + " SELECT generate_series(1, 300)")
		a := newTestApplication(t, db, Pace{Share: 50, Length: time.Hour})
		// From the first row on, so that there are enough.
		tables(a)[0].last = tables(a)[0].first
		planned := a.planned
		pgtest.Must(a.act(t.Context(), test.limit))(t)
		require.Equal(t, test.want, a.acted.Load(), name)
		require.Equal(t, 300-test.want, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM "+test.table), name)
		if planned > test.want {
			require.Equal(t, map[string]int64{test.table: planned - test.want}, left(a), name)
		} else {
			require.Empty(t, tables(a), name)
		}
	}
}

// failing makes the first deletions of issues fail.
const failing = `
CREATE SEQUENCE attempts;
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF nextval('attempts') <= 3 THEN
		RAISE EXCEPTION 'made up' USING ERRCODE = TG_ARGV[0];
	END IF;
	RETURN NULL;
END
$$;
CREATE TRIGGER fail BEFORE DELETE ON issues FOR EACH STATEMENT EXECUTE FUNCTION fail(`

func TestApplicationGoesOnAfterADeadlockAlone(t *testing.T) {
	t.Parallel()
	db := parentsIn(t)
	db.Exec("INSERT INTO issues SELECT generate_series(1, 10);" + failing + "'40P01')")
	a := newTestApplication(t, db, Pace{Share: 80, Length: atOnce})
	require.NoError(t, a.run(t.Context()))
	require.EqualValues(t, 8, a.acted.Load())
	require.Len(t, a.times.open, 8)
	require.EqualValues(t, 2, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM issues"))

	db.Exec("DROP SEQUENCE attempts; DROP FUNCTION fail() CASCADE; INSERT INTO issues SELECT generate_series(11, 20);" + failing + "'40001')")
	a = newTestApplication(t, db, Pace{Share: 80, Length: atOnce})
	err := a.run(t.Context())
	require.ErrorContains(t, err, "delete from issues: ")
	var failed *pgconn.PgError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "40001", failed.Code)
	require.True(t, a.done.Load(), "it deletes no more")
	require.Zero(t, a.acted.Load())
	require.Empty(t, a.times.open, "nothing waits for what was rolled back")

	db.Exec("DROP TABLE web_hooks")
	_, err = newApplication(t.Context(), testStage(db), newLooseForeignKeys(testStage(db)), Pace{})
	require.ErrorContains(t, err, "plan loose foreign keys: count web_hooks: ")
}

func TestApplicationEndsWithItsContext(t *testing.T) {
	t.Parallel()
	db := parentsIn(t)
	db.Exec("INSERT INTO issues SELECT generate_series(1, 10000)")
	a := newTestApplication(t, db, Pace{Share: 100, Length: time.Hour})
	cancel, ended := background(t, a.run)
	pgtest.WaitFor(t, "the first deletion", func(context.Context) (bool, error) { return a.acted.Load() > 0, nil })
	cancel()
	require.ErrorIs(t, receive(t, ended, "the end of the application"), context.Canceled)
	require.True(t, a.done.Load())
	gone := 10000 - pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM issues")
	// The statement under way may be committed without its answer having come.
	require.LessOrEqual(t, a.acted.Load(), gone)
	require.GreaterOrEqual(t, a.acted.Load(), gone-1)
}

func TestOrphansAreCountedExactly(t *testing.T) {
	t.Parallel()
	const (
		plain = `DROP TABLE IF EXISTS parents, kids;
			CREATE TABLE parents (id bigint PRIMARY KEY, code bigint UNIQUE);
			CREATE TABLE kids (parent_id bigint, kind text, state integer);
			INSERT INTO parents VALUES (1, 10), (2, 20);`
		elsewhere = `DROP SCHEMA IF EXISTS "Other ""App""" CASCADE;
			DROP TABLE IF EXISTS "Parents";
			CREATE SCHEMA "Other ""App""";
			CREATE TABLE "Other ""App"""."Parents" (id bigint PRIMARY KEY, "Code" bigint);
			CREATE TABLE "Other ""App"""."My.Kids" ("Parent ""Id" bigint, "Kind" text);
			CREATE TABLE "Parents" (id bigint PRIMARY KEY);
			INSERT INTO "Other ""App"""."Parents" VALUES (1, 10), (2, NULL);
			INSERT INTO "Parents" VALUES (8);`
	)
	db := pgtest.New(t)
	for name, test := range map[string]struct {
		tracked     string
		definitions string
		sql         string
		want        int64
	}{
		"delete": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: async_delete}]`,
			sql:         plain + `INSERT INTO kids VALUES (1), (2), (NULL), (NULL), (3), (3), (4)`,
			want:        3,
		},
		"nullify": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: async_nullify}]`,
			sql:         plain + `INSERT INTO kids VALUES (1), (NULL), (3), (4)`,
			want:        2,
		},
		"no parents left": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: async_delete}]`,
			sql:         plain + `DELETE FROM parents; INSERT INTO kids VALUES (1), (2), (NULL)`,
			want:        2,
		},
		"update to a value that is reached, not reached, NULL": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 5}]`,
			sql: plain + `INSERT INTO kids (parent_id, state) VALUES
				(1, 4), (1, 5), (1, NULL), (NULL, 4),
				(3, 5), (3, 5), (3, 5), (3, 4), (3, NULL)`,
			want: 2,
		},
		"condition": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: kind, value: Issue}]}]`,
			sql: plain + `INSERT INTO kids (parent_id, kind) VALUES
				(1, 'Issue'), (NULL, 'Issue'), (3, 'issue'), (3, 'Epic'), (3, NULL), (3, 'Issue')`,
			want: 1,
		},
		"two conditions and a target": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: kind, target_value: gone,
				conditions: [{column: kind, value: Issue}, {column: state, value: 1}]}]`,
			sql: plain + `INSERT INTO kids VALUES
				(3, 'Issue', 1), (3, 'Issue', 1), (3, 'Issue', 2), (3, 'Epic', 1), (3, 'gone', 1), (1, 'Issue', 1)`,
			want: 2,
		},
		"parent column": {
			// 1 and 2 are keys of parents, 10 and 20 what the children name.
			definitions: `kids: [{table: parents, column: parent_id, parent_column: code, on_delete: async_delete}]`,
			sql:         plain + `INSERT INTO kids VALUES (10), (20), (20), (1), (2), (30), (NULL)`,
			want:        3,
		},
		"names in quotes and in another schema": {
			definitions: `'"Other ""App"""."My.Kids"': [{table: '"Other ""App"""."Parents"', column: 'Parent "Id', on_delete: async_nullify,
				conditions: [{column: Kind, value: "it's"}]}]`,
			sql: elsewhere + `INSERT INTO "Other ""App"""."My.Kids" VALUES
				(1, 'it''s'), (8, 'it''s'), (8, 'it'), (9, 'it''s'), (NULL, 'it''s')`,
			want: 2,
		},
		"parent column in quotes": {
			definitions: `'"Other ""App"""."My.Kids"': [{table: '"Other ""App"""."Parents"', column: 'Parent "Id', parent_column: Code, on_delete: async_nullify}]`,
			sql:         elsewhere + `INSERT INTO "Other ""App"""."My.Kids" VALUES (10), (1), (2), (NULL)`,
			want:        2,
		},
		"tracked schema of a name without one": {
			tracked:     `Other "App"`,
			definitions: `'"My.Kids"': [{table: Parents, column: 'Parent "Id', on_delete: async_delete}]`,
			sql:         elsewhere + `INSERT INTO "Other ""App"""."My.Kids" VALUES (1), (2), (8)`,
			want:        1,
		},
		"several definitions": {
			definitions: `kids:
  - {table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: kind, value: a}]}
  - {table: parents, column: state, on_delete: async_nullify}`,
			sql:  plain + `INSERT INTO kids VALUES (3, 'a', 1), (3, 'a', 3), (3, 'b', 3), (1, 'a', NULL), (1, 'a', 3)`,
			want: 2 + 3,
		},
	} {
		db.Exec(test.sql)
		names := pgcatalog.Names{Jobs: "sexton", Tracked: cmp.Or(test.tracked, "public")}
		got := pgtest.Must(orphans(t.Context(), stage{pool: db.Pool(), names: names, definitions: parsed(t, test.definitions)}))(t)
		require.Equal(t, test.want, got, name)
	}
	_, err := orphans(t.Context(), stage{
		pool: db.Pool(), names: pgcatalog.Names{Tracked: "public"},
		definitions: parsed(t, `app.kids: [{table: parents, column: parent_id, on_delete: async_delete}]`),
	})
	require.ErrorContains(t, err, "count orphans of parents in app.kids: ")
	require.ErrorContains(t, err, "42P01")
}

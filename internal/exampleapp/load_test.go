package exampleapp

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	"sexton/internal/render"
)

// today is the day that the tests' data is seen from.
func today() time.Time { return time.Date(2026, time.March, 29, 0, 0, 0, 0, time.UTC) }

// rowsOf counts the rows of every table.
func rowsOf(t *testing.T, d *pgtest.Database) map[string]int64 {
	counts := map[string]int64{}
	for _, table := range ordinaryTables(d) {
		counts[table] = pgtest.Scalar[int64](t, d, "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize())
	}
	return counts
}

func TestLoadMakesAsManyRowsAsAskedFor(t *testing.T) {
	t.Parallel()
	for _, wanted := range []int{1_000, 1_234, 17_000} {
		t.Run(fmt.Sprint(wanted), func(t *testing.T) {
			t.Parallel()
			d := empty(t)
			var done, total int64
			made := pgtest.Must(Load(t.Context(), d.Pool(), wanted, func(nowDone, nowTotal int64) {
				require.GreaterOrEqual(t, nowDone, done, "progress never goes back")
				require.LessOrEqual(t, nowDone-done, int64(chunkRows))
				done, total = nowDone, nowTotal
			}))(t)
			require.InEpsilon(t, wanted, made, 0.1)
			require.Equal(t, made, done)
			require.Equal(t, made, total)

			var sum int64
			for table, rows := range rowsOf(t, d) {
				require.Positive(t, rows, table)
				sum += rows
			}
			require.Equal(t, made, sum)
			requireNoOrphans(t, d)
		})
	}
}

// requireNoOrphans looks at every definition: some child has a parent, and none has lost
// it.
func requireNoOrphans(t *testing.T, d *pgtest.Database) {
	for _, definition := range loose(t) {
		child := pgx.Identifier{definition.Child.Table}.Sanitize()
		parent := pgx.Identifier{definition.Parent.Table}.Sanitize()
		column := "child." + pgx.Identifier{definition.Columns[0]}.Sanitize()
		where := column + " IS NOT NULL"
		var values []any
		for _, condition := range definition.Conditions {
			values = append(values, condition.Value)
			where += fmt.Sprintf(" AND child.%s = $%d", pgx.Identifier{condition.Column}.Sanitize(), len(values))
		}
		join := fmt.Sprintf("FROM %s AS child LEFT JOIN %s AS parent ON parent.id = %s WHERE %s", child, parent, column,
			where)
		require.Positive(t, pgtest.Scalar[int64](t, d, "SELECT count(parent.id) "+join, values...),
			"%s has no child with a parent", definition.Key)
		require.Zero(t, pgtest.Scalar[int64](t, d, "SELECT count(*) - count(parent.id) "+join, values...),
			"%s has orphans", definition.Key)
	}
}

func TestTwoLoadsAreEqual(t *testing.T) {
	t.Parallel()
	content := func() map[string]string {
		d := empty(t)
		// A session's settings must not show in the data.
		d.Exec("ALTER DATABASE " + pgx.Identifier{d.Name}.Sanitize() + " SET TimeZone = 'Pacific/Auckland'")
		pgtest.Must(load(t.Context(), d.Pool(), 3_000, today(), nil))(t)
		hashes := map[string]string{}
		for _, table := range ordinaryTables(d) {
			hashes[table] = pgtest.Scalar[string](t, d,
				"SELECT md5(string_agg(loaded::text, E'\\n' ORDER BY loaded::text)) FROM "+
					pgx.Identifier{table}.Sanitize()+" AS loaded")
		}
		return hashes
	}
	first, second := content(), content()
	require.Equal(t, first, second)
}

func TestLoadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := empty(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := 0
	_, err := Load(ctx, d.Pool(), 1_000_000, func(done, _ int64) {
		if calls++; done > 5_000 {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, calls, 20)
	require.Positive(t, pgtest.Scalar[int64](t, d, "SELECT count(*) FROM users"),
		"the pool works on, and what was loaded stays")
}

func TestLoadNamesTheFileThatFails(t *testing.T) {
	t.Parallel()
	d := empty(t)
	d.Exec("ALTER TABLE milestones DROP COLUMN due_date")
	_, err := Load(t.Context(), d.Pool(), 1_000, nil)
	require.ErrorContains(t, err, "load milestones: rows 1 to 1: ")

	_, err = Load(t.Context(), d.Pool(), 1_000, nil)
	require.ErrorContains(t, err, "load organizations: rows 1 to 1: ", "the schema is no longer empty")
}

func TestSchemaIsThatOfAnApplication(t *testing.T) {
	t.Parallel()
	d := empty(t)
	tables := ordinaryTables(d)
	planned := render.Each(newPlan(1_000).tables(), func(s step) string { return s.table })
	slices.Sort(planned)
	require.Equal(t, tables, planned, "the plan fills every table")
	require.NotContains(t, tables, "loose_foreign_keys_deleted_records", "it is Sexton's")
	require.NotContains(t, tables, "users_ghost_user_migrations", "it is Sexton's")
	require.Empty(t, d.Rows(`
		SELECT conrelid::regclass, conname
		FROM pg_constraint AS key
		WHERE key.contype = 'f' AND NOT EXISTS (
			SELECT FROM pg_index AS index
			WHERE index.indrelid = key.conrelid AND index.indisvalid AND index.indpred IS NULL AND index.indkey[0] = key.conkey[1]
		)`), "keys whose first column leads no whole index")
	require.Equal(t, [][]string{{"abuse_reports", "reporter_id"}}, d.Rows(`
		SELECT key.conrelid::regclass, attribute.attname
		FROM pg_constraint AS key
		JOIN pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = key.conkey[1]
		WHERE key.contype = 'f' AND key.confrelid = 'users'::regclass AND key.confdeltype IN ('a', 'r')`), "columns that stop a user's deletion")
	require.Empty(t, d.Rows(`
		SELECT key.conrelid::regclass, attribute.attname
		FROM pg_constraint AS key
		JOIN pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = ANY (key.conkey)
		WHERE key.contype = 'f' AND key.confdeltype = 'n' AND attribute.attnotnull`), "columns that ON DELETE SET NULL cannot set")
}

func TestDefinitionsFitTheSchema(t *testing.T) {
	t.Parallel()
	d := empty(t)
	defs := loose(t)
	parents, problems := pgtest.Must2(loosefk.Resolve(t.Context(),
		[]loosefk.Site{{Name: "main", Schema: "public", DB: d.Pool()}}, defs))(t)
	require.Empty(t, problems, "errors, warnings and information")
	bound := 0
	for _, parent := range parents["main"] {
		bound += len(parent.References)
	}
	require.Equal(t, len(defs), bound)
	for _, definition := range defs {
		require.Zero(t, pgtest.Scalar[int64](t, d, `
			SELECT count(*)
			FROM pg_constraint AS key
			JOIN pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = ANY (key.conkey)
			WHERE key.contype = 'f' AND key.conrelid = $1::text::regclass AND attribute.attname = $2`,
			definition.Child.String(), definition.Columns[0]), "%s has a real key, too", definition.Key)
	}
}

func TestMain(m *testing.M) { pgtest.Main(m) }

// empty returns a database with the application's tables.
func empty(t *testing.T) *pgtest.Database {
	return pgtest.FromTemplate(t, "reference", func(ctx context.Context, url string) (err error) {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.Exec(ctx, Schema())
		return err
	})
}

// loose returns the application's definitions, read as a worker reads them.
func loose(t *testing.T) []definitions.Definition {
	return pgtest.Must(definitions.Parse(definitions.File{
		Name: "loose_foreign_keys.yml",
		Data: []byte(Definitions()),
	}))(t)
}

// ordinaryTables lists the tables of the database, a partitioned one as one.
func ordinaryTables(d *pgtest.Database) []string {
	return render.Each(d.Rows(`
		SELECT relname FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
		ORDER BY relname`), func(row []string) string { return row[0] })
}

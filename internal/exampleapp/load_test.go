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

// today returns the day of the test data.
func today() time.Time { return time.Date(2026, time.March, 29, 0, 0, 0, 0, time.UTC) }

// countRows returns the number of rows of each table.
func countRows(t *testing.T, d *pgtest.Database) map[string]int64 {
	counts := map[string]int64{}
	for _, table := range ordinaryTables(d) {
		counts[table] = pgtest.Scalar[int64](t, d, "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize())
	}
	return counts
}

func TestLoadInsertsTheNumberOfRows(t *testing.T) {
	t.Parallel()
	for _, wanted := range []int{1_000, 1_234, 17_000} {
		t.Run(fmt.Sprint(wanted), func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t)
			var done, total int64
			inserted := pgtest.Must(Load(t.Context(), d.Pool(), wanted, func(nowDone, nowTotal int64) {
				require.GreaterOrEqual(t, nowDone, done, "progress never decreases")
				require.LessOrEqual(t, nowDone-done, int64(chunkRows))
				done, total = nowDone, nowTotal
			}))(t)
			require.InEpsilon(t, wanted, inserted, 0.1)
			require.Equal(t, inserted, done)
			require.Equal(t, inserted, total)

			var sum int64
			for table, rows := range countRows(t, d) {
				require.Positive(t, rows, table)
				sum += rows
			}
			require.Equal(t, inserted, sum)
			requireNoOrphans(t, d)
		})
	}
}

// requireNoOrphans requires for each definition that some children have a parent, and
// that no child has a missing parent.
func requireNoOrphans(t *testing.T, d *pgtest.Database) {
	for _, definition := range parseDefinitions(t) {
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
	hashTables := func() map[string]string {
		d := newDatabase(t)
		// The time zone of the database must not change the data.
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
	first, second := hashTables(), hashTables()
	require.Equal(t, first, second)
}

func TestLoadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
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
		"the pool is usable, and the loaded rows are kept")
}

func TestLoadErrorNamesTheFile(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	d.Exec("ALTER TABLE milestones DROP COLUMN due_date")
	_, err := Load(t.Context(), d.Pool(), 1_000, nil)
	require.ErrorContains(t, err, "load milestones: rows 1 to 1: ")

	_, err = Load(t.Context(), d.Pool(), 1_000, nil)
	require.ErrorContains(t, err, "load organizations: rows 1 to 1: ", "the schema is no longer empty")
}

func TestSchemaHasOnlyTheApplicationsTables(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	tables := ordinaryTables(d)
	planned := render.Each(newPlan(1_000).tables(), func(s step) string { return s.table })
	slices.Sort(planned)
	require.Equal(t, tables, planned, "the plan fills every table")
	require.NotContains(t, tables, "loose_foreign_keys_deleted_records", "the table belongs to Sexton")
	require.NotContains(t, tables, "users_ghost_user_migrations", "the table belongs to Sexton")
	require.Empty(t, d.Rows(`
		SELECT conrelid::regclass, conname
		FROM pg_constraint AS key
		WHERE key.contype = 'f' AND NOT EXISTS (
			SELECT FROM pg_index AS index
			WHERE index.indrelid = key.conrelid AND index.indisvalid AND index.indpred IS NULL AND index.indkey[0] = key.conkey[1]
		)`), "foreign keys without a complete index")
	require.Equal(t, [][]string{{"abuse_reports", "reporter_id"}}, d.Rows(`
		SELECT key.conrelid::regclass, attribute.attname
		FROM pg_constraint AS key
		JOIN pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = key.conkey[1]
		WHERE key.contype = 'f' AND key.confrelid = 'users'::regclass AND key.confdeltype IN ('a', 'r')`), "columns that prevent the deletion of a user")
	require.Empty(t, d.Rows(`
		SELECT key.conrelid::regclass, attribute.attname
		FROM pg_constraint AS key
		JOIN pg_attribute AS attribute ON attribute.attrelid = key.conrelid AND attribute.attnum = ANY (key.conkey)
		WHERE key.contype = 'f' AND key.confdeltype = 'n' AND attribute.attnotnull`), "columns that ON DELETE SET NULL cannot set")
}

func TestDefinitionsFitTheSchema(t *testing.T) {
	t.Parallel()
	d := newDatabase(t)
	defs := parseDefinitions(t)
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
			definition.Child.String(), definition.Columns[0]), "%s has a native foreign key, too", definition.Key)
	}
}

func TestMain(m *testing.M) { pgtest.Main(m) }

// newDatabase returns a database with the empty tables of the application.
func newDatabase(t *testing.T) *pgtest.Database {
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

// parseDefinitions returns the application's definitions.
func parseDefinitions(t *testing.T) []definitions.Definition {
	return pgtest.Must(definitions.Parse(definitions.File{
		Name: "loose_foreign_keys.yml",
		Data: []byte(Definitions()),
	}))(t)
}

// ordinaryTables returns the tables of the database, without partitions.
func ordinaryTables(d *pgtest.Database) []string {
	return render.Each(d.Rows(`
		SELECT relname FROM pg_class
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
		ORDER BY relname`), func(row []string) string { return row[0] })
}

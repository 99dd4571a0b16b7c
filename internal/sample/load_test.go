package sample

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// today is the day that the tests' data is seen from.
func today() time.Time { return time.Date(2026, time.March, 29, 0, 0, 0, 0, time.UTC) }

// rowsOf counts the rows of every table.
func rowsOf(t *testing.T, d *pgtest.Database) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for _, table := range ordinaryTables(d) {
		counts[table] = pgtest.Scalar[int64](t, d, "SELECT count(*) FROM "+pgx.Identifier{table}.Sanitize())
	}
	return counts
}

func TestLoadMakesAsManyRowsAsAskedFor(t *testing.T) {
	t.Parallel()
	for _, wanted := range []int{1_000, 1_234, 5_000, 17_000, 50_000} {
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

// requireNoOrphans looks at every definition: some child has a parent, and none has lost it.
func requireNoOrphans(t *testing.T, d *pgtest.Database) {
	t.Helper()
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
		join := fmt.Sprintf("FROM %s AS child LEFT JOIN %s AS parent ON parent.id = %s WHERE %s", child, parent, column, where)
		require.Positive(t, pgtest.Scalar[int64](t, d, "SELECT count(parent.id) "+join, values...), "%s has no child with a parent", definition.Key)
		require.Zero(t, pgtest.Scalar[int64](t, d, "SELECT count(*) - count(parent.id) "+join, values...), "%s has orphans", definition.Key)
	}
}

func TestTwoLoadsAreEqual(t *testing.T) {
	t.Parallel()
	content := func() map[string]string {
		d := empty(t)
		// A session's settings must not show in the data.
		d.Exec("ALTER DATABASE " + pgx.Identifier{d.Name}.Sanitize() + " SET TimeZone = 'Pacific/Auckland'")
		pgtest.Must(load(t.Context(), d.Pool(), 12_000, today(), nil))(t)
		hashes := map[string]string{}
		for _, table := range ordinaryTables(d) {
			hashes[table] = pgtest.Scalar[string](t, d,
				"SELECT md5(string_agg(loaded::text, E'\\n' ORDER BY loaded::text)) FROM "+pgx.Identifier{table}.Sanitize()+" AS loaded")
		}
		return hashes
	}
	first, second := content(), content()
	require.Equal(t, first, second)
}

func TestIDsGoOnWhereTheDataEnds(t *testing.T) {
	t.Parallel()
	d := empty(t)
	pgtest.Must(load(t.Context(), d.Pool(), 1_000, today(), nil))(t)
	sequences := d.Rows(`
		SELECT relname, pg_get_serial_sequence(quote_ident(relname), 'id')
		FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid AND attname = 'id'
		WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND relname <> 'application_settings'`)
	require.Greater(t, len(sequences), 40)
	for _, row := range sequences {
		table := pgx.Identifier{row[0]}.Sanitize()
		require.True(t, pgtest.Scalar[bool](t, d, "SELECT nextval($1::text::regclass) = (SELECT max(id) + 1 FROM "+table+")", row[1]), table)
	}
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
	require.Positive(t, pgtest.Scalar[int64](t, d, "SELECT count(*) FROM users"), "the pool works on, and what was loaded stays")
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

package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// filled returns a database with the tables and rows of a data set, and a connection to
// it.
func filled(t *testing.T, name string, scale float64) (dataSet, *pgtest.Database, *pgx.Conn) {
	set := pgtest.Must(newDataSet(name, scale))(t)
	db := pgtest.New(t)
	for _, statement := range append([]string{set.render("children.sql")}, set.fillStatements()...) {
		db.Exec(statement)
	}
	conn, closeConn := pgtest.Must2(connect(t.Context(), db.URL))(t)
	t.Cleanup(closeConn)
	return set, db, conn
}

func TestDataSets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// first is the number of children of the first parent in all tables. each is the
		// number of children of each other parent.
		parents, tables, first, each, targets int64
		indexes                               int
	}{
		{name: Wide, parents: 110, tables: 1, first: 100, each: 100, targets: 100 * 100, indexes: 2},
		{name: Fanout, parents: 22, tables: 20, first: 1000, each: 1000, targets: 20 * 1000, indexes: 2},
		{name: Skew, parents: 12, tables: 1, first: 10_000, each: 10, targets: 10_000 + 10*10, indexes: 2},
		{name: Nullify, parents: 110, tables: 1, first: 100, each: 100, targets: 100 * 100, indexes: 5},
		{name: Slow, parents: 220, tables: 1, first: 1, each: 1, targets: 200, indexes: 2},
		{name: Retention, parents: 1000, tables: 1, first: 1, each: 1, targets: 10_000, indexes: 2},
	} {
		set, db, conn := filled(t, test.name, 0.01)
		before := pgtest.Must(set.count(t.Context(), conn))(t)
		require.Equal(t, test.targets, targetsOf(before), test.name)
		require.Len(t, before, int(test.tables), test.name)
		require.Equal(t, test.parents, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM parents"), test.name)
		table := set.Tables[0]
		var first, least, most int64
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+table+
			" WHERE parent_id = 1").Scan(&first))
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT min(n), max(n) FROM
			(SELECT count(child.id) AS n FROM parents LEFT JOIN `+table+` AS child ON child.parent_id = parents.id WHERE parents.id > 1 GROUP BY parents.id) AS counts`).
			Scan(&least, &most))
		require.Equal(t, []int64{test.first, test.each, test.each},
			[]int64{first * test.tables, least * test.tables, most * test.tables}, test.name)
		require.Equal(t, test.indexes, pgtest.Scalar[int](t, db, "SELECT count(*) FROM pg_indexes WHERE tablename = $1",
			table), test.name)
	}
	_, err := newDataSet("deep", 1)
	require.EqualError(t, err, `no data set "deep"`)
}

// check returns an error if a child of another parent was changed, moved or deleted, or
// if tombstones are left.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, right := range map[string]string{
		Wide:    "DELETE FROM children WHERE parent_id <= 10",
		Nullify: "UPDATE children SET parent_id = NULL WHERE parent_id <= 10",
	} {
		for _, wrong := range []string{
			"UPDATE children SET parent_id = 10 WHERE id = (SELECT min(id) FROM children WHERE parent_id > 10)",
			"DELETE FROM children WHERE id = (SELECT min(id) FROM children WHERE parent_id > 10)",
			"UPDATE children SET parent_id = NULL WHERE id = (SELECT min(id) FROM children WHERE parent_id > 10)",
			"UPDATE children SET id = -id WHERE id = (SELECT max(id) FROM children WHERE parent_id > 10)",
		} {
			set, db, conn := filled(t, name, 0.001)
			before := pgtest.Must(set.count(t.Context(), conn))(t)
			_, err := set.check(t.Context(), conn, before, false)
			require.ErrorContains(t, err, "table children has unexpected rows", "no child was deleted")
			db.Exec(right)
			require.EqualValues(t, 1000, pgtest.Must(set.check(t.Context(), conn, before, false))(t))
			db.Exec(wrong)
			_, err = set.check(t.Context(), conn, before, false)
			require.ErrorContains(t, err, "table children has unexpected rows", "%s: %s", name, wrong)
			db.Exec("CREATE TABLE " + tombstones + " AS SELECT 1")
			_, err = set.check(t.Context(), conn, before, true)
			require.EqualError(t, err, "1 tombstones are left after the last run")
		}
	}
}

// For the data set Slow, check accepts that some children of the targets are left.
func TestCheckOfSlowRows(t *testing.T) {
	t.Parallel()
	set, db, conn := filled(t, Slow, 0.0005)
	before := pgtest.Must(set.count(t.Context(), conn))(t)
	require.Zero(t, pgtest.Must(set.check(t.Context(), conn, before, true))(t))
	db.Exec("DELETE FROM children WHERE parent_id <= 3")
	require.EqualValues(t, 3, pgtest.Must(set.check(t.Context(), conn, before, true))(t))
	db.Exec("DELETE FROM children WHERE parent_id = 11")
	_, err := set.check(t.Context(), conn, before, true)
	require.ErrorContains(t, err, "table children has unexpected rows")
}

func TestWorkerDrain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		passes []Pass
		err    error
		limit  time.Duration
		ran    int
		want   string
	}{
		{passes: []Pass{{More: true, Rows: 1}, {More: true, Finished: 1}, {}}, ran: 3},
		{passes: []Pass{{More: true, Rows: 1}, {}}, limit: time.Hour, ran: 2},
		{passes: []Pass{{More: true, Rows: 1}}, limit: 1, ran: 1},
		{passes: []Pass{{More: true, Rows: 1}, {More: true}}, ran: 2, want: "run the job: it changed no rows although work is pending"},
		{passes: []Pass{{Trouble: "skipped"}}, ran: 1, want: "run the job: skipped"},
		{err: errors.New("broken"), ran: 1, want: "run the job: broken"},
	} {
		ran := 0
		worker := Worker{Pass: func(context.Context) (Pass, error) {
			ran++
			if test.err != nil {
				return Pass{}, test.err
			}
			return test.passes[ran-1], nil
		}}
		err := worker.drain(t.Context(), test.limit)
		require.Equal(t, test.ran, ran)
		if test.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, test.want)
		}
	}
}

// If Sexton takes half the time of the other contenders and writes twice the WAL, the
// report has these ratios.
func TestDrainReport(t *testing.T) {
	t.Parallel()
	slower := measured{took: 4 * time.Second, deleteTook: 2 * time.Second, rows: 100, wal: 1e6}
	faster := measured{took: 2 * time.Second, deleteTook: time.Second, rows: 100, wal: 2e6}
	printed := lines(drainReport(Server{}, DrainOptions{Limit: time.Second}, []comparison{
		{
			set: dataSet{Name: Wide, Targets: 10}, rows: 100,
			outcomes: []outcome{{slower, oneStatement}, {slower, nativeCascade}, {faster, sexton}},
		},
		{
			set: dataSet{Name: Slow, Targets: 10}, rows: 200,
			outcomes: []outcome{{slower, oneConnection}, {faster, sexton}},
		},
	}))
	require.Equal(t, []string{
		"set | variant | seconds | rows | rows/s | DELETE ms | WAL MB",
		"wide | one statement | 4.00 | 100 | 25 | 2000.0 | 1.0", "wide | native | 4.00 | 100 | 25 | 2000.0 | 1.0",
		"wide | sexton | 2.00 | 100 | 50 | 1000.0 | 2.0",
		"slow | sexton 1 connection | 4.00 | 100 | 25 | 2000.0 | 1.0", "slow | sexton | 2.00 | 100 | 50 | 1000.0 | 2.0",
		"",
		"set | sexton / one statement | / native | / one connection | DELETE / native | WAL / native | parents | rows",
		"wide | 2.00 | 2.00 | - | 0.5000 | 2.00 | 10 | 100", "slow | - | - | 2.00 | - | - | 10 | 200",
	}, printed[:10])
	require.Contains(t, strings.Join(printed, "\n"), "slow: rows deleted in runs of 1s")
}

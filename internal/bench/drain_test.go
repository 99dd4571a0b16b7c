package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// filled is a database with a data set.
func filled[W workload](t *testing.T, newSet func(string, float64) (W, error), name string, scale float64) (W, *pgtest.Database, *pgx.Conn) {
	set := pgtest.Must(newSet(name, scale))(t)
	db := pgtest.New(t)
	for _, statement := range append([]string{set.source().create}, set.source().fill...) {
		db.Exec(statement)
	}
	return set, db, connected(t, db)
}

func connected(t *testing.T, db *pgtest.Database) *pgx.Conn {
	conn, closeConn := pgtest.Must2(connect(t.Context(), db.URL))(t)
	t.Cleanup(closeConn)
	return conn
}

// The big parent's children would be looked for in all of the table once they are gone.
func TestForegroundLeavesTheBigParentOut(t *testing.T) {
	t.Parallel()
	set, db, conn := filled(t, newDataSet, Skew, 0.02)
	db.Exec("VACUUM (FREEZE, ANALYZE)")
	plan := func(parent int64) string {
		return fmt.Sprint(db.Rows("EXPLAIN " + strings.Replace(childrenOf("children"), "$1", strconv.FormatInt(parent, 10), 1)))
	}
	require.Contains(t, plan(1), "Seq Scan", "what is avoided")
	require.EqualValues(t, 2, set.readable())
	require.NotContains(t, plan(set.readable()), "Seq Scan")
	require.NotContains(t, plan(set.Targets+set.Spared), "Seq Scan")
	require.NoError(t, set.transaction(t.Context(), conn))
	set.Name = Wide
	require.EqualValues(t, 1, set.readable())
}

func TestDataSets(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// first are the children of the first parent, each those of every other one, in all tables together.
		parents, tables, first, each, targets int64
		indexes                               int
	}{
		{name: Wide, parents: 110, tables: 1, first: 100, each: 100, targets: 100 * 100, indexes: 2},
		{name: Fanout, parents: 22, tables: 20, first: 1000, each: 1000, targets: 20 * 1000, indexes: 2},
		{name: Skew, parents: 12, tables: 1, first: 10_000, each: 10, targets: 10_000 + 10*10, indexes: 2},
		{name: Nullify, parents: 110, tables: 1, first: 100, each: 100, targets: 100 * 100, indexes: 5},
		{name: Slow, parents: 610, tables: 3, first: 3, each: 3, targets: 10 * 3, indexes: 2},
	} {
		set, db, conn := filled(t, newDataSet, test.name, 0.01)
		before := pgtest.Must(set.trial(set.Targets).look(t.Context(), conn))(t)
		require.Equal(t, test.targets, concerned(before), test.name)
		require.Len(t, before, int(test.tables), test.name)
		require.Equal(t, test.parents, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM parents"), test.name)
		table := set.Tables[0]
		var first, least, most int64
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM "+table+" WHERE parent_id = 1").Scan(&first))
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT min(n), max(n) FROM
			(SELECT count(child.id) AS n FROM parents LEFT JOIN `+table+` AS child ON child.parent_id = parents.id WHERE parents.id > 1 GROUP BY parents.id) AS counts`).
			Scan(&least, &most))
		require.Equal(t, []int64{test.first, test.each, test.each}, []int64{first * test.tables, least * test.tables, most * test.tables}, test.name)
		require.Equal(t, test.indexes, pgtest.Scalar[int](t, db, "SELECT count(*) FROM pg_indexes WHERE tablename = $1", table), test.name)
	}
	_, err := newDataSet("deep", 1)
	require.EqualError(t, err, `no data set "deep"`)
}

// TestCheck shows that each way to get the rows wrong is found.
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
			set, db, conn := filled(t, newDataSet, name, 0.001)
			work := set.trial(set.Targets)
			before := pgtest.Must(work.look(t.Context(), conn))(t)
			require.ErrorContains(t, work.check(t.Context(), conn, before, false), "children is not as it must be", "nothing was done")
			db.Exec(right)
			require.NoError(t, work.check(t.Context(), conn, before, false))
			db.Exec(wrong)
			require.ErrorContains(t, work.check(t.Context(), conn, before, false), "children is not as it must be", "%s: %s", name, wrong)
			db.Exec("CREATE TABLE " + tombstones + " AS SELECT 1")
			require.ErrorContains(t, work.check(t.Context(), conn, before, true), "1 tombstones remain after the last pass")
		}
	}
}

func TestWorkerDrain(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		passes []Pass
		err    error
		ran    int
		want   string
	}{
		{passes: []Pass{{More: true, Rows: 1}, {More: true, Finished: 1}, {}}, ran: 3},
		{passes: []Pass{{More: true, Rows: 1}, {More: true}}, ran: 2, want: "run pass: it did nothing but leave more to do"},
		{passes: []Pass{{Trouble: "skipped"}}, ran: 1, want: "run pass: skipped"},
		{err: errors.New("broken"), ran: 1, want: "run pass: broken"},
	} {
		ran := 0
		worker := Worker{Pass: func(context.Context, json.RawMessage) (Pass, error) {
			ran++
			if test.err != nil {
				return Pass{}, test.err
			}
			return test.passes[ran-1], nil
		}}
		passes, err := worker.drain(t.Context())
		require.Equal(t, []int{test.ran, test.ran}, []int{ran, passes})
		if test.want == "" {
			require.NoError(t, err)
		} else {
			require.EqualError(t, err, test.want)
		}
	}
}

func TestInListStatement(t *testing.T) {
	t.Parallel()
	keys := []string{"1", "2"}
	require.Equal(t, "DELETE FROM children WHERE id IN (SELECT id FROM children WHERE parent_id IN (1, 2) LIMIT 1000 FOR UPDATE SKIP LOCKED)",
		inListStatement(dataSet{}, "children", keys, " FOR UPDATE SKIP LOCKED"))
	require.Equal(t, "UPDATE children SET parent_id = NULL WHERE id IN (SELECT id FROM children WHERE parent_id IN (1, 2) LIMIT 500)",
		inListStatement(dataSet{Nullify: true}, "children", keys, ""))
}

func TestNextList(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(`CREATE TABLE ` + tombstones + ` (fully_qualified_table_name text, consume_after timestamptz, id bigint, primary_key_value bigint, status smallint)`)
	db.Exec(`INSERT INTO ` + tombstones + ` SELECT 'public.parents', '2020-01-01', n, 10 * n, 1 FROM generate_series(1, 1001) AS n`)
	db.Exec(`INSERT INTO ` + tombstones + ` VALUES
		('public.others', '2020-01-01', 1, 1, 1), ('public.parents', '2020-01-01', 1002, 1, 2), ('public.parents', '2019-01-01', 2000, 7, 1)`)
	p := dataCopy{conn: connected(t, db)}
	batch := pgtest.Must(p.nextList(t.Context(), listed{ConsumeAfter: pgtype.Timestamptz{InfinityModifier: pgtype.NegativeInfinity, Valid: true}}))(t)
	require.Len(t, batch, listSize)
	require.Equal(t, []int64{7, 10}, []int64{batch[0].Key, batch[1].Key}, "in the order of the queue")
	rest := pgtest.Must(p.nextList(t.Context(), batch[listSize-1]))(t)
	require.Len(t, rest, 2)
	require.Equal(t, int64(10_010), rest[1].Key)
	none := pgtest.Must(p.nextList(t.Context(), listed{ConsumeAfter: pgtype.Timestamptz{InfinityModifier: pgtype.Infinity, Valid: true}}))(t)
	require.Empty(t, none)
}

func TestBacklogs(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int64{10_000, 100_000, 1_000_000, 10_000_000}, Backlogs(LargestBacklog))
	require.Equal(t, []int64{10_000, 100_000}, Backlogs(999_999))
}

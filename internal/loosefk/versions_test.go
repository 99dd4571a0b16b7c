package loosefk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

// Postgres computes a virtual column when it is read, has no index on one, and shows NULL for it to triggers.
func TestVirtualColumns(t *testing.T) {
	t.Parallel()
	pgtest.Since(t, 18)
	b := setup(t, `
CREATE TABLE parents (id bigint PRIMARY KEY, twice bigint GENERATED ALWAYS AS (id * 2) VIRTUAL);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint GENERATED ALWAYS AS (id / 10) VIRTUAL);
INSERT INTO parents SELECT generate_series(1, 3);
INSERT INTO children SELECT generate_series(10, 39);`, "children: [{table: parents, column: parent_id, on_delete: async_delete}]", "parents")
	b.Exec("DELETE FROM parents WHERE id = 2")
	b.run(t)
	require.Zero(t, b.Pending(t))
	require.Equal(t, [][]string{{"1", "10"}, {"3", "10"}}, b.Rows("SELECT parent_id, count(*) FROM children GROUP BY 1 ORDER BY 1"))

	_, problems := resolve(t, b.Pool(), "children: [{table: parents, column: parent_id, parent_column: twice, on_delete: async_delete}]")
	found := problems.Only(problem.Error)
	require.Len(t, found, 1)
	require.Contains(t, found[0].String(), "column twice of parent parents is not unique")
	_, problems = resolve(t, b.Pool(), "children: [{table: parents, column: parent_id, on_delete: async_nullify}]")
	require.Contains(t, problems.Only(problem.Error)[0].String(), "children.parent_id is a generated column and cannot be set")
}

// A period is a part of the key like any other column: the children of the row that had exactly this one go.
func TestPeriodsAsKeys(t *testing.T) {
	t.Parallel()
	pgtest.Since(t, 18)
	b := composites(t, `
CREATE TABLE parents (a int4range, b daterange, PRIMARY KEY (a, b WITHOUT OVERLAPS));
CREATE TABLE children (id bigint PRIMARY KEY, a int4range, b daterange);
CREATE INDEX ON children (a, b);
INSERT INTO parents SELECT int4range(1, 2), daterange(make_date(n, 1, 1), make_date(n + 1, 1, 1)) FROM generate_series(2020, 2023) AS n;
INSERT INTO children SELECT 1000 + lower(b) - '2020-01-01'::date, a, b FROM parents;
INSERT INTO children VALUES (1, '[1,1]', '[2021-03-01,2021-04-01)');`,
		"children: [{table: parents, column: [a, b], on_delete: async_delete}]", "parents")
	b.Exec("DELETE FROM parents WHERE b @> '2021-06-01'::date")
	b.run(t)
	require.Zero(t, b.Pending(t))
	require.Equal(t, []string{"1", "1000", "1731", "2096"}, b.ids("SELECT id FROM children ORDER BY id"))
}

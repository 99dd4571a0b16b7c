package loosefk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
)

// The heavy parent shares one half of its key with each of the others, whose children stand beside its own.
func TestCompositeHeavyParentIsWalkedThrough(t *testing.T) {
	t.Parallel()

	b := composites(t, `
CREATE TABLE parents (a int, b text, PRIMARY KEY (a, b));
CREATE TABLE children (id bigint PRIMARY KEY, a bigint, b text, note text) WITH (autovacuum_enabled = off);
CREATE INDEX ON children (b, a);
INSERT INTO parents VALUES (1, 'x'), (1, 'y'), (2, 'x');
INSERT INTO children SELECT n, CASE WHEN n % 8 = 0 THEN 2 ELSE 1 END, CASE WHEN n % 8 = 4 THEN 'y' ELSE 'x' END, repeat('x', 80) FROM generate_series(1, 120000) AS n;`+
		overloadQuietly, "children: [{table: parents, column: [a, b], on_delete: async_delete}]", "parents")
	b.Exec(innocent)
	b.adapts()
	b.Exec("DELETE FROM parents WHERE (a, b) = (1, 'x')")
	b.onProgress(func(s *loosefk.Stats) bool { return s.DeleteCount > 20_000 }, func() {
		b.Exec("UPDATE children SET b = 'y' WHERE id > 119000 AND a = 1; UPDATE children SET note = 'moved' WHERE id BETWEEN 118001 AND 119000")
	})
	stats := b.run(t)
	require.Empty(t, stats.Errors)
	require.EqualValues(t, 1, stats.Processed)
	require.EqualValues(t, 90_000-750, stats.DeleteCount)
	require.Zero(t, b.count(t, "children WHERE (a, b) = (1, 'x')"))
	require.EqualValues(t, 30_750, b.count(t, "children"))

	var stretches int64
	require.NoError(t, b.engine.Session.Conn.QueryRow(t.Context(),
		"SELECT coalesce(sum(generic_plans), 0)::bigint FROM pg_prepared_statements WHERE statement LIKE '%child.ctid >= %'").Scan(&stretches))
	require.Positive(t, stretches, "statements of the walk")
}

package loosefk_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// countTries counts the statements that tried to delete children, including timeouts. It
// also creates another parent, neighbors, whose children are in others.
var countTries = `
CREATE SEQUENCE tries;
CREATE FUNCTION try() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''public.tries''); RETURN NULL; END';
CREATE TRIGGER try BEFORE DELETE ON children FOR EACH STATEMENT EXECUTE FUNCTION try();` +
	dbtest.Parents("neighbors", 10) + dbtest.Children{Table: "others", Of: "neighbors", Each: 1}.SQL()

const withNeighbors = deleteChildren + "others: [{table: neighbors, column: neighbor_id, on_delete: async_delete}]\n"

// slowRow is a trigger that makes the deletion of each child take 20 ms.
var slowRow = dbtest.OnRow("DELETE", "children", "true", "PERFORM pg_sleep(0.02);")

func (b bundle) tries(t *testing.T) int64 {
	return b.count(t, "(SELECT last_value FROM tries) AS t, generate_series(1, last_value)")
}

// deleteNeighbors deletes the rows of neighbors after the first batch that deleted
// children. first is the number of statements that had been tried on children before the
// rows of neighbors were deleted. late is the number of statements that had been tried
// when the children of neighbors were deleted.
func (b bundle) deleteNeighbors(t *testing.T) (first, late *int64) {
	first, late = new(int64), new(int64)
	b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) {
		switch {
		case *first == 0 && stats.DeleteCountByTable["children"] > 0:
			*first = b.tries(t)
			b.Exec("DELETE FROM neighbors")
		case *late == 0 && stats.DeleteCountByTable["others"] == 10:
			*late = b.tries(t)
		}
	}
	return first, late
}

// If children have no index, one scan finds the children of many parents. No statement
// reads the table for each parent.
func TestChildrenWithoutAnIndexShareScans(t *testing.T) {
	t.Parallel()
	const many = `
DROP INDEX children_parent_id_idx;
INSERT INTO parents SELECT generate_series(11, 300);
INSERT INTO children SELECT 1000 + n, 11 + n % 290, repeat('x', 500) FROM generate_series(1, 2900) AS n;`
	pgtest.Each(t, map[string]string{"rows": "", "slow rows": slowRow}, func(t *testing.T, _, slow string) {
		b := setupAdaptive(t, parentsAndChildren+many+countTries, withNeighbors, "parents", "neighbors")
		b.Exec(forbidAttempts)
		if slow == "" {
			// With a long target, no statement is divided because of its duration, even
			// on a busy machine.
			b.engine.Adaptive.Target = 10 * target
		} else {
			b.Exec("ALTER TABLE children DISABLE TRIGGER try; DELETE FROM children WHERE id > 1050; ALTER TABLE children ENABLE TRIGGER try;" + slow)
		}
		b.Exec("DELETE FROM parents WHERE id > 5")
		first, late := b.deleteNeighbors(t)
		require.EqualValues(t, 305, b.runToEnd(t).Processed)
		require.LessOrEqual(t, *late-*first, int64(60), "statements on children before the children of neighbors were deleted")
		require.EqualValues(t, 50, b.count(t, "children"), "children of existing parents are kept")
		if slow == "" {
			require.LessOrEqual(t, b.tries(t), int64(40), "statements for 295 parents")
		}
	})
}

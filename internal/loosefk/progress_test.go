package loosefk_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// slowChildren makes each child of parents take the target's time. It counts the
// statements that tried to delete children, including timeouts. Another parent,
// neighbours, has no such trigger.
var slowChildren = `
CREATE SEQUENCE tries;
CREATE FUNCTION try() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''public.tries''); RETURN NULL; END';
CREATE TRIGGER try BEFORE DELETE ON children FOR EACH STATEMENT EXECUTE FUNCTION try();` +
	dbtest.Parents("neighbours", 10) + dbtest.Children{Table: "others", Of: "neighbours", Each: 1}.SQL()

const withNeighbours = deleteChildren + "others: [{table: neighbours, column: neighbour_id, on_delete: async_delete}]\n"

// slowRow is a row trigger on children.
var slowRow = dbtest.OnRow("DELETE", "children", "true", "PERFORM pg_sleep(0.02);")

func (b bundle) tries(t *testing.T) int64 {
	return b.count(t, "(SELECT last_value FROM tries) AS t, generate_series(1, last_value)")
}

// losesNeighbours deletes the rows of neighbours after the first batch that deleted
// children. It records how many statements had been tried on children then, and when the
// children of neighbours had been deleted.
func (b bundle) losesNeighbours(t *testing.T) (first, late *int64) {
	first, late = new(int64), new(int64)
	b.engine.Progress = func(_ context.Context, stats *loosefk.Stats) {
		switch {
		case *first == 0 && stats.DeleteCountByTable["children"] > 0:
			*first = b.tries(t)
			b.Exec("DELETE FROM neighbours")
		case *late == 0 && stats.DeleteCountByTable["others"] == 10:
			*late = b.tries(t)
		}
	}
	return first, late
}

// Without an index one scan finds the children of many parents. No statement reads the
// table for each parent.
func TestChildrenWithoutAnIndexGoTogether(t *testing.T) {
	t.Parallel()
	const many = `
DROP INDEX children_parent_id_idx;
INSERT INTO parents SELECT generate_series(11, 300);
INSERT INTO children SELECT 1000 + n, 11 + n % 290, repeat('x', 500) FROM generate_series(1, 2900) AS n;`
	pgtest.Each(t, map[string]string{"rows": "", "slow rows": slowRow}, func(t *testing.T, _, slow string) {
		b := setupAdaptive(t, parentsAndChildren+many+slowChildren, withNeighbours, "parents", "neighbours")
		b.Exec(innocent)
		if slow == "" {
			// No statement is divided because of its duration, even on a busy machine.
			b.engine.Adaptive.Target = 10 * target
		} else {
			b.Exec("ALTER TABLE children DISABLE TRIGGER try; DELETE FROM children WHERE id > 1050; ALTER TABLE children ENABLE TRIGGER try;" + slow)
		}
		b.Exec("DELETE FROM parents WHERE id > 5")
		first, late := b.losesNeighbours(t)
		require.EqualValues(t, 305, b.drained(t).Processed)
		require.LessOrEqual(t, *late-*first, int64(60), "statements on children that went before the neighbours'")
		require.EqualValues(t, 50, b.count(t, "children"), "those of the parents that live")
		if slow == "" {
			require.LessOrEqual(t, b.tries(t), int64(40), "statements for 295 parents")
		}
	})
}

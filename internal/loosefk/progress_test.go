package loosefk_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// slowChildren makes each child of parents cost the target's time, and counts the
// statements that tried to delete some, those that timed out included. Beside it stand
// healthy neighbours.
var slowChildren = `
CREATE SEQUENCE tries;
CREATE FUNCTION try() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(''public.tries''); RETURN NULL; END';
CREATE TRIGGER try BEFORE DELETE ON children FOR EACH STATEMENT EXECUTE FUNCTION try();` +
	dbtest.Parents("neighbours", 10) + dbtest.Children{Table: "others", Of: "neighbours", Each: 1}.SQL()

const withNeighbours = deleteChildren + "others: [{table: neighbours, column: neighbour_id, on_delete: async_delete}]\n"

// slowRow is a row trigger on children.
var slowRow = dbtest.OnRow("DELETE", "children", "true", "PERFORM pg_sleep(0.02);")

// slowCascade is a native key below children that takes as long, as one without an index
// does on a big table.
var slowCascade = `
CREATE TABLE grandchildren (id bigint PRIMARY KEY, child_id bigint REFERENCES children ON DELETE CASCADE);
INSERT INTO grandchildren SELECT id, id FROM children;` + dbtest.OnRow("DELETE", "grandchildren", "true", "PERFORM pg_sleep(0.02);")

func (b bundle) tries(t *testing.T) int64 {
	return b.count(t, "(SELECT last_value FROM tries) AS t, generate_series(1, last_value)")
}

// losesNeighbours deletes the neighbours after the first batch that deleted children, and
// notes how many statements had been tried on children then, and when the neighbours'
// children were gone.
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

// Each parent by itself is too much for a statement. All of a run went into finding that
// out, again and again.
func TestSlowParentsAreWorkedOffFromTheFirstOneOn(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{"trigger": slowRow, "native cascade": slowCascade},
		func(t *testing.T, _, slow string) {
			b := setupAdaptive(t, parentsAndChildren+slowChildren+slow, withNeighbours, "parents", "neighbours")
			b.Exec("DELETE FROM parents")
			first, late := b.losesNeighbours(t)
			require.EqualValues(t, 20, b.drained(t).Processed)
			require.LessOrEqual(t, *first, int64(5), "statements until the first child was gone")
			require.Positive(t, *late)
			require.LessOrEqual(t, *late-*first, int64(60),
				"statements on slow children that went before the neighbours'")
		})
}

// Without an index a scan finds the children of many parents, and no statement reads the
// table for each of them.
func TestChildrenWithoutAnIndexGoTogether(t *testing.T) {
	t.Parallel()
	const many = `
DROP INDEX children_parent_id_idx;
INSERT INTO parents SELECT generate_series(11, 300);
INSERT INTO children SELECT 1000 + n, 11 + n % 290, repeat('x', 500) FROM generate_series(1, 2900) AS n;`
	type example struct {
		blocks float64
		slow   string
	}
	pgtest.Each(t, map[string]example{
		"in one scan":             {},
		"by ranges of blocks":     {blocks: 2},
		"by ranges, of slow rows": {blocks: 50, slow: slowRow},
	}, func(t *testing.T, _ string, test example) {
		b := setupAdaptive(t, parentsAndChildren+many+slowChildren, withNeighbours, "parents", "neighbours")
		b.Exec(innocent)
		if test.slow == "" {
			// No statement becomes smaller for its time, on however busy a machine.
			b.engine.Adaptive.Target = 10 * target
		} else {
			b.Exec("ALTER TABLE children DISABLE TRIGGER try; DELETE FROM children WHERE id > 1050; ALTER TABLE children ENABLE TRIGGER try;" + test.slow)
		}
		for _, parent := range b.engine.Parents {
			if parent.Name == "parents" {
				_ = parent
			}
		}
		b.Exec("DELETE FROM parents WHERE id > 5")
		first, late := b.losesNeighbours(t)
		require.EqualValues(t, 305, b.drained(t).Processed)
		require.LessOrEqual(t, *late-*first, int64(60), "statements on children that went before the neighbours'")
		require.EqualValues(t, 50, b.count(t, "children"), "those of the parents that live")
		if test.slow == "" {
			require.LessOrEqual(t, b.tries(t), int64(40), "statements for 295 parents")
		}
	})
}

// A parent whose rows time out again and again leaves ever longer pauses to the others,
// and none once it is alone.
func TestAParentThatTimesOutLeavesOthersTheirTime(t *testing.T) {
	t.Parallel()
	b := setupAdaptive(t, parentsAndChildren+`
INSERT INTO parents SELECT generate_series(11, 60);
INSERT INTO children SELECT 1000 + n, 11 + n % 50 FROM generate_series(1, 1000) AS n;
INSERT INTO children SELECT 5000 + n, 1 FROM generate_series(1, 10) AS n;
CREATE SEQUENCE timeouts;`+dbtest.OnStatement("DELETE", "children", // A timeout so short would end statements of the others, too, on a busy machine.
		"IF (SELECT count(*) FROM gone WHERE parent_id = 1) > 1 THEN PERFORM nextval('public.timeouts');"+timedOut+
			"END IF;"), deleteChildren, "parents")
	b.Exec("DELETE FROM parents")
	timeouts := int64(0)
	b.onProgress(func(stats *loosefk.Stats) bool { return stats.DeleteCount >= 1090 }, func() {
		timeouts = b.count(t, "(SELECT last_value FROM timeouts) AS t, generate_series(1, last_value)")
	})
	require.EqualValues(t, 60, b.run(t).Processed)
	require.LessOrEqual(t, timeouts, int64(20), "timeouts before the others were through")
	require.Zero(t, b.Pending(t))
}

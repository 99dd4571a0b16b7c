package loosefk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
)

// strangers are tombstones of a table that no definition knows, the last of them from a trigger that was installed on parents.
const strangers = `
INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value)
SELECT 'public.elsewhere', n FROM generate_series(1, $1::int) AS n`

func (b bundle) strange(others int) {
	b.Exec(strangers, others)
	b.Exec(`DELETE FROM parents WHERE id = 1;
		UPDATE loose_foreign_keys_deleted_records SET fully_qualified_table_name = 'public.elsewhere', tracked_as = 'public.parents',
			consume_after = clock_timestamp() WHERE fully_qualified_table_name = 'public.parents'`)
}

func TestATombstoneBehindManyOfAnUnknownNameIsFound(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.strange(20_001)
	require.EqualValues(t, 1, b.run(t).Processed)
	require.EqualValues(t, 20_001, b.Pending(t))
	require.Zero(t, b.count(t, "loose_foreign_keys_deleted_records WHERE xmax <> 0"), "the others were not even locked")
}

// A run looks at so many, and the next one at those behind them.
func TestRunsLookForTombstonesOfUnknownNamesInTurn(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.engine.Marks = &loosefk.Marks{}
	b.engine.AdoptByPages(2)
	b.strange(50)
	for run := range 2 {
		require.Zero(t, b.run(t).Processed, "run %d", run)
	}
	require.EqualValues(t, 1, b.run(t).Processed)
	b.Exec("INSERT INTO parents VALUES (1)")
	b.strange(0)
	b.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now() - interval '1 hour' WHERE tracked_as IS NOT NULL")
	require.EqualValues(t, 1, b.run(t).Processed, "the next one begins anew")
	require.EqualValues(t, 50, b.Pending(t))
}

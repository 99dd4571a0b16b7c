package riverjobs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/triggers"
)

// The trigger still records the column that earlier definitions named.
func TestWorkerDoesNotReadOneKeyAsAnother(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("ALTER TABLE parents ADD number bigint UNIQUE; UPDATE parents SET number = 4 - id")
	before := b.state()
	earlier := b.deps.Definitions
	defs, err := definitions.Parse(definitions.File{Name: "definitions.yml", Data: []byte(
		"children: [{table: parents, column: parent_id, parent_column: number, on_delete: async_delete}]")})
	require.NoError(t, err)
	b.db.Exec("DELETE FROM parents WHERE id = 1")

	b.deps.Definitions = defs
	b.worked(t, "main")
	require.Equal(t, before, b.state(), "1 is the number of a parent that lives")
	require.Equal(t, [][]string{{"children: the trigger on public.parents records another key: " +
		"name that key in the definitions (parent_column) until its tombstones are worked off, then run `sexton triggers install`; " +
		"where both keys have the same values, run `sexton triggers install --same-key` now"}},
		b.db.Rows("SELECT last_error FROM loose_foreign_keys_deleted_records"))

	b.deps.Definitions = earlier
	b.db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.worked(t, "main")
	require.Zero(t, b.db.Pending(t))
	require.Empty(t, b.db.Rows("SELECT FROM children WHERE parent_id = 1"))
}

// Neither waits for the other: the worker goes on by the new name at once, and the triggers can be renewed while tombstones wait.
func TestWorkerFollowsARenamedKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worked(t, "main")
	b.db.Exec("DELETE FROM parents WHERE id = 1; ALTER TABLE parents RENAME id TO key; DELETE FROM parents WHERE key = 2")
	b.worked(t, "main")
	require.Zero(t, b.db.Pending(t))
	require.Empty(t, b.db.Rows("SELECT FROM children WHERE parent_id IN (1, 2)"))

	b.db.Exec("DELETE FROM parents WHERE key = 3")
	b.db.TrackKeys(t, triggers.Parent{Schema: "public", Table: "parents", KeyColumns: []string{"key"}})
	b.worked(t, "main")
	require.Empty(t, b.db.Rows("SELECT FROM children"))
}

// A worker that goes on with earlier definitions after the triggers were installed for others looks again.
func TestWorkerNoticesThatTriggersRecordAnotherKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("ALTER TABLE parents ADD number bigint UNIQUE; UPDATE parents SET number = 4 - id")
	b.worked(t, "main")
	before := b.state()

	b.db.TrackKeys(t, triggers.Parent{Schema: "public", Table: "parents", KeyColumns: []string{"number"}})
	b.db.Exec("DELETE FROM parents WHERE id = 3")
	b.worked(t, "main")
	require.Equal(t, before, b.state(), "1 is the key of a parent that lives")
	require.EqualValues(t, 1, b.db.Pending(t))
}

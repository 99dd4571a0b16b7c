package undo_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
)

// countPoints counts how many times a restore reaches a point. Each transaction reaches
// each point once.
func (b *bundle) countPoints(name string) *int {
	count := new(int)
	b.engine.Reached = func(point string) error {
		if point == name {
			*count++
		}
		return nil
	}
	return count
}

// Sixty levels, which the worker deleted in sixty batches, are restored in fewer than ten
// transactions.
func TestManyLevelsAreRestoredInFewTransactions(t *testing.T) {
	t.Parallel()
	const levels = 60
	b := setup(t, "CREATE TABLE nodes (id bigint PRIMARY KEY, above bigint); CREATE INDEX ON nodes (above)",
		"nodes: [{table: nodes, column: above, on_delete: async_delete}]", "nodes")
	b.Exec(fmt.Sprintf("INSERT INTO nodes SELECT i, nullif(i - 1, 0) FROM generate_series(1, %d) AS i", levels))
	before := b.all("nodes")
	b.delete(t, "nodes WHERE id = 1")
	require.Empty(t, b.Rows("SELECT FROM nodes"))
	unit := b.last(t).ID
	transactions := b.countPoints("marked")
	report := b.restore(t, unit)
	require.Empty(t, report.Left)
	require.EqualValues(t, levels, report.Restored)
	require.Equal(t, before, b.all("nodes"))
	require.Less(t, *transactions, 10)
	require.Zero(t, b.restore(t, unit).Restored)
}

// If the first parent of a long chain of rows is missing, no row of the chain is
// restored. The report names each of them.
func TestChainWithoutFirstParentIsNotRestored(t *testing.T) {
	t.Parallel()
	const rows = 1500
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("INSERT INTO folders VALUES (1); INSERT INTO files VALUES (0, NULL, NULL)")
	b.Exec(fmt.Sprintf("INSERT INTO files SELECT i, 1, i - 1 FROM generate_series(1, %d) AS i; INSERT INTO files VALUES (5000, 1, NULL)", rows))
	b.Exec("DELETE FROM folders; ALTER TABLE files DROP CONSTRAINT files_above_fkey")
	b.drain(t, 100_000) // With a fixed limit, the chunks do not depend on the load of the machine.
	unit := b.last(t).ID
	b.Exec("DELETE FROM files; ALTER TABLE files ADD FOREIGN KEY (above) REFERENCES files")
	transactions := b.countPoints("begun")
	report := b.restore(t, unit)
	require.EqualValues(t, 2, report.Restored)
	require.EqualValues(t, rows, report.LeftRows)
	require.Equal(t, "foreign key files_above_fkey has no parent row in public.files", report.Left[0].Reason)
	require.Equal(t, [][]string{{"5000"}}, b.Rows("SELECT id::text FROM files"))
	require.Less(t, *transactions, 20)
}

// A restore deletes the tombstone of a restored parent even if the table was replaced by
// another table of the same name.
func TestTombstonesOfReplacedTableAreDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders")
	b.Exec("INSERT INTO folders VALUES (1), (2); INSERT INTO files VALUES (1, 1), (2, 2)")
	b.Exec("DELETE FROM folders WHERE id = 1")
	b.Exec("CREATE TABLE newer (LIKE folders INCLUDING ALL); ALTER TABLE folders RENAME TO folders_old; ALTER TABLE newer RENAME TO folders")
	b.engine.Parents = map[string][]*loosefk.Parent{"main": b.parents(t)}
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	require.Equal(t, [][]string{{"1"}}, b.Rows("SELECT id::text FROM folders"))
	require.Empty(t, b.Rows("SELECT FROM loose_foreign_keys_deleted_records"))
}

// A restore while the worker is deleting children restores the deleted rows and stops the
// worker from deleting more.
func TestRestoreWhileWorkerDeletes(t *testing.T) {
	t.Parallel()
	b := setup(t, tree, treeDefinitions, "projects", "issues")
	before := b.all(treeTables...)
	b.Exec("DELETE FROM projects WHERE id < 4")
	b.drain(t, 15)
	require.True(t, b.last(t).Waiting)
	b.Exec("UPDATE sexton.leases SET holder = 'busy', expires_at = now() + interval '1 hour'")
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	require.Equal(t, before, b.all(treeTables...))
	require.Empty(t, b.Rows("SELECT FROM loose_foreign_keys_deleted_records WHERE status = 1"))
	require.False(t, b.last(t).Waiting)
}

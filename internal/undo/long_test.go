//go:build long

package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func init() { seeds = 40 }

// If the values of a batch's rows exceed the size limit of one set, the batch saves the
// rows in several sets.
func TestBatchKeepsRowsInSeveralSets(t *testing.T) {
	t.Parallel()
	b := setup(t, folders, foldersDefinitions, "folders", "files")
	b.Exec("ALTER TABLE files ADD large text; INSERT INTO folders VALUES (1)")
	b.Exec("INSERT INTO files SELECT i, 1, NULL, repeat('x', 1000000) FROM generate_series(1, 70) AS i")
	const digests = "SELECT id::text, md5(f::text) FROM files AS f ORDER BY id"
	before := b.Rows(digests)
	b.Exec("DELETE FROM folders")
	b.drain(t, 1000)
	require.Equal(t, [][]string{{"1", "2", "70"}},
		b.Rows("SELECT count(DISTINCT id)::text, count(*)::text, sum(rows)::text FROM sexton.undo WHERE origins IS NOT NULL"))
	require.Empty(t, b.restore(t, b.last(t).ID).Left)
	require.Equal(t, before, b.Rows(digests))
}

package undo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A DELETE of more rows than a set takes has several sets of one number. A parent that stays deleted keeps its tombstone, whichever set is restored.
func TestAParentThatStaysDeletedKeepsItsTombstone(t *testing.T) {
	t.Parallel()
	b := library(t)
	b.Exec("INSERT INTO authors SELECT i FROM generate_series(3, 6000) AS i")
	b.Exec("INSERT INTO books SELECT i, 2, NULL, 'many' FROM generate_series(10, 12) AS i")
	b.Exec("DELETE FROM authors")
	require.Equal(t, [][]string{{"2", "1"}}, b.Rows("SELECT count(*)::text, count(DISTINCT id)::text FROM sexton.undo"))
	b.Exec("INSERT INTO authors VALUES (2)")
	report := b.restore(t, b.last(t).ID)
	require.EqualValues(t, 5999, report.Restored)
	require.Equal(t, [][]string{{"2"}}, b.Rows("SELECT primary_key_value::text FROM loose_foreign_keys_deleted_records WHERE status = 1"))
}

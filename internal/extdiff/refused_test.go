package extdiff_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
)

func TestScheduleLeavesRefusedDiffsUntilTheyChange(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	for id := range int64(4) {
		b.add(id+1, file{path: "a", text: new("a")})
	}
	b.Exec("UPDATE merge_request_diffs SET files_count = 2 WHERE id <= 3")
	for id := range int64(3) {
		require.Equal(t, extdiff.FilesMissing, b.move(t, id+1).Skipped)
	}
	require.True(t, b.isDue(t, extdiff.Always))
	stats, ids := b.schedule(t, extdiff.Always, 1)
	require.Equal(t, []int64{4}, ids, "they cost nothing of the limit")
	require.EqualValues(t, 4, stats.Looked)
	b.move(t, 4)
	b.anotherRound()
	require.False(t, b.isDue(t, extdiff.Always))
	b.Exec("UPDATE sexton.external_diff_cursors SET after_id = 0")
	require.False(t, b.isDue(t, extdiff.Always), "nobody is woken for them")
	skipped, err := extdiff.ReadSkipped(t.Context(), b.Pool(), dbtest.Names())
	require.NoError(t, err)
	require.Equal(t, map[extdiff.Skip]int64{extdiff.FilesMissing: 3}, skipped)

	b.Exec("UPDATE merge_request_diffs SET files_count = 1 WHERE id = 1")
	b.Exec(`
		INSERT INTO merge_request_diff_files (
			merge_request_diff_id, relative_order, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, diff
		) VALUES (2, 1, false, false, false, false, '0', '0', 'b', 'b')`)
	require.True(t, b.isDue(t, extdiff.Always))
	_, ids = b.schedule(t, extdiff.Always, 10)
	require.Equal(t, []int64{1, 2}, ids)
	require.Empty(t, b.move(t, 1).Skipped)
	require.Empty(t, b.move(t, 2).Skipped)
	b.Exec("UPDATE sexton.external_diffs SET skip_state = NULL WHERE diff_id = 3") // As a version without it has left it.
	b.anotherRound()
	_, ids = b.schedule(t, extdiff.Always, 10)
	require.Equal(t, []int64{3}, ids)
	require.Equal(t, extdiff.FilesMissing, b.move(t, 3).Skipped, "a mover that is asked looks again")
}

package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// requests are ten merge requests, each with a diff of one file; those of the last two are empty.
const requests = people + `
INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) SELECT n, 1, 'm', 's', 't' FROM generate_series(1, 10) AS n;
INSERT INTO merge_request_diffs (id, merge_request_id, project_id, state, files_count)
SELECT n, n, 1, 'collected', CASE WHEN n < 9 THEN 1 ELSE 0 END FROM generate_series(1, 10) AS n;
ALTER TABLE merge_request_diffs ALTER COLUMN id RESTART WITH 11;
INSERT INTO merge_request_diff_files (
	merge_request_diff_id, relative_order, project_id, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, diff
)
SELECT n, 0, 1, false, false, false, false, '1', '1', 'a', 'ä' || n FROM generate_series(1, 8) AS n;
`

// moveDiffs does by hand what the job does, to all diffs that are in the database.
func moveDiffs(t *testing.T, db *dbtest.DB, folder string) {
	t.Helper()
	for _, row := range db.Rows(`
		SELECT diff.merge_request_id, diff.id, string_agg(file.diff, '' ORDER BY relative_order)
		FROM merge_request_diffs AS diff JOIN merge_request_diff_files AS file ON merge_request_diff_id = diff.id
		WHERE stored_externally IS NOT TRUE GROUP BY diff.id`) {
		at := filepath.Join(folder, "merge_request_diffs", "mr-"+row[0])
		require.NoError(t, os.MkdirAll(at, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(at, "diff-"+row[1]), []byte(row[2]), 0o600))
	}
	db.Exec(`
		UPDATE merge_request_diff_files AS file
		SET diff = NULL, external_diff_size = layout.size, external_diff_offset = layout.at, new_path = nullif(file.new_path, file.old_path)
		FROM (
			SELECT merge_request_diff_id, relative_order, octet_length(diff) AS size,
				sum(octet_length(diff)) OVER (PARTITION BY merge_request_diff_id ORDER BY relative_order) - octet_length(diff) AS at
			FROM merge_request_diff_files
		) AS layout
		WHERE file.diff IS NOT NULL AND layout.merge_request_diff_id = file.merge_request_diff_id AND layout.relative_order = file.relative_order;
		UPDATE merge_request_diffs SET stored_externally = true, external_diff = 'diff-' || id WHERE files_count > 0`)
}

func TestDiffsAreAddedAndReadBack(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	db.Exec(requests)
	on := testStage(db)
	on.objects = t.TempDir()
	scene := &diffs{stage: on}
	scene.share = 50
	times := newStopwatch(db.Pool(), dbtest.Names(), scene.Script())
	a := pgtest.Must(newApplication(t.Context(), scene, times, Pace{Length: time.Millisecond}))(t)
	require.EqualValues(t, 5, a.planned)
	scene.first, scene.last = 7, 8
	require.NoError(t, a.run(t.Context()))
	require.EqualValues(t, 5, a.acted.Load())
	require.Equal(t, [][]string{{"5", "15"}}, db.Rows(`
		SELECT count(DISTINCT diff.id), count(*) FROM merge_request_diffs AS diff JOIN merge_request_diff_files ON merge_request_diff_id = id WHERE id > 10`))
	require.NoError(t, times.look(t.Context()))
	require.Equal(t, 5, times.pending(), "all wait")

	check := func(why string, want ...int64) {
		t.Helper()
		found := pgtest.Must(scene.Check(t.Context()))(t)
		var counts []int64
		for _, f := range found {
			counts = append(counts, f.Count)
		}
		require.Equal(t, want, counts, "%s: %v", why, found)
		for _, at := range []int{2, 4, 5, 7} {
			require.True(t, found[at].Fault, "%v", found[at])
		}
	}
	check("all are in the database", 0, 0, 0, 0, 0, 13, 0, 0)
	moveDiffs(t, db, on.objects)
	require.NoError(t, times.look(t.Context()))
	require.Zero(t, times.pending())
	check("all is well", 13, 23, 0, 0, 0, 0, 0, 0)

	object := func(request, diff int) string {
		return filepath.Join(on.objects, "merge_request_diffs", fmt.Sprintf("mr-%d", request), fmt.Sprintf("diff-%d", diff))
	}
	require.NoError(t, os.WriteFile(object(1, 1), []byte("Ä1"), 0o600))
	check("another content", 13, 23, 1, 0, 0, 0, 0, 0)
	require.NoError(t, os.Truncate(object(2, 2), 1))
	check("too short", 13, 23, 2, 0, 0, 0, 0, 0)
	require.NoError(t, os.Remove(object(3, 3)))
	check("no object", 13, 23, 3, 0, 0, 0, 0, 0)
	db.Exec("DELETE FROM merge_request_diff_files WHERE merge_request_diff_id = 4")
	check("no row of a file", 13, 23, 4, 0, 0, 0, 0, 0)
	require.NoError(t, os.WriteFile(object(3, 99), nil, 0o600))
	check("an object of nobody", 13, 23, 4, 0, 0, 0, 0, 1)

	waiting := func() [][]string {
		t.Helper()
		return db.Rows("SELECT name, number FROM (" + dbtest.Names().Render(scene.Script().Waiting) + ") AS waiting (name, number, since) ORDER BY number")
	}
	db.Exec("DELETE FROM merge_request_diffs WHERE id = 6; DELETE FROM merge_requests WHERE id = 5")
	check("one has gone with its merge request, one without", 11, 21, 4, 1, 1, 0, 0, 3)
	require.Equal(t, [][]string{{"objects", "5"}, {"objects", "6"}}, waiting())
	db.Exec("DELETE FROM sexton.external_diff_removals; UPDATE merge_request_diffs SET stored_externally = false WHERE id = 3")
	check("one has come back", 10, 20, 3, 1, 1, 1, 0, 3)
	require.Equal(t, [][]string{{"diffs", "3"}}, waiting())
	db.Exec("INSERT INTO sexton.external_diffs (diff_id, skip_reason) VALUES (3, 'too_large')")
	check("one cannot be moved", 10, 20, 3, 1, 1, 0, 1, 3)
	require.Empty(t, waiting())
}

func TestDiffsOfADemoWithoutMergeRequests(t *testing.T) {
	t.Parallel()
	scene := &diffs{stage: testStage(dbtest.Reference(t))}
	require.Zero(t, pgtest.Must(scene.Plan(t.Context()))(t))
	acted, more, err := scene.Act(t.Context(), 1)
	require.NoError(t, err)
	require.False(t, more)
	require.Empty(t, acted)
}

func TestDiffsReportAFolderThatIsMissing(t *testing.T) {
	t.Parallel()
	on := testStage(dbtest.Reference(t))
	on.objects = filepath.Join(t.TempDir(), "missing")
	scene := &diffs{stage: on}
	pgtest.Must(scene.Plan(t.Context()))(t)
	_, err := scene.Check(t.Context())
	require.ErrorContains(t, err, "look for dangling objects: ")
}

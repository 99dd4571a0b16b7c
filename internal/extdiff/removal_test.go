package extdiff_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

func TestObjectsOfDeletedDiffsAreRemoved(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		for id := int64(1); id <= 3; id++ {
			b.add(id, file{path: "a", text: new(onePart)})
		}
		b.move(t, 1)
		b.move(t, 2)
		b.Exec("BEGIN; DELETE FROM merge_request_diffs WHERE id = 1; ROLLBACK")
		require.False(t, b.removalDue(t))
		b.Exec("DELETE FROM merge_request_diffs WHERE id IN (1, 3)")
		require.True(t, b.isDue(t, extdiff.Always))
		require.Equal(t, [][]string{{"1", key1}}, b.Rows("SELECT diff_id, key FROM sexton.external_diff_removals"))
		// Deleting the merge request also deletes diff 2 by the foreign key.
		b.Exec("DELETE FROM merge_requests")
		removed := pgtest.Must(b.engine.Remove(t.Context(), 10))(t)
		require.Equal(t, extdiff.Removed{Objects: 2}, removed)
		require.Empty(t, b.keys(t))
		require.Empty(t,
			b.Rows("SELECT FROM sexton.external_diff_removals UNION ALL SELECT FROM sexton.external_diffs WHERE busy_until IS NOT NULL"))
		require.False(t, b.isDue(t, extdiff.Always))
		removed = pgtest.Must(b.engine.Remove(t.Context(), 10))(t)
		require.Zero(t, removed)
	})
}

func (b *bundle) removalDue(t *testing.T) bool {
	return pgtest.Scalar[bool](t, b.Database, dbtest.Names().Render("SELECT "+extdiff.RemovalDueSQL))
}

func TestRemovalKeepsUsedObject(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.addMoved(t, 1, file{path: "a", text: new(onePart)})
	b.Exec("INSERT INTO sexton.external_diff_removals (diff_id, key, store) VALUES (1, $1, 1)", key1)
	require.Equal(t, extdiff.Removed{Spared: 1}, pgtest.Must(b.engine.Remove(t.Context(), 10))(t))
	require.Equal(t, onePart, b.object(t, key1))
	require.Empty(t, b.findings(t, 0))
}

// An application may give a diff the object of another diff. The object is kept if only
// one of the diffs is deleted.
func TestRemovalKeepsObjectOfAnotherDiff(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new(onePart)})
	b.add(2, file{path: "a", text: new(onePart)})
	b.move(t, 1)
	b.move(t, 2)
	b.Exec("UPDATE merge_request_diffs SET external_diff = 'diff-1' WHERE id = 2")
	b.Exec("DELETE FROM merge_request_diffs WHERE id = 2")
	require.Equal(t, extdiff.Removed{Spared: 1}, pgtest.Must(b.engine.Remove(t.Context(), 10))(t))
	require.Equal(t, map[string]string{"a": onePart}, b.texts(t, 1))
}

func TestRemovalIsDeferredDuringOutage(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	b := onStore(t, gateway.URL("diffs"))
	b.add(1, file{path: "a", text: new(onePart)})
	b.add(2, file{path: "a", text: new(onePart)})
	b.move(t, 1)
	b.move(t, 2)
	b.Exec("DELETE FROM merge_request_diffs")
	gateway.Proxy.Fail(func(string) s3test.Fault { return s3test.Busy })
	removed, err := b.engine.Remove(t.Context(), 10)
	var outage *blobstore.OutageError
	require.ErrorAs(t, err, &outage)
	require.Equal(t, extdiff.Removed{Failed: 1}, removed, "the run ends after the first outage")
	require.Equal(t, [][]string{{"0", "NULL", "f"}, {"1", "t", "t"}}, b.Rows(`
		SELECT attempts, last_error LIKE '%not available: %503%', not_before > now() FROM sexton.external_diff_removals ORDER BY attempts`))
	gateway.Proxy.Fail(nil)
	b.Exec("UPDATE sexton.external_diff_removals SET not_before = now(); UPDATE sexton.external_diffs SET busy_until = NULL")
	removed = pgtest.Must(b.engine.Remove(t.Context(), 10))(t)
	require.Equal(t, extdiff.Removed{Objects: 2}, removed)
}

func TestRemovalLeavesOtherStores(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.Exec("INSERT INTO sexton.external_diff_removals (diff_id, key, store) VALUES (1, $1, 2)", key1)
	require.Equal(t, extdiff.Removed{Failed: 1}, pgtest.Must(b.engine.Remove(t.Context(), 10))(t))
	require.Contains(t, b.Rows("SELECT last_error FROM sexton.external_diff_removals")[0][0],
		"is in object storage, but external_diffs.bucket (file://")
}

// A folder with the name of an object cannot be deleted. Its removal is deferred, and
// other objects are deleted.
func TestFailedRemovalDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.put(t, key1+"/file", "merge_request_diffs/mr-7/diff-2")
	b.Exec(`INSERT INTO sexton.external_diff_removals (diff_id, key, store) VALUES (1, $1, 1), (2, 'merge_request_diffs/mr-7/diff-2', 1)`, key1)
	require.Equal(t, extdiff.Removed{Objects: 1, Failed: 1}, pgtest.Must(b.engine.Remove(t.Context(), 10))(t))
	require.Equal(t, [][]string{{"1", "t"}},
		b.Rows("SELECT diff_id, last_error LIKE '%delete merge_request_diffs/mr-7/diff-1 in%' FROM sexton.external_diff_removals"))
}

// If a deleted row has an empty external_diff, the object with the diff's default key is
// deleted. If its external_diff is invalid, no object is deleted.
func TestRemovalOfDiffsWithoutAnObject(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.addMoved(t, 1, file{path: "a", text: new(onePart)})
	b.addMoved(t, 2, file{path: "a", text: new(onePart)})
	b.Exec("UPDATE merge_request_diffs SET external_diff = CASE id WHEN 1 THEN '' ELSE 'none/' END; DELETE FROM merge_request_diffs")
	require.Equal(t, [][]string{{"1", key1}, {"2", "merge_request_diffs/mr-7/none/"}},
		b.Rows("SELECT diff_id, key FROM sexton.external_diff_removals ORDER BY diff_id"))
	require.Equal(t, extdiff.Removed{Objects: 1, Spared: 1}, pgtest.Must(b.engine.Remove(t.Context(), 10))(t))
	require.Empty(t, b.Rows("SELECT FROM sexton.external_diff_removals UNION ALL SELECT FROM sexton.external_diffs"))
}

func TestVerifyReportsProblems(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	for id := int64(1); id <= 8; id++ {
		b.add(id, file{path: "a", text: new(onePart)}, file{path: "b", text: new(onePart)})
		b.move(t, id)
	}
	require.Empty(t, b.findings(t, 0))
	b.Exec("UPDATE merge_request_diff_files SET external_diff_offset = 3 WHERE merge_request_diff_id = 2 AND relative_order = 1")
	b.Exec("UPDATE merge_request_diff_files SET external_diff_size = NULL WHERE merge_request_diff_id = 3 AND relative_order = 1")
	require.NoError(t, b.engine.Store.Delete(t.Context(), "merge_request_diffs/mr-7/diff-4"))
	b.overwrite(t, "merge_request_diffs/mr-7/diff-5", strings.ToUpper(onePart+onePart))
	b.overwrite(t, "merge_request_diffs/mr-7/diff-6", onePart)
	b.Exec("DELETE FROM merge_request_diffs WHERE id = 7")
	b.Exec("UPDATE merge_request_diffs SET external_diff = NULL WHERE id = 8")
	b.overwrite(t, "merge_request_diffs/readme", "what is this")
	var problems [][2]string
	for _, f := range b.findings(t, 0) {
		require.Equal(t, f.Key == "merge_request_diffs/readme" || f.DiffID == 7 || f.Key != "" && f.DiffID == 8,
			f.Dangling)
		problems = append(problems, [2]string{strings.TrimPrefix(f.Key, "merge_request_diffs/"), f.Problem})
	}
	require.Len(t, problems, 9)
	require.Equal(t, [2]string{"mr-7/diff-2", "file 1 is at bytes 3 to 25, but the previous one ends at 22"},
		problems[0])
	require.Equal(t, [2]string{"mr-7/diff-3", "file 1 has no offset or no size"}, problems[1])
	require.Equal(t, [2]string{"mr-7/diff-4", "the object is missing"}, problems[2])
	require.Contains(t, problems[3][1], "the object has the checksum ")
	require.Equal(t, [2]string{"mr-7/diff-6", "the object has 22 bytes, its files have 44"}, problems[4])
	require.Equal(t, [2]string{"", "it is stored externally, but its external_diff is empty"}, problems[5])
	require.Equal(t, [2]string{"mr-7/diff-7", "no diff refers to this object"}, problems[6])
	require.Equal(t, [2]string{"mr-7/diff-8", "no diff refers to this object"}, problems[7])
	require.Equal(t, [2]string{"readme", "the name of this object does not match the pattern of diffs"}, problems[8])
	require.Len(t, b.findings(t, time.Hour), 6, "young objects may belong to a diff that is being moved")
	err := b.reader().Read(t.Context(), 8, func(*extdiff.Reading) error { return os.ErrInvalid })
	require.ErrorContains(t, err, "diff 8 is damaged: it is stored externally, but its external_diff is empty")

	// A row refers to key1, so its object must be kept.
	for key, want := range map[string]bool{"merge_request_diffs/mr-7/diff-7": true, key1: false} {
		require.Equal(t, want, pgtest.Must(b.engine.RemoveUnnamed(t.Context(), extdiff.Finding{Key: key}))(t), key)
	}
	_, err = b.engine.RemoveUnnamed(t.Context(), extdiff.Finding{Key: "merge_request_diffs/readme"})
	require.ErrorContains(t, err, "does not match the pattern of diffs")
	require.Equal(t, onePart+onePart, b.object(t, key1))
	require.NotContains(t, b.keys(t), "merge_request_diffs/mr-7/diff-7")
}

// Diffs that another program has moved have no recorded checksum. Verify and Restore
// accept them.
func TestVerifyAndRestoreAcceptDiffsWithoutChecksum(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.addMoved(t, 1, file{path: "a", text: new(onePart)})
	b.Exec("DELETE FROM sexton.external_diffs")
	require.Empty(t, b.findings(t, 0))
	require.EqualValues(t, 1, pgtest.Must(b.engine.Restore(t.Context(), 1))(t).Files)
	require.Equal(t, map[string]string{"a": onePart}, b.texts(t, 1))
}

func TestDiffInAnotherStoreIsReported(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.addMoved(t, 1, file{path: "a", text: new(onePart)})
	b.Exec("UPDATE merge_request_diffs SET external_diff_store = 2")
	_, err := b.engine.Restore(t.Context(), 1)
	require.ErrorContains(t, err, "is in object storage, but external_diffs.bucket")
	err = b.reader().Read(t.Context(), 1, func(*extdiff.Reading) error { return os.ErrInvalid })
	require.ErrorContains(t, err, "is in object storage, but external_diffs.bucket")
	require.Len(t, b.findings(t, time.Hour), 1)
}

func TestRestoreWritesTextsAndRemovesObject(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		// File a has several pieces, and file c has no text.
		b.add(1, file{path: "a", text: new(strings.Repeat(onePart, 200_000))},
			file{path: "b", text: encoded("\xff"), binary: true}, file{path: "c", text: new("")})
		before, rows := b.texts(t, 1), b.files(1)
		b.move(t, 1)
		restored := pgtest.Must(b.engine.Restore(t.Context(), 1))(t)
		require.Equal(t, extdiff.Restored{DiffID: 1, Files: 3, Bytes: int64(len(onePart)*200_000 + 4)}, restored)
		for _, row := range rows {
			row[2] = "NULL" // A move sets new_path to NULL if it is equal to old_path.
		}
		require.Equal(t, rows, b.files(1))
		require.Equal(t, before, b.texts(t, 1))
		require.Equal(t, [][]string{{"f", "NULL", b.stored(1)[0][2]}}, b.stored(1))
		require.Empty(t, b.keys(t))
		require.Empty(t, b.Rows("SELECT FROM sexton.external_diff_removals"))

		require.Equal(t, extdiff.Kept, b.move(t, 1).Skipped, "a restored diff is not moved again")
		_, ids := b.schedule(t, extdiff.Always, 10)
		require.Empty(t, ids)
		restored = pgtest.Must(b.engine.Restore(t.Context(), 1))(t)
		require.Equal(t, extdiff.Restored{DiffID: 1}, restored, "a second restore changes nothing")

		released := pgtest.Must(b.engine.Release(t.Context(), 1))(t)
		require.True(t, released)
		released = pgtest.Must(b.engine.Release(t.Context(), 1))(t)
		require.False(t, released, "the diff is no longer kept")
		_, err := b.engine.Release(t.Context(), 99)
		require.ErrorIs(t, err, extdiff.ErrNoDiff)
		require.Empty(t, b.move(t, 1).Skipped)
		require.Equal(t, before, b.texts(t, 1))
		require.Empty(t, b.findings(t, 0))
	})
}

func TestRestoreOfDamagedObjectChangesNothing(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new(onePart)}, file{path: "b", text: new(onePart)})
	b.move(t, 1)
	stored, files := b.stored(1), b.files(1)
	good := b.object(t, key1)
	for content, message := range map[string]string{
		good[:30]:                          "restore diff 1: diff 1 is damaged: the object has 30 bytes, its files have ",
		good + "x":                         "1 bytes follow the last file",
		strings.ReplaceAll(good, "o", "u"): "its checksum differs from the recorded one",
	} {
		b.overwrite(t, key1, content)
		_, err := b.engine.Restore(t.Context(), 1)
		require.ErrorContains(t, err, message)
		require.Equal(t, stored, b.stored(1))
		require.Equal(t, files, b.files(1))
		require.Equal(t, content, b.object(t, key1), "the object is kept")
		require.Len(t, b.findings(t, 0), 1)
	}
	require.NoError(t, b.engine.Store.Delete(t.Context(), key1))
	_, err := b.engine.Restore(t.Context(), 1)
	require.ErrorContains(t, err, "no such object")
	_, err = b.engine.Restore(t.Context(), 99)
	require.ErrorIs(t, err, extdiff.ErrNoDiff)
	require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE busy_until IS NOT NULL OR diff_id = 99"))
}

// If the object cannot be deleted, the diff is restored anyway. No worker can move the
// diff again as long as a late deletion could remove its new object.
func TestRestoreKeepsObjectDuringOutage(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	b := onStore(t, gateway.URL("diffs"))
	b.addMoved(t, 1, file{path: "a", text: new(onePart)})
	gateway.Proxy.Fail(func(request string) s3test.Fault {
		if strings.HasPrefix(request, "DELETE") {
			return s3test.Reset
		}
		return s3test.Pass
	})
	require.Equal(t, key1, pgtest.Must(b.engine.Restore(t.Context(), 1))(t).Kept)
	require.Equal(t, map[string]string{"a": onePart}, b.texts(t, 1))
	pgtest.Must(b.engine.Release(t.Context(), 1))(t)
	_, err := b.engine.Move(t.Context(), 1)
	var busy *extdiff.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, "a deletion that may still arrive", busy.Holder)
	require.WithinDuration(t, time.Now().Add(15*time.Minute), busy.Until, time.Minute)

	gateway.Proxy.Fail(nil)
	b.Exec("UPDATE sexton.external_diffs SET busy_until = now() - interval '1 second'")
	require.Equal(t, extdiff.Removed{Objects: 1}, pgtest.Must(b.engine.Remove(t.Context(), 10))(t))
	require.Empty(t, b.keys(t))
}

// The limit of 1 ns becomes a statement timeout of 0 ms, which means no timeout. If the
// limit applied to the whole restore, the restore would fail.
func TestRestoreHasNoTotalTimeLimit(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new(strings.Repeat(onePart, 500_000))})
	before := b.texts(t, 1)
	b.move(t, 1)
	b.engine.Limits.Transfer = time.Nanosecond
	pgtest.Must(b.engine.Restore(t.Context(), 1))(t)
	require.Equal(t, before, b.texts(t, 1))
}

func TestScheduleIgnoresSkippedDiffsUntilTheyChange(t *testing.T) {
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
	require.Equal(t, []int64{4}, ids, "skipped diffs do not count toward the limit")
	require.EqualValues(t, 4, stats.Looked)
	b.move(t, 4)
	b.beginNewRound()
	require.False(t, b.isDue(t, extdiff.Always))
	b.Exec("UPDATE sexton.external_diff_cursors SET after_id = 0")
	require.False(t, b.isDue(t, extdiff.Always), "skipped diffs are not due")
	skipped := pgtest.Must(extdiff.ReadSkipped(t.Context(), b.Pool(), dbtest.Names()))(t)
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
	// Older versions of Sexton did not set skip_state.
	b.Exec("UPDATE sexton.external_diffs SET skip_state = NULL WHERE diff_id = 3")
	b.beginNewRound()
	_, ids = b.schedule(t, extdiff.Always, 10)
	require.Equal(t, []int64{3}, ids)
	require.Equal(t, extdiff.FilesMissing, b.move(t, 3).Skipped, "Move checks the diff again")
}

package extdiff_test

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
)

const key1 = "merge_request_diffs/mr-7/diff-1"

func TestMoveWritesTextsInTreeOrder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		b.add(1,
			file{path: "b.txt", text: new("b\n")}, file{path: "a/z.txt", text: new("äöü\n")},
			file{path: "a/b/c.txt", text: nil},
			file{path: "a.txt", text: new("a\n")}, file{path: "a/B.txt", text: encoded("\x00\xff"), binary: true},
			file{path: "a-b/x", text: new("")})
		b.Exec("UPDATE merge_request_diff_files SET old_path = 'was' WHERE old_path = 'a.txt'")
		before := b.texts(t, 1)
		require.Equal(t, "\x00\xff", before["a/B.txt"])

		require.Equal(t, extdiff.Moved{DiffID: 1, Key: key1, Bytes: 15, Files: 6}, b.move(t, 1))
		require.Equal(t, "AP8=äöü\na\nb\n", b.object(t, key1))
		require.Equal(t, [][]string{
			{"0", "a/b/c.txt", "NULL", "f", "0", "0", "NULL"},
			{"1", "a/B.txt", "NULL", "t", "0", "4", "NULL"},
			{"2", "a/z.txt", "NULL", "f", "4", "7", "NULL"},
			{"3", "a-b/x", "NULL", "f", "11", "0", "NULL"},
			{"4", "was", "a.txt", "f", "11", "2", "NULL"},
			{"5", "b.txt", "NULL", "f", "13", "2", "NULL"},
		}, b.files(1))
		store := "1"
		if strings.HasPrefix(b.address, "s3") {
			store = "2"
		}
		require.Equal(t, [][]string{{"t", "diff-1", store}}, b.stored(1))
		require.Equal(t, [][]string{{"6", "t"}}, b.Rows("SELECT files_count, sorted FROM merge_request_diffs"))
		require.Equal(t, [][]string{{"1", "15", "NULL", "NULL", "f"}},
			b.Rows("SELECT diff_id, size, busy_until, skip_reason, kept FROM sexton.external_diffs WHERE octet_length(sha256) = 32"))
		require.Equal(t, before, b.texts(t, 1))
		require.Empty(t, b.findings(t, 0))
		require.Equal(t, [][]string{{"4", "a.txt", store, key1, "11", "2", "f"}},
			b.Rows("SELECT * FROM sexton.external_diff_layout(1) WHERE path = 'a.txt'"))

		require.Equal(t, extdiff.External, b.move(t, 1).Skipped, "a second move changes nothing")
		require.Equal(t, before, b.texts(t, 1))
	})
}

func TestInvalidBase64IsReadUnchanged(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	texts := map[string]string{"aGVsbG8=": "hello", "": ""}
	for _, none := range []string{
		"@@ -1 +1 @@", "aGVsbG8", "aGVsbG9=", "aGVs\nbG8=", "aGVsbG8=\n", "aGVsbG8=\r\n",
		"aGVsbG8=aGVsbG8=",
	} {
		texts[none] = none
	}
	var files []file
	want := map[string]string{}
	for stored, read := range texts {
		path := encoded(stored)
		files, want[*path] = append(files, file{path: *path, text: new(stored), binary: true}), read
	}
	b.add(1, files...)
	require.Equal(t, want, b.texts(t, 1))
	b.move(t, 1)
	require.Equal(t, want, b.texts(t, 1))
}

func TestMoveSkipsWithAReason(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("a")})
	b.add(2, file{path: "a", text: new("a")})
	b.Exec("UPDATE merge_request_diffs SET files_count = 3 WHERE id = 2")
	b.add(3, file{path: "a"})
	b.Exec("UPDATE merge_request_diff_files SET external_diff_size = 5 WHERE merge_request_diff_id = 3")
	b.add(4)
	b.Exec("UPDATE merge_request_diffs SET files_count = NULL WHERE id = 4")
	b.add(5)
	b.Exec("UPDATE merge_request_diffs SET files_count = 32767 WHERE id = 5")
	b.move(t, 1)
	for id, reason := range map[int64]extdiff.Skip{
		1: extdiff.External, 2: extdiff.FilesMissing, 3: extdiff.Inconsistent, 4: extdiff.NotDue,
		5: extdiff.FilesMissing, 99: extdiff.Gone,
	} {
		require.Equal(t, reason, b.move(t, id).Skipped, "diff %d", id)
	}
	require.Equal(t, [][]string{{"1", "NULL"}, {"2", "files_missing"}, {"3", "inconsistent"}, {"5", "files_missing"}},
		b.Rows("SELECT diff_id, skip_reason FROM sexton.external_diffs WHERE busy_until IS NULL ORDER BY diff_id"))
	require.Equal(t, []string{key1}, b.keys(t))
	require.Equal(t, extdiff.Backlog{
		Pending: 3, Bytes: 1, Skipped: map[extdiff.Skip]int64{extdiff.FilesMissing: 2, extdiff.Inconsistent: 1},
	}, pgtest.Must(extdiff.ReadBacklog(t.Context(), b.Pool(), dbtest.Names()))(t))

	b.Exec("UPDATE merge_request_diffs SET files_count = 1 WHERE id = 2")
	require.Empty(t, b.move(t, 2).Skipped)
	require.Equal(t, [][]string{{"NULL"}}, b.Rows("SELECT skip_reason FROM sexton.external_diffs WHERE diff_id = 2"),
		"the reason is removed when the diff is moved")
}

// The columns for offset and size have four bytes. The test replaces octet_length by a
// function that returns 1 GiB for each text, because two gigabytes of texts would be too
// large for a test.
func TestMoveSkipsTooLargeDiff(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new(onePart)}, file{path: "b", text: new(onePart)})
	b.Exec("ALTER TABLE merge_request_diff_files ALTER diff TYPE varchar")
	b.Exec(`CREATE FUNCTION pg_catalog.octet_length(varchar) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT 1073741824'`)
	require.Equal(t, extdiff.TooLarge, b.move(t, 1).Skipped)
	require.Equal(t, [][]string{{"too_large"}}, b.Rows("SELECT skip_reason FROM sexton.external_diffs"))
	require.Empty(t, b.keys(t))
}

func TestOutdatedRule(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.engine.Rule = extdiff.Outdated
	for id := int64(1); id <= 3; id++ {
		b.add(id, file{path: "a", text: new("a")})
	}
	b.Exec("UPDATE merge_request_diffs SET diff_type = 2 WHERE id = 1")
	due := func() (ids []int64) {
		for id := int64(1); id <= 3; id++ {
			if b.due(t, id) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	state := func(assignments string) { b.Exec("UPDATE merge_requests SET " + assignments) }
	metrics := func(assignments string) { b.Exec("UPDATE merge_request_metrics SET " + assignments) }
	require.Empty(t, due(), "without a latest version none is outdated")
	state("latest_merge_request_diff_id = 2")
	require.Empty(t, due(), "neither a newer version than the latest nor the diff of the merge is outdated")
	state("latest_merge_request_diff_id = 3")
	require.Equal(t, []int64{2}, due())
	state("state_id = 3")
	metrics("merged_at = (now() AT TIME ZONE 'UTC') - interval '7 days' + interval '1 minute'")
	require.Equal(t, []int64{2}, due())
	metrics("merged_at = (now() AT TIME ZONE 'UTC') - interval '7 days 1 minute'")
	require.Equal(t, []int64{1, 2, 3}, due())
	state("state_id = 2")
	require.Equal(t, []int64{2}, due(), "a closed merge request has another date")
	metrics("latest_closed_at = now() - interval '7 days 1 minute'")
	require.Equal(t, []int64{1, 2, 3}, due())
	state("state_id = 1")
	require.Equal(t, []int64{2}, due(), "opened again")
	require.Equal(t, extdiff.NotDue, b.move(t, 3).Skipped)
	require.Empty(t, b.move(t, 2).Skipped)
}

// DueSince returns the time at which the first reason of the rule applied. The time is
// never before the installation of external diffs.
func TestDueSinceOfOutdatedDiffs(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.engine.Rule = extdiff.Outdated
	b.add(1, file{path: "a", text: new("a")})
	b.add(2, file{path: "a", text: new("a")})
	b.Exec(`UPDATE sexton.external_diff_installation SET created_at = '2020-01-01Z'; UPDATE merge_request_diffs SET created_at = '2020-02-02 10:00' WHERE id = 2;
		UPDATE merge_request_metrics SET merged_at = '2020-01-20 10:00', latest_closed_at = '2020-03-01 10:00Z'`)
	since := func(assignments string) string {
		b.Exec("UPDATE merge_requests SET " + assignments)
		return pgtest.Must(b.engine.DueSince(t.Context(), 1))(t).UTC().Format(time.DateTime)
	}
	require.Equal(t, "2020-01-01 00:00:00", since("state_id = 1"), "without a reason, the result is the time of the installation")
	require.Equal(t, "2020-02-02 10:00:00", since("latest_merge_request_diff_id = 2"), "a newer version exists")
	require.Equal(t, "2020-01-27 10:00:00", since("state_id = 3"), "the merge is the earlier reason")
	require.Equal(t, "2020-02-02 10:00:00", since("state_id = 2"), "the newer version is earlier than the close")
	b.Exec("UPDATE sexton.external_diff_installation SET created_at = '2020-02-20Z'")
	require.Equal(t, "2020-02-20 00:00:00", since("state_id = 3"), "nothing was due before the installation")
}

// due reports whether the scheduler considers a diff as due.
func (b *bundle) due(t *testing.T, id int64) bool {
	b.Exec("DELETE FROM sexton.external_diff_cursors")
	_, ids := b.schedule(t, b.engine.Rule, 100)
	due := false
	for _, found := range ids {
		due = due || found == id
	}
	return due
}

func TestMoveRetriesIfRowsChange(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("first\n")})
	changes := 0
	b.engine.Reached = func(p extdiff.Point) {
		if p == extdiff.PointVerified && changes == 0 {
			changes++
			b.Exec("UPDATE merge_request_diff_files SET diff = E'second\\n'")
		}
	}
	require.Empty(t, b.move(t, 1).Skipped)
	require.Equal(t, "second\n", b.object(t, key1))
	require.Equal(t, map[string]string{"a": "second\n"}, b.texts(t, 1))

	b.add(2, file{path: "a", text: new("first\n")})
	b.engine.Reached = func(p extdiff.Point) {
		if p == extdiff.PointVerified {
			b.Exec("UPDATE merge_request_diff_files SET diff = diff || 'more' WHERE merge_request_diff_id = 2")
		}
	}
	_, err := b.engine.Move(t.Context(), 2)
	require.ErrorContains(t, err, "changed during each of 3 attempts")
	require.Equal(t, map[string]string{"a": "first\nmoremoremore"}, b.texts(t, 2))
	require.Equal(t, [][]string{{"NULL", "NULL", "1"}}, b.stored(2))
}

func TestMoveOfDeletedDiffQueuesObject(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("first\n")})
	b.engine.Reached = func(p extdiff.Point) {
		if p == extdiff.PointVerified {
			b.Exec("DELETE FROM merge_request_diffs")
		}
	}
	require.Equal(t, extdiff.Gone, b.move(t, 1).Skipped)
	require.Equal(t, []string{key1}, b.keys(t))
	require.Equal(t, extdiff.Removed{Objects: 1}, pgtest.Must(b.engine.Remove(t.Context(), 10))(t))
	require.Empty(t, b.keys(t))
	require.Empty(t,
		b.Rows("SELECT diff_id FROM sexton.external_diffs UNION ALL SELECT diff_id FROM sexton.external_diff_removals"))
}

func TestMoveRefusesDifferingObject(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new(onePart)})
	b.engine.Reached = func(p extdiff.Point) {
		if p == extdiff.PointUploaded {
			b.overwrite(t, key1, "@@ -1 +1 @@\n-old\n+NEW\n")
		}
	}
	_, err := b.engine.Move(t.Context(), 1)
	require.ErrorContains(t, err,
		"move diff 1: read merge_request_diffs/mr-7/diff-1 back: its checksum differs from the written bytes")
	require.Equal(t, [][]string{{"NULL", "NULL", "1"}}, b.stored(1))
	b.engine.Reached = nil
	require.Empty(t, b.move(t, 1).Skipped, "the next attempt replaces the object")
	require.Equal(t, onePart, b.object(t, key1))
}

func TestManyFilesAreMovedInOneTransaction(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	const files = 5000
	b.add(1)
	b.Exec(`
		INSERT INTO merge_request_diff_files (
			merge_request_diff_id, relative_order, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, diff)
		SELECT 1, n, false, false, false, false, '0', '0', 'folder' || (n % 7) || '/file' || n, repeat('line ' || n || E'\n', n % 50)
		FROM generate_series(0, $1::int - 1) AS n`, files)
	b.Exec("UPDATE merge_request_diffs SET files_count = $1", files)
	before := b.texts(t, 1)
	require.EqualValues(t, files, b.move(t, 1).Files)
	require.Equal(t, before, b.texts(t, 1))
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, b.Database,
		"SELECT count(DISTINCT xmin::text) FROM merge_request_diff_files"))
	require.Empty(t, b.findings(t, time.Hour))
}

// If the response to the COMMIT of a claim is lost, the worker releases the claim, and
// the next move does not wait until the claim expires.
func TestLostAnswerLeavesNoClaim(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new(onePart)})
	settings, network, lost := b.Connected.Pool.Config(), &pgtest.Network{}, new(atomic.Bool)
	settings.ConnConfig.DialFunc = network.Dial
	network.LoseAnswers(func(answer []byte) bool {
		return bytes.Contains(answer, []byte("COMMIT\x00")) && lost.CompareAndSwap(false, true)
	})
	b.engine.DB.Pool = pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(b.engine.DB.Pool.Close)
	_, err := b.engine.Move(t.Context(), 1)
	require.True(t, database.Lost(err), "%v", err)
	require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE busy_until IS NOT NULL"))
	require.Empty(t, pgtest.Must(b.engine.Move(t.Context(), 1))(t).Skipped)
}

func TestTriggersSeeNoPlannerSettings(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("a")}, file{path: "b", text: new("b")})
	b.Exec("UPDATE merge_request_diff_files SET project_id = NULL WHERE old_path = 'a'")
	b.RecordPlannerSettings("merge_request_diffs", "merge_request_diff_files")
	b.move(t, 1)
	require.Equal(t, [][]string{{"1"}, {"1"}}, b.Rows("SELECT project_id FROM merge_request_diff_files"))
	pgtest.Must(b.engine.Restore(t.Context(), 1))(t)
	b.RequireDefaultPlannerSettings(t, "merge_request_diffs", "merge_request_diff_files")
}

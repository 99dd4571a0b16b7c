package records_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestDiffsAreMovedAndRestored(t *testing.T) {
	t.Parallel()
	s, folder := clitest.DiffSite(t)
	const shown = "diff --git a/a b/a\n\x00\x01diff --git a/b b/b\n-b\n+B\n"
	require.Contains(t, s.OK("diffs", "show", "1"), "-b\n+B\n")

	report := s.JSON(0, "job", "run", clitest.ScheduleKind).(map[string]any)
	require.Equal(t, "done", report["outcome"])
	require.Subset(t, report["stats"], map[string]any{"due": 2.0, "inserted": 2.0, "looked_at": 2.0})
	require.Equal(t, [][]string{{"1", "3"}, {"2", "3"}},
		s.Rows("SELECT args ->> 'diff_id', max_attempts FROM sexton.river_job WHERE kind = $1 ORDER BY 1",
			clitest.MoveKind))
	s.Exec("UPDATE sexton.external_diff_cursors SET after_id = 0")
	report = s.JSON(0, "job", "run", clitest.ScheduleKind).(map[string]any)
	require.Subset(t, report["stats"], map[string]any{"due": 2.0, "inserted": 0.0}, "one job per diff")

	report = s.JSON(0, "job", "run", clitest.MoveKind, "--args", `{"diff_id": 1}`).(map[string]any)
	require.Equal(t, "done", report["outcome"])
	require.Subset(t, report["stats"], map[string]any{
		"diff_id": 1.0, "key": "merge_request_diffs/mr-7/diff-1",
		"bytes": 10.0, "files": 2.0,
	})
	require.Len(t, report["stats"], 5, "the fifth is the latency")
	content, err := os.ReadFile(filepath.Join(folder, "merge_request_diffs/mr-7/diff-1"))
	require.NoError(t, err)
	require.Equal(t, "AAE=-b\n+B\n", string(content))
	require.Equal(t, shown, s.OK("diffs", "show", "1"))
	require.Equal(t, "-b\n+B\n", s.OK("diffs", "show", "1", "--file", "1"))
	require.Equal(t, map[string]any{
		"relative_order": 0.0, "old_path": "a", "new_path": "a", "bytes": 4.0, "binary": true, "external": true,
	}, s.JSON(0, "diffs", "show", "1").([]any)[0])

	report = s.JSON(0, "job", "run", clitest.MoveKind, "--args", `{"diff_id": 2}`).(map[string]any)
	require.Equal(t, "files_missing", report["reason"])
	status := s.OK("status")
	require.Regexp(t, `merge_request_diffs +main +1 `, status)
	require.Regexp(t, `of these files_missing +1`, status)
	table := s.JSON(0, "status").(map[string]any)["deletion_tables"].([]any)[0].(map[string]any)
	require.Subset(t, table["diffs"], map[string]any{
		"pending": 1.0, "bytes": 1.0,
		"skipped": map[string]any{"files_missing": 1.0},
	})

	require.Equal(t, "1 diffs of 10 bytes, 1 objects: 0 damaged, 0 dangling\n", s.OK("diffs", "verify"))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "merge_request_diffs/mr-7/diff-1"), []byte("AAE=-b\n+C\n"),
		0o600))
	damaged := s.Run("diffs", "verify")
	require.Equal(t, 5, damaged.Code)
	require.Contains(t, damaged.Stdout, "diff 1: merge_request_diffs/mr-7/diff-1: the object has the checksum ")
	require.Len(t, s.JSON(5, "diffs", "verify").(map[string]any)["findings"], 1)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "merge_request_diffs/mr-7/diff-1"), content, 0o600))

	require.Equal(t, "diff 1: 2 files, 10 bytes\n", s.OK("diffs", "restore", "1"))
	require.Equal(t, "diff 1: is in the database\n", s.OK("diffs", "restore", "1"))
	require.Equal(t, shown, s.OK("diffs", "show", "1"))
	require.NoFileExists(t, filepath.Join(folder, "merge_request_diffs/mr-7/diff-1"))
	require.Equal(t, "kept_in_database", s.JSON(0, "job", "run", clitest.MoveKind, "--args",
		`{"diff_id": 1}`).(map[string]any)["reason"])
	require.Equal(t, "diff 1: will be moved when it is due\n", s.OK("diffs", "release", "1"))
	s.OK("job", "run", clitest.MoveKind, "--args", `{"diff_id": 1}`)
	require.FileExists(t, filepath.Join(folder, "merge_request_diffs/mr-7/diff-1"))

	s.Exec("DELETE FROM merge_request_diffs")
	report = s.JSON(0, "job", "run", clitest.ScheduleKind).(map[string]any)
	require.Subset(t, report["stats"], map[string]any{"objects_removed": 2.0})
	require.NoFileExists(t, filepath.Join(folder, "merge_request_diffs/mr-7/diff-1"))
}

func TestStatusShowsWhatAMoveWaitsFor(t *testing.T) {
	t.Parallel()
	s, _ := clitest.DiffSite(t)
	s.Exec("INSERT INTO sexton.external_diffs (diff_id, holder, busy_until) VALUES (1, 'another', now() + interval '1 hour')")
	waiting := func() any {
		for _, job := range s.JSON(0, "status").(map[string]any)["jobs"].([]any) {
			if job := job.(map[string]any); job["kind"] == clitest.MoveKind {
				return job["waiting_for"]
			}
		}
		return "the job is not listed"
	}
	require.Equal(t, "skipped", s.JSON(0, "job", "run", clitest.MoveKind, "--args",
		`{"diff_id": 1}`).(map[string]any)["outcome"])
	require.Contains(t, waiting(), "its next attempt, after: diff 1 is claimed by another until ")
	s.Exec("UPDATE sexton.external_diffs SET busy_until = NULL")
	require.Equal(t, "done", s.JSON(0, "job", "run", clitest.MoveKind, "--args",
		`{"diff_id": 1}`).(map[string]any)["outcome"])
	require.Nil(t, waiting())
}

func TestDoctorReportsSkippedDiffs(t *testing.T) {
	t.Parallel()
	s, _ := clitest.DiffSite(t)
	findings := func(code int) (found [][]any) {
		for _, finding := range s.JSON(code, "doctor").(map[string]any)["findings"].([]any) {
			if f := finding.(map[string]any); f["check"] == "skipped_diffs" {
				found = append(found, []any{f["severity"], f["message"]})
			}
		}
		return found
	}
	require.Empty(t, findings(0))
	s.Exec(`INSERT INTO sexton.external_diffs (diff_id, skip_reason)
		SELECT n, CASE WHEN n = 1 THEN 'too_large' ELSE 'files_missing' END FROM generate_series(1, 99) AS n`)
	require.Equal(t,
		[][]any{{"info", "99 diffs cannot be moved and stay in the database: files_missing 98, too_large 1"}},
		findings(0))
	s.Exec("INSERT INTO sexton.external_diffs (diff_id, skip_reason) VALUES (100, 'too_large')")
	require.Equal(t,
		[][]any{{"warning", "100 diffs cannot be moved and stay in the database: files_missing 98, too_large 2"}},
		findings(5))
}

func TestDoctorReportsAMissingDiffTrigger(t *testing.T) {
	t.Parallel()
	s, _ := clitest.DiffSite(t)
	broken := map[string]string{
		"disabled": "ALTER TABLE merge_request_diffs DISABLE TRIGGER sexton_external_diffs_removed",
		"missing":  "DROP TRIGGER sexton_external_diffs_removed ON merge_request_diffs",
	}
	for _, state := range []string{"disabled", "missing"} {
		s.Exec(broken[state])
		var fix string
		for _, finding := range s.JSON(5, "doctor").(map[string]any)["findings"].([]any) {
			if f := finding.(map[string]any); f["check"] == "diffs_trigger" {
				require.Equal(t, "warning", f["severity"])
				require.Contains(t, f["message"], "sexton_external_diffs_removed is "+state)
				fix = f["fix"].(string)
			}
		}
		s.Exec(fix)
		s.OK("doctor")
	}
	s.Exec("UPDATE merge_request_diffs SET stored_externally = true, external_diff = 'diff-1' WHERE id = 1; DELETE FROM merge_request_diffs")
	require.Equal(t, [][]string{{"merge_request_diffs/mr-7/diff-1"}},
		s.Rows("SELECT key FROM sexton.external_diff_removals"))
}

// writeUnnamedObjects writes objects that no diff names. Their files are two days old.
func writeUnnamedObjects(t *testing.T, folder string, keys ...string) {
	for _, key := range keys {
		path := filepath.Join(folder, key)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, []byte("left"), 0o600))
		old := time.Now().Add(-48 * time.Hour)
		require.NoError(t, os.Chtimes(path, old, old))
	}
}

func TestVerifyRemovesObjectsThatNoDiffNames(t *testing.T) {
	t.Parallel()
	s, folder := clitest.DiffSite(t)
	s.OK("job", "run", clitest.MoveKind, "--args", `{"diff_id": 1}`)
	writeUnnamedObjects(t, folder, "merge_request_diffs/mr-7/diff-9", "merge_request_diffs/note")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "merge_request_diffs/mr-7/diff-8"), nil, 0o600))

	const found = "diff 9: merge_request_diffs/mr-7/diff-9: no diff refers to this object\n" +
		"no diff: merge_request_diffs/note: the name of this object does not match the pattern of diffs\n" +
		"1 diffs of 10 bytes, 4 objects: 0 damaged, 2 dangling\n"
	require.Equal(t, found, s.OK("diffs", "verify"))
	require.FileExists(t, filepath.Join(folder, "merge_request_diffs/mr-7/diff-9"))
	require.Equal(t, found+"1 removed, 0 busy\n", s.OK("diffs", "verify", "--remove"))
	require.NoFileExists(t, filepath.Join(folder, "merge_request_diffs/mr-7/diff-9"))
	require.FileExists(t, filepath.Join(folder, "merge_request_diffs/mr-7/diff-8"),
		"the object is younger than --grace")
	require.FileExists(t, filepath.Join(folder, "merge_request_diffs/note"))
	require.FileExists(t, filepath.Join(folder, "merge_request_diffs/mr-7/diff-1"))

	s.Exec("INSERT INTO sexton.external_diffs (diff_id, holder, busy_until) VALUES (8, 'another', now() + interval '1 hour')")
	require.Contains(t, s.OK("diffs", "verify", "--remove", "--grace", "0s"), "0 removed, 1 busy\n")
}

func TestStoreBelongsToOneDatabase(t *testing.T) {
	t.Parallel()
	s, folder := clitest.DiffSite(t)
	other, _ := clitest.DiffSite(t)
	other.Configure(other.URL,
		"loose_foreign_keys: {enabled: false}\nexternal_diffs: {enabled: true, bucket: \"file://"+folder+"\"}\n")
	require.Equal(t, 0, s.Run("doctor").Code, "doctor writes the marker")
	name := s.Rows("SELECT current_database()")[0][0]
	other.Exec("INSERT INTO sexton.external_diff_removals (diff_id, key) VALUES (9, 'merge_request_diffs/mr-7/diff-9')")
	for _, args := range [][]string{
		{"doctor"},
		{"job", "run", clitest.ScheduleKind},
		{"job", "run", clitest.MoveKind, "--args", `{"diff_id": 1}`},
		{"diffs", "restore", "1"},
		{"diffs", "verify", "--remove"},
	} {
		r := other.Run(args...)
		require.NotZero(t, r.Code, args)
		require.Contains(t, r.Stdout+r.Stderr, `the objects there belong to database "`+name+`"`, args)
		require.Contains(t, r.Stdout+r.Stderr, "`sexton diffs adopt`", args)
	}
	other.Exec("DELETE FROM sexton.external_diff_removals")
	other.OK("diffs", "verify")
	require.Contains(t, other.OK("diffs", "adopt"), `belonged to database "`+name+`"`)
	require.Equal(t, "file://"+folder+": belongs to this database\n", other.OK("diffs", "adopt"))
	require.Equal(t, [][]string{{"adopt", "file://" + folder}},
		other.Rows("SELECT DISTINCT action, target FROM sexton.audit"))
	// A refused move counts as a failure until the next move of the diff succeeds.
	other.OK("job", "run", clitest.MoveKind, "--args", `{"diff_id": 1}`)
	found := other.Run("doctor")
	require.Zero(t, found.Code, found.Stdout)
	require.Equal(t, 5, s.Run("doctor").Code)
	taken := s.JSON(0, "diffs", "adopt").(map[string]any)
	require.Equal(t, true, taken["changed"])
	require.Equal(t, other.Rows("SELECT current_database()")[0][0], taken["was"].(map[string]any)["database"])
	require.Equal(t, name, taken["now"].(map[string]any)["database"])
}

func TestDiffsWrongUsage(t *testing.T) {
	t.Parallel()
	s, folder := clitest.DiffSite(t)
	for _, args := range [][]string{
		{"diffs", "show"},
		{"diffs", "restore", "x"},
		{"diffs", "release", "0"},
		{"job", "run", clitest.MoveKind},
	} {
		require.Equal(t, 2, s.Run(args...).Code, args)
	}
	s.RequireError(1, "read diff 99: there is no such diff", "diffs", "show", "99")
	// 4294967296 must not be truncated to 32 bits: the result would be 0, a valid number.
	for number, code := range map[string]int{"7": 1, "-1": 1, "4294967296": 2} {
		for _, args := range [][]string{
			{"diffs", "show", "1", "--file", number},
			{"diffs", "show", "1", "--json", "--file", number},
		} {
			r := s.Run(args...)
			require.Equal(t, code, r.Code, args)
			require.Contains(t, r.Stderr, number)
			require.Empty(t, r.Stdout)
		}
	}
	s.RequireError(1, "release diff 99: there is no such diff", "diffs", "release", "99")
	require.Equal(t, map[string]any{"diff_id": 1.0, "released": false}, s.JSON(0, "diffs", "release", "1"))
	s.Write("off.yaml", "databases: {main: {url: \""+s.URL+"\"}}\n")
	s.RequireError(2, "schedule_migrate_external_diffs is not enabled; set external_diffs.enabled: true", "diffs", "verify", "--config",
		s.Path("off.yaml"))
	require.NotContains(t, s.Run("doctor").Stdout, "external_diffs")

	s.OK("job", "run", clitest.MoveKind, "--args", `{"diff_id": 1}`)
	require.NoError(t, os.RemoveAll(folder))
	require.Contains(t, s.OK("diffs", "show", "2"), "diff --git a/", "the diff is in the database")
	for _, args := range [][]string{
		{"doctor"},
		{"job", "run", clitest.MoveKind, "--args", `{"diff_id": 2}`},
		{"diffs", "show", "1"},
	} {
		r := s.Run(args...)
		require.NotZero(t, r.Code)
		require.Contains(t, r.Stdout+r.Stderr, "create the folder, or mount its disk")
		require.Contains(t, r.Stdout+r.Stderr, "external_diffs.bucket")
	}
}

func TestDoctorRefusesDiffsOfBytes(t *testing.T) {
	t.Parallel()
	s, _ := clitest.DiffSite(t)
	s.Exec("ALTER TABLE merge_request_diff_files ALTER diff TYPE bytea USING convert_to(diff, 'UTF8')")
	r := s.Run("doctor")
	require.Equal(t, 5, r.Code)
	require.Contains(t, r.Stdout,
		"error: main diffs_texts: merge_request_diff_files.diff: the column is of type bytea, but only texts can be moved: change the type, or disable external_diffs\n")
	s.Exec("ALTER TABLE merge_request_diff_files ALTER diff TYPE varchar USING convert_from(diff, 'UTF8')")
	require.NotContains(t, s.Run("doctor").Stdout, "diffs_texts: merge")
}

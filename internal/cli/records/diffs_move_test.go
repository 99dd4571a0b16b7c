package records_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

func TestDiffsMoveBetweenStores(t *testing.T) {
	t.Parallel()
	s, folder := clitest.DiffSite(t)
	bucket := s3test.New(t, s3test.Options{}).URL("diffs")
	s.OK("job", "run", clitest.MoveKind, "--args", `{"diff_id": 1}`)
	const object = "merge_request_diffs/mr-7/diff-1"
	const shown = "diff --git a/a b/a\n\x00\x01diff --git a/b b/b\n-b\n+B\n"

	// With a configuration that knows the folder alone.
	dry := s.Run("diffs", "move", "--to", bucket, "--dry-run")
	require.Zero(t, dry.Code, dry.Stderr)
	require.Equal(t, "1 diff of 10 bytes to be moved from file://"+folder+" to s3://diffs: 0 damaged, 0 failed, 0 busy\n", dry.Stdout)
	require.Contains(t, dry.Stderr, "set external_diffs.other_bucket, or bucket, to s3://diffs: workers and other commands do not find these diffs before\n")
	require.Empty(t, s.Rows("SELECT FROM sexton.audit"))
	require.Equal(t, map[string]any{
		"from": "file://" + folder, "to": "s3://diffs", "dry_run": false, "left": []any{},
		"diffs": 1.0, "bytes": 10.0, "damaged": 0.0, "failed": 0.0, "busy": 0.0, "objects_removed": 0.0, "over_limit": false,
	}, s.JSON(0, "diffs", "move", "--to", bucket))
	require.Equal(t, [][]string{{"2"}}, s.Rows("SELECT external_diff_store FROM merge_request_diffs WHERE id = 1"))
	require.FileExists(t, filepath.Join(folder, object), "readers may still look for it")
	s.Says(1, "set external_diffs.other_bucket to the store that has it", "diffs", "show", "1")

	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\nexternal_diffs: {enabled: true, bucket: \""+bucket+"\", other_bucket: \"file://"+folder+"\"}\n")
	require.Equal(t, shown, s.OK("diffs", "show", "1"))
	require.Equal(t, "1 diffs of 10 bytes, 2 objects: 0 damaged, 0 dangling\n", s.OK("diffs", "verify"))
	s.Exec("UPDATE sexton.external_diff_removals SET not_before = now()")
	report := s.JSON(0, "job", "run", clitest.ScheduleKind).(map[string]any)
	require.Subset(t, report["stats"], map[string]any{"objects_removed": 1.0, "removals_failed": 0.0})
	require.NoFileExists(t, filepath.Join(folder, object))
	const stray = "merge_request_diffs/mr-7/diff-9"
	sweepDue(t, s, folder, stray)
	report = s.JSON(0, "job", "run", clitest.ScheduleKind).(map[string]any)
	require.Subset(t, report["stats"], map[string]any{"objects_listed": 2.0, "objects_swept": 1.0}, "both stores are swept")
	require.NoFileExists(t, filepath.Join(folder, stray))
	require.Regexp(t, `\nfile://`+folder+` +\S+Z +\S+Z +1 +1 +0 +0\n`, s.OK("status"))
	require.Regexp(t, `\ns3://diffs\?\S+ +\S+Z +\S+Z +1 +0 +0 +0\n`, s.OK("status"))
	s.OK("doctor")

	// A relative path begins in the working directory.
	relative := pgtest.Must(filepath.Rel(pgtest.Must(os.Getwd())(t), folder))(t)
	back := s.Run("diffs", "move", "--to", "file://"+relative, "--grace", "0s")
	require.Zero(t, back.Code, back.Stderr)
	require.Equal(t, "1 diff of 10 bytes moved from s3://diffs to file://"+folder+": 0 damaged, 0 failed, 0 busy\n1 old object removed\n", back.Stdout)
	require.Empty(t, back.Stderr)
	require.Equal(t, shown, s.OK("diffs", "show", "1"))
	require.Equal(t, [][]string{{"move", "diffs of file://" + folder}}, s.Rows("SELECT action, reason FROM sexton.audit ORDER BY id LIMIT 1"))

	require.NoError(t, os.WriteFile(filepath.Join(folder, object), []byte("AAE=-b\n+C\n"), 0o600))
	damaged := s.Run("diffs", "move", "--to", bucket)
	require.Equal(t, 5, damaged.Code)
	require.Regexp(t, "^diff 1 is damaged: the object's checksum is .*; it stays in file://"+folder+"\n$", damaged.Stderr)
	require.Contains(t, damaged.Stdout, ": 1 damaged, 0 failed, 0 busy\n")
	s.Exec("DELETE FROM merge_request_diffs")
	s.OK("job", "run", clitest.ScheduleKind)
	require.NoFileExists(t, filepath.Join(folder, object))

	require.NoError(t, os.RemoveAll(folder))
	found := s.Run("doctor")
	require.Equal(t, 5, found.Code)
	require.Regexp(t, "external_diffs.other_bucket: .*: file://"+folder+": no such file or directory\n  fix: create the folder", found.Stdout)
}

func TestDiffsMoveRefuses(t *testing.T) {
	t.Parallel()
	s, folder := clitest.DiffSite(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "sexton diffs move needs --to"},
		{[]string{"--to", "diffs"}, `--to has the scheme "" (write file:///folder or s3://bucket?region=…)`},
		{[]string{"--to", "s3://key:hunter2@bucket?region=x"}, "--to holds credentials"},
		{[]string{"--to", "file://" + folder}, "--to is external_diffs.bucket; set external_diffs.other_bucket to the store that has the diffs, or --from"},
		{[]string{"--to", "file://" + t.TempDir()}, " are both local disk, which is all that rows say of a store"},
		{[]string{"--to", "s3://b?region=x", "--limit", "-1"}, "--limit and --grace must not be negative"},
	} {
		r := s.Run(append([]string{"diffs", "move"}, c.args...)...)
		require.Equal(t, 2, r.Code, c.args)
		require.Contains(t, r.Stderr, c.want)
		require.NotContains(t, r.Stderr, "hunter2")
	}
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\n"+
		"external_diffs: {enabled: true, bucket: \"s3://b?region=x\", other_bucket: \"file://"+folder+"\"}\n")
	for _, from := range []string{"s3://b?region=x", "s3://old?region=x"} {
		s.Says(2, " is another store than external_diffs.other_bucket, file://"+folder, "diffs", "move", "--to", "file://"+t.TempDir(), "--from", from, "--grace", "0s")
	}
	s.Says(2, "--from s3://old is another store than external_diffs.bucket, s3://b, and rows say of both no more than object storage: "+
		"no worker would remove the old objects; ", "diffs", "move", "--to", "file://"+folder, "--from", "s3://old?region=x", "--grace", "0s")
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\nexternal_diffs: {enabled: true, bucket: \"file://"+folder+"\"}\n")
	s.Says(2, "no key names the store s3://old, so no worker would remove its old objects after --grace: set external_diffs.other_bucket to it",
		"diffs", "move", "--to", "file://"+folder, "--from", "s3://old?region=x")
	require.Empty(t, s.Rows("SELECT FROM sexton.audit"))
	s.Says(1, "--to file:///nowhere/at/all: no such file or directory (create the folder, or mount the disk that it is on)", "diffs", "move", "--to", "file:///nowhere/at/all", "--from", "s3://b?region=x")
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\nexternal_diffs: {enabled: true, bucket: \"file://"+folder+"\"}\n")
	s.Says(2, "external_diffs.other_bucket is not set", "diffs", "adopt", "--other")
}

// ofCheck are severity, message and fix of what a check of the doctor has found.
func ofCheck(s *clitest.Site, code int, check string) (found [][]string) {
	s.Tb.Helper()
	document, ok := s.JSON(code, "doctor").(map[string]any)
	require.True(s.Tb, ok)
	for _, finding := range document["findings"].([]any) {
		if f := finding.(map[string]any); f["check"] == check {
			found = append(found, []string{f["severity"].(string), f["message"].(string), f["fix"].(string)})
		}
	}
	return found
}

func TestARefusalIsOneFinding(t *testing.T) {
	t.Parallel()
	s, folder := clitest.DiffSite(t)
	require.NoError(t, os.Remove(folder))
	s.Says(1, "create the folder", "job", "run", clitest.MoveKind, "--args", `{"diff_id": 1}`)
	var job map[string]any
	for _, each := range s.JSON(0, "status").(map[string]any)["jobs"].([]any) {
		if each := each.(map[string]any); each["kind"] == clitest.MoveKind {
			job = each
		}
	}
	require.Contains(t, job["last_error"], "external_diffs.bucket file://"+folder)
	require.Equal(t, "a fix for the error of its last run; it tries again by itself", job["waiting_for"])
	require.Len(t, ofCheck(s, 5, "external_diffs"), 1)
	require.Empty(t, ofCheck(s, 5, "refused_workers"), "the probe says it")

	require.NoError(t, os.Mkdir(folder, 0o750))
	found := ofCheck(s, 5, "refused_workers")
	require.Len(t, found, 1)
	require.Equal(t, "error", found[0][0])
	require.Contains(t, found[0][1], "create the folder")
	s.OK("job", "run", clitest.MoveKind, "--args", `{"diff_id": 1}`)
	require.Empty(t, ofCheck(s, 0, "refused_workers"))
}

func TestDisabledDiffsLeaveNoObjectUnseen(t *testing.T) {
	t.Parallel()
	s, _ := clitest.DiffSite(t)
	s.OK("job", "run", clitest.MoveKind, "--args", `{"diff_id": 1}`)
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\nghost_users: {enabled: true}\n")
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	require.Empty(t, ofCheck(s, 0, "unattended_removals"))
	require.NotContains(t, s.OK("status"), "external_diff")

	s.Exec("DELETE FROM merge_requests")
	s.Exec("UPDATE sexton.external_diff_removals SET queued_at = now() - interval '3 hours'")
	found := ofCheck(s, 5, "unattended_removals")
	require.Len(t, found, 1)
	require.Equal(t, "warning", found[0][0])
	require.Regexp(t, `^1 object of deleted diffs to be removed, the oldest for 3h0m[0-9]+s, but external_diffs.enabled is false`, found[0][1])
	require.Contains(t, found[0][2], "set external_diffs.enabled: true")
	status := s.OK("status")
	require.Regexp(t, `external_diff_removals +main +1 +3h0m\d+s `, status)
	require.Contains(t, status, "external_diff_removals is not worked off: external_diffs.enabled is false")
	tables := s.JSON(0, "status").(map[string]any)["deletion_tables"].([]any)
	require.Subset(t, tables[len(tables)-1], map[string]any{"table": "external_diff_removals", "pending": 1.0, "disabled": "external_diffs.enabled"})

	s.Exec("INSERT INTO sexton.external_diff_removals (diff_id, key) SELECT n, 'key' FROM generate_series(1, 10001) AS n")
	require.Contains(t, ofCheck(s, 5, "unattended_removals")[0][1], "more than 10,000 objects")
	require.Contains(t, s.OK("status"), "10,000+")
	_, fix, _ := strings.Cut(ofCheck(s, 5, "unattended_removals")[0][2], "for ever: ")
	s.Exec(fix)
	require.Empty(t, ofCheck(s, 0, "unattended_removals"))
}

func TestRemovingDanglingObjectsPassesOverBusyDiffs(t *testing.T) {
	t.Parallel()
	s, folder := clitest.DiffSite(t)
	objects := filepath.Join(folder, "merge_request_diffs/mr-7")
	require.NoError(t, os.MkdirAll(objects, 0o750))
	for _, name := range []string{"diff-3", "diff-4", "diff-5"} {
		require.NoError(t, os.WriteFile(filepath.Join(objects, name), []byte("left"), 0o600))
	}
	s.Exec("INSERT INTO sexton.external_diffs (diff_id, holder, busy_until) VALUES (3, 'another', now() + interval '1 hour')")
	told := s.OK("diffs", "verify", "--remove-dangling", "--grace", "0s")
	require.True(t, strings.HasSuffix(told, "0 damaged, 3 dangling\n2 removed, 1 busy\n"), told)
	left := pgtest.Must(os.ReadDir(objects))(t)
	require.Len(t, left, 1)
	require.Equal(t, "diff-3", left[0].Name())
	require.Subset(t, s.JSON(0, "diffs", "verify", "--remove-dangling", "--grace", "0s"), map[string]any{"removed": 0.0, "busy": 1.0, "dangling": 1.0})
	s.Exec("UPDATE sexton.external_diffs SET busy_until = now()")
	require.Subset(t, s.JSON(0, "diffs", "verify", "--remove-dangling", "--grace", "0s"), map[string]any{"removed": 1.0, "busy": 0.0})
	require.NoFileExists(t, filepath.Join(objects, "diff-3"))
}

func TestConfigCheckRefusesCredentialsInTheBucket(t *testing.T) {
	t.Parallel()
	s := clitest.NewSite(t, pgtest.New(t))
	s.Configure(s.URL, "loose_foreign_keys: {enabled: false}\nexternal_diffs: {enabled: true, bucket: \"s3://key:hunter2@bucket?region=x\"}\n")
	for _, args := range [][]string{{"config", "check"}, {"doctor"}} {
		r := s.Run(args...)
		require.Equal(t, 2, r.Code, args)
		require.Contains(t, r.Stdout+r.Stderr, "external_diffs.bucket: holds credentials (set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment")
		require.NotContains(t, r.Stdout+r.Stderr, "hunter2")
	}
}

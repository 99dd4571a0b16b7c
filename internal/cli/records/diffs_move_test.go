package records_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
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

	back := s.Run("diffs", "move", "--to", "file://"+folder, "--grace", "0s")
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

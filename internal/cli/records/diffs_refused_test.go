package records_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

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
	require.Equal(t, "a remedy for the error of its last run; it tries again by itself", job["waiting_for"])
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
	require.Contains(t, ofCheck(s, 5, "unattended_removals")[0][1], "more than 10000 objects")
	require.Contains(t, s.OK("status"), "10000+")
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

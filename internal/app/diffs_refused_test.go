package app_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// ofCheck are severity, message and fix of what a check of the doctor has found.
func (s *site) ofCheck(code int, check string) (found [][]string) {
	s.tb.Helper()
	document, ok := s.json(code, "doctor").(map[string]any)
	require.True(s.tb, ok)
	for _, finding := range document["findings"].([]any) {
		if f := finding.(map[string]any); f["check"] == check {
			found = append(found, []string{f["severity"].(string), f["message"].(string), f["fix"].(string)})
		}
	}
	return found
}

func TestARefusalIsOneFinding(t *testing.T) {
	t.Parallel()
	s, folder := diffSite(t)
	require.NoError(t, os.Remove(folder))
	r := s.run("job", "run", moveKind, "--args", `{"diff_id": 1}`)
	require.Equal(t, 1, r.code)
	require.Contains(t, r.stderr, "create the folder")
	var job map[string]any
	for _, each := range s.json(0, "status").(map[string]any)["jobs"].([]any) {
		if each := each.(map[string]any); each["kind"] == moveKind {
			job = each
		}
	}
	require.Contains(t, job["last_error"], "external_diffs.bucket file://"+folder)
	require.Equal(t, "somebody to mend what its last run met; it tries again by itself", job["waiting_for"])
	require.Len(t, s.ofCheck(5, "external_diffs"), 1)
	require.Empty(t, s.ofCheck(5, "refused_workers"), "the probe says it")

	require.NoError(t, os.Mkdir(folder, 0o750))
	found := s.ofCheck(5, "refused_workers")
	require.Len(t, found, 1)
	require.Equal(t, "error", found[0][0])
	require.Contains(t, found[0][1], "create the folder")
	s.ok("job", "run", moveKind, "--args", `{"diff_id": 1}`)
	require.Empty(t, s.ofCheck(0, "refused_workers"))
}

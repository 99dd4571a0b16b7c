package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutation is one change to a source file that the tests have to notice.
type mutation struct {
	name     string
	file     string
	old, new string
	// message is what the failing test says.
	message string
}

func mutations() []mutation {
	return []mutation{
		{
			name: "without the waiting pass",
			file: "internal/loosefk/slice.go", old: "c.how = waiting\n", new: "return nothing(), nil\n",
			message: "tombstones are left after the run",
		},
		{
			name: "tombstones removed without a look at the children",
			file: "internal/loosefk/statements.go", old: "[%d] OR NOT %s)", new: "[%d] OR true OR NOT %s)",
			message: "rows differ from what native foreign keys leave",
		},
		{
			name: "without the fence",
			file: "sql/migrations/base/00001_fences_and_events.up.sql",
			old:  "IF found_token IS DISTINCT FROM fence_token THEN", new: "IF false THEN",
			message: "a worker whose lease has passed on must fail",
		},
	}
}

// TestMutations breaks the program in one place at a time and expects the tests to fail for it. They run
// one after the other, since each builds packages anew.
func TestMutations(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	require.NoError(t, err)

	out, err := runMutated(t, root, map[string]string{})
	require.NoError(t, err, "the same tests without a mutation: %s", out)
	for _, m := range mutations() {
		path := filepath.Join(root, m.file)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(text), m.old), "places in %s that the mutation %q applies to", m.file, m.name)
		mutated := filepath.Join(t.TempDir(), filepath.Base(path))
		require.NoError(t, os.WriteFile(mutated, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600))

		out, err := runMutated(t, root, map[string]string{path: mutated})
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s: the tests must fail, but pass", m.name)
		require.Contains(t, out, m.message, "%s: the tests fail for another reason", m.name)
	}
}

// runMutated runs the tests that mutations have to fail with some files replaced, always on the same cases,
// and returns what they print.
func runMutated(t *testing.T, root string, replace map[string]string) (string, error) {
	t.Helper()
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	document, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, document, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-vet=off", "-overlay="+overlay,
		"-run=^(TestDifferential|TestFenceStopsFormerHolder)$", "./integration",
		"-rapid.seed=1", "-rapid.checks=20", "-rapid.shrinktime=0s", "-rapid.nofailfile")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go test: %w", err)
	}
	return string(out), err
}

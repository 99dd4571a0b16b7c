//go:build long

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutations changes the program in one place at a time and requires that tests fail
// because of the change. The mutations run one after the other, because each one compiles
// packages again.
func TestMutations(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	require.NoError(t, err)

	controlled := map[suite]bool{}
	for _, m := range mutations() {
		if !controlled[m.suite] {
			controlled[m.suite] = true
			out, err := m.suite.runMutated(t, root, map[string]string{})
			require.NoError(t, err, "the tests must pass without a mutation: %s", out)
		}
		m.requireFailure(t, root)
	}
	testReplay(t, root)
}

// testReplay runs a failing differential test again with only the flags that the test
// printed. It must fail again in its first case.
func testReplay(t *testing.T, root string) {
	drawn := withoutMemory(suite{
		"./integration", "^TestDifferential$/^integer_keys$",
		"-rapid.checks=168 -rapid.shrinktime=0s -rapid.nofailfile",
	})
	seed := regexp.MustCompile(`To reproduce, specify -run="(.+)" (-rapid.seed=[0-9]+)\n`)
	// A failure that depends on the order of sessions prints no seed, so the test draws
	// again.
	var printed []string
	for tries := 0; printed == nil && tries < 3; tries++ {
		printed = seed.FindStringSubmatch(drawn.requireFailure(t, root))
	}
	require.NotNil(t, printed, "the failing test must print its seed")
	withoutMemory(suite{"./integration", printed[1], printed[2] + " -rapid.checks=1 -rapid.nofailfile"}).requireFailure(t, root)
}

// requireFailure runs the mutation's tests, requires that they fail because of the
// mutation, and returns their output.
func (m mutation) requireFailure(t *testing.T, root string) string {
	path := filepath.Join(root, m.file)
	mutated := filepath.Join(t.TempDir(), filepath.Base(path))
	require.NoError(t, os.WriteFile(mutated, []byte(m.mutated(t, root)), 0o600))

	out, err := m.suite.runMutated(t, root, map[string]string{path: mutated})
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s: the tests must fail, but pass", m.name)
	// If the order of the worker and a session differs in the repetition, the case does
	// not fail again. Then rapid omits the message and prints only where it failed. On a
	// busy machine a mutated run may also reach its time limit.
	flaky := strings.Contains(out, "[rapid] flaky test, can not reproduce a failure") &&
		(strings.Contains(out, "(*scenario).compare") || strings.Contains(out, "(*scenario).runPass"))
	require.True(t, regexp.MustCompile(m.message).MatchString(out) || flaky && m.message == differs,
		"%s: the tests fail for another reason: %s", m.name, out)
	return out
}

// runMutated runs the tests with replaced files and returns their output.
func (s suite) runMutated(t *testing.T, root string, replace map[string]string) (string, error) {
	overlay := filepath.Join(t.TempDir(), "overlay.json")
	document, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, document, 0o600))
	args := append([]string{"test", "-count=1", "-vet=off", "-overlay=" + overlay, "-run=" + s.run, s.folder},
		strings.Fields(s.flags)...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("go test: %w", err)
	}
	return string(out), err
}

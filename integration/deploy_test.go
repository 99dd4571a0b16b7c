package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

func deployed(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "deploy", name))
	require.NoError(t, err)
	return string(text)
}

// The image and the released binaries are built in the same way, with the compiler that the module asks for.
func TestReleasesAreBuiltAlike(t *testing.T) {
	t.Parallel()
	flags := regexp.MustCompile(`go build -trimpath -ldflags "-s -w -X (sexton/internal/app\.version)=\$(?:VERSION|version)" -o \S+ \./cmd/worker`)
	require.Regexp(t, flags, deployed(t, "Dockerfile"))
	require.Regexp(t, flags, deployed(t, "release"))
	module, err := os.ReadFile(filepath.Join("..", "go.mod"))
	require.NoError(t, err)
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(module))
	require.Len(t, language, 2)
	require.Contains(t, deployed(t, "Dockerfile"), " golang:"+language[1]+" AS build")
	require.Contains(t, deployed(t, "Dockerfile"), "\nUSER 65532:65532\n", "not root, by number: an empty image has no names")
}

// A version that would end up as further flags of the linker is refused before anything is built.
func TestReleaseRefusesAStrangeVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1 -X other=1", "$(id)", "a/b"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join("..", "deploy", "release"), version, t.TempDir())
		out, err := cmd.CombinedOutput()
		require.Error(t, err, version)
		require.Equal(t, 2, cmd.ProcessState.ExitCode(), "%s", out)
		require.Contains(t, string(out), "is no version")
	}
}

// A stamped binary says its version.
func testVersionIsStamped(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sexton")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-X sexton/internal/app.version=v7.8.9", "-o", path, "./cmd/worker")
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.CommandContext(t.Context(), path, "version").Output()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(out), "sexton v7.8.9 ("), "%s", out)
}

// testExample does what the compose file does, with its files and in its order.
func testExample(t *testing.T, p program) {
	t.Helper()
	var compose struct {
		Services map[string]struct {
			Command   []string
			ReadOnly  bool     `yaml:"read_only"`
			CapDrop   []string `yaml:"cap_drop"`
			DependsOn map[string]struct{ Condition string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(deployed(t, "compose.yml")), &compose))
	for _, name := range []string{"migrate", "triggers", "worker"} {
		require.True(t, compose.Services[name].ReadOnly, name)
		require.Equal(t, []string{"ALL"}, compose.Services[name].CapDrop, name)
	}
	db := pgtest.New(t)
	db.Exec(deployed(t, "example/schema.sql"))
	folder := filepath.Join("..", "deploy", "example")
	for _, name := range []string{"migrate", "triggers"} {
		p.run(t, folder, db.URL, 0, compose.Services[name].Command...)
	}
	db.Exec("DELETE FROM projects WHERE id = 1")
	p.run(t, folder, db.URL, 0, "job", "run", kind)
	require.EqualValues(t, 900, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues"))
}

// The unit starts the program as the documentation installs it, and gives it time to stop.
func TestTheUnitFitsTheProgram(t *testing.T) {
	t.Parallel()
	unit := deployed(t, "systemd/sexton.service")
	require.Contains(t, unit, "\nExecStart=/usr/local/bin/sexton run --config /etc/sexton/sexton.yaml\n")
	require.Contains(t, unit, "\nRestartPreventExitStatus=2 3\n")
	require.Contains(t, unit, "\nTimeoutStopSec=30\n")
}

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// readmeShell returns the shell blocks of one section of the README, in order.
func readmeShell(t *testing.T, heading string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, found, "README.md has no section %q", heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for _, match := range regexp.MustCompile("(?s) *```sh\n(.*?)\n *```").FindAllStringSubmatch(section, -1) {
		// Blocks inside a list are indented as a whole.
		indent := match[1][:len(match[1])-len(strings.TrimLeft(match[1], " "))]
		blocks = append(blocks, strings.ReplaceAll("\n"+match[1], "\n"+indent, "\n"))
	}
	return blocks
}

// testReadmeSteps does what a new user does: the five steps, word for word, in one shell.
func testReadmeSteps(t *testing.T, p program) {
	t.Helper()
	db := pgtest.New(t)
	db.Exec(`
		CREATE TABLE projects (id bigint PRIMARY KEY);
		CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint REFERENCES projects);
		CREATE INDEX ON issues (project_id);
		INSERT INTO projects VALUES (1), (2);
		INSERT INTO issues SELECT n, n % 2 + 1 FROM generate_series(1, 10) AS n;`)
	steps := readmeShell(t, "Connect it to your own database in five steps")
	require.Len(t, steps, 5)

	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", strings.Join(steps, "\n"))
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"DATABASE_URL=" + db.URL, "PATH=" + filepath.Dir(p.path) + ":" + os.Getenv("PATH"), "HOME=" + cmd.Dir}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "the README's steps: %s", out)
	require.Contains(t, string(out), "ok: 1 database, 1 definition")
	require.Contains(t, string(out), "deleted    5 rows: issues 5")
	require.EqualValues(t, 0, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues WHERE project_id = 1"))
	require.EqualValues(t, 5, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues"))
	require.EqualValues(t, 0, pgtest.Scalar[int64](t, db, backlogSQL))
}

// The first of the two commands must name tests that exist: -run is silent where nothing matches.
func TestReadmeCommandsNameTests(t *testing.T) {
	t.Parallel()
	commands := readmeShell(t, "Two commands")
	require.Len(t, commands, 2)
	require.Contains(t, commands[0], "go test ./integration -run TestProgram/GitLab ")
	require.Contains(t, commands[1], "go test ./...")
}

package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/pgtest"
)

// The sections whose commands are run.
const (
	readmeCommands = "Two commands"
	readmeSteps    = "Connect it to your own database in five steps"
)

// readmeShell returns the shell blocks of one section of the README, in order.
func readmeShell(t *testing.T, heading string) []string {
	t.Helper()
	return readmeBlocks(t, heading, "sh")
}

func readmeBlocks(t *testing.T, heading, language string) []string {
	t.Helper()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "README.md")))(t)
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, found, "README.md has no section %q", heading)
	section, _, _ = strings.Cut(section, "\n## ")
	var blocks []string
	for _, match := range regexp.MustCompile("(?s) *```"+language+"\n(.*?)\n *```").FindAllStringSubmatch(section, -1) {
		// Blocks inside a list are indented as a whole.
		indent := match[1][:len(match[1])-len(strings.TrimLeft(match[1], " "))]
		blocks = append(blocks, strings.ReplaceAll("\n"+match[1], "\n"+indent, "\n")[1:])
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
	blocks := readmeShell(t, readmeSteps)[1:] // The first has built the binary.
	require.Len(t, blocks, 5)
	blocks = append(blocks, readmeShell(t, "The worker")...)

	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", strings.Join(blocks, "\n"))
	cmd.Dir = t.TempDir()
	cmd.Env = []string{"DATABASE_URL=" + db.URL, "PATH=" + filepath.Dir(p.path) + ":" + os.Getenv("PATH"), "HOME=" + cmd.Dir}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "the README's steps: %s", out)
	require.Contains(t, string(out), "ok: 1 database, 1 definition")
	require.Contains(t, string(out), "deleted    5 rows: issues 5")
	require.EqualValues(t, 0, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues WHERE project_id = 1"))
	require.EqualValues(t, 5, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues"))
	require.EqualValues(t, 0, pgtest.Scalar[int64](t, db, backlogSQL))
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM sexton.river_job"), "job enqueue")

	sql := readmeBlocks(t, "The worker", "sql")
	require.Len(t, sql, 1)
	db.Exec(sql[0])
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM sexton.river_job"), "the job is there already")
}

// testReadmeDemo runs the first of the two commands, word for word, in a terminal, until somebody has seen enough.
func testReadmeDemo(t *testing.T) {
	t.Helper()
	words := strings.Fields(readmeShell(t, readmeCommands)[0])
	d := newDemoRun(t, words[0], words[1:]...)
	d.cmd.Dir = ".."
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.tmp)
	d.inTerminal(t)
	d.shows(t, `[1-9][0-9,]* paid off`)
	pgtest.Must(d.terminal.WriteString("\x03"))(t)
	d.exit(t) // Of go run, which ends with 1 after Ctrl-C whatever the program ends with.
	require.Regexp(t, `[0-9,]+ parents deleted, [0-9,]+ rows deleted`, d.out.String())
	d.nothingLeft(t)
}

// Nobody runs shell blocks but the tests above: one in another section would be left out.
func TestReadmeShellIsRun(t *testing.T) {
	t.Parallel()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "README.md")))(t)
	var known int
	for _, heading := range []string{readmeCommands, readmeSteps, "The worker"} {
		known += len(readmeShell(t, heading))
	}
	require.Equal(t, known, strings.Count(string(text), "```sh\n"), "shell blocks of README.md that a test runs, and all of them")
	require.Equal(t, []string{"go run ./cmd/worker demo", "go test -timeout 30m ./..."}, readmeShell(t, readmeCommands))
}

// What the section shows is a configuration, with every key at its place.
func TestReadmeSeveralDatabases(t *testing.T) {
	t.Parallel()
	blocks := readmeBlocks(t, "Several databases", "yaml")
	require.Len(t, blocks, 1)
	path := filepath.Join(t.TempDir(), "sexton.yaml")
	require.NoError(t, os.WriteFile(path, []byte(blocks[0]), 0o600))
	c, err := config.Load(config.Options{Path: path, Environ: []string{"DATABASE_URL=postgres://h/main", "CI_DATABASE_URL=postgres://h/ci"}})
	require.NoError(t, err)
	require.Len(t, c.Databases, 2)
	require.Equal(t, []string{"ci_*", "p_ci_*"}, c.Databases[1].Tables)
	require.Equal(t, "main", c.Jobs.Database)
}

func TestReadmeLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "README.md")))(t)
	links := regexp.MustCompile(`\]\(([^)#]+)\)`).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, links)
	for _, link := range links {
		if !strings.Contains(link[1], "://") {
			_, err := os.Stat(filepath.Join("..", link[1]))
			require.NoError(t, err, "link to %s", link[1])
		}
	}
}

package integration

import (
	"io/fs"
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

// testOperations runs the commands of docs/operations.md, word for word: install, upgrade, roll back.
func testOperations(t *testing.T, p program) {
	t.Helper()
	blocks := docBlocks(t, "operations.md", "sh")
	require.Len(t, blocks, 4)
	// Roles belong to the server, so it is one of the test's own.
	server := pgtest.Server(t).URL("postgres")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "loose_foreign_keys.yml"),
		[]byte("issues:\n  - {table: projects, column: project_id, on_delete: async_delete}\n"), 0o600))
	shell := func(script string) string {
		cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", script)
		cmd.Dir = dir
		cmd.Env = []string{"DATABASE_URL=" + server, "PATH=" + filepath.Dir(p.path) + ":" + os.Getenv("PATH"), "HOME=" + dir}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", script, out)
		return string(out)
	}
	shell(`psql -X -q -v ON_ERROR_STOP=1 "$DATABASE_URL" -c 'CREATE TABLE projects (id bigint PRIMARY KEY)' \
		-c 'CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint)' -c 'CREATE INDEX ON issues (project_id)'`)
	shell(blocks[0])
	require.Equal(t, "sexton_app\nsexton_owner\nsexton_viewer\nsexton_worker\n", shell(`psql -X -At "$DATABASE_URL" -c "SELECT rolname FROM pg_roles WHERE rolname LIKE 'sexton%' ORDER BY 1"`))

	// An earlier version: a component has other functions, and one is missing.
	shell(`psql -X -q -v ON_ERROR_STOP=1 "$DATABASE_URL" -c 'DROP FUNCTION sexton.job_status(bigint)' \
		-c "DELETE FROM sexton.objects WHERE identity LIKE '%job_status%'" -c "UPDATE sexton.objects SET identity = 'earlier' WHERE kind = 'functions' AND component = 'jobs'"`)
	require.Contains(t, shell(blocks[1]), "run `sexton migrate up`")
	require.Equal(t, "t\n", shell(`psql -X -At "$DATABASE_URL" -c "SELECT to_regprocedure('sexton.job_status(bigint)') IS NOT NULL"`))
	shell(blocks[2])
	require.Equal(t, "sexton_new_partitions\n", shell(`psql -X -At "$DATABASE_URL" -c "SELECT evtname FROM pg_event_trigger"`))
	shell(blocks[3])
	require.Contains(t, shell("sexton migrate down"), "nothing is installed")
}

// Every shell block of docs is one that a test runs, by file.
func TestShellOfTheDocumentsIsRun(t *testing.T) {
	t.Parallel()
	run := map[string]int{"operations.md": 4, "sql.md": 1}
	files := pgtest.Must(filepath.Glob(filepath.Join("..", "docs", "*.md")))(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		name := filepath.Base(file)
		require.Len(t, docBlocks(t, name, "sh"), run[name], "shell blocks of docs/%s that a test runs", name)
	}
}

// A newcomer finds every document in the README.
func TestReadmeNamesEveryDocument(t *testing.T) {
	t.Parallel()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "README.md")))(t)
	_, section, found := strings.Cut(string(text), "\n## More\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	files := pgtest.Must(filepath.Glob(filepath.Join("..", "docs", "*.md")))(t)
	require.NotEmpty(t, files)
	for _, file := range files {
		require.Contains(t, section, "](docs/"+filepath.Base(file)+")")
	}
}

// What is shown of sexton.yaml is read by the program, with every key at its place. Those of docs/definitions.md have a test of
// their own.
func TestConfigurationOfTheDocumentsIsRead(t *testing.T) {
	t.Parallel()
	files := pgtest.Must(filepath.Glob(filepath.Join("..", "docs", "*.md")))(t)
	read := 0
	for _, file := range append(files, filepath.Join("..", "README.md")) {
		text := pgtest.Must(os.ReadFile(file))(t)
		if filepath.Base(file) == "definitions.md" {
			continue
		}
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
			if regexp.MustCompile(`^(comments|scrape_configs):`).MatchString(block[1]) {
				continue // Definitions, and Prometheus's own.
			}
			dir := t.TempDir()
			for _, secret := range []string{"password", "token"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, secret), []byte("secret\n"), 0o600))
			}
			path := filepath.Join(dir, "sexton.yaml")
			require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(block[1], "/etc/sexton/", dir+"/")), 0o600))
			_, err := config.Load(config.Options{Path: path, Environ: []string{"DATABASE_URL=postgres://h/main", "CI_DATABASE_URL=postgres://h/ci"}})
			require.NoError(t, err, "%s: %s", file, block[1])
			read++
		}
	}
	require.GreaterOrEqual(t, read, 5)
}

// Links of the documents lead to files, and to headings where they name one.
func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	files := pgtest.Must(filepath.Glob(filepath.Join("..", "docs", "*.md")))(t)
	anchor := strings.NewReplacer(" ", "-", "`", "", ",", "", "/", "", ".", "", "(", "", ")", "", ":", "")
	for _, file := range files {
		text := pgtest.Must(os.ReadFile(file))(t)
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, heading, _ := strings.Cut(link[1], "#")
			target := file
			if path != "" {
				target = filepath.Join("..", "docs", path)
			}
			content, err := os.ReadFile(target)
			if info, statErr := os.Stat(target); statErr == nil && info.IsDir() {
				continue
			}
			require.NoError(t, err, "link %s of %s", link[1], file)
			if heading == "" {
				continue
			}
			var headings []string
			for _, line := range regexp.MustCompile("(?m)^#+ (.+)$").FindAllStringSubmatch(string(content), -1) {
				headings = append(headings, anchor.Replace(strings.ToLower(line[1])))
			}
			require.Contains(t, headings, heading, "link %s of %s", link[1], file)
		}
	}
}

func TestTheTestsOfSecurityExist(t *testing.T) {
	t.Parallel()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", "security.md")))(t)
	there := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(source, -1) {
			there[string(match[1])] = true
		}
		return err
	}))
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(named), 40)
	for _, match := range named {
		require.True(t, there[match[1]], "docs/security.md names %s, which no package has", match[1])
	}
}

package integration

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// requirePsql skips a test of shell commands if psql is not installed. Downloaded servers
// have no psql. Debian's psql is a script that fails if no version of the client is
// installed.
func requirePsql(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "psql", "--version").CombinedOutput(); err != nil {
		t.Skipf("psql is not installed: %s %s", err, out)
	}
}

// shell returns a command that runs a script of a document with bash in the folder dir.
// The script stops at the first error and finds the program in its PATH.
func (p program) shell(ctx context.Context, dir, url, script string, environ ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", script)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"DATABASE_URL=" + url, "PATH=" + filepath.Dir(p.path) + ":" + os.Getenv("PATH"), "HOME=" + dir,
	}, environ...)
	return cmd
}

// runShell runs a script like shell, requires that it succeeds, and returns its output.
func (p program) runShell(t *testing.T, dir, url, script string, environ ...string) string {
	out, err := p.shell(t.Context(), dir, url, script, environ...).CombinedOutput()
	require.NoError(t, err, "%s: %s", script, out)
	return string(out)
}

// operationsBlocks is the number of shell blocks in docs/operations.md. testOperations
// runs the blocks before the index firstCopy, and testCopies runs the other blocks.
const (
	operationsBlocks = 11
	firstCopy        = 3
)

// testOperations runs the commands of docs/operations.md for installation, upgrade and
// removal word for word.
func testOperations(t *testing.T, p program) {
	requirePsql(t)
	blocks := docBlocks(t, "operations.md", "sh")
	require.Len(t, blocks, operationsBlocks)
	// Roles are shared by all databases of a server, so the test needs a private server.
	server := pgtest.Server(t).URL("postgres")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "loose_foreign_keys.yml"),
		[]byte("issues:\n  - {table: projects, column: project_id, on_delete: async_delete}\n"), 0o600))
	shell := func(script string) string { return p.runShell(t, dir, server, script) }
	shell(`psql -X -q -v ON_ERROR_STOP=1 "$DATABASE_URL" -c 'CREATE TABLE projects (id bigint PRIMARY KEY)' \
		-c 'CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint)' -c 'CREATE INDEX ON issues (project_id)' \
		-c 'CREATE ROLE sexton_worker LOGIN' -c 'CREATE ROLE app LOGIN'`)
	shell(blocks[0])
	require.Equal(t, "t|t|f\n", shell(`psql -X -At "$DATABASE_URL" -c "SELECT has_table_privilege('sexton_worker', 'issues', 'DELETE'),
		has_function_privilege('app', 'sexton.job_status(bigint)', 'EXECUTE'), has_table_privilege('app', 'issues', 'DELETE')"`))

	// The database gets the state of an older version, which lacks a function.
	shell(`psql -X -q -v ON_ERROR_STOP=1 "$DATABASE_URL" -c 'DROP FUNCTION sexton.job_status(bigint)'`)
	require.Contains(t, shell(blocks[1]), "run `sexton migrate up`")
	require.Equal(t, "t\n",
		shell(`psql -X -At "$DATABASE_URL" -c "SELECT to_regprocedure('sexton.job_status(bigint)') IS NOT NULL"`))
	runTroubleshooting(t, shell)
	shell(blocks[2])
	require.Contains(t, shell("sexton migrate down"), "nothing is installed")
}

// testCopies runs the commands of docs/operations.md that copy, restore and move a
// database word for word. Each copy must clean up the pending deletions and its own
// deletions.
func testCopies(t *testing.T, p program) {
	blue, green := pgtest.Server(t, map[string]string{"wal_level": "logical"}), pgtest.Server(t)
	path := filepath.Dir(p.path) + ":" + blue.BinDir() + ":" + os.Getenv("PATH")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "loose_foreign_keys.yml"),
		[]byte("issues:\n  - {table: projects, column: project_id, on_delete: async_delete}\n"), 0o600))
	shell := func(from, to, script string) string {
		return p.runShell(t, dir, from, script, "NEW_URL="+to, "ADMIN_URL="+blue.URL("postgres"), "PATH="+path)
	}
	for _, tool := range []string{"psql", "pg_dump", "pg_dumpall", "pg_restore"} {
		if strings.Contains(shell("", "", tool+" --version || echo missing"), "missing") {
			t.Skip(tool + " is not installed")
		}
	}
	// pg_dump refuses a server of a newer version.
	client := pgtest.Must(strconv.Atoi(strings.TrimSpace(shell("", "",
		`pg_dump --version | grep -oE '[0-9]+' | head -1`))))(t)
	if server := pgtest.Scalar[int](t, pgtest.Connect(t, blue.URL("postgres")),
		"SELECT current_setting('server_version_num')::int / 10000"); client < server {
		t.Skipf("pg_dump %d is older than the server, %d", client, server)
	}
	create := func(server *devpg.Server, name string) string {
		pgtest.Exec(t, pgtest.Connect(t, server.URL("postgres")), "CREATE DATABASE "+name)
		return server.URL(name)
	}
	app := create(blue, "app")
	source := pgtest.Connect(t, app)
	pgtest.Exec(t, source, `
		CREATE TABLE projects (id bigint PRIMARY KEY);
		CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint);
		CREATE INDEX ON issues (project_id);
		INSERT INTO projects SELECT generate_series(1, 5);
		INSERT INTO issues SELECT n, n % 5 + 1 FROM generate_series(1, 20) AS n`)
	shell(app, "", "sexton migrate up; sexton triggers install")
	pgtest.Exec(t, source, "DELETE FROM projects WHERE id = 1")
	require.NoError(t, source.Close(t.Context())) // CREATE DATABASE needs a template without sessions.
	// checkCopy requires that the worker processes tombstones in a copy, that no orphans
	// are left, and that doctor reports no errors. pending is the number of parents that
	// were deleted before the copy was made.
	checkCopy := func(what, url string, pending int) {
		copied := pgtest.Connect(t, url)
		pgtest.Exec(t, copied, "INSERT INTO projects VALUES (9); INSERT INTO issues VALUES (99, 9)")
		pgtest.Exec(t, copied, "DELETE FROM projects WHERE id = 9")
		require.Contains(t, shell(url, "", "sexton job run loose_foreign_keys_cleanup"),
			fmt.Sprintf("tombstones %d processed", pending+1), what)
		require.Zero(t, pgtest.Scalar[int64](t, copied,
			"SELECT count(*) FROM issues WHERE project_id NOT IN (SELECT id FROM projects)"), what)
		require.Contains(t, shell(url, "", "sexton doctor"), " 0 errors, ", what)
		require.NoError(t, copied.Close(t.Context()))
	}
	blocks := docBlocks(t, "operations.md", "sh")[firstCopy:]
	roles, structure, backup, template, promotion, replicate, switchOver, check := blocks[0], blocks[1], blocks[2],
		blocks[3], blocks[4], blocks[5], blocks[6], blocks[7]

	url := create(blue, "structure")
	shell(app, url, structure)
	checkCopy("structure", url, 0)
	url = create(blue, "restored")
	shell(app, url, backup)
	checkCopy("backup", url, 1)
	shell(app, blue.URL("app_copy"), template)
	checkCopy("template", blue.URL("app_copy"), 1)

	url = create(green, "app")
	shell(app, url, roles)
	shell(app, url, replicate)
	pgtest.Exec(t, pgtest.Connect(t, app), "DELETE FROM projects WHERE id = 2")
	pgtest.Await(t, pgtest.Connect(t, url), "the new database to have all rows", `SELECT (SELECT count(*) FROM projects) = 3
		AND (SELECT count(*) FROM loose_foreign_keys_deleted_records) = 2 AND NOT EXISTS (SELECT FROM pg_subscription_rel WHERE srsubstate <> 'r')`)
	shell(app, url, switchOver)
	checkCopy("logical replication", url, 2)

	standby := pgtest.Standby(t, blue, "standby")
	shell(app, standby.URL("app"), promotion)
	shell(app, standby.URL("app"), check)
	checkCopy("promotion", standby.URL("app"), 2)
}

// testGettingStarted runs the commands of docs/getting-started.md on a database with
// foreign keys in which Sexton is not installed.
func testGettingStarted(t *testing.T, p program) {
	requirePsql(t)
	db := pgtest.New(t)
	db.Exec(string(pgtest.Must(os.ReadFile("../internal/cli/schema/testdata/chinook.sql"))(t)) + "ANALYZE")
	out := p.runShell(t, t.TempDir(), db.URL, strings.Join(docBlocks(t, "getting-started.md", "sh"), "\n"))
	require.Contains(t, out, "written: loose_foreign_keys.yml, sexton.yaml\n")
	require.Contains(t, out, "ok: 1 database, 2 definitions")
	require.Regexp(t, `deleted +\d+ rows: invoice_line \d+`, out)
	require.Contains(t, out, "ON DELETE CASCADE NOT VALID;\n")
}

// tutorialBlocks is the number of shell blocks in docs/tutorial.md.
const tutorialBlocks = 12

// testTutorial runs the blocks of docs/tutorial.md in one shell.
func testTutorial(t *testing.T, p program) {
	requirePsql(t)
	blocks := docBlocks(t, "tutorial.md", "sh")
	require.Len(t, blocks, tutorialBlocks)
	// Roles are shared by all databases of a server, so the test needs a private server.
	server := pgtest.Server(t).URL("postgres")
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	cmd := p.shell(ctx, t.TempDir(), server, strings.Join(blocks, "\n"),
		"WORKER_URL="+strings.Replace(server, "//postgres@", "//documents_worker:secret@", 1), "SEXTON_HTTP__LISTEN=")
	// The worker is in the process group of the shell, so that killing the group ends the
	// shell and the worker.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	pgtest.Guard(t, -cmd.Process.Pid)
	t.Cleanup(func() { _ = cmd.Cancel() })
	err := cmd.Wait()
	log, _ := os.ReadFile(filepath.Join(cmd.Dir, "sexton.log"))
	require.NoError(t, err, "%s\n%s", &out, log)
	for _, want := range []string{
		"ok: 1 database, 3 definitions", " 0 errors, ", "ghost@example.com |         6",
		`{"bucket": "uploads", "storage_key": "files/1"}`, "3 rows restored",
	} {
		require.Contains(t, out.String(), want)
	}
}

// runTroubleshooting runs the commands that docs/troubleshooting.md lists for symptoms,
// except the list of groups, because the database has no groups.
func runTroubleshooting(t *testing.T, shell func(string) string) {
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", "troubleshooting.md")))(t)
	commands := regexp.MustCompile("(?m)^\\| [^|]+ \\| `(sexton [a-z -]+)` \\|").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(commands), 12)
	for _, match := range commands {
		if match[1] != "sexton group list" {
			shell(match[1] + " || test $? -eq 5") // Exit code 5 means that the command found problems.
		}
	}
}

// Every block of commands in the documents must be run by a test. The map run holds the
// number of tested blocks by file and language. Other tests read the blocks of
// sexton.yaml and of definitions.
func TestDocumentCommandsAreTested(t *testing.T) {
	t.Parallel()
	known := 0
	for _, heading := range []string{readmeCommands, readmeInstall, readmeSteps, readmeWorker} {
		known += len(readmeShell(t, heading))
	}
	run := map[string]int{
		"../README.md sh": known, "../README.md sql": 1, "operations.md sh": operationsBlocks, "operations.md sql": 2,
		"getting-started.md sh": 4, "definitions.md sql": 2,
		"sql.md sh":      1,
		"tutorial.md sh": tutorialBlocks, "events.md sql": 2, "events.md python": 1, "events.md js": 1,
		// TestUndoInTwoDatabases and TestTombstonesOfAReplacedTable in
		// internal/cli/records run these blocks and the SQL of operations.md.
		"undo.md console": 1, "page.md sql": 2,
	}
	found := map[string]int{}
	for name, text := range readDocuments(t) {
		for _, fence := range regexp.MustCompile("(?m)^ *```([a-z]+)$").FindAllStringSubmatch(text, -1) {
			if fence[1] != "yaml" && fence[1] != "text" {
				found[name+" "+fence[1]]++
			}
		}
	}
	require.Equal(t, run, found)
	require.Equal(t, []string{"go run ./cmd/worker demo", "go test -timeout 30m ./..."}, readmeShell(t, readmeCommands))
}

// readDocuments returns the texts of all documents by their paths relative to docs.
func readDocuments(t *testing.T) map[string]string {
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "../*.md", "contributing/*.md"} {
		files := pgtest.Must(filepath.Glob(filepath.Join("..", "docs", pattern)))(t)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			texts[filepath.ToSlash(pgtest.Must(filepath.Rel(filepath.Join("..", "docs"),
				file))(t))] = string(pgtest.Must(os.ReadFile(file))(t))
		}
	}
	return texts
}

// All examples of sexton.yaml in the documents must be valid. testDefinitions reads the
// examples of docs/definitions.md.
func TestDocumentConfigurationIsValid(t *testing.T) {
	t.Parallel()
	read := 0
	for file, text := range readDocuments(t) {
		if file == "definitions.md" {
			continue
		}
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
			if regexp.MustCompile(`^(comments|attachments|global|scrape_configs):`).MatchString(block[1]) {
				// The block contains definitions or a Prometheus configuration.
				continue
			}
			dir := t.TempDir()
			for _, secret := range []string{"password", "token"} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, secret), []byte("secret\n"), 0o600))
			}
			path := filepath.Join(dir, "sexton.yaml")
			require.NoError(t, os.WriteFile(path, []byte(strings.ReplaceAll(block[1], "/etc/sexton/", dir+"/")), 0o600))
			_, err := config.Load(config.Options{
				Path:    path,
				Environ: []string{"DATABASE_URL=postgres://h/main", "CI_DATABASE_URL=postgres://h/ci"},
			})
			require.NoError(t, err, "%s: %s", file, block[1])
			read++
		}
	}
	require.GreaterOrEqual(t, read, 5)
}

// The links in the documents must lead to existing files and headings.
func TestLinksInDocuments(t *testing.T) {
	t.Parallel()
	anchor := strings.NewReplacer(" ", "-", "`", "", ",", "", "/", "", ".", "", "(", "", ")", "", ":", "")
	for file, text := range readDocuments(t) {
		for _, link := range regexp.MustCompile(`(?:\]\(|src(?:set)?=")([^)\s"]+)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, heading, _ := strings.Cut(link[1], "#")
			target := filepath.Join("..", "docs", file)
			if path != "" {
				target = filepath.Join(filepath.Dir(target), path)
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

// No packages or images are published, so the documents must not name a registry. They
// describe a build from a clone and with deploy/release.
func TestDocumentsNameNoRegistry(t *testing.T) {
	t.Parallel()
	for file, text := range readDocuments(t) {
		require.NotRegexp(t,
			`go install sexton|@latest|(docker|podman) pull|(apt|apt-get|dnf|brew|helm) install sexton`, text, file)
	}
}

func TestPromisesNameExistingTests(t *testing.T) {
	t.Parallel()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", "contributing", "promises.md")))(t)
	declared := map[string]bool{}
	require.NoError(t, filepath.WalkDir("..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(source, -1) {
			declared[string(match[1])] = true
		}
		return err
	}))
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(named), 40)
	for _, match := range named {
		require.True(t, declared[match[1]], "docs/contributing/promises.md names %s, which no package has", match[1])
	}
}

// These constants are the headings of the README sections whose commands tests run.
const (
	readmeCommands = "Try it"
	readmeInstall  = "Install"
	readmeSteps    = "Connect your database in five steps"
	readmeWorker   = "Run it"
)

// readmeShell returns the shell blocks of one section of the README, in order.
func readmeShell(t *testing.T, heading string) []string {
	return readmeBlocks(t, heading, "sh")
}

func readmeBlocks(t *testing.T, heading, language string) []string {
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "README.md")))(t)
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	require.True(t, found, "README.md has no section %q", heading)
	section, _, _ = strings.Cut(section, "\n## ")
	return fencedBlocks(section, language)
}

// testReadmeSteps runs the five steps of the README word for word in one shell, like a
// new user.
func testReadmeSteps(t *testing.T, p program) {
	requirePsql(t)
	db := pgtest.New(t)
	db.Exec(`
		CREATE TABLE projects (id bigint PRIMARY KEY);
		CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint REFERENCES projects);
		CREATE INDEX ON issues (project_id);
		INSERT INTO projects VALUES (1), (2);
		INSERT INTO issues SELECT n, n % 2 + 1 FROM generate_series(1, 10) AS n;`)
	blocks := readmeShell(t, readmeSteps)
	require.Len(t, blocks, 5)
	blocks = append(blocks, readmeShell(t, readmeWorker)...)

	out := p.runShell(t, t.TempDir(), db.URL, strings.Join(blocks, "\n"))
	require.Contains(t, out, "ok: 1 database, 1 definition")
	require.Contains(t, out, "deleted    5 rows: issues 5")
	require.EqualValues(t, 0, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues WHERE project_id = 1"))
	require.EqualValues(t, 5, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues"))
	require.EqualValues(t, 0, pgtest.Scalar[int64](t, db, backlogSQL))
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM sexton.river_job"), "job enqueue")

	sql := readmeBlocks(t, readmeWorker, "sql")
	require.Len(t, sql, 1)
	db.Exec(sql[0])
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM sexton.river_job"),
		"a job must not be inserted twice")
}

// testReadmeDemo runs the demo command of the README word for word in a terminal, and
// stops it with Ctrl-C.
func testReadmeDemo(t *testing.T) {
	words := strings.Fields(readmeShell(t, readmeCommands)[0])
	d := newDemoRun(t, words[0], words[1:]...)
	d.cmd.Dir = ".."
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.tmp)
	d.startInTerminal(t)
	d.waitForOutput(t, `[1-9][0-9,]* rows changed`)
	pgtest.Must(d.terminal.WriteString("\x03"))(t)
	d.waitExit(t) // go run exits with 1 after Ctrl-C regardless of the program's exit code.
	require.Regexp(t, `[0-9,]+ of [0-9,]+ parents deleted, `, d.out.String())
	d.requireNothingLeft(t)
}

// example is a block of docs/definitions.md with the blocks before and after it that
// belong to it.
type example struct {
	// file is the name in the block's first line: sexton.yaml or loose_foreign_keys.yml.
	file, text string
	// tables is SQL that creates the tables of a database. If it is empty, only the files
	// are checked. config is the sexton.yaml of a definitions example.
	tables, config string
	// messages is the program's expected output. It is empty for a valid example.
	messages string
}

func definitionExamples(t *testing.T) []example {
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", "definitions.md")))(t)
	var examples []example
	tables, valid, end := "", 0, 0
	for _, match := range regexp.MustCompile("(?ms)^```(yaml|sql|text)\n(.*?)^```$").FindAllStringSubmatchIndex(string(text), -1) {
		joined := strings.TrimSpace(string(text[end:match[0]])) == ""
		end = match[1]
		switch language, block := string(text[match[2]:match[3]]), string(text[match[4]:match[5]]); language {
		case "sql":
			tables = block
		case "yaml":
			first, _, _ := strings.Cut(block, "\n")
			file, named := strings.CutPrefix(first, "# ")
			require.True(t, named, "the first line of the block must name its file:\n%s", block)
			e := example{file: file, text: block, tables: tables}
			if last := len(examples) - 1; joined && last >= 0 && examples[last].file == "sexton.yaml" {
				e.config = examples[last].text
			}
			examples, tables = append(examples, e), ""
			valid++
		case "text":
			examples[len(examples)-1].messages = block
			valid--
		}
	}
	require.GreaterOrEqual(t, valid, 3, "valid examples")
	require.NotZero(t, len(examples)-valid, "invalid examples")
	return examples
}

// testDefinitions makes the program read every example of docs/definitions.md and
// compares its messages.
func testDefinitions(t *testing.T, p program) {
	for _, e := range definitionExamples(t) {
		dir := t.TempDir()
		const smallest = "issues:\n  - {table: projects, column: project_id, on_delete: async_delete}\n"
		files := map[string]string{"loose_foreign_keys.yml": smallest, "sexton.yaml": e.config}
		files[e.file] = e.text
		for file, text := range files {
			if text != "" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
		}
		url := "postgres://localhost/app"
		if e.tables != "" {
			db := pgtest.New(t)
			db.Exec(e.tables)
			url = db.URL
		}
		sexton := func(words ...string) (output string, code int) {
			cmd := exec.CommandContext(t.Context(), p.path, words...)
			cmd.Dir, cmd.Env = dir, []string{"DATABASE_URL=" + url, "HOME=" + dir}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			_ = cmd.Run()
			return stderr.String(), cmd.ProcessState.ExitCode()
		}
		output, code := sexton("config", "check")
		if e.tables != "" {
			require.Zero(t, code, "config check needs no database: %s", output)
			output, code = sexton("migrate", "up")
			require.Zero(t, code, output)
			output, code = sexton("triggers", "install")
		}
		want := 0
		if e.messages != "" && !strings.HasPrefix(e.messages, "sexton: warning: ") {
			want = 2
		}
		require.Equal(t, e.messages, output, "messages of the program for\n%s", e.text)
		require.Equal(t, want, code, "exit code for\n%s", e.text)
	}
}

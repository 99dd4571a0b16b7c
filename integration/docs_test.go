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

// requirePsql skips a test of shell commands if psql is not installed: a downloaded
// server comes without it. Debian's psql is a script that fails where no version of the
// client is installed.
func requirePsql(t *testing.T) {
	if out, err := exec.CommandContext(t.Context(), "psql", "--version").CombinedOutput(); err != nil {
		t.Skipf("psql is not installed: %s %s", err, out)
	}
}

// The blocks of docs/operations.md: testCopies runs those from firstCopy on.
const (
	operationsBlocks = 11
	firstCopy        = 3
)

// testOperations runs the commands of docs/operations.md, word for word: install,
// upgrade, roll back.
func testOperations(t *testing.T, p program) {
	requirePsql(t)
	blocks := docBlocks(t, "operations.md", "sh")
	require.Len(t, blocks, operationsBlocks)
	// Roles belong to the server, so it is one of the test's own.
	server := pgtest.Server(t).URL("postgres")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "loose_foreign_keys.yml"),
		[]byte("issues:\n  - {table: projects, column: project_id, on_delete: async_delete}\n"), 0o600))
	shell := func(script string) string {
		cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", script)
		cmd.Dir = dir
		cmd.Env = []string{
			"DATABASE_URL=" + server, "PATH=" + filepath.Dir(p.path) + ":" + os.Getenv("PATH"),
			"HOME=" + dir,
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", script, out)
		return string(out)
	}
	shell(`psql -X -q -v ON_ERROR_STOP=1 "$DATABASE_URL" -c 'CREATE TABLE projects (id bigint PRIMARY KEY)' \
		-c 'CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint)' -c 'CREATE INDEX ON issues (project_id)' \
		-c 'CREATE ROLE sexton_worker LOGIN' -c 'CREATE ROLE app LOGIN'`)
	shell(blocks[0])
	require.Equal(t, "t|t|f\n", shell(`psql -X -At "$DATABASE_URL" -c "SELECT has_table_privilege('sexton_worker', 'issues', 'DELETE'),
		has_function_privilege('app', 'sexton.job_status(bigint)', 'EXECUTE'), has_table_privilege('app', 'issues', 'DELETE')"`))

	// An earlier version: a function is missing.
	shell(`psql -X -q -v ON_ERROR_STOP=1 "$DATABASE_URL" -c 'DROP FUNCTION sexton.job_status(bigint)'`)
	require.Contains(t, shell(blocks[1]), "run `sexton migrate up`")
	require.Equal(t, "t\n",
		shell(`psql -X -At "$DATABASE_URL" -c "SELECT to_regprocedure('sexton.job_status(bigint)') IS NOT NULL"`))
	runTroubleshooting(t, shell)
	shell(blocks[2])
	require.Contains(t, shell("sexton migrate down"), "nothing is installed")
}

// testCopies runs the commands of docs/operations.md that copy, restore and move a
// database, word for word. Each copy cleans up what is pending, and what is deleted
// there.
func testCopies(t *testing.T, p program) {
	blue, green := pgtest.Server(t, map[string]string{"wal_level": "logical"}), pgtest.Server(t)
	path := filepath.Dir(p.path) + ":" + blue.BinDir() + ":" + os.Getenv("PATH")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "loose_foreign_keys.yml"),
		[]byte("issues:\n  - {table: projects, column: project_id, on_delete: async_delete}\n"), 0o600))
	shell := func(from, to, script string) string {
		cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", script)
		cmd.Dir = dir
		cmd.Env = []string{
			"DATABASE_URL=" + from, "NEW_URL=" + to, "ADMIN_URL=" + blue.URL("postgres"), "PATH=" + path,
			"HOME=" + dir,
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", script, out)
		return string(out)
	}
	for _, tool := range []string{"psql", "pg_dump", "pg_dumpall", "pg_restore"} {
		if strings.Contains(shell("", "", tool+" --version || echo missing"), "missing") {
			t.Skip(tool + " is not installed")
		}
	}
	// pg_dump refuses a server that is newer than itself.
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
	require.NoError(t, source.Close(t.Context())) // CREATE DATABASE would wait for it.
	// pending is how many parents were deleted before the copy.
	works := func(what, url string, pending int) {
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
	roles, structure, backup, template, promotion, replicate, change, whole := blocks[0], blocks[1], blocks[2],
		blocks[3], blocks[4], blocks[5], blocks[6], blocks[7]

	url := create(blue, "structure")
	shell(app, url, structure)
	works("structure", url, 0)
	url = create(blue, "restored")
	shell(app, url, backup)
	works("backup", url, 1)
	shell(app, blue.URL("app_copy"), template)
	works("template", blue.URL("app_copy"), 1)

	url = create(green, "app")
	shell(app, url, roles)
	shell(app, url, replicate)
	pgtest.Exec(t, pgtest.Connect(t, app), "DELETE FROM projects WHERE id = 2")
	pgtest.Await(t, pgtest.Connect(t, url), "the new database to have everything", `SELECT (SELECT count(*) FROM projects) = 3
		AND (SELECT count(*) FROM loose_foreign_keys_deleted_records) = 2 AND NOT EXISTS (SELECT FROM pg_subscription_rel WHERE srsubstate <> 'r')`)
	shell(app, url, change)
	works("logical replication", url, 2)

	standby := pgtest.Standby(t, blue, "standby")
	shell(app, standby.URL("app"), promotion)
	shell(app, standby.URL("app"), whole)
	works("promotion", standby.URL("app"), 2)
}

// testGettingStarted runs the commands of docs/getting-started.md on a database that has
// foreign keys and nothing of Sexton.
func testGettingStarted(t *testing.T, p program) {
	requirePsql(t)
	db := pgtest.New(t)
	db.Exec(string(pgtest.Must(os.ReadFile("../internal/cli/schema/testdata/chinook.sql"))(t)) + "ANALYZE")
	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c",
		strings.Join(docBlocks(t, "getting-started.md", "sh"), "\n"))
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		"DATABASE_URL=" + db.URL, "PATH=" + filepath.Dir(p.path) + ":" + os.Getenv("PATH"),
		"HOME=" + cmd.Dir,
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "written: loose_foreign_keys.yml, sexton.yaml\n")
	require.Contains(t, string(out), "ok: 1 database, 2 definitions")
	require.Regexp(t, `deleted +\d+ rows: invoice_line \d+`, string(out))
	require.Contains(t, string(out), "ON DELETE CASCADE NOT VALID;\n")
}

// tutorialBlocks is the number of blocks of docs/tutorial.md.
const tutorialBlocks = 12

// testTutorial runs the blocks of docs/tutorial.md in one shell.
func testTutorial(t *testing.T, p program) {
	requirePsql(t)
	blocks := docBlocks(t, "tutorial.md", "sh")
	require.Len(t, blocks, tutorialBlocks)
	// Roles belong to the server, so it is one of the test's own.
	server := pgtest.Server(t).URL("postgres")
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, "bash", "-eu", "-o", "pipefail", "-c", strings.Join(blocks, "\n"))
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		"DATABASE_URL=" + server, "WORKER_URL=" + strings.Replace(server, "//postgres@", "//documents_worker:secret@",
			1),
		"SEXTON_HTTP__LISTEN=", "PATH=" + filepath.Dir(p.path) + ":" + os.Getenv("PATH"), "HOME=" + cmd.Dir,
	}
	// The worker is in the group of the shell.
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

// runTroubleshooting runs the commands that docs/troubleshooting.md gives for symptoms,
// except the list of groups, whose tables the site lacks.
func runTroubleshooting(t *testing.T, shell func(string) string) {
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", "troubleshooting.md")))(t)
	commands := regexp.MustCompile("(?m)^\\| [^|]+ \\| `(sexton [a-z -]+)` \\|").FindAllStringSubmatch(string(text), -1)
	require.Greater(t, len(commands), 12)
	for _, match := range commands {
		if match[1] != "sexton group list" {
			shell(match[1] + " || test $? -eq 5") // It has found something.
		}
	}
}

// Every block of commands in docs is one that a test runs, by file and language. Blocks
// of sexton.yaml and of definitions are read by tests of their own.
func TestShellOfTheDocumentsIsRun(t *testing.T) {
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
		// TestUndoInTwoDatabases and TestTombstonesOfAReplacedTable of
		// internal/cli/records have these and those of operations.md.
		"undo.md console": 1, "page.md sql": 2,
	}
	found := map[string]int{}
	for name, text := range everyDocument(t) {
		for _, fence := range regexp.MustCompile("(?m)^ *```([a-z]+)$").FindAllStringSubmatch(text, -1) {
			if fence[1] != "yaml" && fence[1] != "text" {
				found[name+" "+fence[1]]++
			}
		}
	}
	require.Equal(t, run, found)
	require.Equal(t, []string{"go run ./cmd/worker demo", "go test -timeout 30m ./..."}, readmeShell(t, readmeCommands))
}

// everyDocument has the texts of all documents, by their path from docs.
func everyDocument(t *testing.T) map[string]string {
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

// What is shown of sexton.yaml is read by the program, with every key at its place. Those
// of docs/definitions.md have a test of their own.
func TestConfigurationOfTheDocumentsIsRead(t *testing.T) {
	t.Parallel()
	read := 0
	for file, text := range everyDocument(t) {
		if file == "definitions.md" {
			continue
		}
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
			if regexp.MustCompile(`^(comments|attachments|global|scrape_configs):`).MatchString(block[1]) {
				continue // Definitions, and Prometheus's own.
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

// Links of the documents lead to files, and to headings where they name one.
func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	anchor := strings.NewReplacer(" ", "-", "`", "", ",", "", "/", "", ".", "", "(", "", ")", "", ":", "")
	for file, text := range everyDocument(t) {
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

// Nothing is published: documents promise a build from a clone, and what deploy/release
// makes.
func TestNoDocumentPromisesARegistry(t *testing.T) {
	t.Parallel()
	for file, text := range everyDocument(t) {
		require.NotRegexp(t,
			`go install sexton|@latest|(docker|podman) pull|(apt|apt-get|dnf|brew|helm) install sexton`, text, file)
	}
}

func TestTheTestsOfSecurityExist(t *testing.T) {
	t.Parallel()
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", "contributing", "promises.md")))(t)
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
		require.True(t, there[match[1]], "docs/contributing/promises.md names %s, which no package has", match[1])
	}
}

// The sections whose commands are run.
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

	cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", strings.Join(blocks, "\n"))
	cmd.Dir = t.TempDir()
	cmd.Env = []string{
		"DATABASE_URL=" + db.URL, "PATH=" + filepath.Dir(p.path) + ":" + os.Getenv("PATH"),
		"HOME=" + cmd.Dir,
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "the README's steps: %s", out)
	require.Contains(t, string(out), "ok: 1 database, 1 definition")
	require.Contains(t, string(out), "deleted    5 rows: issues 5")
	require.EqualValues(t, 0, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues WHERE project_id = 1"))
	require.EqualValues(t, 5, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM issues"))
	require.EqualValues(t, 0, pgtest.Scalar[int64](t, db, backlogSQL))
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM sexton.river_job"), "job enqueue")

	sql := readmeBlocks(t, readmeWorker, "sql")
	require.Len(t, sql, 1)
	db.Exec(sql[0])
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, db, "SELECT count(*) FROM sexton.river_job"),
		"the job is there already")
}

// testReadmeDemo runs the first of the two commands, word for word, in a terminal, until
// somebody has seen enough.
func testReadmeDemo(t *testing.T) {
	words := strings.Fields(readmeShell(t, readmeCommands)[0])
	d := newDemoRun(t, words[0], words[1:]...)
	d.cmd.Dir = ".."
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.tmp)
	d.inTerminal(t)
	d.shows(t, `[1-9][0-9,]* rows changed`)
	pgtest.Must(d.terminal.WriteString("\x03"))(t)
	d.exit(t) // Of go run, which ends with 1 after Ctrl-C whatever the program ends with.
	require.Regexp(t, `[0-9,]+ of [0-9,]+ parents deleted, `, d.out.String())
	d.nothingLeft(t)
}

// example is a block of docs/definitions.md with what stands right before and behind it.
type example struct {
	// file is sexton.yaml or loose_foreign_keys.yml, as its first line says.
	file, text string
	// tables are those of the database that is asked; without, the files alone are.
	// config is a sexton.yaml beside it.
	tables, config string
	// complaints is what the program says of it, and nothing of one that is sound.
	complaints string
}

func definitionExamples(t *testing.T) []example {
	text := pgtest.Must(os.ReadFile(filepath.Join("..", "docs", "definitions.md")))(t)
	var examples []example
	tables, sound, end := "", 0, 0
	for _, match := range regexp.MustCompile("(?ms)^```(yaml|sql|text)\n(.*?)^```$").FindAllStringSubmatchIndex(string(text), -1) {
		joined := strings.TrimSpace(string(text[end:match[0]])) == ""
		end = match[1]
		switch language, block := string(text[match[2]:match[3]]), string(text[match[4]:match[5]]); language {
		case "sql":
			tables = block
		case "yaml":
			first, _, _ := strings.Cut(block, "\n")
			file, named := strings.CutPrefix(first, "# ")
			require.True(t, named, "the block says in its first line which file it is:\n%s", block)
			e := example{file: file, text: block, tables: tables}
			if last := len(examples) - 1; joined && last >= 0 && examples[last].file == "sexton.yaml" {
				e.config = examples[last].text
			}
			examples, tables = append(examples, e), ""
			sound++
		case "text":
			examples[len(examples)-1].complaints = block
			sound--
		}
	}
	require.GreaterOrEqual(t, sound, 3, "examples that are sound")
	require.NotZero(t, len(examples)-sound, "examples that are not")
	return examples
}

// testDefinitions feeds every example of docs/definitions.md to the program.
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
			var said strings.Builder
			cmd.Stderr = &said
			_ = cmd.Run()
			return said.String(), cmd.ProcessState.ExitCode()
		}
		output, code := sexton("config", "check")
		if e.tables != "" {
			require.Zero(t, code, "config check asks no database: %s", output)
			output, code = sexton("migrate", "up")
			require.Zero(t, code, output)
			output, code = sexton("triggers", "install")
		}
		want := 0
		if e.complaints != "" && !strings.HasPrefix(e.complaints, "sexton: warning: ") {
			want = 2
		}
		require.Equal(t, e.complaints, output, "what the program says of\n%s", e.text)
		require.Equal(t, want, code, "exit code for\n%s", e.text)
	}
}

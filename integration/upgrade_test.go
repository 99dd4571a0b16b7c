package integration

import (
	"compress/gzip"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// dumpedBy is the commit of the older release in these tests. Its program created the
// dump.
const dumpedBy = "99c7dff56d48dae1e94a244c21bd64255eb9a619"

// pendingTables returns the tables with pending work in the dump, by the meaning of their
// rows.
func pendingTables() map[string]string {
	return map[string]string{
		"tombstones": "loose_foreign_keys_deleted_records", "parents to be rechecked": "sexton.swept",
		"users":        "users_ghost_user_migrations",
		"placeholders": "import_placeholder_user_details", "groups": "group_deletion_schedules",
		"destructions": "sexton.group_destructions",
		"failures":     "sexton.group_deletion_failures",
		"diffs":        "(SELECT FROM merge_request_diffs WHERE stored_externally IS NOT TRUE)",
		"objects":      "sexton.external_diff_removals",
	}
}

// startOld starts a worker of the older release and waits until it has started.
func (s workSite) startOld(t *testing.T) *runningWorker {
	w := s.start(t, []string{cronOff, loopback})
	w.waitForLog(t, `"msg":"worker started"`)
	return w
}

// restoreDump restores the dump of an older release with work of all kinds in an empty
// database, and migrates it with the program.
func (p program) restoreDump(t *testing.T, url string) workSite {
	file := pgtest.Must(os.Open("../internal/migrate/testdata/waiting.sql.gz"))(t)
	defer file.Close()
	dump := pgtest.Must(io.ReadAll(pgtest.Must(gzip.NewReader(file))(t)))(t)
	p.environ = append(slices.Clone(p.environ), "BUCKET=file://"+t.TempDir())
	s := p.site(t, url, mainSetup(`
ghost_users: {enabled: true}
placeholder_users: {enabled: true, spacing: 0s}
adjourned_groups: {enabled: true, spacing: 0s}
external_diffs: {enabled: true, bucket: "${BUCKET}"}
`, string(dump), "").withDefinitions(exampleapp.Definitions()))
	for what, table := range pendingTables() {
		require.NotZero(t, s.count(t, "SELECT count(*) FROM "+table+" AS t"), what)
	}
	return s
}

// finishAllWork starts all jobs and waits until the running workers have done all work.
func (s workSite) finishAllWork(t *testing.T) {
	for _, kind := range []string{
		"adjourned_group_deletion", "import_placeholder_user_cleanup",
		"schedule_migrate_external_diffs",
	} {
		s.run(t, 0, "job", "enqueue", kind)
	}
	// All tables must be empty at the same moment, because finished work of one kind
	// creates tombstones.
	var done []string
	for _, table := range pendingTables() {
		done = append(done, "NOT EXISTS (SELECT FROM "+table+" AS t)")
	}
	s.wait(t, time.Minute, "all work to be done", strings.Join(done, " AND "))
	require.Zero(t, s.count(t, "SELECT count(*) FROM notes WHERE noteable_id > 4"), "children of deleted issues")
	require.Zero(t, s.count(t, "SELECT count(*) FROM users WHERE id IN (1, 11, 12)"), "users and placeholders")
	require.Zero(t, s.count(t, "SELECT count(*) FROM groups WHERE id IN (2, 3)"), "groups")
}

// run runs the program, requires the exit code and returns both standard output and
// standard error.
func (s workSite) run(t *testing.T, code int, args ...string) string {
	p := s.program.start(t, s.dir, s.url, args...)
	require.Equal(t, code, p.wait(t), "exit code of sexton %v: %s%s", args, &p.stdout, &p.stderr)
	return p.stdout.String() + p.stderr.String()
}

// deleteIssue deletes an issue and waits until its notes are deleted.
func (s workSite) deleteIssue(t *testing.T, issue int) {
	const notes = "EXISTS (SELECT FROM notes WHERE noteable_id = $1)"
	require.Equal(t, int64(1), s.count(t, "SELECT count(*) WHERE "+notes, issue))
	s.exec(t, "DELETE FROM issues WHERE id = $1", issue)
	s.wait(t, time.Minute, "the notes to be deleted", "NOT "+notes, issue)
}

// testUpgrade restores the dump, migrates it and requires that a worker finishes the
// work.
func testUpgrade(t *testing.T, p program) {
	s := p.restoreDump(t, pgtest.New(t).URL)
	worker := s.startWorker(t, loopback)
	s.finishAllWork(t)
	worker.stop(t)
}

// testUpgradeWithOldWorkers upgrades while a worker of the older release is running, lets
// workers of both releases share the work, and returns to the older release. The older
// program is built from the git history, and the test is skipped without it.
func testUpgradeWithOldWorkers(t *testing.T, p program) {
	older := p
	older.path = buildCommit(t, dumpedBy)
	oldSite := older.restoreDump(t, pgtest.New(t).URL)
	newSite := oldSite
	newSite.program.path = p.path
	const users = "users_migrate_records_to_ghost_user_in_batches"
	otherKinds := []string{
		"import_placeholder_user_cleanup", "import_delete_placeholder_user", "adjourned_group_deletion",
		"group_destroy", "schedule_migrate_external_diffs",
		"migrate_external_diff",
	}
	for _, kind := range append([]string{users}, otherKinds...) {
		oldSite.run(t, 0, "pause", kind)
	}
	oldWorker := oldSite.startOld(t)
	oldSite.deleteIssue(t, 1)
	newSite.run(t, 0, "migrate", "up")
	newSite.run(t, 0, "triggers", "install")
	newSite.run(t, 0, "triggers", "status")
	oldSite.deleteIssue(t, 2)
	newSite.run(t, 0, "resume", users)
	newSite.wait(t, time.Minute, "the old worker to delete the user", "NOT EXISTS (SELECT FROM users WHERE id = 1)")

	newWorker := newSite.startWorker(t, loopback)
	require.Contains(t, newSite.run(t, 1, "migrate", "down"), "still has")
	for _, kind := range otherKinds {
		newSite.run(t, 0, "resume", kind)
	}
	newSite.finishAllWork(t)
	oldWorker.stop(t)
	newSite.deleteIssue(t, 3)

	// An older worker starts again with the functions of the newer release.
	newWorker.stop(t)
	oldWorker = oldSite.startOld(t)
	oldSite.deleteIssue(t, 4)
	oldWorker.stop(t)

	// Without pending work, migrate down removes everything, and the older release can be
	// installed again.
	newSite.run(t, 0, "migrate", "up")
	newSite.run(t, 0, "migrate", "down")
	oldSite.run(t, 0, "migrate", "up")
	oldSite.run(t, 0, "triggers", "install")
	oldWorker = oldSite.startOld(t)
	oldSite.exec(t, `INSERT INTO issues (id, project_id, title) VALUES (5, 3, '');
		INSERT INTO notes (id, noteable_type, noteable_id, note) VALUES (91, 'Issue', 5, '')`)
	oldSite.deleteIssue(t, 5)
	oldWorker.stop(t)
}

// withPgUpgrade returns the folders of the servers that include pg_upgrade, and their
// versions, oldest first. Downloaded servers lack pg_upgrade.
func withPgUpgrade(t *testing.T) (folders []string, versions []int) {
	found := map[int]string{}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*",
		os.Getenv("SEXTON_PG_BIN"),
	} {
		for _, folder := range pgtest.Must(filepath.Glob(pattern))(t) {
			out, err := exec.CommandContext(t.Context(), filepath.Join(folder, "pg_upgrade"), "--version").Output()
			if version := regexp.MustCompile(`\d+`).Find(out); err == nil && version != nil {
				found[pgtest.Must(strconv.Atoi(string(version)))(t)] = folder
			}
		}
	}
	for _, version := range slices.Sorted(maps.Keys(found)) {
		folders, versions = append(folders, found[version]), append(versions, version)
	}
	return folders, versions
}

// testServerUpgrade upgrades a server with work of all kinds with pg_upgrade, from the
// oldest installed version to the newest one, which may be the same version. Then it runs
// the commands of docs/operations.md, and a worker must finish the work.
func testServerUpgrade(t *testing.T, p program) {
	requirePsql(t)
	folders, versions := withPgUpgrade(t)
	if len(folders) == 0 {
		t.Skip("NOT RUN: pg_upgrade is not installed")
	}
	last := len(folders) - 1
	t.Logf("from Postgres %d to %d", versions[0], versions[last])
	settings := map[string]string{"max_prepared_transactions": "10", "max_locks_per_transaction": "128"}
	primary := pgtest.Must(devpg.Start(t.Context(), devpg.Options{BinDir: folders[0], Settings: settings}))(t)
	t.Cleanup(func() { require.NoError(t, primary.Stop()) })
	pgtest.Exec(t, pgtest.Connect(t, primary.URL("postgres")), "CREATE DATABASE app")
	s := p.restoreDump(t, primary.URL("app"))
	checksums := pgtest.Scalar[string](t, pgtest.Connect(t, primary.URL("app")), "SHOW data_checksums")
	// pg_upgrade needs a stopped server, and Stop removes the primary's data folder. So
	// the test upgrades a copy of the folder.
	old := pgtest.Standby(t, primary, "upgraded")
	pgtest.Exec(t, pgtest.Connect(t, old.URL("app")), "SELECT pg_promote()")
	require.NoError(t, old.Stop())

	dir := pgtest.Must(os.MkdirTemp("", "sexton-upgrade-"))(t)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	owner, ok := pgtest.Must(os.Stat(old.DataDir()))(t).Sys().(*syscall.Stat_t)
	require.True(t, ok)
	require.NoError(t, os.Chown(dir, int(owner.Uid), int(owner.Gid)))
	data := filepath.Join(dir, "data")
	tool := func(name string, args ...string) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(folders[last], name), args...)
		cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LC_ALL=C.UTF-8"}
		if os.Getuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
		}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
	initdb := []string{"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"}
	switch {
	case checksums == "on":
		initdb = append(initdb, "--data-checksums")
	case versions[last] >= 18:
		initdb = append(initdb, "--no-data-checksums")
	}
	tool("initdb", initdb...)
	tool("pg_upgrade", "--old-bindir", folders[0], "--new-bindir", folders[last], "--old-datadir", old.DataDir(),
		"--new-datadir", data,
		"--username", "postgres", "--socketdir", dir)

	upgraded := pgtest.Must(devpg.Start(t.Context(), devpg.Options{
		BinDir: folders[last], DataDir: data,
		Settings: settings,
	}))(t)
	t.Cleanup(func() { require.NoError(t, upgraded.Stop()) })
	s.url = upgraded.URL("app")
	s.pool = pgtest.Must(pgxpool.New(t.Context(), s.url))(t)
	t.Cleanup(s.pool.Close)
	blocks := docBlocks(t, "operations.md", "sh")
	p.runShell(t, s.dir, primary.URL("app"), blocks[len(blocks)-1],
		slices.Concat(s.program.environ, []string{"NEW_URL=" + s.url})...)
	worker := s.startWorker(t, loopback)
	s.finishAllWork(t)
	worker.stop(t)
	// doctor may warn, because the worker connects as a superuser.
	require.Contains(t, s.run(t, 0, "doctor"), " 0 errors, ")
}

// buildCommit builds the program of a commit and returns its path.
func buildCommit(t *testing.T, commit string) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "git", "cat-file", "-e",
		commit+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("NOT RUN: the history of this copy lacks the older release, fetch commit %s: %s", commit, out)
	}
	dir := t.TempDir()
	script := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c",
		`git -C .. archive "$1" | tar -x -C "$2"; cd "$2"; go build -o sexton ./cmd/worker; chmod -R u+w .`, "bash",
		commit, dir)
	out, err := script.CombinedOutput()
	require.NoError(t, err, "build commit %s: %s", commit, out)
	return filepath.Join(dir, "sexton")
}

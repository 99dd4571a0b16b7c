// Package integration tests Sexton as a whole on a real Postgres: the built binary, and
// the jobs inside the test process. Many tests compare the rows with those that native
// foreign keys leave.
//
// These terms recur in the tests. A site is a database in which the program has installed
// itself, with a folder of configuration files. A gate is an advisory lock at which a
// trigger stops a session between a change and its COMMIT. A late child is inserted after
// its parent was cleaned up, by a transaction that began before the parent was deleted. A
// foreground run is `sexton job run`.
package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

func TestMain(m *testing.M) {
	s3test.Prepare()
	pgtest.Main(m)
}

const kind = "loose_foreign_keys_cleanup"

// TestProgram runs the tests of the built binary. They share one build, which is removed
// when the test ends.
func TestProgram(t *testing.T) {
	t.Parallel()
	p := build(t)

	t.Run("GitLab's definitions", func(t *testing.T) { t.Parallel(); testGitLab(t, p) })
	t.Run("README", func(t *testing.T) { t.Parallel(); testReadmeSteps(t, p) })
	t.Run("foreground run killed", func(t *testing.T) { t.Parallel(); testForegroundKilled(t, p) })
	t.Run("run with an invalid definition", func(t *testing.T) { t.Parallel(); testRunInvalidDefinition(t, p) })
	t.Run("run wakes up", func(t *testing.T) { t.Parallel(); testRunWakes(t, p) })
	t.Run("run reloads", func(t *testing.T) { t.Parallel(); testRunReloads(t, p) })
	t.Run("run in a rolling deploy", func(t *testing.T) { t.Parallel(); testRunDeploy(t, p) })
	t.Run("run with a connection lost at the start",
		func(t *testing.T) { t.Parallel(); testRunConnectionLostAtStart(t, p) })
	t.Run("run stops", func(t *testing.T) { t.Parallel(); testRunStops(t, p) })
	t.Run("frozen output", func(t *testing.T) { t.Parallel(); testFrozen(t, p) })
	t.Run("run needs few connections", func(t *testing.T) { t.Parallel(); testRunConnections(t, p) })
	t.Run("run killed in a batch", func(t *testing.T) { t.Parallel(); testRunKilled(t, p) })
	t.Run("run through crashes of the server", func(t *testing.T) { t.Parallel(); testRunServerCrash(t, p) })
	t.Run("run started before the server", func(t *testing.T) { t.Parallel(); testRunBeforeServer(t, p) })
	t.Run("run with a late child", func(t *testing.T) { t.Parallel(); testRunLateChild(t, p) })
	t.Run("run in several processes", func(t *testing.T) { t.Parallel(); testRunSeveralProcesses(t, p) })
	t.Run("run serves over HTTP", func(t *testing.T) { t.Parallel(); testRunServes(t, p) })
	t.Run("run shows the page", func(t *testing.T) { t.Parallel(); testRunShowsThePage(t, p) })
	t.Run("run serves during a database outage",
		func(t *testing.T) { t.Parallel(); testRunServesDuringOutage(t, p) })
	for how, stop := range demoStops() {
		code := 0
		if how == "SIGKILL" {
			code = -1
		}
		if pgtest.Long {
			t.Run("demo ended by "+how, func(t *testing.T) { t.Parallel(); testDemoStop(t, p, false, stop, code) })
		}
		if pgtest.Long || how == "Ctrl-C" {
			t.Run("demo ended by "+how+" in a terminal",
				func(t *testing.T) { t.Parallel(); testDemoStop(t, p, true, stop, code) })
		}
	}
	t.Run("demo interrupted while loading", func(t *testing.T) { t.Parallel(); testDemoInterruptedWhileLoading(t, p) })
	t.Run("run with its leader killed", func(t *testing.T) { t.Parallel(); testRunLeaderKilled(t, p) })
	t.Run("unit that opens the page", func(t *testing.T) { t.Parallel(); testPageUnit(t, p) })
	t.Run("manifests of Kubernetes", func(t *testing.T) { t.Parallel(); testKubernetes(t, p) })
	t.Run("example of the compose file", func(t *testing.T) { t.Parallel(); testExample(t, p) })
	t.Run("getting started", func(t *testing.T) { t.Parallel(); testGettingStarted(t, p) })
	t.Run("install and remove", func(t *testing.T) { t.Parallel(); testLifecycle(t, p) })
	t.Run("tutorial", func(t *testing.T) { t.Parallel(); testTutorial(t, p) })
	t.Run("commands of operations.md", func(t *testing.T) { t.Parallel(); testOperations(t, p) })
	t.Run("copied databases", func(t *testing.T) { t.Parallel(); testCopies(t, p) })
	t.Run("pg_upgrade", func(t *testing.T) { t.Parallel(); testServerUpgrade(t, p) })
	t.Run("definitions reference", func(t *testing.T) { t.Parallel(); testDefinitions(t, p) })
	t.Run("SQL interface", func(t *testing.T) { t.Parallel(); testSQLInterface(t, p) })
	t.Run("ghost users", func(t *testing.T) { t.Parallel(); testGhostUsers(t, p) })
	t.Run("ghost users with crashes", func(t *testing.T) { t.Parallel(); testGhostCrashes(t, p) })
	t.Run("placeholder users", func(t *testing.T) { t.Parallel(); testPlaceholderUsers(t, p) })
	t.Run("adjourned groups", func(t *testing.T) { t.Parallel(); testAdjournedGroups(t, p) })
	t.Run("group destruction", func(t *testing.T) { t.Parallel(); testGroupDestroy(t, p) })
	t.Run("diffs in a folder", func(t *testing.T) { t.Parallel(); testDiffs(t, p, diffsInFolder(t)) })
	if pgtest.Long {
		t.Run("demo until its end", func(t *testing.T) { t.Parallel(); testDemoUntilItsEnd(t, p) })
		t.Run("demo on a downloaded server", func(t *testing.T) { t.Parallel(); testDemoOnADownloadedServer(t, p) })
		// The following tests are slow: they build the program again or start an S3
		// server.
		t.Run("README's demo", func(t *testing.T) { t.Parallel(); testReadmeDemo(t) })
		t.Run("upgrade while old workers run", func(t *testing.T) { t.Parallel(); testUpgradeWithOldWorkers(t, p) })
		t.Run("version is stamped", func(t *testing.T) { t.Parallel(); testVersionIsStamped(t) })
		t.Run("diffs in a bucket", func(t *testing.T) { t.Parallel(); testDiffs(t, p, diffsInBucket(t)) })
	}
	t.Run("several databases", func(t *testing.T) { t.Parallel(); testMulti(t, p) })
	t.Run("upgrade with pending work", func(t *testing.T) { t.Parallel(); testUpgrade(t, p) })
	t.Run("crashes", func(t *testing.T) { t.Parallel(); testCrashes(t, p) })
}

// program is the built binary.
type program struct {
	path string
	// environ holds environment variables in addition to the database's URL.
	environ []string
}

// build builds the binary with the command from the README. The binary is removed when
// the test ends.
func build(t *testing.T) program {
	p := program{path: filepath.Join(t.TempDir(), "sexton")}
	line, found := strings.CutPrefix(readmeShell(t, readmeInstall)[0], "go build -o sexton ")
	require.True(t, found, "README.md must build the binary first")
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"build", "-o", p.path}, strings.Fields(line)...)...)
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "build the binary: %s", out)
	return p
}

// process is one started process of the program.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
}

// start starts the program in dir with a new environment: nothing of this process's
// environment is inherited. The process is killed when the test ends.
func (p program) start(t *testing.T, dir, url string, args ...string) *process {
	started := &process{cmd: exec.CommandContext(t.Context(), p.path, args...)}
	started.cmd.Dir, started.cmd.Env = dir, append([]string{"DATABASE_URL=" + url}, p.environ...)
	started.cmd.Stdout, started.cmd.Stderr = &started.stdout, &started.stderr
	require.NoError(t, started.cmd.Start(), "start sexton %v", args)
	t.Cleanup(func() {
		if started.cmd.ProcessState == nil {
			_ = started.cmd.Wait()
		}
	})
	return started
}

// wait waits until the process has ended, and returns its exit code, or -1 if the process
// was killed.
func (p *process) wait(t *testing.T) int {
	err := p.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); !exited {
		require.NoError(t, err, "wait for sexton")
	}
	return p.cmd.ProcessState.ExitCode()
}

// run runs the program, requires the given exit code and returns the standard output.
func (p program) run(t *testing.T, dir, url string, code int, args ...string) string {
	started := p.start(t, dir, url, args...)
	require.Equal(t, code, started.wait(t), "exit code of sexton %v\nstdout: %s\nstderr: %s", args, &started.stdout,
		&started.stderr)
	return started.stdout.String()
}

// report is the output of `job run --json`.
type report struct {
	Kind               string           `json:"kind"`
	RunID              int64            `json:"run_id"`
	Database           string           `json:"database"`
	Outcome            string           `json:"outcome"`
	Error              string           `json:"error"`
	Processed          int64            `json:"processed"`
	Rescheduled        int64            `json:"rescheduled"`
	DeleteCount        int64            `json:"delete_count"`
	UpdateCount        int64            `json:"update_count"`
	DeleteCountByTable map[string]int64 `json:"delete_count_by_table"`
	Errors             []any            `json:"errors"`
}

func parseReport(t *testing.T, stdout string) report {
	var r report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r), "decode report: %s", stdout)
	return r
}

// runPass runs one foreground run of the loose foreign keys, which must succeed.
func (p program) runPass(t *testing.T, dir, url string) report {
	r := parseReport(t, p.run(t, dir, url, 0, "job", "run", kind, "--json"))
	require.Equal(t, kind, r.Kind)
	require.Equal(t, "main", r.Database)
	require.Empty(t, r.Errors, "errors of run %d", r.RunID)
	return r
}

const backlogSQL = `SELECT count(*) FROM public.loose_foreign_keys_deleted_records`

package integration

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

const (
	// cronOff sets a schedule without a tick while a test runs.
	cronOff = "SEXTON_LOOSE_FOREIGN_KEYS__SCHEDULE=0 0 1 1 *"
	// shortSilence sets the shortest time after which a silent worker counts as dead.
	shortSilence = "SEXTON_JOBS__SILENCE=2s"
	// shortRecheck makes workers recheck removed tombstones after one second.
	shortRecheck = "SEXTON_LOOSE_FOREIGN_KEYS__CONFIRM_AFTER=1s"
	// stopLimit is the longest time that a worker may take to stop.
	stopLimit = time.Minute
)

// workSite is a database in which the program has installed itself, with a folder of
// configuration files.
type workSite struct {
	program program
	url     string
	dir     string
	pool    *pgxpool.Pool
	// kind is the kind of job that waitIdle waits for. If it is empty, waitIdle waits for
	// loose foreign keys.
	kind string
}

// siteSetup describes the start of a site: the files of the program's folder, and SQL
// that runs before and after the program installs itself.
type siteSetup struct {
	files         map[string]string
	before, after string
}

// mainSetup returns a setup with a sexton.yaml for one database.
func mainSetup(settings, before, after string) siteSetup {
	return siteSetup{
		files:  map[string]string{"sexton.yaml": "databases: {main: {url: \"${DATABASE_URL}\"}}\n" + settings},
		before: before, after: after,
	}
}

// withDefinitions adds a file of loose foreign keys to the setup.
func (k siteSetup) withDefinitions(definitions string) siteSetup {
	k.files["loose_foreign_keys.yml"] = definitions
	return k
}

func gatedSetup() siteSetup {
	return siteSetup{files: map[string]string{"sexton.yaml": gatedConfig}, before: gatedTables}.withDefinitions(gatedDefinitions)
}

// site installs the program in the database at url. If url is empty, the site gets a copy
// of a template database, which takes a tenth of the time.
func (p program) site(t *testing.T, url string, k siteSetup) workSite {
	s := workSite{program: p, url: url, dir: t.TempDir()}
	for name, text := range k.files {
		require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
	}
	fill := func(ctx context.Context, url string) error { return p.fill(ctx, s.dir, url, k) }
	if url == "" {
		s.url = pgtest.FromTemplate(t, fmt.Sprintf("%v", k), fill).URL
	} else {
		require.NoError(t, fill(t.Context(), url))
	}
	pool := pgtest.Must(pgxpool.New(t.Context(), s.url))(t)
	t.Cleanup(pool.Close)
	s.pool = pool
	return s
}

func (p program) fill(ctx context.Context, dir, url string, k siteSetup) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, k.before); err != nil {
		return fmt.Errorf("%s: %w", k.before, err)
	}
	for _, args := range [][]string{{"migrate", "up"}, {"triggers", "install"}} {
		cmd := exec.CommandContext(ctx, p.path, args...)
		cmd.Dir, cmd.Env = dir, append([]string{"DATABASE_URL=" + url}, p.environ...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("sexton %v: %w: %s", args, err, out)
		}
	}
	if _, err := conn.Exec(ctx, k.after); err != nil {
		return fmt.Errorf("%s: %w", k.after, err)
	}
	return nil
}

// newWorkSite returns a site with the gated tables in a database of its own.
func newWorkSite(t *testing.T, p program) workSite {
	return p.site(t, "", gatedSetup())
}

func (s workSite) exec(t *testing.T, sql string, args ...any) {
	_, err := s.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err, "exec: %s", sql)
}

func (s workSite) count(t *testing.T, sql string, args ...any) int64 {
	return pgtest.Scalar[int64](t, s.pool, sql, args...)
}

// wait waits until a condition in SQL holds. Errors, such as during an outage of the
// server, count as false.
func (s workSite) wait(t *testing.T, limit time.Duration, what, condition string, args ...any) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var err error
	held := pgtest.Poll(ctx, func() (holds bool) {
		err = s.pool.QueryRow(ctx, "SELECT "+condition, args...).Scan(&holds)
		return err == nil && holds
	})
	require.True(t, held, "timed out after %s waiting for %s; last error: %v", limit, what, err)
}

const (
	// workDone is true if there are neither tombstones nor children of deleted parents.
	workDone = `NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)
		AND NOT EXISTS (SELECT FROM children WHERE NOT EXISTS (SELECT FROM parents WHERE parents.id = children.parent_id))`
	// workersIdle is true if no job is pending or running, and no session holds the
	// advisory lock of an awake worker, whose keys are $1 and $2.
	workersIdle = `NOT EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
			WHERE datname = current_database() AND locktype = 'advisory' AND classid = $1::bigint::oid AND objid = $2::bigint::oid)
		AND NOT EXISTS (SELECT FROM sexton.river_job WHERE finalized_at IS NULL)`
)

// waitIdle waits until the workers have no work and have released the advisory lock of
// awake workers.
func (s workSite) waitIdle(t *testing.T) {
	k1, k2 := triggers.AwakeKey(cmp.Or(s.kind, kind))
	s.wait(t, time.Minute, "the workers to be idle", workersIdle, int64(uint32(k1)), int64(uint32(k2)))
}

// closeGate closes the gate of one point, so that workers stop there.
func (s workSite) closeGate(t *testing.T, point string) (pass, release func()) {
	return dbtest.CloseGate(t, s.pool, point)
}

// kill kills a worker and sets its last heartbeat to the distant past, so that other
// workers treat it as dead. The worker may already have ended, because a worker that has
// just started ends if the server crashes.
func (s workSite) kill(t *testing.T, w *runningWorker) {
	_ = w.cmd.Process.Kill()
	require.NotZero(t, w.waitExit(t, stopLimit), "exit code of a killed worker")
	s.exec(t, "UPDATE sexton.clients SET seen_at = '-infinity' WHERE pid = $1", w.cmd.Process.Pid)
}

// startInBatch starts a worker that stops at the gate in its first batch.
func (s workSite) startInBatch(t *testing.T, parents string, environ ...string) (w *runningWorker, pass, release func()) {
	pass, release = s.closeGate(t, "children")
	w = s.startWorker(t, environ...)
	s.exec(t, "DELETE FROM parents WHERE "+parents)
	s.wait(t, time.Minute, "the worker to stop in its batch", dbtest.AtGate)
	return w, pass, release
}

// runningWorker is a `sexton run` process.
type runningWorker struct {
	cmd   *exec.Cmd
	log   *pgtest.Journal
	ended chan struct{}
}

// start starts `sexton run` with additional environment variables. The process is killed
// when the test ends.
func (s workSite) start(t *testing.T, environ []string, args ...string) *runningWorker {
	t.Helper()
	w := &runningWorker{
		cmd: exec.CommandContext(t.Context(), s.program.path, append([]string{"run"}, args...)...),
		log: &pgtest.Journal{}, ended: make(chan struct{}),
	}
	w.cmd.Dir, w.cmd.Env = s.dir, slices.Concat([]string{"DATABASE_URL=" + s.url, shortRecheck}, s.program.environ,
		environ)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	require.NoError(t, w.cmd.Start())
	go func() {
		defer close(w.ended)
		// The error is ignored, because tests read the exit code from ProcessState.
		_ = w.cmd.Wait()
	}()
	pgtest.Guard(t, w.cmd.Process.Pid)
	t.Cleanup(func() {
		<-w.ended
		if t.Failed() {
			t.Logf("log of worker %d:\n%s", w.cmd.Process.Pid, w.log)
		}
	})
	return w
}

// startWorker starts a worker and waits until it logs worker_started.
func (s workSite) startWorker(t *testing.T, environ ...string) *runningWorker {
	w := s.start(t, append([]string{cronOff}, environ...))
	w.waitForLog(t, `"msg":"worker_started"`)
	return w
}

// waitForLog waits until the log contains a text.
func (w *runningWorker) waitForLog(t *testing.T, want string) {
	pgtest.WaitFor(t, "log line "+want, func(context.Context) (bool,
		error,
	) {
		return strings.Contains(w.log.String(), want), nil
	})
}

func (w *runningWorker) signal(t *testing.T, signal os.Signal) {
	require.NoError(t, w.cmd.Process.Signal(signal))
}

// waitExit waits until the process has ended and returns its exit code, or -1 if a signal
// ended it.
func (w *runningWorker) waitExit(t *testing.T, limit time.Duration) int {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.ended:
	case <-timer.C:
		require.Fail(t, "the worker has not ended", "waited %s", limit)
	}
	return w.cmd.ProcessState.ExitCode()
}

// stop sends SIGTERM and requires exit code 0.
func (w *runningWorker) stop(t *testing.T) {
	w.signal(t, syscall.SIGTERM)
	require.Zero(t, w.waitExit(t, stopLimit), "exit code after SIGTERM")
}

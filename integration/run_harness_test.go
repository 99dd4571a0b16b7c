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
	// cronOff is a schedule that does not come to a tick while a test runs.
	cronOff = "SEXTON_LOOSE_FOREIGN_KEYS__SCHEDULE=0 0 1 1 *"
	// soonDead has workers take a silent one for dead as soon as configuration allows.
	soonDead = "SEXTON_JOBS__SILENCE=2s"
	// confirmSoon has removed tombstones rechecked soon.
	confirmSoon = "SEXTON_LOOSE_FOREIGN_KEYS__CONFIRM_AFTER=1s"
	// stopLimit is how long a worker may take to stop.
	stopLimit = time.Minute
)

// workSite is a database on which the program has installed itself.
type workSite struct {
	program program
	url     string
	dir     string
	pool    *pgxpool.Pool
	// kind is the kind of jobs that the site is about; empty: loose foreign keys.
	kind string
}

// kit is what a site begins with: files of the program's folder, and what runs in the
// database before and after the program installs itself.
type kit struct {
	files         map[string]string
	before, after string
}

// onMain is a kit with a sexton.yaml for one database.
func onMain(settings, before, after string) kit {
	return kit{
		files:  map[string]string{"sexton.yaml": "databases: {main: {url: \"${DATABASE_URL}\"}}\n" + settings},
		before: before, after: after,
	}
}

// defining adds definitions of loose foreign keys.
func (k kit) defining(definitions string) kit {
	k.files["loose_foreign_keys.yml"] = definitions
	return k
}

func gated() kit {
	return kit{files: map[string]string{"sexton.yaml": gatedConfig}, before: gatedTables}.defining(gatedDefinitions)
}

// site makes a site in the database, or without one in a copy of a database on the tests'
// server that has been filled once: that takes a tenth of the time.
func (p program) site(t *testing.T, url string, k kit) workSite {
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

func (p program) fill(ctx context.Context, dir, url string, k kit) error {
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

// newWorkSite makes a site with the gated tables on the tests' server.
func newWorkSite(t *testing.T, p program) workSite {
	return p.site(t, "", gated())
}

func (s workSite) exec(t *testing.T, sql string, args ...any) {
	_, err := s.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err, "exec: %s", sql)
}

func (s workSite) count(t *testing.T, sql string, args ...any) int64 {
	return pgtest.Scalar[int64](t, s.pool, sql, args...)
}

// wait waits until a condition in SQL holds. While the server is away it does not.
func (s workSite) wait(t *testing.T, limit time.Duration, what, condition string, args ...any) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var err error
	held := pgtest.Poll(ctx, func() (holds bool) {
		err = s.pool.QueryRow(ctx, "SELECT "+condition, args...).Scan(&holds)
		return err == nil && holds
	})
	require.True(t, held, "waited in vain for %s, %s long; last error: %v", what, limit, err)
}

const (
	// noWork holds where neither tombstones nor children of deleted parents are left.
	noWork = `NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)
		AND NOT EXISTS (SELECT FROM children WHERE NOT EXISTS (SELECT FROM parents WHERE parents.id = children.parent_id))`
	// asleep holds where nobody has the awake lock and no job is on its way.
	asleep = `NOT EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
			WHERE datname = current_database() AND locktype = 'advisory' AND classid = $1::bigint::oid AND objid = $2::bigint::oid)
		AND NOT EXISTS (SELECT FROM sexton.river_job WHERE finalized_at IS NULL)`
)

// sleeps waits until the workers have nothing to do and have noticed.
func (s workSite) sleeps(t *testing.T) {
	k1, k2 := triggers.AwakeKey(cmp.Or(s.kind, kind))
	s.wait(t, time.Minute, "the workers to sleep", asleep, int64(uint32(k1)), int64(uint32(k2)))
}

// shut closes the gate of one point, at which workers stop then.
func (s workSite) shut(t *testing.T, point string) (pass, release func()) {
	return dbtest.CloseGate(t, s.pool, point)
}

// kill ends a worker, unless it has ended by itself as one that has just begun does when
// the server crashes, and makes it one that has been silent for long.
func (s workSite) kill(t *testing.T, w *runningWorker) {
	_ = w.cmd.Process.Kill()
	require.NotZero(t, w.exit(t, stopLimit), "exit code of a killed worker")
	s.exec(t, "UPDATE sexton.clients SET seen_at = '-infinity' WHERE pid = $1", w.cmd.Process.Pid)
}

// inBatch starts a worker that stops in the middle of its first batch.
func (s workSite) inBatch(t *testing.T, parents string, environ ...string) (w *runningWorker, pass, release func()) {
	pass, release = s.shut(t, "children")
	w = s.started(t, environ...)
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

// start starts `sexton run` with more variables in its environment. The end of the test
// kills it.
func (s workSite) start(t *testing.T, environ []string, args ...string) *runningWorker {
	t.Helper()
	w := &runningWorker{
		cmd: exec.CommandContext(t.Context(), s.program.path, append([]string{"run"}, args...)...),
		log: &pgtest.Journal{}, ended: make(chan struct{}),
	}
	w.cmd.Dir, w.cmd.Env = s.dir, slices.Concat([]string{"DATABASE_URL=" + s.url, confirmSoon}, s.program.environ,
		environ)
	w.cmd.Stdout, w.cmd.Stderr = w.log, w.log
	require.NoError(t, w.cmd.Start())
	go func() {
		defer close(w.ended)
		_ = w.cmd.Wait() // ProcessState says how.
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

// started starts a worker and waits until it says that it works.
func (s workSite) started(t *testing.T, environ ...string) *runningWorker {
	w := s.start(t, append([]string{cronOff}, environ...))
	w.logged(t, `"msg":"worker_started"`)
	return w
}

// logged waits until the log has a text.
func (w *runningWorker) logged(t *testing.T, want string) {
	pgtest.WaitFor(t, "log line "+want, func(context.Context) (bool,
		error,
	) {
		return strings.Contains(w.log.String(), want), nil
	})
}

func (w *runningWorker) signal(t *testing.T, signal os.Signal) {
	require.NoError(t, w.cmd.Process.Signal(signal))
}

// exit waits until the process has ended and returns its exit code; -1 stands for the end
// by a signal.
func (w *runningWorker) exit(t *testing.T, limit time.Duration) int {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.ended:
	case <-timer.C:
		require.Fail(t, "the worker goes on", "%s after it was to end", limit)
	}
	return w.cmd.ProcessState.ExitCode()
}

// stop expects an orderly end.
func (w *runningWorker) stop(t *testing.T) {
	w.signal(t, syscall.SIGTERM)
	require.Zero(t, w.exit(t, stopLimit), "exit code after SIGTERM")
}

package integration

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// crashPoint brings a worker to the point at which it is to die, and returns what makes
// the way free for others while the dead one's session still stands there.
type crashPoint func(t *testing.T, s twinSite) (w *runningWorker, pass func())

func crashPoints() map[string]crashPoint {
	return map[string]crashPoint{
		"before the commit of a batch":   beforeCommit,
		"before the tombstone's removal": beforeRemoval,
		"between lease and first batch":  beforeFirstBatch,
		"asleep":                         whileAsleep,
	}
}

const someParents = "id <= 5"

// beforeCommit stops a worker behind its first DELETE of children.
func beforeCommit(t *testing.T, s twinSite) (*runningWorker, func()) {
	w, pass, _ := inFirstBatch(t, s)
	return w, pass
}

func inFirstBatch(t *testing.T, s twinSite) (w *runningWorker, pass, release func()) {
	pass, release = s.shut(t, "children")
	s.deleteParents(t, someParents)
	w = s.started(t)
	s.wait(t, time.Minute, "the worker to stop behind a DELETE", dbtest.AtGate)
	require.Zero(t, s.count(t, "SELECT count(*) FROM changes"), "changes committed")
	return w, pass, release
}

// beforeRemoval stops a worker that has cleaned one child table of a tombstone and
// committed that, in the second.
func beforeRemoval(t *testing.T, s twinSite) (*runningWorker, func()) {
	pass, _ := s.shut(t, "links")
	s.deleteParents(t, someParents)
	w := s.started(t)
	// The direct transaction fails at the gate after a short wait. Then pieces of the
	// first table are committed.
	s.wait(t, time.Minute, "the worker to stop in the second table",
		"EXISTS (SELECT FROM changes WHERE at_table = 'children') AND "+dbtest.AtGate)
	require.Equal(t, int64(5),
		s.count(t, "SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.parents'"))
	return w, pass
}

// beforeFirstBatch stops a worker in the statement that takes the lease, before it raises
// the token in the fence. Its session goes on without it.
func beforeFirstBatch(t *testing.T, s twinSite) (*runningWorker, func()) {
	s.deleteParents(t, someParents)
	keeper := connect(t, s.url)
	pgtest.Exec(t, keeper, "BEGIN; LOCK TABLE sexton.fences IN EXCLUSIVE MODE")
	w := s.started(t)
	s.wait(t, time.Minute, "the worker to wait for the fence", `EXISTS (SELECT FROM pg_locks WHERE NOT granted AND locktype = 'relation' AND relation = 'sexton.fences'::regclass
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
	return w, func() {
		_, _ = keeper.Exec(context.WithoutCancel(t.Context()), "ROLLBACK") // Fails if the server crashed.
	}
}

func whileAsleep(t *testing.T, s twinSite) (*runningWorker, func()) {
	w := s.started(t)
	s.deleteParents(t, "id = 40")
	s.drained(t)
	s.sleeps(t)
	return w, func() {}
}

// testCrashes lets a worker die at each of these points, alone or together with the
// server; other tests let it die anywhere or stand still. Another one has to finish, and
// the end must be the one under native foreign keys.
func testCrashes(t *testing.T, p program) {
	t.Run("at random moments", func(t *testing.T) { t.Parallel(); testRandomCrashes(t, p) })
	t.Run("process stopped between batches", func(t *testing.T) { t.Parallel(); testStoppedBetweenBatches(t, p) })
	if !pgtest.Long {
		return // Random moments have deaths of all sorts.
	}
	t.Run("process stopped in a batch", func(t *testing.T) { t.Parallel(); testStoppedInBatch(t, p) })
	for name, reach := range crashPoints() {
		open := func(url string) twinSite { return newTwinSite(t, p, url, patientPace) }
		t.Run("worker killed "+name, func(t *testing.T) { t.Parallel(); testKilledAt(t, false, open, reach) })
		t.Run("server crashes with the worker "+name, func(t *testing.T) {
			t.Parallel()
			testKilledAt(t, true, open,
				reach)
		})
	}
}

// killable is a site whose work another worker can finish.
type killable interface {
	kill(t *testing.T, w *runningWorker)
	wait(t *testing.T, limit time.Duration, what, condition string, args ...any)
	recovers(t *testing.T)
}

// testKilledAt kills a worker at a point of its work, or crashes the server there as
// well. Another worker must finish.
func testKilledAt[S killable](t *testing.T, crash bool, open func(url string) S,
	reach func(*testing.T, S) (w *runningWorker, pass func()),
) {
	t.Helper()
	url, restart := "", func() {}
	if crash {
		server := pgtest.Server(t)
		url, restart = server.URL("postgres"), func() {
			require.NoError(t,
				server.Restart(t.Context(), devpg.Immediate))
		}
	}
	s := open(url)
	dbtest.KillAtGate(func() (kill, pass func()) {
		w, pass := reach(t, s)
		return func() {
			restart()
			s.wait(t, time.Minute, "the server", "true")
			s.kill(t, w)
		}, pass
	}, func() { s.recovers(t) })
}

// recovers lets a second worker do what a dead one has left, and more.
func (s twinSite) recovers(t *testing.T) {
	s.deleteParents(t, "id BETWEEN 4 AND 9")
	second := s.started(t)
	s.drained(t)
	s.sleeps(t)
	s.deleteParents(t, "id = 10")
	s.rests(t, second)
}

// testStoppedInBatch stops a process while its session is between DELETE and COMMIT.
// Another one ends that session; what the first finds when it goes on is a dead
// connection.
func testStoppedInBatch(t *testing.T, p program) {
	s := newTwinSite(t, p, "", patientPace)
	first, pass, release := inFirstBatch(t, s)
	first.signal(t, syscall.SIGSTOP)
	pass()
	s.takenOver(t, first, release) // Its session was terminated, and the fence refuses its next connection.
	require.Zero(t, s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("1")),
		"changes of the worker that stood still in its first batch")
}

// testStoppedBetweenBatches stops a process whose session then is idle and stays alive:
// only the fence keeps it from going on.
func testStoppedBetweenBatches(t *testing.T, p program) {
	s := newTwinSite(t, p, "", patientPace)
	first, _, release := inFirstBatch(t, s)
	first.signal(t, syscall.SIGSTOP)
	release()
	s.wait(t, time.Minute, "the stopped worker's batch to end", "EXISTS (SELECT FROM changes)")
	s.takenOver(t, first, func() {})
	require.NotZero(t, s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("1")),
		"changes before the worker stood still")
}

// takenOver expires the lease of a worker that stands still, lets another one finish, and
// the first one go on where there is new work. Its pass must fail, as its lease is lost;
// what it does then has another token.
func (s twinSite) takenOver(t *testing.T, first *runningWorker, release func()) {
	s.exec(t, "UPDATE sexton.leases SET expires_at = clock_timestamp() WHERE key = $1", leaseKey)
	require.Equal(t, "done", s.program.pass(t, s.dir, s.url).Outcome)
	s.drained(t)
	require.Equal(t, "2", s.token(t), "token of the second worker")
	release()
	before := s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("1"))
	s.deleteParents(t, "id BETWEEN 6 AND 9")
	first.signal(t, syscall.SIGCONT)
	first.logged(t, `"msg":"run_failed"`)
	first.logged(t, "lease lost")
	s.drained(t)
	s.sleeps(t)
	require.Equal(t, before, s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("1")),
		"changes under a token whose lease has passed on")
	require.Equal(t, s.rows(t, "native"), s.rows(t, "public"))
	first.stop(t)
	s.settled(t)
}

// twinTables are the same four tables twice: in public, where a worker cleans up, and in
// the schema native, whose foreign keys are Postgres's own. A trigger notes every row
// that goes or changes in public, and in whose session, and stops that session while the
// gate of its table is closed.
const twinTables = dbtest.Gates + `
CREATE FUNCTION pg_temp.make(place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SET LOCAL search_path = %I', place);
    CREATE TABLE parents (id bigint PRIMARY KEY);
    CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
    CREATE TABLE leaves (id bigint PRIMARY KEY, child_id bigint);
    CREATE TABLE links (id bigint PRIMARY KEY, parent_id bigint);
    CREATE INDEX ON children (parent_id);
    CREATE INDEX ON leaves (child_id);
    CREATE INDEX ON links (parent_id);
    INSERT INTO parents SELECT generate_series(1, 40);
    INSERT INTO children SELECT number, number % 40 + 1 FROM generate_series(1, 400) AS number;
    INSERT INTO leaves SELECT number, number % 400 + 1 FROM generate_series(1, 800) AS number;
    INSERT INTO links SELECT number, number % 40 + 1 FROM generate_series(1, 400) AS number;
END $$;
CREATE SCHEMA native;
BEGIN;
SELECT pg_temp.make('public'), pg_temp.make('native');
COMMIT;
ALTER TABLE native.children ADD FOREIGN KEY (parent_id) REFERENCES native.parents ON DELETE CASCADE;
ALTER TABLE native.leaves ADD FOREIGN KEY (child_id) REFERENCES native.children ON DELETE CASCADE;
ALTER TABLE native.links ADD FOREIGN KEY (parent_id) REFERENCES native.parents ON DELETE SET NULL;

CREATE TABLE changes (number bigint GENERATED ALWAYS AS IDENTITY, at_table name, id bigint, session text);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '1min' AS $$
BEGIN
    INSERT INTO changes (at_table, id, session) VALUES (TG_TABLE_NAME, OLD.id, current_setting('application_name'));
    PERFORM stop_at_gate(TG_TABLE_NAME);
    RETURN NULL;
END $$;
CREATE TRIGGER note_change AFTER DELETE ON children FOR EACH ROW EXECUTE FUNCTION note_change();
CREATE TRIGGER note_change AFTER DELETE ON leaves FOR EACH ROW EXECUTE FUNCTION note_change();
CREATE TRIGGER note_change AFTER UPDATE ON links FOR EACH ROW EXECUTE FUNCTION note_change();`

const twinDefinitions = `children:
  - {table: parents, column: parent_id, on_delete: async_delete}
leaves:
  - {table: children, column: child_id, on_delete: async_delete}
links:
  - {table: parents, column: parent_id, on_delete: async_nullify}
`

// patientPace is the default pace with the longest target, which gives a statement 3 s:
// time to act while one stands at a gate.
const patientPace = "loose_foreign_keys: {target: 1s}\n"

// twinSite is a database with the tables above, on which the program has installed
// itself.
type twinSite struct{ workSite }

func newTwinSite(t *testing.T, p program, url, settings string) twinSite {
	return twinSite{p.site(t, url, onMain(settings, twinTables, "").defining(twinDefinitions))}
}

// deleteParents deletes the same parents in both schemas.
func (s twinSite) deleteParents(t *testing.T, condition string) {
	for _, place := range []string{"native", "public"} {
		s.exec(t, "DELETE FROM "+place+".parents WHERE "+condition)
	}
}

// rows are all rows of the tables of a schema, one line each.
func (s twinSite) rows(t *testing.T, place string) []string {
	name := pgx.Identifier{place}.Sanitize()
	var sql string
	for _, table := range []string{"parents", "children", "leaves", "links"} {
		if sql != "" {
			sql += " UNION ALL "
		}
		sql += "SELECT '" + table + " ' || entry::text FROM " + name + "." + table + " AS entry"
	}
	found := pgtest.Must(s.pool.Query(t.Context(), sql+" ORDER BY 1"))(t)
	return pgtest.Must(pgx.CollectRows(found, pgx.RowTo[string]))(t)
}

// drained waits until no tombstone is left.
func (s twinSite) drained(t *testing.T) {
	s.wait(t, time.Minute, "everything to be cleaned up", "NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
}

// rests waits until a worker has nothing left to do, not even to bury others, and stops
// it.
func (s twinSite) rests(t *testing.T, w *runningWorker) {
	s.drained(t)
	s.sleeps(t)
	s.wait(t, time.Minute, "dead workers to be buried", "(SELECT count(*) FROM sexton.clients) = 1")
	w.stop(t)
	s.settled(t)
}

// settled expects, once all workers have stopped, what native foreign keys have left, and
// that no row went twice.
func (s twinSite) settled(t *testing.T) {
	require.Equal(t, s.rows(t, "native"), s.rows(t, "public"), "rows differ from what native foreign keys leave")
	require.Zero(t, s.count(t, `SELECT count(*) FROM (
		SELECT FROM changes WHERE at_table <> 'links' GROUP BY at_table, id HAVING count(*) > 1) AS twice`), "rows deleted twice")
	s.cleanedUp(t)
	require.LessOrEqual(t,
		s.count(t, `SELECT sum(coalesce((stats ->> 'delete_count')::bigint, 0) + coalesce((stats ->> 'update_count')::bigint, 0))::bigint FROM sexton.runs WHERE kind = $1`, kind),
		s.count(t, "SELECT count(*) FROM changes WHERE "+changedUnder("%")),
		"the history lacks what a killed worker did last, and counts nothing twice")
}

// token is the lease's newest.
func (s twinSite) token(t *testing.T) string {
	return strconv.FormatInt(s.count(t, "SELECT token FROM sexton.leases WHERE key = $1", leaseKey), 10)
}

// changedUnder is what a session with a token noted, as a condition on changes.
func changedUnder(token string) string { return "session LIKE 'sexton%#" + token + "'" }

// testRunKilled kills a worker in the middle of a batch. Its session in the server lives
// on and holds locks. With cron off, another copy must notice and finish.
func testRunKilled(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	first, pass, _ := s.inBatch(t, "id <= 5", soonDead)
	pass()
	second := s.started(t, soonDead)
	first.signal(t, syscall.SIGKILL)
	killed := time.Now()
	require.Equal(t, -1, first.exit(t, stopLimit))
	s.wait(t, 2*time.Minute, "the other copy to finish", noWork)
	t.Logf("finished %s after the kill", time.Since(killed).Round(10*time.Millisecond))
	require.Equal(t, int64(50), s.count(t, "SELECT count(*) FROM deletions"))
	second.stop(t)
	s.cleanedUp(t)
}

// testRunServerCrash restarts the server under a worker, as after a crash, in the middle
// of a batch and again while the worker sleeps.
func testRunServerCrash(t *testing.T, p program) {
	server := pgtest.Server(t)
	s := p.site(t, server.URL("postgres"), gated())
	s.shut(t, "children")
	// The crash leaves the worker's lease behind, which it has to wait for: 13 s long
	// instead of 40.
	w := s.started(t, "SEXTON_DATABASES__MAIN__LIMITS__RUNTIME=3s")
	s.exec(t, "DELETE FROM parents WHERE id <= 5")
	s.wait(t, time.Minute, "the worker to stop in its batch", dbtest.AtGate)
	require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
	s.wait(t, time.Minute, "the server", "true")
	s.exec(t, "DELETE FROM closed_gate")
	s.wait(t, time.Minute, "the worker to come back and finish", noWork)

	s.sleeps(t)
	require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
	s.wait(t, time.Minute, "the server", "true")
	s.exec(t, "DELETE FROM parents")
	s.wait(t, time.Minute, "the worker to come back once more", noWork)
	require.Equal(t, int64(100), s.count(t, "SELECT count(*) FROM deletions"))
	w.stop(t)
	s.cleanedUp(t)
}

// testRunBeforeServer starts a worker before there is a server at its address.
func testRunBeforeServer(t *testing.T, p program) {
	server := pgtest.Server(t)
	s := p.site(t, server.URL("postgres"), gated())
	s.exec(t, "DELETE FROM parents")
	elsewhere, err := os.MkdirTemp("", "sexton-socket-") // t.TempDir is too long for a socket.
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })
	address := pgtest.Must(url.Parse(s.url))(t)
	query := address.Query()
	query.Set("host", elsewhere)
	address.RawQuery = query.Encode()
	late := s
	late.url = address.String()

	failing := late.start(t, []string{cronOff}, "--fail-fast")
	require.Equal(t, 4, failing.exit(t, time.Minute), "exit code with --fail-fast")
	require.Contains(t, failing.log.String(), "database main cannot be reached")

	w := late.start(t, []string{cronOff})
	w.logged(t, `"msg":"database_unreachable_at_start","database":"main"`)
	require.NoError(t, os.Symlink(filepath.Join(server.SocketDir(), ".s.PGSQL.5432"),
		filepath.Join(elsewhere, ".s.PGSQL.5432")))
	s.wait(t, time.Minute, "the worker to come and work", noWork)
	w.stop(t)
	s.cleanedUp(t)
}

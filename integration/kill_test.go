package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// gate is the advisory lock at which a worker stops.
const gate = 4711

// closableGates has the function that triggers call between a change and its COMMIT. It stops the session while the gate of the point is closed.
const closableGates = `
CREATE TABLE closed_gate (point text);
CREATE FUNCTION stop_at_gate(at text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET lock_timeout = '1min' SET search_path FROM CURRENT AS $$
BEGIN
    IF EXISTS (SELECT FROM closed_gate WHERE point = at) THEN
        PERFORM pg_catalog.pg_advisory_xact_lock(4711);
    END IF;
END $$;
`

// atGate holds while a session has stopped at the gate.
const atGate = `EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
	WHERE datname = current_database() AND locktype = 'advisory' AND objid = 4711 AND NOT granted)`

// shut closes the gate of one point, at which workers stop then. The function pass opens it for workers that come later, release also for
// the worker that has stopped there.
func (s workSite) shut(t *testing.T, point string) (pass, release func()) {
	keeper := connect(t, s.url)
	pgtest.Exec(t, keeper, "SELECT pg_advisory_lock($1)", gate)
	s.exec(t, "INSERT INTO closed_gate VALUES ($1)", point)
	pass = func() { s.exec(t, "DELETE FROM closed_gate") }
	return pass, func() {
		pass()
		pgtest.Exec(t, keeper, "SELECT pg_advisory_unlock($1)", gate)
	}
}

// kill ends a worker, unless it has ended by itself as one that has just begun does when the server crashes, and makes it one that has been
// silent for long.
func (s workSite) kill(t *testing.T, w *runningWorker) {
	_ = w.cmd.Process.Kill()
	require.NotZero(t, w.exit(t, stopLimit), "exit code of a killed worker")
	s.exec(t, "UPDATE sexton.clients SET seen_at = '-infinity' WHERE pid = $1", w.cmd.Process.Pid)
}

// killable is a site whose work another worker can finish.
type killable interface {
	kill(t *testing.T, w *runningWorker)
	wait(t *testing.T, limit time.Duration, what, condition string, args ...any)
	recovers(t *testing.T)
}

// testKilledAt kills a worker at a point of its work, or crashes the server there as well. Another worker must finish. The function pass that
// reach returns opens the gate at which the worker has stopped.
func testKilledAt[S killable](t *testing.T, crash bool, open func(url string) S, reach func(*testing.T, S) (w *runningWorker, pass func())) {
	t.Helper()
	url, restart := "", func() {}
	if crash {
		server := pgtest.Server(t)
		url, restart = server.URL("postgres"), func() { require.NoError(t, server.Restart(t.Context(), devpg.Immediate)) }
	}
	s := open(url)
	w, pass := reach(t, s)
	restart()
	s.wait(t, time.Minute, "the server", "true")
	s.kill(t, w)
	pass()
	s.recovers(t)
}

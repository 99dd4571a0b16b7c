//go:build pooler

package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// testRunPooler runs a worker that can reach the server only through a transaction
// pooler, where LISTEN receives no notifications. The worker must poll, and log a warning
// once.
func testRunPooler(t *testing.T, p program) {
	server := pgtest.Server(t)
	s := p.site(t, server.URL("postgres"), gatedSetup())
	// The trigger finds its table only if the worker keeps the search_path of the
	// application's sessions.
	s.exec(t, `CREATE SCHEMA app; CREATE TABLE app.trail (child bigint); ALTER DATABASE postgres SET search_path = app, public;
		CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO trail VALUES (OLD.id); RETURN NULL; END $$;
		CREATE TRIGGER note AFTER DELETE ON children FOR EACH ROW EXECUTE FUNCTION app.note()`)
	s.exec(t, "ALTER ROLE postgres SET search_path = pg_catalog, pg_temp")
	pooled := s
	pooled.url = pgtest.Pooler(t, s.url)
	w := pooled.startWorker(t)
	const warning = "notifications_do_not_arrive"
	w.waitForLog(t, warning)
	for id := 1; id <= 5; id++ {
		s.exec(t, "DELETE FROM parents WHERE id = $1", id)
		s.wait(t, time.Minute, "the children to be deleted", workDone)
	}
	w.stop(t)
	require.NotZero(t, s.count(t, "SELECT count(*) FROM app.trail"))
	require.Equal(t, 1, strings.Count(w.log.String(), warning), "the warning must be logged once")
	s.requireCleanedUp(t)

	// If the worker left session settings or locks, the pooler's next client would
	// inherit them.
	require.Zero(t, s.count(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"),
		"locks left in the pooler's connections")
	for range 10 {
		conn := connect(t, pooled.url)
		var timeout string
		// The transactions stay open until the end of the test, so that each client gets
		// another connection of the pooler.
		_, err := conn.Exec(t.Context(), "BEGIN")
		require.NoError(t, err)
		require.NoError(t, conn.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&timeout))
		require.Equal(t, "0", timeout, "a setting left in the pooler's connections")
		path := pgtest.Scalar[string](t, conn, "SHOW search_path")
		require.Equal(t, "pg_catalog, pg_temp", path, "a search_path left in the pooler's connections")
	}
}

// testRunPoolerListenURL runs a worker with a pooler and a direct connection for
// notifications. The deadline distinguishes notifications from polling, as in
// testRunWakes.
func testRunPoolerListenURL(t *testing.T, p program) {
	server := pgtest.Server(t)
	s := p.site(t, server.URL("postgres"), gatedSetup())
	pooled := s
	pooled.url = pgtest.Pooler(t, s.url)
	w := pooled.startWorker(t, "SEXTON_DATABASES__MAIN__LISTEN_URL="+s.url)
	deadline := time.Now().Add(80 * time.Second)
	for id := 1; id <= 10; id++ {
		s.waitIdle(t)
		s.exec(t, "DELETE FROM parents WHERE id = $1", id)
		s.wait(t, time.Until(deadline), "the children to be deleted", workDone)
	}
	w.stop(t)
	require.NotContains(t, w.log.String(), "notifications_do_not_arrive")
	s.requireCleanedUp(t)
}

// TestPooler runs workers with pgbouncer: go test -tags pooler ./integration -run
// TestPooler.
func TestPooler(t *testing.T) {
	t.Parallel()
	p := build(t)
	t.Run("run through a transaction pooler", func(t *testing.T) { t.Parallel(); testRunPooler(t, p) })
	t.Run("run with a pooler and a direct connection", func(t *testing.T) { t.Parallel(); testRunPoolerListenURL(t, p) })
}

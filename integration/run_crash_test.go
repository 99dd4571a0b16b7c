package integration

import (
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/devpg"
	"sexton/internal/pgtest"
)

// testRunKilled kills a worker in the middle of a batch. Its session in the server lives on and holds locks.
// With cron off, another copy must notice and finish.
func testRunKilled(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	open, _ := s.closeGate(t)
	first := s.started(t, soonDead)
	s.exec(t, "DELETE FROM parents WHERE id <= 5")
	s.wait(t, time.Minute, "the worker to stop in its batch", stopped)
	open()
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

// testRunServerCrash restarts the server under a worker, as after a crash, in the middle of a batch and again
// while the worker sleeps.
func testRunServerCrash(t *testing.T, p program) {
	t.Helper()
	server := pgtest.Server(t)
	s := p.site(t, server.URL("postgres"), gated())
	s.closeGate(t)
	// The crash leaves the worker's lease behind, which it has to wait for: 13 s long instead of 40.
	w := s.started(t, "SEXTON_DATABASES__MAIN__LIMITS__RUNTIME=3s")
	s.exec(t, "DELETE FROM parents WHERE id <= 5")
	s.wait(t, time.Minute, "the worker to stop in its batch", stopped)
	require.NoError(t, server.Restart(t.Context(), devpg.Immediate))
	s.wait(t, time.Minute, "the server", "true")
	s.exec(t, "DELETE FROM closed_gate")
	s.wait(t, time.Minute, "the worker to come back and finish", noWork)

	s.wait(t, time.Minute, "the worker to sleep", asleep, awakeKey()...)
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
	t.Helper()
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
	w.logged(t, `"msg":"database cannot be reached, trying again","database":"main"`)
	require.NoError(t, os.Symlink(filepath.Join(server.SocketDir(), ".s.PGSQL.5432"), filepath.Join(elsewhere, ".s.PGSQL.5432")))
	s.wait(t, time.Minute, "the worker to come and work", noWork)
	w.stop(t)
	s.cleanedUp(t)
}

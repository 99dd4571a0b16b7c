package integration

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// testForegroundKilled kills a pass in the foreground, whose lease would last for two hours. Once it has been silent, the next
// pass in the foreground goes on, without any worker.
func testForegroundKilled(t *testing.T, p program) {
	t.Helper()
	s := newDiffSite(t, p, diffsInFolder(t))
	s.exec(t, addDiffs, 1, 3)
	keeper := pgtest.Connect(t, s.url)
	pgtest.Exec(t, keeper, "BEGIN; LOCK TABLE sexton.external_diff_cursors")
	first := p.start(t, s.dir, s.url, "job", "run", scheduleDiffs)
	s.wait(t, stopLimit, "the pass to have its lease",
		"EXISTS (SELECT FROM sexton.leases JOIN sexton.clients ON client_id = holder WHERE expires_at > now() + interval '1 hour' AND pid = $1)", first.cmd.Process.Pid)
	require.NoError(t, first.cmd.Process.Kill())
	require.Equal(t, -1, first.wait(t))
	pgtest.Exec(t, keeper, "ROLLBACK")

	require.Contains(t, p.run(t, s.dir, s.url, 0, "job", "run", scheduleDiffs, "--json"), `"skipped"`, "it may live")
	s.exec(t, "UPDATE sexton.clients SET seen_at = now() - interval '20 s'")
	require.Contains(t, p.run(t, s.dir, s.url, 0, "job", "run", scheduleDiffs, "--json"), `"done"`)
	require.EqualValues(t, 3, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE kind = $1", moveDiff))
}

package loosefk_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// A cost that does not depend on the number of keys does not make chunks smaller. Each of
// the tested costs alone takes longer than the target of a transaction. The test compares
// the number of chunks and not their time, which depends on the machine.
func TestFixedCostsKeepChunksLarge(t *testing.T) {
	t.Parallel()
	keys := 10_000
	if pgtest.Long {
		keys = 100_000
	}
	const latency = 25 * time.Millisecond
	trigger := dbtest.OnStatement("DELETE", "children", "PERFORM pg_sleep(0.033);")
	plain := countChunks(t, keys, 0, "")
	require.LessOrEqual(t, countChunks(t, keys, latency, ""), 3*plain, "chunks over a network")
	require.LessOrEqual(t, countChunks(t, keys, 0, trigger), 3*plain, "chunks with a statement trigger")
	require.LessOrEqual(t, countChunks(t, keys, latency, trigger), 3*plain,
		"chunks over a network with a statement trigger")
}

// countChunks deletes parents with one child each over two sessions. It returns the
// number of statements that deleted children.
func countChunks(t *testing.T, keys int, latency time.Duration, trigger string) int64 {
	b := setupAdaptive(t, parentsAndChildren+recordStatements+trigger, deleteChildren, "parents")
	b.Exec(fmt.Sprintf(`INSERT INTO parents SELECT generate_series(11, %[1]d);
		INSERT INTO children SELECT 1000 + n, n FROM generate_series(11, %[1]d) AS n; ANALYZE parents, children`, keys))
	settings, network := b.Pool().Config().ConnConfig, &pgtest.Network{}
	network.Delay.Store(int64(latency))
	settings.DialFunc = network.Dial
	b.connections(t, 2)
	b.engine.Session.Conn, b.others = pgtest.ConnectAs(t, settings), []*pgx.Conn{pgtest.ConnectAs(t, settings)}
	b.Exec("DELETE FROM parents")
	began := time.Now()
	require.EqualValues(t, keys, b.runToEnd(t).Processed)
	chunks := b.count(t, "statements")
	t.Logf("%d keys, latency %s, trigger %t: %d chunks in %s", keys, latency, trigger != "", chunks, time.Since(began))
	return chunks
}

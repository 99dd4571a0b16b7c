package riverjobs

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/jobrun"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// over moves the bundle's connections to the network.
func (b *bundle) over(t *testing.T, network *pgtest.Distance) {
	t.Helper()
	settings := pgtest.Must(pgxpool.ParseConfig(b.db.URL))(t)
	settings.ConnConfig.DialFunc = network.Dial
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)
	connected := database.Database{Name: "main", Pool: pool, Names: b.db.Connected.Names}
	b.deps.Databases = []database.Database{connected}
	b.deps.Runner.Leases = &lease.Manager{Jobs: connected, Holder: "test"}
}

// The network is so slow that the lease would end before the definitions are bound. The pass binds them all the same, and the next one need not.
func TestPassOverASlowNetworkMakesProgress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	settings := b.deps.Config.Databases[0]
	settings.Limits.Runtime = time.Second
	b.deps.Config.Databases[0] = settings
	network := &pgtest.Distance{}
	b.over(t, network)
	b.db.Exec("DELETE FROM parents WHERE id <= 2")
	network.Delay.Store(int64(250 * time.Millisecond))
	report := b.ran(t, LooseForeignKeysCleanupArgs{Database: "main"})
	require.Contains(t, []jobrun.Outcome{jobrun.Done, jobrun.OverLimit}, report.Outcome)

	network.Delay.Store(0)
	before := network.Trips.Load()
	report = b.ran(t, LooseForeignKeysCleanupArgs{Database: "main"})
	require.Equal(t, jobrun.Done, report.Outcome)
	require.Zero(t, b.db.Pending(t))
	require.LessOrEqual(t, network.Trips.Load()-before, int64(60), "round trips of a pass that need not bind")
}

// Statements that the connection knows take one round trip each, in every pass.
func TestRoundTripsOfAPass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	network := &pgtest.Distance{}
	b.over(t, network)
	var trips int64
	for range 2 {
		b.db.Exec("INSERT INTO parents VALUES (10); INSERT INTO children VALUES (10, 10); DELETE FROM parents WHERE id = 10")
		before := network.Trips.Load()
		b.ran(t, LooseForeignKeysCleanupArgs{Database: "main"})
		require.Zero(t, b.db.Pending(t))
		trips = network.Trips.Load() - before
	}
	require.LessOrEqual(t, trips, int64(16))
}

package riverjobs

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/lease"
	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

// tombstonesDue looks for tombstones of parents.
func (b bundle) tombstonesDue(t *testing.T) listen.Due {
	b.deps.Bindings.SetParents("main", []*loosefk.Parent{{Recorded: "public.parents"}})
	return b.due(t, LooseForeignKeys)
}

// Nothing falls due of what is put off for ever, and looking at it is no error.
func TestTombstonesDeferredForeverAreNeverDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1; UPDATE loose_foreign_keys_deleted_records SET consume_after = 'infinity'")
	require.Equal(t, listen.Due{}, b.tombstonesDue(t))
	b.db.Exec("DELETE FROM parents WHERE id = 2; UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + '1 hour' WHERE primary_key_value = 2")
	require.InDelta(t, 3600, b.tombstonesDue(t).In.Seconds(), 60)
}

// The application's clock, which is ahead or in another zone, cuts no back-off short.
func TestBackOffHoldsForRowsFromTheFuture(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec(`DELETE FROM parents WHERE id = 1;
		UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + interval '30 minutes', created_at = now() + interval '1 hour'`)
	require.InDelta(t, 1800, b.tombstonesDue(t).In.Seconds(), 60)
	require.InDelta(t, 1800, b.tombstonesDue(t).In.Seconds(), 60, "the first look has changed nothing")

	b = ghostBundle(t)
	b.db.Exec(`INSERT INTO users_ghost_user_migrations (user_id, consume_after, created_at, updated_at, attempts)
		VALUES (1, now() + interval '30 minutes', now() + interval '1 hour', now(), 5)`)
	require.InDelta(t, 1800, b.due(t, GhostUsers).In.Seconds(), 60)
	require.InDelta(t, 1800, b.due(t, GhostUsers).In.Seconds(), 60, "the first look has changed nothing")
}

// Removed tombstones are rechecked once they are old enough, and then every half minute
// while something holds them.
func TestRemovedTombstonesAreDueForARecheck(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, listen.Due{}, b.tombstonesDue(t))
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.worked(t, "main")
	require.InDelta(t, 600, b.tombstonesDue(t).In.Seconds(), 30)
	require.False(t, b.tombstonesDue(t).Now)
	b.db.Exec("UPDATE sexton.swept SET swept_at = clock_timestamp() - interval '11 minutes'")
	require.Equal(t, listen.Due{In: 30 * time.Second}, b.tombstonesDue(t), "a pass has just ended")
	b.deps.Bindings = &Bindings{}
	b.deps.Bindings.SetParents("main", []*loosefk.Parent{{Recorded: "public.parents"}})
	require.True(t, b.tombstonesDue(t).Now)
	b.worked(t, "main")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.swept"))
	require.Empty(t, b.db.Rows("SELECT FROM loose_foreign_keys_deleted_records"))
}

// A look must not read the backlog: neither what is due nor what is put off.
func TestDueDoesNotReadTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deps.Bindings.SetParents("main", []*loosefk.Parent{{Recorded: "public.parents"}})
	read := func() [][]string {
		// A session that has done something before still counts that.
		tx := pgtest.Must(pgtest.Connect(t, b.db.URL).Begin(t.Context()))(t)
		pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, tx, b.db.Connected, true))(t)
		rows, err := tx.Query(t.Context(), `SELECT relname::text, (seq_tup_read + coalesce(idx_tup_fetch, 0))::text FROM pg_stat_xact_user_tables
			WHERE schemaname <> 'pg_catalog' AND seq_tup_read + coalesce(idx_tup_fetch, 0) > 20`)
		require.NoError(t, err)
		many := pgtest.Must(pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]string, error) {
			var table, read string
			err := row.Scan(&table, &read)
			return []string{table, read}, err
		}))(t)
		return many
	}
	const insert = `INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, consume_after)
		SELECT 'public.parents', n, now() + $1::interval FROM generate_series(1, 20000) AS n`
	b.db.Exec(insert, "1 hour")
	b.db.Exec("INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome) SELECT 'other', 'main', 'me', now(), now(), 'done' FROM generate_series(1, 20000)")
	b.db.Exec("VACUUM ANALYZE")
	require.Empty(t, read(), "rows read with 20,000 deferred tombstones")
	b.db.Exec(insert, "-1 hour")
	b.db.Exec("VACUUM ANALYZE")
	require.Empty(t, read(), "rows read with 20,000 due as well")
}

// setupTwo adds the database ci to a bundle, with builds of main's parents and with
// artifacts of builds. The jobs are in main.
func setupTwo(t *testing.T) (b bundle, ci *dbtest.DB) {
	b = setup(t)
	ci = dbtest.New(t)
	ci.Connected.Name = "ci"
	ci.Exec(`
		CREATE TABLE builds (id bigint PRIMARY KEY, parent_id bigint);
		CREATE TABLE artifacts (id bigint PRIMARY KEY, build_id bigint);
		CREATE INDEX ON builds (parent_id);
		CREATE INDEX ON artifacts (build_id);
		INSERT INTO builds SELECT n, n FROM generate_series(1, 3) AS n;
		INSERT INTO artifacts SELECT n, n FROM generate_series(1, 3) AS n;`)
	ci.Track(t, "builds")
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "definitions.yml", Data: []byte(definitionsFile + `
builds:
  - {table: parents, column: parent_id, on_delete: async_delete}
artifacts:
  - {table: builds, column: build_id, on_delete: async_delete}
`)}))(t)
	b.deps.Definitions = defs
	b.deps.Databases = []database.Database{b.db.Connected, ci.Connected}
	ciSettings := b.deps.Config.Databases[0]
	ciSettings.Name = "ci"
	b.deps.Config.Databases = append(b.deps.Config.Databases, ciSettings)
	return b, ci
}

func TestWorkersOfTwoDatabases(t *testing.T) {
	t.Parallel()
	b, ci := setupTwo(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	require.Equal(t, river.EventKindJobCompleted, b.worked(t, "main").Kind)
	require.Zero(t, b.db.Pending(t))
	require.Equal(t, [][]string{{"2"}, {"3"}}, ci.Rows("SELECT id FROM builds ORDER BY id"))
	require.EqualValues(t, 1, ci.Pending(t), "the build's own children are the other subscription's work")
	due := pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, ci.Pool(), ci.Connected, false))(t)
	require.Equal(t, listen.Due{}, due, "nobody has told yet what parents there are")

	b.deps.Bindings.SetParents("ci", []*loosefk.Parent{{Recorded: "public.builds"}})
	due = pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, ci.Pool(), ci.Connected, false))(t)
	require.True(t, due.Now)
	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ($1, now(), now()) ON CONFLICT (name) DO UPDATE SET paused_at = now()", LooseForeignKeys)
	due = pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, ci.Pool(), ci.Connected, false))(t)
	require.False(t, due.Now, "the pause is kept in the jobs database")
	b.db.Exec("UPDATE sexton.river_queue SET paused_at = NULL")

	b.worked(t, "ci")
	require.Zero(t, ci.Pending(t))
	require.Equal(t, [][]string{{"2"}, {"3"}}, ci.Rows("SELECT id FROM artifacts ORDER BY id"))
	require.Equal(t, [][]string{{"ci", "1"}, {"main", "1"}},
		b.db.Rows("SELECT database, stats ->> 'processed' FROM sexton.runs WHERE changed ORDER BY database"))
	require.Equal(t, [][]string{{LooseForeignKeysLease("ci")}, {LooseForeignKeysLease("main")}},
		ci.Rows("SELECT DISTINCT key FROM sexton.fences ORDER BY key"),
		"both subscriptions write here, each behind a fence")
	require.Equal(t, [][]string{{LooseForeignKeysLease("main")}}, b.db.Rows("SELECT DISTINCT key FROM sexton.fences"))
}

// nowhere is a database that refuses connections.
func nowhere(t *testing.T) database.Database {
	db, err := database.Open(t.Context(), "ci", "postgres:///ci?host="+t.TempDir(), "",
		pgcatalog.Names{Tracked: "public"}, 2)
	require.True(t, database.Lost(err))
	t.Cleanup(db.Pool.Close)
	return db
}

func TestPassWithoutTheOtherDatabase(t *testing.T) {
	t.Parallel()
	b, ci := setupTwo(t)
	b.deps.Databases[1] = nowhere(t)
	// Where its tables cannot be looked up, the patterns say what lives there.
	b.deps.Config.Databases[1].Tables = []string{"builds", "artifacts"}
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.worked(t, "main")
	require.Empty(t, b.db.Rows("SELECT FROM children WHERE parent_id = 1"), "what does not depend on it is done")
	rows := b.db.Rows("SELECT cleanup_attempts, consume_after > now(), last_error FROM loose_foreign_keys_deleted_records")
	require.Len(t, rows, 1)
	require.Equal(t, []string{"0", "t"}, rows[0][:2])
	require.Contains(t, rows[0][2], "builds: database ci cannot be reached")
	require.Contains(t, b.log.String(), "database_unreachable")

	b.deps.Databases[1] = ci.Connected
	// A new process does not remember the outage, so it does not wait before it
	// reconnects.
	b.deps.Bindings = &Bindings{}
	b.db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.worked(t, "main")
	require.Zero(t, b.db.Pending(t))
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
}

func TestTicksTakeTurns(t *testing.T) {
	t.Parallel()
	deps := Deps{Config: configuration(t), Databases: []database.Database{{Name: "main"}, {Name: "ci"}}}
	deps.Config.Databases = append(deps.Config.Databases, config.Database{Name: "ci"})
	ticks := pgtest.Must(Ticks(deps.Config))(t)
	epoch := time.Unix(0, 0).UTC()
	for i, tick := range ticks {
		require.Equal(t, deps.Databases[i].Name, tick.Database)
		require.Equal(t, epoch.Add(time.Duration(i+2)*time.Minute),
			tick.Schedule.Next(epoch.Add(time.Duration(i)*time.Minute)))
	}
	require.Len(t, ticks, 2)
}

// over moves the bundle's connections to the network.
func (b *bundle) over(t *testing.T, network *pgtest.Network) {
	settings := pgtest.Must(pgxpool.ParseConfig(b.db.URL))(t)
	settings.ConnConfig.DialFunc = network.Dial
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)
	connected := database.Database{Name: "main", Pool: pool, Names: b.db.Connected.Names}
	b.deps.Databases = []database.Database{connected}
	b.deps.Runner.Leases = &lease.Manager{Jobs: connected, Holder: "test"}
}

// Statements that the connection knows take one round trip each, in every pass.
func TestRoundTripsOfAPass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	network := &pgtest.Network{}
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

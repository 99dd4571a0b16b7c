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

// tombstonesDue queries for due tombstones of the table parents.
func (b bundle) tombstonesDue(t *testing.T) listen.Due {
	b.deps.Bindings.SetParents("main", []*loosefk.Parent{{Recorded: "public.parents"}})
	return b.due(t, LooseForeignKeys)
}

// Tombstones that are deferred to 'infinity' never fall due, and the query for due
// tombstones succeeds.
func TestTombstonesDeferredForeverAreNeverDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1; UPDATE loose_foreign_keys_deleted_records SET consume_after = 'infinity'")
	require.Equal(t, listen.Due{}, b.tombstonesDue(t))
	b.db.Exec("DELETE FROM parents WHERE id = 2; UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + '1 hour' WHERE primary_key_value = 2")
	require.InDelta(t, 3600, b.tombstonesDue(t).In.Seconds(), 60)
}

// If the application's clock is ahead, rows have a creation time in the future. Their
// deferral still lasts as long as set.
func TestRowsCreatedInTheFutureStayDeferred(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec(`DELETE FROM parents WHERE id = 1;
		UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + interval '30 minutes', created_at = now() + interval '1 hour'`)
	require.InDelta(t, 1800, b.tombstonesDue(t).In.Seconds(), 60)
	require.InDelta(t, 1800, b.tombstonesDue(t).In.Seconds(), 60, "the first query has changed nothing")

	b = ghostBundle(t)
	b.db.Exec(`INSERT INTO users_ghost_user_migrations (user_id, consume_after, created_at, updated_at, attempts)
		VALUES (1, now() + interval '30 minutes', now() + interval '1 hour', now(), 5)`)
	require.InDelta(t, 1800, b.due(t, GhostUsers).In.Seconds(), 60)
	require.InDelta(t, 1800, b.due(t, GhostUsers).In.Seconds(), 60, "the first query has changed nothing")
}

// Finished tombstones are due for a recheck after ten minutes. After a pass, the next
// recheck is due after 30 seconds at the earliest.
func TestRemovedTombstonesAreDueForARecheck(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, listen.Due{}, b.tombstonesDue(t))
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.workDatabase(t, "main")
	require.InDelta(t, 600, b.tombstonesDue(t).In.Seconds(), 30)
	require.False(t, b.tombstonesDue(t).Now)
	b.db.Exec("UPDATE sexton.swept SET swept_at = clock_timestamp() - interval '11 minutes'")
	require.Equal(t, listen.Due{In: 30 * time.Second}, b.tombstonesDue(t), "a pass has just ended")
	b.deps.Bindings = &Bindings{}
	b.deps.Bindings.SetParents("main", []*loosefk.Parent{{Recorded: "public.parents"}})
	require.True(t, b.tombstonesDue(t).Now)
	b.workDatabase(t, "main")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.swept"))
	require.Empty(t, b.db.Rows("SELECT FROM loose_foreign_keys_deleted_records"))
}

// The query for due tombstones does not read the whole backlog, whether its tombstones
// are due or deferred.
func TestDueDoesNotReadTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deps.Bindings.SetParents("main", []*loosefk.Parent{{Recorded: "public.parents"}})
	read := func() [][]string {
		// A new session has no counts of earlier statements.
		tx := pgtest.Must(pgtest.Connect(t, b.db.URL).Begin(t.Context()))(t)
		pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, tx, b.db.Connected, true))(t)
		rows, err := tx.Query(t.Context(), `SELECT relname::text, (seq_tup_read + coalesce(idx_tup_fetch, 0))::text FROM pg_stat_xact_user_tables
			WHERE schemaname <> 'pg_catalog' AND seq_tup_read + coalesce(idx_tup_fetch, 0) > 20`)
		require.NoError(t, err)
		tables := pgtest.Must(pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]string, error) {
			var table, read string
			err := row.Scan(&table, &read)
			return []string{table, read}, err
		}))(t)
		return tables
	}
	const insert = `INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, consume_after)
		SELECT 'public.parents', n, now() + $1::interval FROM generate_series(1, 20000) AS n`
	b.db.Exec(insert, "1 hour")
	b.db.Exec("INSERT INTO sexton.runs (kind, database, holder, started_at, ended_at, outcome) SELECT 'other', 'main', 'me', now(), now(), 'done' FROM generate_series(1, 20000)")
	b.db.Exec("VACUUM ANALYZE")
	require.Empty(t, read(), "rows read with 20,000 deferred tombstones")
	b.db.Exec(insert, "-1 hour")
	b.db.Exec("VACUUM ANALYZE")
	require.Empty(t, read(), "rows read with 20,000 due tombstones in addition")
}

// setupTwoDatabases returns a bundle with a second database, ci. It has the tables
// builds, with rows of main's parents, and artifacts, with rows of builds. The jobs are
// in main.
func setupTwoDatabases(t *testing.T) (b bundle, ci *dbtest.DB) {
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
	b, ci := setupTwoDatabases(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	require.Equal(t, river.EventKindJobCompleted, b.workDatabase(t, "main").Kind)
	require.Zero(t, b.db.Pending(t))
	require.Equal(t, [][]string{{"2"}, {"3"}}, ci.Rows("SELECT id FROM builds ORDER BY id"))
	require.EqualValues(t, 1, ci.Pending(t), "the tombstone of the build belongs to the other subscription")
	due := pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, ci.Pool(), ci.Connected, false))(t)
	require.Equal(t, listen.Due{}, due, "the parents of ci are not set yet")

	b.deps.Bindings.SetParents("ci", []*loosefk.Parent{{Recorded: "public.builds"}})
	due = pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, ci.Pool(), ci.Connected, false))(t)
	require.True(t, due.Now)
	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ($1, now(), now()) ON CONFLICT (name) DO UPDATE SET paused_at = now()", LooseForeignKeys)
	due = pgtest.Must(looseForeignKeysDue(t.Context(), b.deps, ci.Pool(), ci.Connected, false))(t)
	require.False(t, due.Now, "the pause is kept in the jobs database")
	b.db.Exec("UPDATE sexton.river_queue SET paused_at = NULL")

	b.workDatabase(t, "ci")
	require.Zero(t, ci.Pending(t))
	require.Equal(t, [][]string{{"2"}, {"3"}}, ci.Rows("SELECT id FROM artifacts ORDER BY id"))
	require.Equal(t, [][]string{{"ci", "1"}, {"main", "1"}},
		b.db.Rows("SELECT database, stats ->> 'processed' FROM sexton.runs WHERE changed ORDER BY database"))
	require.Equal(t, [][]string{{LooseForeignKeysLease("ci")}, {LooseForeignKeysLease("main")}},
		ci.Rows("SELECT DISTINCT key FROM sexton.fences ORDER BY key"),
		"both subscriptions write to ci, so each has a fence")
	require.Equal(t, [][]string{{LooseForeignKeysLease("main")}}, b.db.Rows("SELECT DISTINCT key FROM sexton.fences"))
}

// unreachableDatabase returns a database that refuses connections.
func unreachableDatabase(t *testing.T) database.Database {
	db, err := database.Open(t.Context(), "ci", "postgres:///ci?host="+t.TempDir(), "",
		pgcatalog.Names{Tracked: "public"}, 2)
	require.True(t, database.Lost(err))
	t.Cleanup(db.Pool.Close)
	return db
}

func TestPassWithoutTheOtherDatabase(t *testing.T) {
	t.Parallel()
	b, ci := setupTwoDatabases(t)
	b.deps.Databases[1] = unreachableDatabase(t)
	// If a database cannot be queried for its tables, the configured patterns determine
	// them.
	b.deps.Config.Databases[1].Tables = []string{"builds", "artifacts"}
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.workDatabase(t, "main")
	require.Empty(t, b.db.Rows("SELECT FROM children WHERE parent_id = 1"), "children in the reachable database are deleted")
	rows := b.db.Rows("SELECT cleanup_attempts, consume_after > now(), last_error FROM loose_foreign_keys_deleted_records")
	require.Len(t, rows, 1)
	require.Equal(t, []string{"0", "t"}, rows[0][:2])
	require.Contains(t, rows[0][2], "builds: database ci cannot be reached")
	require.Contains(t, b.log.String(), "database_unreachable")

	b.deps.Databases[1] = ci.Connected
	// New Bindings do not contain the outage, so the pass does not wait before it
	// reconnects.
	b.deps.Bindings = &Bindings{}
	b.db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	b.workDatabase(t, "main")
	require.Zero(t, b.db.Pending(t))
	require.Empty(t, ci.Rows("SELECT FROM builds WHERE parent_id = 1"))
}

func TestDatabasesTakeTurnsAtTicks(t *testing.T) {
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

// connectThrough replaces the bundle's connections with connections through the network.
func (b *bundle) connectThrough(t *testing.T, network *pgtest.Network) {
	settings := pgtest.Must(pgxpool.ParseConfig(b.db.URL))(t)
	settings.ConnConfig.DialFunc = network.Dial
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
	t.Cleanup(pool.Close)
	connected := database.Database{Name: "main", Pool: pool, Names: b.db.Connected.Names}
	b.deps.Databases = []database.Database{connected}
	b.deps.Runner.Leases = &lease.Manager{Jobs: connected, Holder: "test"}
}

// In each pass after the first, a prepared statement takes one round trip.
func TestRoundTripsOfAPass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	network := &pgtest.Network{}
	b.connectThrough(t, network)
	var trips int64
	for range 2 {
		b.db.Exec("INSERT INTO parents VALUES (10); INSERT INTO children VALUES (10, 10); DELETE FROM parents WHERE id = 10")
		before := network.Trips.Load()
		b.mustRun(t, LooseForeignKeysCleanupArgs{Database: "main"})
		require.Zero(t, b.db.Pending(t))
		trips = network.Trips.Load() - before
	}
	require.LessOrEqual(t, trips, int64(16))
}

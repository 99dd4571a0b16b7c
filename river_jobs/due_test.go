package riverjobs

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/listen"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/cleanup"
	"sexton/internal/pgtest"
)

// tombstonesDue looks for tombstones of parents.
func (b bundle) tombstonesDue(t *testing.T) listen.Due {
	t.Helper()
	b.deps.Bindings.Note("main", []*loosefk.Parent{{Recorded: "public.parents"}})
	return b.due(t, LooseForeignKeys)
}

// Nothing falls due of what is put off for ever, and looking at it is no error.
func TestTombstonesPutOffForEverAreNeverDue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("DELETE FROM parents WHERE id = 1; UPDATE loose_foreign_keys_deleted_records SET consume_after = 'infinity'")
	require.Equal(t, listen.Due{}, b.tombstonesDue(t))
	b.db.Exec("DELETE FROM parents WHERE id = 2; UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + '1 hour' WHERE primary_key_value = 2")
	require.InDelta(t, 3600, b.tombstonesDue(t).In.Seconds(), 60)
}

func TestRemovedTombstonesAreDueOnceOlderTransactionsHaveEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, listen.Due{}, b.tombstonesDue(t))
	older := pgtest.Connect(t, b.db.URL)
	exec := func(sql string) {
		_, err := older.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	exec("BEGIN")
	b.db.Exec("DELETE FROM parents WHERE id = 1")
	b.worked(t, "main")
	require.Equal(t, listen.Due{In: cleanup.ConfirmEvery}, b.tombstonesDue(t), "the gate is shut, and the worker looks again by itself")
	b.db.Exec("UPDATE sexton.swept SET swept_at = clock_timestamp()")
	exec("COMMIT")
	require.Equal(t, listen.Due{In: cleanup.ConfirmEvery}, b.tombstonesDue(t), "no run begins at once for what can wait for the next one")

	exec("BEGIN")
	age := "UPDATE sexton.swept SET swept_at = (SELECT min(xact_start) FROM pg_stat_activity WHERE pid = $1) + $2::interval, prepared = NULL"
	b.db.Exec(age, older.PgConn().PID(), "-5 seconds")
	require.Equal(t, listen.Due{Now: true, In: cleanup.ConfirmEvery}, b.tombstonesDue(t), "the open transaction is younger")
	b.db.Exec(age, older.PgConn().PID(), "0")
	b.deps.Config.LooseForeignKeys.ConfirmWithin = time.Nanosecond
	pgtest.WaitFor(t, "the cap", func(context.Context) (bool, error) { return b.tombstonesDue(t).Now, nil })
	b.deps.Config.LooseForeignKeys.ConfirmWithin = time.Hour
	require.Equal(t, listen.Due{In: cleanup.ConfirmEvery}, b.tombstonesDue(t), "the open transaction is as old")
	exec("COMMIT")
	require.True(t, b.tombstonesDue(t).Now)

	b.db.Exec("UPDATE sexton.swept SET not_before = clock_timestamp() + interval '1 minute'")
	require.False(t, b.tombstonesDue(t).Now, "put off")
	b.db.Exec("UPDATE sexton.swept SET not_before = NULL")
	exec("BEGIN; INSERT INTO children VALUES (100, 3); PREPARE TRANSACTION 'due_" + b.db.Name + "'")
	b.db.Exec("UPDATE sexton.swept SET prepared = ARRAY(SELECT transaction FROM pg_prepared_xacts WHERE gid = $1)", "due_"+b.db.Name)
	require.False(t, b.tombstonesDue(t).Now, "a prepared transaction is there")
	exec("COMMIT PREPARED 'due_" + b.db.Name + "'")
	require.True(t, b.tombstonesDue(t).Now)
	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ($1, now(), now()) ON CONFLICT (name) DO UPDATE SET paused_at = now()", LooseForeignKeys)
	require.False(t, b.tombstonesDue(t).Now, "paused")
}

func TestEarlyConfirmationIsLogged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.db.Exec("INSERT INTO sexton.swept (database, parent, integer_keys, swept_at) VALUES ('main', 'public.parents', '{1,2}', now() - interval '2 hours')")
	b.worked(t, "main")
	require.Contains(t, b.log.String(), "clean-up confirmed although older transactions are open")
	require.Contains(t, b.log.String(), "parents=2")
	require.Empty(t, b.db.Rows("SELECT FROM sexton.swept"))
}

// A look must not read the backlog: neither what is due nor what is put off.
func TestDueDoesNotReadTheQueue(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.deps.Bindings.Note("main", []*loosefk.Parent{{Recorded: "public.parents"}})
	read := func() [][]string {
		// A session that has done something before still counts that.
		conn := pgtest.Connect(t, b.db.URL)
		tx := pgtest.Must(conn.Begin(t.Context()))(t)
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
	require.Empty(t, read(), "rows read with 20,000 put off")
	b.db.Exec(insert, "-1 hour")
	b.db.Exec("VACUUM ANALYZE")
	require.Empty(t, read(), "rows read with 20,000 due as well")
}

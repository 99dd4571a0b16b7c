package migrate_test

import (
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// Check accepts functions of another release, because workers of two releases may run at
// the same time. OtherFunctions reports them, and Up replaces them.
func TestFunctionsOfAnotherRelease(t *testing.T) {
	t.Parallel()
	d, db := installed(t)
	state := `SELECT proowner::regrole::text, proacl::text, prosrc ~ 'other release' FROM pg_proc WHERE oid = to_regprocedure('sexton.session_name(text)')`
	d.Exec(`GRANT EXECUTE ON FUNCTION sexton.session_name(text) TO pg_monitor;
		CREATE OR REPLACE FUNCTION sexton.session_name(fence_key text) RETURNS text LANGUAGE sql AS 'SELECT ''other release'''`)
	want := d.Rows(state)
	require.Equal(t, "t", want[0][2])
	require.NoError(t, migrate.Check(t.Context(), db))
	require.Equal(t, []string{migrate.Base}, pgtest.Must(migrate.OtherFunctions(t.Context(), db))(t))

	require.Empty(t, component(t, up(t, db), migrate.Base).Applied)
	require.Empty(t, pgtest.Must(migrate.OtherFunctions(t.Context(), db))(t))
	want[0][2] = "f"
	require.Equal(t, want, d.Rows(state), "owner and grants are kept")

	d.Exec("DROP FUNCTION sexton.session_name")
	require.ErrorContains(t, migrate.Check(t.Context(), db), `component base lacks function "sexton".session_name`)
	up(t, db)
	require.NoError(t, migrate.Check(t.Context(), db))
}

func TestUpWritesTheKinds(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	kinds := func() [][]string {
		return d.Rows("SELECT kind, queue, args, defaults, cron, max_attempts, databases FROM sexton.job_kinds ORDER BY kind")
	}
	db.Kinds = []migrate.Kind{
		{
			Kind: "sweep", Queue: "sweep", Args: map[string]string{"database": migrate.Text, "deep": migrate.Boolean},
			Defaults: map[string]any{"database": `m"ain`, "deep": false}, Cron: true, MaxAttempts: 1,
			Databases: []string{`m"ain`, "ci"},
		},
		{
			Kind: "remove", Queue: "slow", Args: map[string]string{"id": migrate.Bigint, "size": migrate.Bigint},
			Defaults: map[string]any{"size": int64(math.MaxInt64), "id": -1}, MaxAttempts: math.MaxInt16,
		},
		{Kind: "tidy", Queue: "slow", MaxAttempts: 3},
	}
	up(t, db)
	require.Equal(t, [][]string{
		{
			"remove", "slow", `{"id": "bigint", "size": "bigint"}`, `{"id": -1, "size": 9223372036854775807}`, "f",
			"32767", "NULL",
		},
		{
			"sweep", "sweep", `{"deep": "boolean", "database": "text"}`, `{"deep": false, "database": "m\"ain"}`, "t",
			"1",
			`{"m\"ain",ci}`,
		},
		{"tidy", "slow", `{}`, `{}`, "f", "3", "NULL"},
	}, kinds())

	versions := func() [][]string { return d.Rows("SELECT kind, xmin FROM sexton.job_kinds ORDER BY kind") }
	before := versions()
	up(t, db)
	require.Equal(t, before, versions(), "the second run wrote nothing")

	db.Kinds = []migrate.Kind{db.Kinds[2], db.Kinds[0], {Kind: "new", Queue: "new", MaxAttempts: 1}}
	db.Kinds[0].MaxAttempts = 4
	up(t, db)
	require.Equal(t, [][]string{
		{"new", "new", `{}`, `{}`, "f", "1", "NULL"},
		{
			"sweep", "sweep", `{"deep": "boolean", "database": "text"}`, `{"deep": false, "database": "m\"ain"}`, "t",
			"1",
			`{"m\"ain",ci}`,
		},
		{"tidy", "slow", `{}`, `{}`, "f", "4", "NULL"},
	}, kinds())
	require.Equal(t, before[1], versions()[1], "an unchanged kind is not written")

	db.Kinds = nil
	up(t, db)
	require.Empty(t, kinds())
}

func TestKindsAreForTheJobsDatabaseOnly(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	db.Jobs = false
	db.Kinds = []migrate.Kind{{Kind: "tidy", Queue: "tidy", MaxAttempts: 1}}
	up(t, db)
	require.False(t, pgtest.Scalar[bool](t, d, "SELECT to_regclass('sexton.job_kinds') IS NOT NULL"))
}

func TestBeginBatch(t *testing.T) {
	t.Parallel()
	d, _ := installed(t)
	d.Exec("INSERT INTO sexton.fences (key, slot, token) VALUES ('subscription', 3, 7)")

	begin := func(t *testing.T, key string, token int64, durable bool) (pgx.Tx, error) {
		tx := pgtest.Begin(t, d.Pool())
		_, err := tx.Exec(t.Context(), "SELECT sexton.begin_batch($1, 3, $2, 5000, 200, $3)", key, token, durable)
		return tx, err
	}
	requireSettings := func(t *testing.T, tx pgx.Tx, want map[string]string) {
		for name, value := range want {
			require.Equal(t, value, pgtest.Scalar[string](t, tx, "SELECT current_setting($1)", name), name)
		}
	}

	t.Run("sets the timeouts of the transaction", func(t *testing.T) {
		tx := pgtest.Must(begin(t, "subscription", 7, false))(t)
		requireSettings(t, tx, map[string]string{
			"statement_timeout": "5s", "lock_timeout": "200ms", "idle_in_transaction_session_timeout": "10s",
			"synchronous_commit": "off",
		})
		conn := tx.Conn()
		require.NoError(t, tx.Commit(t.Context()))
		after := pgtest.Scalar[string](t, conn, "SHOW statement_timeout")
		require.Equal(t, "0", after, "the settings end with the transaction")
	})

	t.Run("durable keeps the commit synchronous", func(t *testing.T) {
		requireSettings(t, pgtest.Must(begin(t, "subscription", 7, true))(t),
			map[string]string{"synchronous_commit": "on"})
	})

	t.Run("refuses a lost lease", func(t *testing.T) {
		for key, detail := range map[string]string{
			"subscription": "The batch has token 6, but the fence has token 7 in slot 3.",
			"other":        "The batch has token 6, but the fence has token none in slot 3.",
		} {
			_, err := begin(t, key, 6, false)
			var pgErr *pgconn.PgError
			require.ErrorAs(t, err, &pgErr)
			require.Equal(t, "SX001", pgErr.Code)
			require.Equal(t, "lease lost: "+key, pgErr.Message)
			require.Equal(t, detail, pgErr.Detail)
			require.NotEmpty(t, pgErr.Hint)
		}
	})

	t.Run("waits for a new holder under the lock timeout", func(t *testing.T) {
		pgtest.Begin(t, d.Pool(), "UPDATE sexton.fences SET token = 8 WHERE key = 'subscription'")

		_, err := begin(t, "subscription", 7, false)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, "55P03", pgErr.Code)
	})
}

func TestConstraintsOfTombstonesAndRuns(t *testing.T) {
	t.Parallel()
	d, _ := installed(t)
	for statement, state := range map[string]string{
		"INSERT INTO sexton.runs (kind, database, holder, outcome, ended_at) VALUES ('k', 'd', 'h', 'great', now())": "23514",
		"INSERT INTO sexton.runs (kind, database, holder, outcome) VALUES ('k', 'd', 'h', 'done')":                   "23514",
	} {
		_, err := d.Pool().Exec(t.Context(), statement)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr, statement)
		require.Equal(t, state, pgErr.Code, statement)
	}
	d.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('a', 1)")
	require.Equal(t, [][]string{{"1", "1", "0", "t"}}, d.Rows(
		"SELECT partition, status, cleanup_attempts, consume_after <= now() FROM loose_foreign_keys_deleted_records"))
}

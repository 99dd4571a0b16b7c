package migrate_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

func TestBeginBatch(t *testing.T) {
	t.Parallel()
	d, _ := installed(t)
	d.Exec("INSERT INTO sexton.fences (key, token) VALUES ('lane', 7)")

	begin := func(t *testing.T, key string, token int64, durable bool) (pgx.Tx, error) {
		t.Helper()
		tx := pgtest.Begin(t, d.Pool())
		_, err := tx.Exec(t.Context(), "SELECT sexton.begin_batch($1, $2, 5000, 200, $3)", key, token, durable)
		return tx, err
	}
	requireSettings := func(t *testing.T, tx pgx.Tx, want map[string]string) {
		t.Helper()
		for name, value := range want {
			got := pgtest.Scalar[string](t, tx, "SELECT current_setting($1)", name)
			require.Equal(t, value, got, name)
		}
	}

	t.Run("bounds the transaction", func(t *testing.T) {
		tx := pgtest.Must(begin(t, "lane", 7, false))(t)
		requireSettings(t, tx, map[string]string{
			"statement_timeout": "5s", "lock_timeout": "200ms", "idle_in_transaction_session_timeout": "10s",
			"synchronous_commit": "off", "plan_cache_mode": "force_generic_plan", "jit": "off",
			"enable_seqscan": "off", "enable_bitmapscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
		})
		conn := tx.Conn()
		require.NoError(t, tx.Commit(t.Context()))
		after := pgtest.Scalar[string](t, conn, "SHOW enable_seqscan")
		require.Equal(t, "on", after, "the settings end with the transaction")
	})

	t.Run("durable keeps the commit synchronous", func(t *testing.T) {
		requireSettings(t, pgtest.Must(begin(t, "lane", 7, true))(t), map[string]string{"synchronous_commit": "on"})
	})

	t.Run("refuses a lost lease", func(t *testing.T) {
		for key, detail := range map[string]string{
			"lane":  "The batch carries token 6, the fence stands at 7.",
			"other": "The batch carries token 6, the fence stands at none.",
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
		pgtest.Begin(t, d.Pool(), "UPDATE sexton.fences SET token = 8 WHERE key = 'lane'")

		_, err := begin(t, "lane", 7, false)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		require.Equal(t, "55P03", pgErr.Code)
	})
}

func TestConstraintsOfTombstonesAndRuns(t *testing.T) {
	t.Parallel()
	d, _ := installed(t)
	for statement, state := range map[string]string{
		"INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name) VALUES ('a')":                                              "23514",
		"INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, primary_key_text) VALUES ('a', 1, '1')": "23514",
		"INSERT INTO sexton.runs (kind, database, holder, outcome, ended_at) VALUES ('k', 'd', 'h', 'great', now())":                            "23514",
		"INSERT INTO sexton.runs (kind, database, holder, outcome) VALUES ('k', 'd', 'h', 'done')":                                              "23514",
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

package batch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/pgtest"
)

// What is counted is what was committed, also of tables with rules.
func TestBatchesCountWhatTheyChange(t *testing.T) {
	t.Parallel()

	db, session := setup(t)
	db.Exec("CREATE TABLE ruled (id bigint); INSERT INTO ruled SELECT n FROM generate_series(1, 9) AS n")
	db.Exec("CREATE RULE keep AS ON DELETE TO ruled WHERE old.id = 1 DO INSTEAD NOTHING")
	items := &batch.Figure{Field: "deleted", Label: "items", Table: pgtest.Scalar[uint32](t, db.Database, "SELECT 'items'::regclass::oid")}
	ruled := &batch.Figure{Field: "deleted", Label: "ruled", Table: pgtest.Scalar[uint32](t, db.Database, "SELECT 'ruled'::regclass::oid")}
	counts := func() [][]string {
		return db.Rows("SELECT run_id, field, label, rows, backend = $1 FROM sexton.run_counts ORDER BY label", session.Conn.PgConn().PID())
	}
	affected, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items WHERE id <= $1", Args: []any{3}, Counts: items})
	require.NoError(t, err)
	require.Equal(t, []int64{3}, affected)
	require.Empty(t, counts(), "no run")

	session.Fence.For(7)
	affected = pgtest.Must(session.Run(t.Context(),
		batch.Statement{SQL: "DELETE FROM ruled WHERE id <= $1", Args: []any{6}, Counts: ruled},
		batch.Statement{SQL: "SELECT 1"},
		batch.Statement{SQL: "UPDATE items SET parent = 0 WHERE id <= $1", Args: []any{4}, Counts: items},
		batch.Statement{SQL: "WITH gone AS (DELETE FROM items WHERE id <= 6 RETURNING id) SELECT id FROM gone", Counts: items}))(t)
	require.Equal(t, []int64{5, 1, 1, 3}, affected)
	require.Equal(t, [][]string{{"7", "deleted", "items", "4", "t"}, {"7", "deleted", "ruled", "5", "t"}}, counts())

	var failed *batch.StatementError
	_, err = session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items", Counts: items}, batch.Statement{SQL: "SELECT 1 / 0"})
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 1, failed.Index)
	limits := session.Limits
	limits.Repeatable = true
	affected, err = session.RunWithin(t.Context(), limits, batch.Statement{SQL: "DELETE FROM items WHERE id <= $1", Args: []any{8}, Counts: items})
	require.NoError(t, err)
	require.Equal(t, []int64{2}, affected)
	require.Equal(t, [][]string{{"7", "deleted", "items", "6", "t"}, {"7", "deleted", "ruled", "5", "t"}}, counts())
}

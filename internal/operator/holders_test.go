package operator

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/component"
	"sexton/internal/pgtest"
)

// What was put off is counted by its causes, and a lock names the session that holds one now, not the one of then.
func TestPutOffRowsAreCountedByReason(t *testing.T) {
	t.Parallel()
	db, all := failingSite(t)
	db.Exec(`DELETE FROM users_ghost_user_migrations;
		INSERT INTO users (id, username, email, name) SELECT id, 'q' || id, id || '@example.com', 'Q' FROM generate_series(21, 28) AS id;
		INSERT INTO users_ghost_user_migrations (user_id, consume_after, attempts, last_error)
		SELECT id, now() + id * interval '1 minute', 1, CASE
			WHEN id < 23 THEN 'issues: SQLSTATE 55P03: canceling statement due to lock timeout'
			WHEN id < 26 THEN 'notes: SQLSTATE 23503: Key (id)=(' || id || ') is still referenced'
			WHEN id < 27 THEN 'todos: SQLSTATE 23514: of another kind'
			WHEN id < 28 THEN 'events: SQLSTATE 23514: of a fourth kind' END
		FROM generate_series(21, 28) AS id`)
	users := func() component.Backlog {
		reading := pgtest.Must(Read(t.Context(), Noted(all, nil)))(t)
		at := slices.IndexFunc(reading.DeletionTables, func(b component.Backlog) bool { return b.Table == "users_ghost_user_migrations" })
		require.GreaterOrEqual(t, at, 0)
		return reading.DeletionTables[at]
	}
	locked := func() component.Failure {
		found := pgtest.Must(ReadFailures(t.Context(), all, 50))(t)
		at := slices.IndexFunc(found.Failures, func(f component.Failure) bool { return f.ID == "22" })
		require.GreaterOrEqual(t, at, 0)
		return found.Failures[at]
	}
	free := users()
	require.Equal(t, "3 × notes: SQLSTATE 23503: Key (id)=(23) is still referenced; 2 × issues: SQLSTATE 55P03: canceling statement due to lock timeout; "+
		"1 × events: SQLSTATE 23514: of a fourth kind; 1 × something else", free.DeferredReason)
	require.Equal(t, "no session holds a lock on issues", free.LockedBy)
	require.Equal(t, free.LockedBy, locked().LockedBy)

	tx := db.Begin(t, "SELECT FROM issues FOR UPDATE")
	pid := fmt.Sprintf("pid %d (", tx.Conn().PgConn().PID())
	held := users()
	require.Contains(t, held.LockedBy, pid)
	require.Contains(t, held.LockedBy, " holds locks on issues since ")
	reason, _ := held.Obstacle()
	require.Contains(t, reason, "; now "+held.LockedBy)
	failure := locked()
	require.Contains(t, failure.LockedBy, pid)
	require.Contains(t, string(pgtest.Must(json.Marshal(failure))(t)), `"locked":true`)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "no session holds a lock on issues", users().LockedBy)

	// Of more failures than one look takes none is taken for the last.
	all.Config.LooseForeignKeys.Enabled = true
	db.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value, consume_after, cleanup_attempts, last_error)
		SELECT 'public.projects', n, now() + interval '1 hour', 3, 'issues: SQLSTATE 23514: no ' || n FROM generate_series(1, 501) AS n`)
	found := pgtest.Must(ReadFailures(t.Context(), all, component.FailureWindow))(t)
	require.True(t, found.More)
	require.Equal(t, []string{"tombstones"}, found.Capped)
	first := found.Reasons()[0]
	require.Len(t, first.Failures, component.FailureWindow)
	require.True(t, first.More)
}

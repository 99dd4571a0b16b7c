package batch_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// psql connects a session that names itself so.
func psql(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn := pgtest.Connect(t, url+"&application_name=psql")
	return conn
}

func execOn(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	pgtest.Exec(t, conn, sql)
}

// blockerOf runs a deletion that has to wait and returns whom it waits for once that is known.
func blockerOf(t *testing.T, db *dbtest.DB, session *batch.Session, release func()) string {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items"})
		ended <- err
	}()
	var blocker string
	pgtest.WaitFor(t, "the batch to wait", func(ctx context.Context) (found bool, err error) {
		blocker, err = session.Blocker(ctx, db.Pool())
		return blocker != "", err
	})
	release()
	require.NoError(t, <-ended)
	return blocker
}

func TestBlockerNamesWhoHoldsARowOrTable(t *testing.T) {
	t.Parallel()
	for kind, sql := range map[string]string{
		"row":   "SELECT FROM items WHERE id = 7 FOR UPDATE",
		"table": "LOCK TABLE items IN ACCESS EXCLUSIVE MODE",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, session := setup(t)
			nobody := pgtest.Must(session.Blocker(t.Context(), db.Pool()))(t)
			require.Empty(t, nobody)

			holder := psql(t, db.URL)
			execOn(t, holder, "BEGIN")
			execOn(t, holder, sql)
			since := pgtest.Scalar[string](t, holder, `SELECT to_char(now() AT TIME ZONE 'UTC', 'HH24:MI:SS"Z"')`)
			blocker := blockerOf(t, db, session, func() { execOn(t, holder, "COMMIT") })
			require.Equal(t, fmt.Sprintf("%s locked by pid %d (psql) since %s", kind, holder.PgConn().PID(), since), blocker)

			nobody = pgtest.Must(session.Blocker(t.Context(), db.Pool()))(t)
			require.Empty(t, nobody)
		})
	}
}

func TestBlockerMayBeAPreparedTransaction(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	holder := psql(t, db.URL)
	name := "'" + db.Name + "'"
	execOn(t, holder, "BEGIN")
	execOn(t, holder, "UPDATE items SET parent = 0 WHERE id = 7")
	execOn(t, holder, "PREPARE TRANSACTION "+name)
	blocker := blockerOf(t, db, session, func() { execOn(t, holder, "ROLLBACK PREPARED "+name) })
	require.Equal(t, "row locked by a prepared transaction", blocker)
}

// Without pg_read_all_stats nobody sees since when, but still who. The batch and the question are the same role's.
func TestBlockerIsNamedWithoutRights(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	role := db.CreateRole()
	db.Exec("GRANT USAGE ON SCHEMA public, sexton TO " + role + "; GRANT ALL ON ALL TABLES IN SCHEMA public, sexton TO " + role +
		"; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO " + role)
	session.Conn = psql(t, db.AsRole(role))
	asking := psql(t, db.AsRole(role))
	holder := psql(t, db.URL)
	execOn(t, holder, "BEGIN")
	execOn(t, holder, "SELECT FROM items WHERE id = 7 FOR UPDATE")
	ended := make(chan error, 1)
	go func() {
		_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM items"})
		ended <- err
	}()
	var blocker string
	pgtest.WaitFor(t, "the batch to wait", func(ctx context.Context) (found bool, err error) {
		blocker, err = session.Blocker(ctx, asking)
		return blocker != "", err
	})
	execOn(t, holder, "COMMIT")
	require.NoError(t, <-ended)
	require.Equal(t, fmt.Sprintf("row locked by pid %d (psql)", holder.PgConn().PID()), blocker)
}

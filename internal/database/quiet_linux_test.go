package database_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

// Idle connections are checked without a ping. A ping costs the server a transaction, and
// the wake-up that uses the connection a round trip.
func TestIdleConnectionIsPingedOnlyIfItsSocketIsReadable(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := pgtest.Must(database.Open(t.Context(), "main", d.URL, "", pgcatalog.Names{}, 4))(t)
	t.Cleanup(db.Close)
	conn := pgtest.Must(db.Pool.Acquire(t.Context()))(t)
	idle := pgxpool.ShouldPingParams{Conn: conn.Conn(), IdleDuration: 2 * database.PingAfter}
	tries := func() bool { return db.Pool.Config().ShouldPing(t.Context(), idle) }
	require.False(t, tries())
	pid := conn.Conn().PgConn().PID()
	conn.Release()
	d.Terminate("pid = $1", pid)
	pgtest.WaitFor(t, "the socket to become readable", func(context.Context) (bool, error) { return tries(), nil })
}

package database_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/pgtest"
)

func TestConnectionLostBeforeTheStatementIsLost(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	conn, err := pgx.Connect(t.Context(), d.URL)
	require.NoError(t, err)
	d.Exec("SELECT pg_terminate_backend($1, 5000)", conn.PgConn().PID())
	for range 2 { // The first statement notices, the second finds no connection.
		_, err = conn.Exec(t.Context(), "SELECT 1")
		require.True(t, database.Lost(err), "%v", err)
	}
	require.ErrorContains(t, err, "conn closed")
}

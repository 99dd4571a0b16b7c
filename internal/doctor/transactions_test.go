package doctor_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/problem"
)

func TestOldTransactions(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	conn, err := pgx.Connect(t.Context(), p.URL+"&application_name=forgotten")
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), "BEGIN")
	require.NoError(t, err)
	require.Empty(t, p.findings("transactions"), "it is young")

	p.target.OldTransaction = time.Nanosecond
	f := p.one("transactions")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, fmt.Sprintf("pid %d", conn.PgConn().PID()), f.Object)
	require.Contains(t, f.Message, "(forgotten, idle in transaction) has had a transaction open since ")
	require.Equal(t, fmt.Sprintf("end it there, or: SELECT pg_catalog.pg_terminate_backend(%d)", conn.PgConn().PID()), f.Fix)
}

func TestPreparedTransactions(t *testing.T) {
	t.Parallel()
	p := healthy(t)
	quoted := "'" + p.Name + "''s'"
	p.Exec("BEGIN; INSERT INTO parents VALUES (1); PREPARE TRANSACTION " + quoted)
	t.Cleanup(func() { p.Exec("ROLLBACK PREPARED " + quoted) }) // Or the database could not be dropped.
	require.Empty(t, p.findings("prepared_transactions"), "it is young")

	p.target.OldTransaction = time.Nanosecond
	f := p.one("prepared_transactions")
	require.Equal(t, problem.Warning, f.Severity)
	require.Equal(t, quoted, f.Object)
	require.Contains(t, f.Fix, "ROLLBACK PREPARED "+quoted)
}

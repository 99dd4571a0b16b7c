package batch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// However many are asked for, the pool keeps connections for others, and gets all of them back.
func TestMoreSessionsLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	session, end := db.Session(t, "one")
	more := &batch.More{Pool: db.Pool(), Like: session}
	var got int32
	for s := more.Session(t.Context()); s != nil; s = more.Session(t.Context()) {
		require.Equal(t, []any{session.Fence, session.Names, session.Limits}, []any{s.Fence, s.Names, s.Limits})
		pgtest.Must(s.Run(t.Context(), batch.Statement{SQL: "SELECT 1"}))(t)
		got++
	}
	stat := db.Pool().Stat()
	require.Equal(t, stat.MaxConns()-3, got, "two are left, one is the pass's own")
	more.Release()
	end()
	require.Zero(t, db.Pool().Stat().AcquiredConns())
}

// A further session that begins with work, on a connection that knows the texts already, does not take that for the way to the server and back.
func TestMoreSessionsTellHowLongTheyTook(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	session, end := db.Session(t, "one")
	defer end()
	pgtest.Must(session.Run(t.Context(), batch.Statement{SQL: "SELECT 1"}))(t)
	for range 2 {
		more := &batch.More{Pool: db.Pool(), Like: session}
		s := more.Session(t.Context())
		require.NotNil(t, s)
		pgtest.Must(s.Run(t.Context(), batch.Statement{SQL: "SELECT count(*) FROM generate_series(1, 200000)"}))(t)
		require.Positive(t, s.Took())
		more.Release()
	}
}

package database_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

func TestRecordChange(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	d.Exec(`INSERT INTO sexton.audit (at, actor, remote, action, target, reason)
		SELECT now() - age, 'old', '', 'pause', 'k', '' FROM (VALUES (interval '89 days'), ('91 days')) AS kept (age)`)
	first := database.Change{Actor: "ann", Remote: "10.0.0.7:1234", Action: "pause", Target: "k", Reason: "long backup"}
	require.NoError(t, database.RecordChange(t.Context(), d.Connected, d.Pool(), first))
	require.NoError(t, database.RecordChange(t.Context(), d.Connected, d.Pool(),
		database.Change{Actor: "bob", Action: "resume", Target: "k"}))

	entries := pgtest.Must(database.LastChanges(t.Context(), d.Connected, 2))(t)
	require.Len(t, entries, 2)
	require.Equal(t, "bob", entries[0].Actor)
	require.WithinDuration(t, time.Now(), entries[1].At, time.Minute)
	first.At = entries[1].At
	require.Equal(t, first, entries[1])
	require.EqualValues(t, 3, pgtest.Scalar[int64](t, d.Database, "SELECT count(*) FROM sexton.audit"),
		"entries older than 90 days are deleted")
}

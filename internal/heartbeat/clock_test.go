package heartbeat_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
)

// The server's clock has been set back by an hour: what it wrote before lies ahead.
func TestNothingWaitsForAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	enter(db, "dead", -3600)
	available := insert(t, db, job{state: "available", clients: []string{"dead"}, seconds: -3600})
	require.NoError(t, newHeart(t, db, "self").Pulse().Next(t.Context()))
	require.Equal(t, [][]string{{"f"}}, db.Rows("SELECT seen_at > clock_timestamp() FROM sexton.clients WHERE client_id = 'dead'"),
		"its silence begins now")
	require.Equal(t, [][]string{{"f"}}, db.Rows("SELECT scheduled_at > clock_timestamp() FROM sexton.river_job WHERE id = $1", available))
}

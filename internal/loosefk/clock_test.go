package loosefk

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
)

// A transaction that was open when the server's clock was set back began, by that clock, in the future, and later than
// everything that is removed now.
func TestTransactionsFromTheFutureKeepTheGateShut(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec(`CREATE TABLE activity AS SELECT * FROM pg_catalog.pg_stat_activity LIMIT 0;
		INSERT INTO activity (datname, pid, usesysid, xact_start, state)
		SELECT current_database(), 1, usesysid, clock_timestamp() + interval '1 hour', 'active' FROM pg_catalog.pg_user WHERE usename = current_user`)
	seen := func(sql string) [][]string {
		return db.Rows(strings.ReplaceAll(sql, "pg_catalog.pg_stat_activity", "activity"), 1.0)
	}
	require.Equal(t, [][]string{{"-infinity", "f"}}, seen(horizonSQL))
	require.Equal(t, [][]string{{"1000000000", "f"}}, seen(ageSQL()), "elsewhere it counts as older than everything")
	db.Exec("UPDATE activity SET xact_start = NULL")
	require.Equal(t, [][]string{{"infinity", "f"}}, seen(horizonSQL))
}

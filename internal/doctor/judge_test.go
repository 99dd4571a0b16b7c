package doctor

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

func TestSettingFix(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"client":             "remove lock_timeout from the connection string",
		"user":               "ALTER ROLE r RESET lock_timeout",
		"database user":      "ALTER ROLE r IN DATABASE d RESET lock_timeout",
		"database":           "ALTER ROLE r IN DATABASE d SET lock_timeout = 0",
		"configuration file": "ALTER ROLE r IN DATABASE d SET lock_timeout = 0",
	} {
		require.Equal(t, want, settingFix("lock_timeout", source, "r", "d"), source)
	}
}

// Idle sessions are not reported as old transactions. When Postgres processes a catalog
// invalidation in an idle session, xact_start is the time of the session's last
// statement.
func TestIdleSessionsHaveNoOldTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(`CREATE TABLE activity AS SELECT * FROM pg_catalog.pg_stat_activity LIMIT 0;
		INSERT INTO activity (datname, pid, backend_type, xact_start, state) VALUES
			(current_database(), 1, 'client backend', '2026-01-01', 'idle'), (current_database(), 2, 'client backend', '2026-01-01', 'active'),
			(current_database(), 3, 'client backend', '2026-01-01', 'disabled')`)
	found := db.Rows(strings.ReplaceAll(sqlText("transactions"), "pg_catalog.pg_stat_activity", "activity"), 1.0)
	require.Len(t, found, 2)
	require.ElementsMatch(t, []string{"2", "3"}, []string{found[0][0], found[1][0]})
}

package installation

import (
	"context"
	"fmt"

	"sexton/internal/database"
)

// Server is where a database is, and as which role.
type Server struct{ ID, role string }

// ServerOf tells servers apart by what every role may read. No two on a machine have one port, and no two machines start
// theirs in the same microsecond.
func ServerOf(ctx context.Context, db database.Database) (found Server, err error) {
	const sql = `
SELECT pg_catalog.format('%s %s', extract(epoch FROM pg_catalog.pg_postmaster_start_time()), pg_catalog.current_setting('port')), current_user::pg_catalog.text`
	if err := db.Pool.QueryRow(ctx, sql).Scan(&found.ID, &found.role); err != nil {
		return found, fmt.Errorf("look up server of database %s: %w", db.Name, err)
	}
	return found, nil
}

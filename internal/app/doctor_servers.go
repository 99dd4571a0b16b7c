package app

import (
	"context"
	"fmt"

	"sexton/internal/database"
	"sexton/internal/doctor"
)

// server is where a database is, and as which role.
type server struct{ id, role string }

// findServers finds out which databases share a server, and so its limits. One that does not say counts as alone.
func (x *examination) findServers(ctx context.Context) {
	x.servers = map[string]server{}
	for _, db := range x.databases {
		found, err := serverOf(ctx, db)
		if err != nil {
			found = server{id: "of database " + db.Name}
		}
		x.servers[db.Name] = found
	}
}

// serverOf tells servers apart by what every role may read. No two on a machine have one port, and no two machines start
// theirs in the same microsecond.
func serverOf(ctx context.Context, db database.Database) (found server, err error) {
	const sql = `
SELECT pg_catalog.format('%s %s', extract(epoch FROM pg_catalog.pg_postmaster_start_time()), pg_catalog.current_setting('port')), current_user::pg_catalog.text`
	if err := db.Pool.QueryRow(ctx, sql).Scan(&found.id, &found.role); err != nil {
		return found, fmt.Errorf("look up server of database %s: %w", db.Name, err)
	}
	return found, nil
}

// mostConnections is the number that one worker may open to one database: its pool and the two connections that listen.
func (x *examination) mostConnections() int {
	return poolSize(x.config) + 2
}

// share sums up what a worker may open to the databases on matching servers.
func (x *examination) share(matches func(server) bool) doctor.Share {
	var share doctor.Share
	for _, db := range x.databases {
		if matches(x.servers[db.Name]) {
			share.Databases = append(share.Databases, db.Name)
			share.Connections += x.mostConnections()
		}
	}
	return share
}

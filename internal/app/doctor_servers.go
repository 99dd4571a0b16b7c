package app

import (
	"context"

	"sexton/internal/doctor"
	"sexton/internal/installation"
)

// findServers finds out which databases share a server, and so its limits. One that does not say counts as alone.
func (x *examination) findServers(ctx context.Context) {
	x.servers = map[string]installation.Server{}
	for _, db := range x.Databases {
		found, err := installation.ServerOf(ctx, db)
		if err != nil {
			found = installation.Server{ID: "of database " + db.Name}
		}
		x.servers[db.Name] = found
	}
}

// mostConnections is the number that one worker may open to one database: its pool and the two connections that listen.
func (x *examination) mostConnections() int {
	return installation.PoolSize(x.Config) + 2
}

// share sums up what a worker may open to the databases on matching servers.
func (x *examination) share(matches func(installation.Server) bool) doctor.Share {
	var share doctor.Share
	for _, db := range x.Databases {
		if matches(x.servers[db.Name]) {
			share.Databases = append(share.Databases, db.Name)
			share.Connections += x.mostConnections()
		}
	}
	return share
}

package app

import (
	"context"
	"fmt"

	"sexton/internal/database"
	"sexton/internal/ghostuser"
)

// readGhostQueue reads the backlog of users to be deleted.
func readGhostQueue(ctx context.Context, db database.Database) (deletionTable, error) {
	backlog, err := ghostuser.ReadBacklog(ctx, db.Pool, db.Names)
	if err != nil {
		return deletionTable{}, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	first, err := ghostuser.ReadWaiting(ctx, db.Pool, db.Names, shownUsers)
	if err != nil {
		return deletionTable{}, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	return deletionTable{
		Table: ghostQueue, Database: db.Name, Pending: backlog.Pending, Capped: backlog.Capped,
		OldestAgeSeconds: backlog.OldestAge.Seconds(), Deferred: backlog.Deferred, DeferredUntil: backlog.DeferredUntil, DeferredReason: backlog.DeferredReason,
		Users: first,
	}, nil
}

// Package audittrail keeps who changed what, and why, for 90 days.
package audittrail

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/each"
	"sexton/internal/problem"
)

// Entry is one change.
type Entry struct {
	At time.Time
	// Actor is who did it: the user that logged in, "token", or "page" where no login is needed.
	Actor string
	// Remote is the address that the request came from; empty for the command line.
	Remote string
	// Action is a short word, such as pause, and Target what it was done to.
	Action string
	Target string
	Reason string
}

// Record adds an entry, in db or in a transaction on it, and removes some of those past their time. The entry's own time is not
// looked at.
func Record(ctx context.Context, jobs database.Database, tx dbsqlc.DBTX, entry Entry) error {
	queries := jobs.Names.Queries(tx)
	row := dbsqlc.AuditAddParams{Actor: entry.Actor, Remote: entry.Remote, Action: entry.Action, Target: entry.Target, Reason: entry.Reason}
	if err := queries.AuditAdd(ctx, row); err != nil {
		return fmt.Errorf("record change: %w", err)
	}
	_, err := queries.AuditPrune(ctx)
	return problem.Doing(err, "prune recorded changes")
}

// Last returns the last entries, the newest first.
func Last(ctx context.Context, jobs database.Database, most int) ([]Entry, error) {
	rows, err := jobs.Queries().AuditLast(ctx, int32(most))
	if err != nil {
		return nil, fmt.Errorf("read recorded changes: %w", err)
	}
	return each.Of(rows, func(row dbsqlc.AuditLastRow) Entry { return Entry(row) }), nil
}

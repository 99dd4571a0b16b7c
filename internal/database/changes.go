package database

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// Change is an entry of the audit trail.
type Change struct {
	At time.Time
	// Actor is the user that logged in, "token", or "page" if no login is required.
	Actor string
	// Remote is the address of the request. It is empty for the command line.
	Remote string
	// Action is a short word, such as pause. Target is the changed object.
	Action string
	Target string
	Reason string
}

// RecordChange adds an entry with the current time to the audit trail, and removes some
// of the expired entries.
func RecordChange(ctx context.Context, jobs Database, tx dbsqlc.DBTX, entry Change) error {
	queries := jobs.Names.Queries(tx)
	row := dbsqlc.AuditAddParams{
		Actor: entry.Actor, Remote: entry.Remote, Action: entry.Action, Target: entry.Target,
		Reason: entry.Reason,
	}
	if err := queries.AuditAdd(ctx, row); err != nil {
		return fmt.Errorf("record change: %w", err)
	}
	_, err := queries.AuditPrune(ctx)
	return problem.Doing(err, "prune recorded changes")
}

// LastChanges returns the last entries of the audit trail, newest first.
func LastChanges(ctx context.Context, jobs Database, most int) ([]Change, error) {
	rows, err := jobs.Queries().AuditLast(ctx, int32(most))
	if err != nil {
		return nil, fmt.Errorf("read recorded changes: %w", err)
	}
	return render.Each(rows, func(row dbsqlc.AuditLastRow) Change { return Change(row) }), nil
}

package loosefk

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// Waiting is the backlog of one database.
type Waiting struct {
	// Pending counts tombstones, tombstones that are put off included, up to 10,000; Capped tells that there are more.
	Pending int64
	Capped  bool
	// OldestAge is the age of the oldest at the head of a parent's queue, 0 where none waits.
	OldestAge time.Duration
	// Deferred counts tombstones that are put off, up to 10,000; DeferredUntil is when the first of them falls due, nil where
	// there is none or that is never, and DeferredReason why that one was put off.
	Deferred       int64
	DeferredUntil  *time.Time
	DeferredReason string
}

// ReadWaiting counts what waits, at a cost that does not grow with it. The database has the one definition of it, which
// "sexton".backlog shows as well.
func ReadWaiting(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (Waiting, error) {
	const sql = `
		SELECT pending, capped, oldest_age_seconds, deferred, nullif(deferred_until, 'infinity'), coalesce(deferred_reason, '')
		FROM "sexton".backlog_of_loose_foreign_keys()`
	var w Waiting
	var age float64
	err := db.QueryRow(ctx, names.Render(sql)).Scan(&w.Pending, &w.Capped, &age, &w.Deferred, &w.DeferredUntil, &w.DeferredReason)
	if err != nil {
		return Waiting{}, fmt.Errorf("count tombstones: %w", err)
	}
	w.OldestAge = time.Duration(age * float64(time.Second))
	if w.DeferredUntil != nil {
		at := w.DeferredUntil.UTC()
		w.DeferredUntil = &at
	}
	return w, nil
}

package extdiff

import (
	"context"
	"fmt"
	"time"

	"sexton/internal/dbsqlc"
	"sexton/internal/dbsqlc/diffsqlc"
	"sexton/internal/pgschema"
)

// Queued are the objects that wait to be removed.
type Queued struct {
	// Objects stops at 10,000; Capped tells that there are more.
	Objects int64
	Capped  bool
	// Oldest is how long the first of them has been waiting.
	Oldest time.Duration
}

// ReadQueued reads how many objects wait to be removed where external diffs are not enabled: their trigger queues objects all the
// same, and the functions of the newest version may be missing. There are none where the component was never installed, or the role
// may not know.
func ReadQueued(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) (Queued, error) {
	var queued Queued
	on := diffsqlc.New(names.On(db))
	var found diffsqlc.RemovalsQueuedRow
	readable, err := on.RemovalsReadable(ctx)
	if err == nil && readable {
		found, err = on.RemovalsQueued(ctx, backlogCap+1)
	}
	if err != nil {
		return queued, fmt.Errorf("count objects to be removed: %w", err)
	}
	queued.Objects = found.Count
	queued.Capped = queued.Objects > backlogCap
	queued.Objects = min(queued.Objects, backlogCap)
	queued.Oldest = time.Duration(max(0, found.Seconds) * float64(time.Second))
	return queued, nil
}

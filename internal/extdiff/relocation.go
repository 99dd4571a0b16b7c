package extdiff

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Relocation moves the objects of all diffs that are in the other store to the engine's. Several may run at once, beside workers.
type Relocation struct {
	Engine *Engine
	// Limit is the number of diffs that are moved at most; 0 means all.
	Limit int64
	// Later is how long the old objects stay for readers that have seen the rows before.
	Later time.Duration
	// DryRun only counts the diffs and their bytes.
	DryRun bool
	// Window is how many diffs, wherever they are, one statement looks at; 0 means 2000.
	Window int
	// Left is called with each diff that stays where it is: a *BusyError or a *BrokenError.
	Left func(diffID int64, err error)
	// Progress, if set, is called after each diff.
	Progress func(Relocations)
}

// Relocations are what a Relocation has done.
type Relocations struct {
	// Diffs and Bytes count what was moved or, in a dry run, what there is to be moved.
	Diffs int64 `json:"diffs"`
	Bytes int64 `json:"bytes"`
	// Damaged counts diffs whose object is missing or not what the rows say, Busy diffs that another worker has.
	Damaged int64 `json:"damaged"`
	Busy    int64 `json:"busy"`
	// Removed counts old objects, and those of deleted diffs, that have been removed.
	Removed int64 `json:"objects_removed"`
	// OverLimit reports that the limit was met before the last diff.
	OverLimit bool `json:"over_limit"`
}

// relocatableSQL looks at $2 diffs behind $1: how many there are, the last of them, and the ones that are in the store $3.
const relocatableSQL = `
WITH scanned AS MATERIALIZED (
    SELECT diff.id, diff.stored_externally AND coalesce(diff.external_diff_store, 1) = $3::integer AS there
    FROM "public".merge_request_diffs AS diff
    WHERE diff.id > $1
    ORDER BY diff.id
    LIMIT $2
)
SELECT (SELECT pg_catalog.count(*) FROM scanned), (SELECT coalesce(pg_catalog.max(scanned.id), 0) FROM scanned),
    ARRAY(SELECT scanned.id FROM scanned WHERE scanned.there ORDER BY scanned.id)`

const relocatableBytesSQL = `
SELECT coalesce(pg_catalog.sum(coalesce(ledger.size, (
    SELECT pg_catalog.sum(file.external_diff_size) FROM "public".merge_request_diff_files AS file WHERE file.merge_request_diff_id = wanted.id
))), 0)::bigint
FROM pg_catalog.unnest($1::bigint[]) AS wanted (id)
LEFT JOIN "sexton".external_diffs AS ledger ON ledger.diff_id = wanted.id`

// Run goes through all diffs once. It ends at the first error that is not about one diff alone, such as an outage: another Run goes on.
func (r *Relocation) Run(ctx context.Context) (Relocations, error) {
	var done Relocations
	other, err := r.Engine.Other.Get(ctx)
	if err == nil && other == nil {
		err = errors.New("there is no other store")
	}
	if err != nil {
		return done, fmt.Errorf("move objects: %w", err)
	}
	window := r.Window
	if window <= 0 {
		window = windowRows
	}
	for after, looked := int64(0), window; looked == window && !done.OverLimit; {
		var ids []int64
		err := r.Engine.DB.Pool.QueryRow(ctx, r.Engine.DB.Names.Render(relocatableSQL), after, window, int(other.Store.Kind())).
			Scan(&looked, &after, &ids)
		if err != nil {
			return done, fmt.Errorf("look for diffs in %s: %w", other.Store, err)
		}
		if err := r.window(ctx, ids, &done); err != nil {
			return done, err
		}
	}
	return done, nil
}

func (r *Relocation) window(ctx context.Context, ids []int64, done *Relocations) error {
	if room := r.Limit - done.Diffs; r.DryRun && r.Limit > 0 && int64(len(ids)) > room {
		done.OverLimit, ids = true, ids[:room]
	}
	if r.DryRun {
		var bytes int64
		if err := r.Engine.DB.Pool.QueryRow(ctx, r.Engine.DB.Names.Render(relocatableBytesSQL), ids).Scan(&bytes); err != nil {
			return fmt.Errorf("measure diffs: %w", err)
		}
		done.Diffs += int64(len(ids))
		done.Bytes += bytes
		return nil
	}
	for _, id := range ids {
		if done.OverLimit = r.Limit > 0 && done.Diffs == r.Limit; done.OverLimit {
			break
		}
		if err := r.one(ctx, id, done); err != nil {
			return err
		}
	}
	removed, err := r.Engine.Remove(ctx, windowRows)
	done.Removed += removed.Objects
	return err
}

func (r *Relocation) one(ctx context.Context, id int64, done *Relocations) error {
	moved, err := r.Engine.Relocate(ctx, id, r.Later)
	busy, isBusy := errors.AsType[*BusyError](err)
	broken, isBroken := errors.AsType[*BrokenError](err)
	switch {
	case isBusy:
		done.Busy++
		r.leave(id, busy)
	case isBroken:
		done.Damaged++
		r.leave(id, broken)
	case err != nil:
		return err
	case moved.Skipped == "":
		done.Diffs++
		done.Bytes += moved.Bytes
	}
	if r.Progress != nil {
		r.Progress(*done)
	}
	return nil
}

func (r *Relocation) leave(id int64, reason error) {
	if r.Left != nil {
		r.Left(id, reason)
	}
}

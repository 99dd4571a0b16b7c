package extdiff

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sexton/internal/blobstore"
)

// Relocation moves the objects of all diffs that are in the other store to the engine's. Several may run at once, beside workers.
type Relocation struct {
	Engine *Engine
	// Remover, if set, removes old objects in place of Engine: entries without a store are those of its own.
	Remover *Engine
	// Limit is the number of diffs that are moved at most; 0 means all.
	Limit int64
	// Later is how long the old objects stay for readers that have seen the rows before.
	Later time.Duration
	// DryRun only counts the diffs and their bytes.
	DryRun bool
	// Window is how many diffs, wherever they are, one statement looks at; 0 means 2000.
	Window int
	// Left is called with each diff that stays where it is: a *BusyError, a *BrokenError, or another error that is about this diff alone.
	Left func(diffID int64, err error)
	// Progress, if set, is called after each diff.
	Progress func(Relocations)

	// inARow counts the failures since the last diff that was moved. refused is why old objects could not be removed.
	inARow  int
	refused error
}

// Relocations are what a Relocation has done.
type Relocations struct {
	// Diffs and Bytes count what was moved or, in a dry run, what there is to be moved.
	Diffs int64 `json:"diffs"`
	Bytes int64 `json:"bytes"`
	// Damaged counts diffs whose object is missing or not what the rows say, Failed the ones that stay for another reason, Busy diffs that
	// another worker has.
	Damaged int64 `json:"damaged"`
	Failed  int64 `json:"failed"`
	Busy    int64 `json:"busy"`
	// Removed counts old objects, and those of deleted diffs, that have been removed.
	Removed int64 `json:"objects_removed"`
	// OverLimit reports that the limit was met before the last diff.
	OverLimit bool `json:"over_limit"`
}

// mostFailures is how many diffs may fail one after the other: by then it is about the store or the database.
const mostFailures = 10

// Run goes through all diffs once. It ends at an outage and at the tenth failure in a row: another Run goes on. After an
// old object that could not be removed no other one is, and the error comes at the end.
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
		page, err := queries(r.Engine.DB).Relocatable(ctx, int(other.Store.Kind()), after, window)
		if err != nil {
			return done, fmt.Errorf("look for diffs in %s: %w", other.Store, err)
		}
		looked, after = int(page.Looked), page.After
		if err := r.window(ctx, page.Ids, &done); err != nil {
			return done, errors.Join(err, r.refused)
		}
	}
	return done, r.refused
}

func (r *Relocation) window(ctx context.Context, ids []int64, done *Relocations) error {
	if room := r.Limit - done.Diffs; r.DryRun && r.Limit > 0 && int64(len(ids)) > room {
		done.OverLimit, ids = true, ids[:room]
	}
	if r.DryRun {
		bytes, err := queries(r.Engine.DB).RelocatableBytes(ctx, ids)
		if err != nil {
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
	if r.refused != nil {
		return nil //nolint:nilerr // Run returns it
	}
	remover := r.Remover
	if remover == nil {
		remover = r.Engine
	}
	removed, err := remover.Remove(ctx, windowRows)
	done.Removed += removed.Objects
	if ends(ctx, err) {
		return err
	}
	r.refused = err
	return nil
}

// ends reports whether an error ends a run: it is none of a single diff or object.
func ends(ctx context.Context, err error) bool {
	_, outage := errors.AsType[*blobstore.OutageError](err)
	return outage || ctx.Err() != nil || errors.Is(err, ErrNotOurs)
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
		if r.inARow++; r.inARow >= mostFailures || ends(ctx, err) {
			return err
		}
		done.Failed++
		r.leave(id, err)
	case moved.Skipped == "":
		done.Diffs++
		done.Bytes += moved.Bytes
		r.inARow = 0
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

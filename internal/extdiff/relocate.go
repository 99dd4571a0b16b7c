package extdiff

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
)

// Relocate moves the object of a diff from the other store to this one: it copies and compares the object, then one transaction changes
// the row and lists the old object as one to be removed after the time later, as readers may have seen the row before. It returns a
// *BusyError where another worker has the diff, a *BrokenError where the object is not what the rows say, and the *OutageError or
// *AccessError of either store. A second call after a crash goes on.
func (e *Engine) Relocate(ctx context.Context, diffID int64, later time.Duration) (Moved, error) {
	done, err := persist(func(bool) (done Moved, err error) {
		done.DiffID = diffID
		err = e.claimed(ctx, diffID, func(held context.Context, claimed *claim) error {
			return e.relocateClaimed(held, claimed, later, &done)
		})
		return done, err
	})
	if err != nil {
		return Moved{DiffID: diffID}, fmt.Errorf("move the object of diff %d: %w", diffID, err)
	}
	return done, nil
}

func (e *Engine) relocateClaimed(ctx context.Context, claimed *claim, later time.Duration, done *Moved) error {
	was, err := e.locate(ctx, done.DiffID)
	switch {
	case errors.Is(err, ErrNoDiff):
		done.Skipped = Gone
		return nil
	case err != nil:
		return err
	case was.key == "":
		done.Skipped = NotDue
		return nil
	case was.at == e:
		done.Skipped = External
		return nil
	}
	if err := was.at.Owner.Check(ctx); err != nil {
		return err
	}
	digest, err := e.copy(ctx, claimed, was)
	if err != nil {
		return err
	}
	if err := e.compare(ctx, was.key, digest); err != nil {
		return err
	}
	done.Key, done.Bytes = was.key, digest.Size
	if done.Skipped, err = e.switchStore(ctx, claimed, was, digest, later); err == nil && done.Skipped == "" {
		e.reach(PointMoved)
	}
	return err
}

// locate reads from one snapshot where a diff is.
func (e *Engine) locate(ctx context.Context, diffID int64) (was external, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, e.DB.Pool, snapshot, func(tx pgx.Tx) error {
		was, err = e.readExternal(ctx, tx, diffID)
		return err
	})
	return was, err
}

// copy writes the object to this store. One that is not what the rows say is not written.
func (e *Engine) copy(ctx context.Context, claimed *claim, was external) (blobstore.Digest, error) {
	over, err := e.Store.Version(ctx, was.key)
	if err != nil {
		return blobstore.Digest{}, err
	}
	from, err := was.at.Store.Range(ctx, was.key, 0, -1)
	if errors.Is(err, blobstore.ErrNotFound) {
		return blobstore.Digest{}, &BrokenError{DiffID: was.diffID, Reason: missing}
	}
	if err != nil {
		return blobstore.Digest{}, err
	}
	defer from.Close()
	rows := survey{bytes: was.bytes(), fingerprint: was.fingerprint}
	return e.put(ctx, claimed, over, rows, &Moved{Key: was.key}, func(w io.Writer) error {
		e.reach(PointReading)
		hash := sha256.New()
		size, err := io.Copy(io.MultiWriter(w, hash), from)
		if err != nil {
			return err
		}
		if reason := was.differs(blobstore.Digest{Size: size, SHA256: [sha256.Size]byte(hash.Sum(nil))}); reason != "" {
			return &BrokenError{DiffID: was.diffID, Reason: reason}
		}
		return nil
	})
}

// switchStore changes the row, if it and its files are still the ones that were read. A diff that has been deleted meanwhile leaves the
// copy to the removal: the trigger has listed the object that the row named.
func (e *Engine) switchStore(
	ctx context.Context, claimed *claim, was external, digest blobstore.Digest, later time.Duration,
) (skipped Skip, err error) {
	defer claimed.confirmed.Store(false)
	err = e.transact(ctx, func(tx pgx.Tx) error {
		on := e.DB.Names.Queries(tx)
		if err := claimed.confirm(ctx, tx); err != nil {
			return err
		}
		if err := e.unchanged(ctx, tx, was); err != nil {
			if !errors.Is(err, errChanged) {
				return err
			}
			present, existsErr := on.DiffExists(ctx, was.diffID)
			if existsErr != nil || present {
				return errors.Join(err, existsErr)
			}
			skipped = Gone
			return on.DiffOrphan(ctx, was.diffID, was.key, int(e.Store.Kind()))
		}
		if err := on.DiffSwitchStore(ctx, int(e.Store.Kind()), was.diffID); err != nil {
			return fmt.Errorf("note the diff's store: %w", err)
		}
		if err := on.DiffSettle(ctx, digest.Size, digest.SHA256[:], was.diffID, claimed.token); err != nil {
			return fmt.Errorf("note what was moved: %w", err)
		}
		if _, err := on.RemoveNext(ctx, was.diffID, was.key, was.store, later.Seconds()); err != nil {
			return fmt.Errorf("list the old object as one to be removed: %w", err)
		}
		e.reach(PointSwitched)
		return nil
	})
	return skipped, err
}

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
	window := cmp.Or(r.Window, windowRows)
	for after, looked := int64(0), window; looked == window && !done.OverLimit; {
		page, err := r.Engine.DB.Queries().DiffRelocatable(ctx, int(other.Store.Kind()), after, window)
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
		bytes, err := r.Engine.DB.Queries().DiffRelocatableBytes(ctx, ids)
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
	removed, err := cmp.Or(r.Remover, r.Engine).Remove(ctx, windowRows)
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

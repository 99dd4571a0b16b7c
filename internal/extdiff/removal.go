package extdiff

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/dbsqlc"
)

const (
	// removalLength is the time for which a queued object is hidden from other workers.
	removalLength = time.Minute
	// quarantineLength is the time for which no worker may move a diff if a request to
	// delete its object may still arrive. It is also the length of the claim of a
	// removal, because a worker that dies during the request cannot extend the claim.
	quarantineLength = 15 * time.Minute
	// retryAfter is the wait after the first failure of a removal. The wait doubles up to
	// one hour.
	retryAfter = 30 * time.Second
)

// RemovalDueSQL is a condition, to be rendered for the configured schemas, that is true
// if a queued object is due.
const RemovalDueSQL = `EXISTS (SELECT FROM "sexton".external_diff_removals AS removal WHERE removal.not_before <= pg_catalog.statement_timestamp())`

// CountRemovalsSQL is an expression, to be rendered for the configured schemas, that
// counts due objects up to 10,001.
const CountRemovalsSQL = `(SELECT pg_catalog.count(*) FROM (
    SELECT FROM "sexton".external_diff_removals AS removal WHERE removal.not_before <= pg_catalog.statement_timestamp() LIMIT 10001
) AS counted)`

// NextRemovalSQL is an expression, to be rendered for the configured schemas. It returns
// the seconds (float8) until the next deferred removal, or 0 if none is deferred.
const NextRemovalSQL = `coalesce((
    SELECT extract(epoch FROM pg_catalog.min(removal.not_before) - pg_catalog.statement_timestamp())
    FROM "sexton".external_diff_removals AS removal
    WHERE removal.not_before > pg_catalog.statement_timestamp()
), 0)::pg_catalog.float8`

// Removed counts the objects that a run has removed.
type Removed struct {
	// Objects counts objects that were deleted or were already missing.
	Objects int64 `json:"objects_removed"`
	// Spared counts entries whose object is in use again or whose key is invalid.
	Spared int64 `json:"objects_spared"`
	// Failed counts entries that were deferred with an error.
	Failed int64 `json:"removals_failed"`
}

// removal is an entry of the queue of objects that must be deleted.
type removal struct {
	id, diffID int64
	key        string
	// store is the kind of store that the row of the diff named. nil means the configured
	// store.
	store *int
}

// Remove deletes up to limit objects that are queued for removal. If the deletion of an
// object fails, Remove defers it. If the error concerns the whole store, Remove stops.
func (e *Engine) Remove(ctx context.Context, limit int) (Removed, error) {
	var removed Removed
	for range limit {
		if ctx.Err() != nil {
			break
		}
		row, err := e.DB.Queries().RemovalTake(ctx, removalLength.Seconds())
		if errors.Is(err, pgx.ErrNoRows) {
			return removed, nil
		}
		if err != nil {
			return removed, fmt.Errorf("take an object to be removed: %w", err)
		}

		d := removal{id: row.ID, diffID: row.DiffID, key: row.Key, store: row.Store}
		e.reach(PointEntry)
		deleted, err := e.deleteObject(ctx, d)
		switch {
		case err != nil && ctx.Err() != nil:
			return removed, nil //nolint:nilerr // After a stop the entry becomes due again.
		case err != nil:
			removed.Failed++
			if deferErr := e.deferRemoval(ctx, d, err); deferErr != nil {
				return removed, errors.Join(err, deferErr)
			}
			if !concernsOneObject(err) {
				return removed, err
			}
			continue
		case deleted:
			removed.Objects++
		default:
			removed.Spared++
		}
		if err := e.DB.Queries().RemovalDelete(ctx, d.id); err != nil {
			return removed, fmt.Errorf("remove %s from the queue: %w", d.key, err)
		}
	}
	return removed, nil //nolint:nilerr // A stop is not an error.
}

// concernsOneObject reports whether an error concerns a single object.
func concernsOneObject(err error) bool {
	_, busy := errors.AsType[*BusyError](err)
	_, other := errors.AsType[*otherStoreError](err)
	_, kept := errors.AsType[*undeletedError](err)
	_, refused := errors.AsType[*blobstore.AccessError](err)
	return busy || other || kept && !refused
}

// undeletedError reports that the store did not delete one object. It may still delete
// other objects.
type undeletedError struct{ error }

func (e *undeletedError) Unwrap() error { return e.error }

func (e *Engine) deferRemoval(ctx context.Context, d removal, cause error) error {
	return settle(ctx, e.DB, "defer the removal of "+d.key, func(ctx context.Context, on *dbsqlc.Queries) error {
		return on.RemovalDefer(ctx, retryAfter.Seconds(), cause.Error(), d.id)
	})
}

// deleteObject deletes an object under the claim of the diff in its key, unless a row
// refers to the object. It checks two rows: that of the diff in the key, and that of the
// diff for which the object was queued. They differ if an application has given a diff
// the object of another diff. deleteObject reports whether the object is deleted.
func (e *Engine) deleteObject(ctx context.Context, d removal) (deleted bool, err error) {
	if d.store != nil {
		if err := checkStoreKind(e.Store, d.key, *d.store); err != nil {
			return false, err
		}
	}
	if err := e.Owner.Check(ctx); err != nil {
		return false, err
	}
	owner, named := diffOf(d.key)
	if !named {
		owner = d.diffID
	}
	claimed, err := take(ctx, e.DB.Pool, e.DB, owner, e.Holder, quarantineLength)
	if err != nil {
		return false, err
	}
	held, stopRenewing := claimed.hold(ctx)
	deleted, known, err := e.deleteHeld(held, d, owner)
	stopRenewing()
	if !known {
		return false, errors.Join(err, claimed.quarantine(ctx, quarantineLength))
	}
	return deleted, errors.Join(err, claimed.release(ctx))
}

// deleteHeld deletes an object that no row refers to, while the claim is held. known is
// false after an error other than an AccessError, because the store may still delete the
// object.
func (e *Engine) deleteHeld(ctx context.Context, d removal, owner int64) (deleted, known bool, err error) {
	used, err := e.DB.Queries().RemovalInUse(ctx, []int64{owner, d.diffID}, d.key, d.store)
	if err != nil {
		return false, true, fmt.Errorf("check whether %s is in use: %w", d.key, err)
	}
	if used || blobstore.CheckKey(d.key) != nil {
		return false, true, nil //nolint:nilerr // No object has an invalid key.
	}
	e.reach(PointUnused)
	err = e.Store.Delete(ctx, d.key)
	if err == nil || errors.Is(err, blobstore.ErrNotFound) {
		e.reach(PointDeleted)
		return true, true, nil
	}
	if _, outage := errors.AsType[*blobstore.OutageError](err); !outage {
		err = &undeletedError{err}
	}
	_, refused := errors.AsType[*blobstore.AccessError](err)
	return false, refused, err
}

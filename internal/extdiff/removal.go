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
	// removalLength is how long an object that is being deleted is out of others' reach.
	removalLength = time.Minute
	// quarantineLength is the time for which no worker moves a diff of which it is not known whether its object's deletion has arrived. It is
	// also the length of a removal's claim, from before the deletion is sent: a worker that dies with it under way cannot say so.
	quarantineLength = 15 * time.Minute
	// retryAfter is the pause after the first failure of a removal; it doubles up to an hour.
	retryAfter = 30 * time.Second
)

// RemovalDueSQL is a condition, to be rendered for the configured schemas: some object is to be removed now.
const RemovalDueSQL = `EXISTS (SELECT FROM "sexton".external_diff_removals AS removal WHERE removal.not_before <= pg_catalog.statement_timestamp())`

// CountRemovalsSQL is an expression, to be rendered for the configured schemas: how many are, 10,001 where there are more.
const CountRemovalsSQL = `(SELECT pg_catalog.count(*) FROM (
    SELECT FROM "sexton".external_diff_removals AS removal WHERE removal.not_before <= pg_catalog.statement_timestamp() LIMIT 10001
) AS counted)`

// NextRemovalSQL is an expression, to be rendered for the configured schemas: in how many seconds (float8) the next removal falls
// due that is put off, or 0 where none is.
const NextRemovalSQL = `coalesce((
    SELECT extract(epoch FROM pg_catalog.min(removal.not_before) - pg_catalog.statement_timestamp())
    FROM "sexton".external_diff_removals AS removal
    WHERE removal.not_before > pg_catalog.statement_timestamp()
), 0)::pg_catalog.float8`

// Removed counts the objects that a run has removed.
type Removed struct {
	// Objects were deleted, or had gone already.
	Objects int64 `json:"objects_removed"`
	// Spared counts entries whose object is in use again or is in another store than the configured one, and those whose key no object can have.
	Spared int64 `json:"objects_spared"`
	// Failed counts entries that were put off with an error.
	Failed int64 `json:"removals_failed"`
}

// removal is an entry of the list of objects to be removed.
type removal struct {
	id, diffID int64
	key        string
	// store is nil where it is the configured one, whichever that is.
	store *int
}

// Remove deletes up to limit objects that nothing refers to any more, each at least once. The first outage of a store, or its first
// refusal, ends the work on that store; Remove returns it.
func (e *Engine) Remove(ctx context.Context, limit int) (Removed, error) {
	var removed Removed
	var failed error
	away := []int{}
	for range limit {
		if ctx.Err() != nil {
			break
		}
		row, err := e.DB.Queries().RemovalTake(ctx, removalLength.Seconds(), int(e.Store.Kind()), away)
		if errors.Is(err, pgx.ErrNoRows) {
			return removed, failed
		}
		if err != nil {
			return removed, fmt.Errorf("take an object to be removed: %w", err)
		}
		d := removal{id: row.ID, diffID: row.DiffID, key: row.Key, store: row.Store}
		e.reach(PointEntry)
		gone, err := e.destroy(ctx, d)
		switch {
		case err != nil && ctx.Err() != nil: // Asked to stop. The entry comes again by itself.
			return removed, failed
		case err != nil:
			removed.Failed++
			if putOffErr := e.putOff(ctx, d, err); putOffErr != nil {
				return removed, errors.Join(failed, err, putOffErr)
			}
			if !bearable(err) {
				failed = errors.Join(failed, err)
				away = append(away, int(e.kindOf(d)))
			}
			continue
		case gone:
			removed.Objects++
		default:
			removed.Spared++
		}
		if err := e.DB.Queries().RemovalStrike(ctx, d.id); err != nil {
			return removed, fmt.Errorf("strike %s from the list of objects to be removed: %w", d.key, err)
		}
	}
	return removed, failed
}

func (e *Engine) kindOf(d removal) blobstore.Kind {
	if d.store != nil {
		return blobstore.Kind(*d.store)
	}
	return e.Store.Kind()
}

// bearable reports that an error is about one object alone.
func bearable(err error) bool {
	_, busy := errors.AsType[*BusyError](err)
	_, other := errors.AsType[*otherStoreError](err)
	_, kept := errors.AsType[*undeletedError](err)
	_, refused := errors.AsType[*blobstore.AccessError](err)
	return busy || other || kept && !refused
}

// undeletedError is the answer of a store that does not delete one object. It may delete others.
type undeletedError struct{ error }

func (e *undeletedError) Unwrap() error { return e.error }

func (e *Engine) putOff(ctx context.Context, d removal, cause error) error {
	return settle(ctx, e.DB, "put off the removal of "+d.key, func(ctx context.Context, on *dbsqlc.Queries) error {
		return on.RemovalPutOff(ctx, retryAfter.Seconds(), cause.Error(), d.id)
	})
}

// destroy deletes an object under the claim of the diff that it is named after, unless a row refers to it: that diff's, or the one
// that it was listed for, should the application have given it another's object. It reports whether the object is gone.
func (e *Engine) destroy(ctx context.Context, d removal) (gone bool, err error) {
	at, err := e.at(ctx, d.key, int(e.kindOf(d)))
	if err != nil {
		return false, err
	}
	if err := at.Owner.Check(ctx); err != nil {
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
	held, letGo := claimed.hold(ctx)
	gone, sure, err := at.destroyHeld(held, d, owner)
	if sure && err == nil {
		err = e.endUpload(held, claimed, d.key)
	}
	letGo()
	if !sure {
		return false, errors.Join(err, claimed.quarantine(ctx, quarantineLength))
	}
	return gone, errors.Join(err, claimed.release(ctx))
}

// destroyHeld tells beside whether the object is gone whether that is known for sure.
func (e *Engine) destroyHeld(ctx context.Context, d removal, owner int64) (gone, sure bool, err error) {
	used, err := e.DB.Queries().RemovalInUse(ctx, []int64{owner, d.diffID}, d.key, d.store)
	if err != nil {
		return false, true, fmt.Errorf("look whether %s is in use: %w", d.key, err)
	}
	if used || blobstore.CheckKey(d.key) != nil {
		return false, true, nil //nolint:nilerr // No object has a key that is none.
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

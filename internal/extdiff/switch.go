package extdiff

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/database"
	"sexton/internal/problem"
)

// bound sets the time limits of a transaction. each is the statement timeout.
func (e *Engine) bound(ctx context.Context, tx pgx.Tx, each time.Duration) error {
	_, err := tx.Exec(ctx, e.boundStatement(), e.boundArgs(each)...)
	return problem.Doing(err, "set the limits of the transaction")
}

func (e *Engine) boundStatement() string { return e.DB.Names.Render(statement("bound")) }

func (e *Engine) boundArgs(each time.Duration) []any {
	return []any{each.Milliseconds(), e.Limits.orDefaults().Lock.Milliseconds(), e.DB.Names.Path}
}

// transact runs do in a transaction with the limits for short statements.
func (e *Engine) transact(ctx context.Context, do func(tx pgx.Tx) error) error {
	return database.Write(ctx, e.DB.Pool, func(tx pgx.Tx) error {
		if err := e.bound(ctx, tx, e.Limits.orDefaults().Statement); err != nil {
			return err
		}
		return do(tx)
	})
}

// finish replaces the texts by offsets and sizes, if the rows have not changed since they
// were read. If the diff has been deleted, it queues the object for removal.
func (e *Engine) finish(ctx context.Context, claimed *claim, was diffRow, surveyed survey,
	digest blobstore.Digest,
) (skipped Skip, err error) {
	defer claimed.confirmed.Store(false)
	err = e.transact(ctx, func(tx pgx.Tx) error {
		if err := claimed.confirm(ctx, tx); err != nil {
			return err
		}
		// The row lock also prevents inserts of files, because their foreign key locks
		// the row of the diff.
		found, err := e.readDiff(ctx, tx, was.diffID, "FOR UPDATE OF diff")
		if err != nil {
			return err
		}
		switch skipped = found.skip; {
		case skipped == Gone:
			return e.DB.Names.Queries(tx).DiffOrphan(ctx, was.diffID, Key(was.mergeRequestID, was.diffID),
				int(e.Store.Kind()))
		case skipped != "":
			return nil
		}
		var fingerprint string
		if err := tx.QueryRow(ctx, e.DB.Names.Render(statement("lock_files")),
			was.diffID).Scan(&fingerprint); err != nil {
			return fmt.Errorf("lock files: %w", err)
		}
		if found.mergeRequestID != was.mergeRequestID || fingerprint != surveyed.fingerprint {
			return errChanged
		}
		return e.change(ctx, tx, claimed, surveyed, digest)
	})
	claimed.settled = err == nil && skipped == ""
	return skipped, err
}

// change replaces the texts by offsets and sizes, marks the diff as external, and ends
// the claim.
func (e *Engine) change(ctx context.Context, tx pgx.Tx, claimed *claim, surveyed survey,
	digest blobstore.Digest,
) error {
	var owned bool
	if err := tx.QueryRow(ctx, e.DB.Names.Render(statement("owned"))).Scan(&owned); err != nil {
		return fmt.Errorf("query whether files have a project: %w", err)
	}
	if owned {
		if _, err := tx.Exec(ctx, e.DB.Names.Render(statement("fill_project")), claimed.diffID); err != nil {
			return fmt.Errorf("set the project of files: %w", err)
		}
	}
	switched, err := tx.Exec(ctx, e.DB.Names.Render(statement("switch")), claimed.diffID)
	if err != nil {
		return fmt.Errorf("remove texts from the database: %w", err)
	}
	if switched.RowsAffected() != surveyed.files {
		return fmt.Errorf("remove texts from the database: %d of %d files changed", switched.RowsAffected(),
			surveyed.files)
	}
	if _, err := tx.Exec(ctx, e.DB.Names.Render(statement("reorder")), claimed.diffID); err != nil {
		return fmt.Errorf("set the order of files: %w", err)
	}
	_, err = tx.Exec(ctx, e.DB.Names.Render(statement("mark")),
		claimed.diffID, objectName(claimed.diffID), int(e.Store.Kind()), surveyed.files)
	if err != nil {
		return fmt.Errorf("mark diff as external: %w", err)
	}
	if err := e.DB.Names.Queries(tx).DiffSettle(ctx, digest.Size, digest.SHA256[:], claimed.diffID,
		claimed.token); err != nil {
		return fmt.Errorf("record the move: %w", err)
	}
	e.reach(PointSwitched)
	return nil
}

// record stores the reason for which a diff cannot be moved, and the state of the diff.
// It does not store reasons that need no attention of an operator.
func (e *Engine) record(ctx context.Context, claimed *claim, reason Skip, state string) error {
	switch reason {
	case TooLarge, FilesMissing, Inconsistent:
	case Gone, External, NotDue, Kept:
		return nil
	}
	err := e.DB.Queries().DiffSkip(ctx, string(reason), state, claimed.diffID, claimed.token)
	return problem.Doing(err, "record that diff %d cannot be moved", claimed.diffID)
}

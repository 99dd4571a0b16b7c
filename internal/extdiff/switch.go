package extdiff

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/dbsqlc/diffsqlc"
)

func (e *Engine) bound(ctx context.Context, tx pgx.Tx, each time.Duration) error {
	lock := e.Limits.orDefaults().Lock
	if _, err := tx.Exec(ctx, e.DB.Names.Render(statement("bound")), each.Milliseconds(), lock.Milliseconds(), e.DB.Names.Path); err != nil {
		return fmt.Errorf("bound transaction: %w", err)
	}
	return nil
}

// transact runs a short transaction.
func (e *Engine) transact(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, e.DB.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		if err := e.bound(ctx, tx, e.Limits.orDefaults().Statement); err != nil {
			return err
		}
		return do(tx)
	})
}

// finish takes the texts out of the database, if the rows are still the ones that were read. A diff that has been deleted meanwhile
// leaves its object to the removal.
func (e *Engine) finish(ctx context.Context, claimed *claim, was look, surveyed survey, digest blobstore.Digest) (skipped Skip, err error) {
	diffID := was.diffID
	err = e.transact(ctx, func(tx pgx.Tx) error {
		on := diffsqlc.New(e.DB.Names.On(tx))
		if err := claimed.confirm(ctx, tx); err != nil {
			return err
		}
		// It also keeps rows of files from coming in, whose foreign key wants a lock on this row.
		found, err := e.look(ctx, tx, diffID, "FOR UPDATE OF diff")
		if err != nil {
			return err
		}
		if skipped = found.skip; skipped == Gone {
			return on.Orphan(ctx, diffID, Key(was.mergeRequestID, diffID), int(e.Store.Kind()))
		}
		if skipped != "" {
			return nil
		}
		if found.mergeRequestID != was.mergeRequestID {
			return errChanged
		}
		if err := e.switchFiles(ctx, tx, diffID, surveyed); err != nil {
			return err
		}
		if err := on.Mark(ctx, objectName(diffID), int(e.Store.Kind()), surveyed.files, diffID); err != nil {
			return fmt.Errorf("mark diff as external: %w", err)
		}
		if err := on.Settle(ctx, digest.Size, digest.SHA256[:], diffID, claimed.token); err != nil {
			return fmt.Errorf("note what was moved: %w", err)
		}
		e.reach(PointSwitched)
		return nil
	})
	return skipped, err
}

// switchFiles puts offsets and sizes in place of the texts.
func (e *Engine) switchFiles(ctx context.Context, tx pgx.Tx, diffID int64, surveyed survey) error {
	var fingerprint string
	if err := tx.QueryRow(ctx, e.DB.Names.Render(statement("lock_files")), diffID).Scan(&fingerprint); err != nil {
		return fmt.Errorf("lock files: %w", err)
	}
	if fingerprint != surveyed.fingerprint {
		return errChanged
	}
	var owned bool
	if err := tx.QueryRow(ctx, e.DB.Names.Render(statement("owned"))).Scan(&owned); err != nil {
		return fmt.Errorf("look whether files have a project: %w", err)
	}
	project := ""
	if owned {
		project = "{with_project}"
	}
	switched, err := tx.Exec(ctx, e.DB.Names.Render(statement("switch", "project", project)), diffID)
	if err != nil {
		return fmt.Errorf("take texts out of the database: %w", err)
	}
	if switched.RowsAffected() != surveyed.files {
		return fmt.Errorf("take texts out of the database: %d of %d files changed", switched.RowsAffected(), surveyed.files)
	}
	if err := diffsqlc.New(e.DB.Names.On(tx)).StepBack(ctx, diffID); err != nil {
		return fmt.Errorf("put files in order: %w", err)
	}
	return nil
}

// record notes why a diff stays in the database and what it was like, if that is a reason to look after it.
func (e *Engine) record(ctx context.Context, claimed *claim, reason Skip, state string) error {
	switch reason {
	case TooLarge, FilesMissing, Inconsistent:
	case Gone, External, NotDue, Kept:
		return nil
	}
	if err := queries(e.DB).Skip(ctx, string(reason), state, claimed.diffID, claimed.token); err != nil {
		return fmt.Errorf("note that diff %d stays in the database: %w", claimed.diffID, err)
	}
	return nil
}

package extdiff

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/dbsqlc/diffsqlc"
)

// boundSQL bounds a transaction in all its statements ($1, in ms) and waits ($2), and keeps the planner to the keys: small parts of
// big tables are wanted. Memoize would keep texts that are asked for once. Triggers find names by their own path ($3).
const boundSQL = `
SELECT
    pg_catalog.set_config('statement_timeout', $1::bigint::pg_catalog.text, true),
    pg_catalog.set_config('lock_timeout', $2::bigint::pg_catalog.text, true),
    pg_catalog.set_config('idle_in_transaction_session_timeout', $1::bigint::pg_catalog.text, true),
    pg_catalog.set_config('enable_seqscan', 'off', true),
    pg_catalog.set_config('enable_hashjoin', 'off', true),
    pg_catalog.set_config('enable_mergejoin', 'off', true),
    pg_catalog.set_config('enable_memoize', 'off', true),
    pg_catalog.set_config('enable_material', 'off', true),
    pg_catalog.set_config('jit', 'off', true),
    pg_catalog.set_config('row_security', 'off', true),
    pg_catalog.set_config('search_path', "sexton".application_path($3), true)`

func (e *Engine) bound(ctx context.Context, tx pgx.Tx, statement time.Duration) error {
	limits := e.Limits.orDefaults()
	if _, err := tx.Exec(ctx, e.DB.Names.Render(boundSQL), statement.Milliseconds(), limits.Lock.Milliseconds(), e.DB.Names.Path); err != nil {
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

// lockFilesSQL locks the files of a diff ($1) and returns their fingerprint: of the versions that are locked, whatever the statement's
// snapshot has.
const lockFilesSQL = `
SELECT ` + fingerprintSQL + `
FROM (
    SELECT file.relative_order, file.xmin
    FROM "public".merge_request_diff_files AS file
    WHERE file.merge_request_diff_id OPERATOR(pg_catalog.=) $1
    FOR UPDATE
) AS file`

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
	if err := tx.QueryRow(ctx, e.DB.Names.Render(lockFilesSQL), diffID).Scan(&fingerprint); err != nil {
		return fmt.Errorf("lock files: %w", err)
	}
	if fingerprint != surveyed.fingerprint {
		return errChanged
	}
	var owned bool
	if err := tx.QueryRow(ctx, e.DB.Names.Render(ownedSQL)).Scan(&owned); err != nil {
		return fmt.Errorf("look whether files have a project: %w", err)
	}
	project := ""
	if owned {
		project = projectSQL
	}
	switched, err := tx.Exec(ctx, e.DB.Names.Render(strings.Replace(switchSQL, "{project}", project, 1)), diffID)
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

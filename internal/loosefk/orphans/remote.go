package orphans

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/loosefk"
)

// No snapshot has both a parent and its child in another database. So these queries run
// one after the other:
//
// 1. children: there is a child of the key; 2. parents: in one snapshot, the key has
// neither parent nor tombstone; 3. children: the child still exists; 4. parents: the key
// still has neither parent nor tombstone.
//
// If the parent is deleted after query 1, query 2 finds its tombstone. If a pass has
// already removed the tombstone, the pass has deleted the child before that, and query 3
// does not find the child. If the parent was inserted before the child, it was committed
// before query 1, and query 2 finds it. If the parent is inserted after the child, for
// example by a load that begins with children, query 4 finds it. Until then, the child is
// an orphan.

// skipReason returns the reason for which a definition cannot be audited, or "".
func (a Auditor) skipReason(reference *loosefk.Reference) string {
	switch {
	case reference.Broken != "":
		return reference.Broken
	case reference.Unreachable, reference.Remote && a.Remotes[reference.Database] == nil:
		return fmt.Sprintf("database %s cannot be reached", reference.Database)
	}
	return ""
}

// inChildren runs do in one bounded transaction of the children's database. If another
// database fails or does not respond, only the audits of definitions with children there
// fail.
func (r *run) inChildren(ctx context.Context, more string, do func(tx pgx.Tx) error) error {
	if !r.reference.Remote {
		return r.Bounds.Read(ctx, r.DB, more, do)
	}
	calling, cancel := context.WithTimeout(ctx, r.longestRemote())
	defer cancel()
	err := r.Bounds.Read(calling, r.Remotes[r.reference.Database], more, do)
	if err == nil || ctx.Err() != nil || batch.Judge(err).Verdict != batch.Fatal {
		return err
	}
	return &batch.FaultError{Fault: batch.Fault{Message: fmt.Sprintf("database %s: %s", r.reference.Database,
		batch.ShortError(err)), Verdict: batch.Unavailable}}
}

// remoteGrace is the time that another database may take in addition to the timeouts of
// its statements.
const remoteGrace = 5 * time.Second

// longestRemote returns the time limit of one transaction in another database: the
// timeouts of its two statements, and remoteGrace for the statements that begin and end
// it.
func (r *run) longestRemote() time.Duration { return 2*r.Bounds.StatementTimeout + remoteGrace }

// extendIdleTimeout raises the idle timeout of a transaction in the parents' database.
// The transaction is idle while the audit queries the children's database.
func (r *run) extendIdleTimeout(ctx context.Context, tx pgx.Tx) error {
	if !r.reference.Remote {
		return nil
	}
	_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d",
		(r.longestRemote()+remoteGrace).Milliseconds()))
	return err
}

// withoutParent returns the keys that have no parent, with or without a tombstone.
func (r *run) withoutParent(ctx context.Context, keys []string) (found []string, err error) {
	sql, args := r.parent.withoutParentStatement(keys)
	err = r.Bounds.Read(ctx, r.DB, "", func(tx pgx.Tx) error {
		found, err = pick(ctx, tx, sql, args)
		return err
	})
	return found, err
}

// orphans returns the keys that are orphaned, and the number of their rows. It counts the
// rows last, up to mostRows + 1.
func (r *run) orphans(ctx context.Context, keys []string) (orphans []string, rows int64, err error) {
	settled := func(ctx context.Context, keys []string) (found []string, err error) {
		err = r.Bounds.Read(ctx, r.DB, byHash, func(tx pgx.Tx) error {
			found, err = r.settled(ctx, tx, keys)
			return err
		})
		return found, err
	}
	queries := []func(context.Context, []string) ([]string, error){settled, r.withChild, settled}
	if !r.reference.Remote {
		// A single query reads both tables in one snapshot.
		queries = queries[:1]
	}
	for _, query := range queries {
		if keys, err = query(ctx, keys); err != nil || len(keys) == 0 {
			return nil, 0, err
		}
	}
	err = r.inChildren(ctx, byHash, func(tx pgx.Tx) error {
		rows, err = r.countRows(ctx, tx, keys)
		return err
	})
	return keys, rows, err
}

// settled returns the keys that have neither parent nor tombstone. If the children are in
// the same database, it only returns keys with a child that meets the definition's
// conditions.
func (r *run) settled(ctx context.Context, tx pgx.Tx, keys []string) ([]string, error) {
	sql, args := r.parent.orphansStatement(r.Names, r.reference, keys)
	return pick(ctx, tx, sql, args)
}

// withChild returns the keys with a child that meets the definition's conditions.
func (r *run) withChild(ctx context.Context, keys []string) (found []string, err error) {
	sql, args := r.parent.withChildStatement(r.reference, keys)
	err = r.inChildren(ctx, byHash, func(tx pgx.Tx) error {
		found, err = pick(ctx, tx, sql, args)
		return err
	})
	return found, err
}

func pick(ctx context.Context, tx pgx.Tx, sql string, args []any) ([]string, error) {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

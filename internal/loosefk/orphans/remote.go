package orphans

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/loosefk"
)

// A child in another database than its parent is never seen in one snapshot with it. The looks go in this order, each
// after the one before has returned:
//
//  1. children: there is a child of the key;
//  2. parents: in one snapshot, the key has neither parent nor tombstone;
//  3. children: the child is there still;
//  4. parents: the key has neither parent nor tombstone still.
//
// A parent that is deleted after 1 has left its tombstone by 2, unless the pass is through already; then its child, which
// goes before the tombstone, is gone by 3. A parent that is inserted before its child was committed before 1 and is seen
// at 2; one that comes after its child, as where data is loaded children first, is seen at 4 if it came meanwhile. What
// comes later than that looks like an orphan as long as it is one.

// unfit is why a definition cannot be audited, or "".
func (a Auditor) unfit(reference *loosefk.Reference) string {
	switch {
	case reference.Broken != "":
		return reference.Broken
	case reference.Unreachable, reference.Remote && a.Remotes[reference.Database] == nil:
		return fmt.Sprintf("database %s cannot be reached", reference.Database)
	}
	return ""
}

// inChildren runs do in one bounded transaction of the children's database. Where that is another one and it goes away, or
// does not answer, only the definitions with children there are concerned.
func (r *run) inChildren(ctx context.Context, more string, do func(tx pgx.Tx) error) error {
	if !r.reference.Remote {
		return r.Bounds.Run(ctx, r.DB, more, do)
	}
	calling, cancel := context.WithTimeout(ctx, r.longestRemote())
	defer cancel()
	err := r.Bounds.Run(calling, r.Remotes[r.reference.Database], more, do)
	if err == nil || ctx.Err() != nil || batch.Judge(err).Verdict != batch.Fatal {
		return err
	}
	return &batch.FaultError{Fault: batch.Fault{Message: fmt.Sprintf("database %s: %s", r.reference.Database, batch.Gist(err)), Verdict: batch.Unavailable}}
}

// stallAfter is how long another database may take beyond its statements' own timeouts.
const stallAfter = 5 * time.Second

// longestRemote is how long the statements of one transaction in another database may take. There are two at most, and
// the ones that open and end it.
func (r *run) longestRemote() time.Duration { return 2*r.Bounds.StatementTimeout + stallAfter }

// patience keeps the parents' database from ending a transaction that waits for the children's.
func (r *run) patience() string {
	if !r.reference.Remote {
		return ""
	}
	return fmt.Sprintf("; SET LOCAL idle_in_transaction_session_timeout = %d", (r.longestRemote() + stallAfter).Milliseconds())
}

// withoutParent returns those of keys that have no parent, whether tombstones wait for them or not.
func (r *run) withoutParent(ctx context.Context, keys []string) (found []string, err error) {
	sql, args := r.parent.withoutParentStatement(keys)
	err = r.Bounds.Run(ctx, r.DB, "", func(tx pgx.Tx) error {
		found, err = pick(ctx, tx, sql, args)
		return err
	})
	return found, err
}

// orphans returns those of keys that are orphaned, and the number of their rows, counted last and up to one more than the cap.
func (r *run) orphans(ctx context.Context, keys []string) (orphans []string, rows int64, err error) {
	settled := func(ctx context.Context, keys []string) (found []string, err error) {
		err = r.Bounds.Run(ctx, r.DB, byHash, func(tx pgx.Tx) error {
			found, err = r.settled(ctx, tx, keys)
			return err
		})
		return found, err
	}
	looks := []func(context.Context, []string) ([]string, error){settled, r.withChild, settled}
	if !r.reference.Remote {
		looks = looks[:1] // One snapshot shows both tables.
	}
	for _, look := range looks {
		if keys, err = look(ctx, keys); err != nil || len(keys) == 0 {
			return nil, 0, err
		}
	}
	err = r.inChildren(ctx, byHash, func(tx pgx.Tx) error {
		rows, err = r.rowsOf(ctx, tx, keys)
		return err
	})
	return keys, rows, err
}

// settled returns those of keys that have neither parent nor tombstone.
func (r *run) settled(ctx context.Context, tx pgx.Tx, keys []string) ([]string, error) {
	sql, args := r.parent.orphansStatement(r.Names, r.reference, keys)
	return pick(ctx, tx, sql, args)
}

// withChild returns those of keys that have children which meet the definition.
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

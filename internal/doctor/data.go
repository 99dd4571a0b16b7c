package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// oldTransaction is the default age from which an open transaction is a finding.
const oldTransaction = time.Hour

const holdsBack = "it prevents vacuum from removing dead rows, and delays rechecks of deletions since then"

// transactions finds old open transactions.
func (t Target) transactions(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct {
		PID                      int32
		User, Application, State string
		Began                    time.Time
	}
	return query(ctx, tx, "query old transactions", sqlText("transactions"), []any{t.oldAge().Seconds()},
		func(r row) []Finding {
			return One(problem.Warning, fmt.Sprintf("pid %d", r.PID),
				fmt.Sprintf("user %s (%s, %s) has had a transaction open since %s: %s",
					r.User, r.Application, r.State, r.Began.UTC().Format(time.RFC3339), holdsBack),
				fmt.Sprintf("end the transaction, or run SELECT pg_catalog.pg_terminate_backend(%d)", r.PID))
		})
}

// prepared finds old prepared transactions. They survive restarts of the server.
func (t Target) prepared(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct {
		GID, Owner string
		Prepared   time.Time
	}
	return query(ctx, tx, "query prepared transactions", sqlText("prepared"), []any{t.oldAge().Seconds()},
		func(r row) []Finding {
			return One(problem.Warning, r.GID,
				fmt.Sprintf("a transaction of user %s has been prepared since %s: %s", r.Owner,
					r.Prepared.UTC().Format(time.RFC3339), holdsBack),
				fmt.Sprintf("run COMMIT PREPARED %s or ROLLBACK PREPARED %s, as its coordinator decided", r.GID, r.GID))
		})
}

func (t Target) oldAge() time.Duration { return cmp.Or(t.OldTransaction, oldTransaction) }

// overdue is the time after which a due tombstone is a finding. Runs process the parents
// in turn, so a large backlog of one parent does not delay other parents for this long.
const overdue = time.Hour

// tombstones finds tombstones whose parent no definition names, and overdue tombstones.
func (t Target) tombstones(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	waiting, err := t.Database.Names.Queries(tx).TombstoneParents(ctx)
	if err != nil {
		return nil, fmt.Errorf("read parents of tombstones: %w", err)
	}
	defined := render.Each(t.Parents, func(parent Parent) string { return parent.Recorded })
	known := slices.DeleteFunc(slices.Clone(waiting), func(name string) bool { return !slices.Contains(defined, name) })
	unknown := slices.DeleteFunc(waiting, func(name string) bool { return slices.Contains(defined, name) })
	table := quote(t.Database.Names.Tracked, "loose_foreign_keys_deleted_records")
	var found []Finding
	for _, parent := range unknown {
		found = append(found, One(problem.Warning, parent,
			fmt.Sprintf("tombstones of %s wait because no definition names it as a parent",
				parent),
			fmt.Sprintf("restore the definition, or delete them: DELETE FROM %s WHERE fully_qualified_table_name = %s AND status = 1",
				table, pgcatalog.Literal(parent)))...)
	}
	type row struct {
		Parent string
		Since  time.Time
	}
	sql, args := t.Database.Names.Render(sqlText("overdue")), []any{known, overdue.Seconds()}
	late, err := query(ctx, tx, "query overdue tombstones", sql, args, func(r row) []Finding {
		return One(problem.Warning, r.Parent, fmt.Sprintf("a tombstone of %s has been due since %s", r.Parent,
			r.Since.UTC().Format(time.RFC3339)),
			"run `sexton status`, which shows the reason")
	})
	return append(found, late...), err
}

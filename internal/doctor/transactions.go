package doctor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// oldTransaction is the age from which a transaction is worth a look.
const oldTransaction = time.Hour

const holdsBack = "it keeps vacuum from removing dead rows, and deletions of its time from being confirmed"

func (t Target) transactions(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct {
		PID                      int32
		User, Application, State string
		Began                    time.Time
	}
	return query(ctx, tx, "look for old transactions", sqlText("transactions"), []any{t.oldAge().Seconds()}, func(r row) []Finding {
		return one(problem.Warning, fmt.Sprintf("pid %d", r.PID), fmt.Sprintf("user %s (%s, %s) has had a transaction open since %s: %s",
			r.User, r.Application, r.State, r.Began.UTC().Format(time.RFC3339), holdsBack),
			fmt.Sprintf("end it there, or: SELECT pg_catalog.pg_terminate_backend(%d)", r.PID))
	})
}

// prepared looks for prepared transactions that no session ended. They survive restarts.
func (t Target) prepared(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct {
		GID, Owner string
		Prepared   time.Time
	}
	return query(ctx, tx, "look for prepared transactions", sqlText("prepared"), []any{t.oldAge().Seconds()}, func(r row) []Finding {
		return one(problem.Warning, r.GID,
			fmt.Sprintf("user %s has left a transaction prepared since %s: %s", r.Owner, r.Prepared.UTC().Format(time.RFC3339), holdsBack),
			fmt.Sprintf("as its coordinator decided, COMMIT PREPARED %s or ROLLBACK PREPARED %s", r.GID, r.GID))
	})
}

func (t Target) oldAge() time.Duration { return cmp.Or(t.OldTransaction, oldTransaction) }

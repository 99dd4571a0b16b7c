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

// Transactions of other databases hold back neither. Five of them are enough to begin with.
const transactionsSQL = `
SELECT session.pid, coalesce(session.usename, '?')::pg_catalog.text, coalesce(nullif(session.application_name, ''), 'no application_name'),
       coalesce(session.state, '?'), session.xact_start
FROM pg_catalog.pg_stat_activity AS session
WHERE session.datname = pg_catalog.current_database()
  AND session.pid <> pg_catalog.pg_backend_pid()
  AND session.backend_type = 'client backend'
  AND session.xact_start < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1)
ORDER BY session.xact_start
LIMIT 5`

func (t Target) transactions(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct {
		PID                      int32
		User, Application, State string
		Began                    time.Time
	}
	found, err := query(ctx, tx, transactionsSQL, []any{t.oldAge().Seconds()}, func(r row) Finding {
		return Finding{
			Severity: problem.Warning, Object: fmt.Sprintf("pid %d", r.PID),
			Message: fmt.Sprintf("user %s (%s, %s) has had a transaction open since %s: %s",
				r.User, r.Application, r.State, r.Began.UTC().Format(time.RFC3339), holdsBack),
			Fix: fmt.Sprintf("end it there, or: SELECT pg_catalog.pg_terminate_backend(%d)", r.PID),
		}
	})
	if err != nil {
		return nil, fmt.Errorf("look for old transactions: %w", err)
	}
	return found, nil
}

const preparedSQL = `
SELECT pg_catalog.format('%L', prepared.gid), prepared.owner::pg_catalog.text, prepared.prepared
FROM pg_catalog.pg_prepared_xacts AS prepared
WHERE prepared.database = pg_catalog.current_database()
  AND prepared.prepared < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1)
ORDER BY prepared.prepared
LIMIT 5`

// prepared looks for prepared transactions that no session ended. They survive restarts.
func (t Target) prepared(ctx context.Context, tx pgx.Tx) ([]Finding, error) {
	type row struct {
		GID, Owner string
		Prepared   time.Time
	}
	found, err := query(ctx, tx, preparedSQL, []any{t.oldAge().Seconds()}, func(r row) Finding {
		return Finding{
			Severity: problem.Warning, Object: r.GID,
			Message: fmt.Sprintf("user %s has left a transaction prepared since %s: %s", r.Owner, r.Prepared.UTC().Format(time.RFC3339), holdsBack),
			Fix:     fmt.Sprintf("as its coordinator decided, COMMIT PREPARED %s or ROLLBACK PREPARED %s", r.GID, r.GID),
		}
	})
	if err != nil {
		return nil, fmt.Errorf("look for prepared transactions: %w", err)
	}
	return found, nil
}

func (t Target) oldAge() time.Duration { return cmp.Or(t.OldTransaction, oldTransaction) }

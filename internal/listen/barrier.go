package listen

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
)

// barrier holds the transactions that had a write lock on one of the subscription's
// tables when the barrier was raised, and that have not ended.
type barrier struct {
	session *session
	writers []string
}

const writersSQL = `
SELECT DISTINCT writer.virtualtransaction
FROM pg_catalog.pg_locks AS writer
WHERE writer.locktype = 'relation'
  AND writer.relation = ANY ($1::pg_catalog.text[]::pg_catalog.regclass[]::pg_catalog.oid[])
  AND writer.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())
  AND writer.mode = 'RowExclusiveLock'
  AND writer.granted`

// remainingSQL returns the transactions of $2 that still have a write lock, and also
// every prepared transaction, which has no process. A writer that is prepared after the
// barrier was raised passes its locks on to a new virtual transaction ID.
const remainingSQL = writersSQL + `
  AND (writer.virtualtransaction = ANY ($2) OR writer.pid IS NULL)`

// raiseBarrier returns a barrier with the current writers. The session must have released
// the awake lock before.
func (s *session) raiseBarrier(ctx context.Context) (*barrier, error) {
	writers, err := s.listTransactions(ctx, writersSQL, s.subscription.Tables)
	return &barrier{session: s, writers: writers}, err
}

// open removes the writers that have ended and reports whether none remains.
func (b *barrier) open(ctx context.Context) (bool, error) {
	if len(b.writers) == 0 {
		return true, nil
	}
	var err error
	b.writers, err = b.session.listTransactions(ctx, remainingSQL, b.session.subscription.Tables, b.writers)
	return len(b.writers) == 0, err
}

func (s *session) listTransactions(ctx context.Context, sql string, args ...any) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.subscription.timing.Answer)
	defer cancel()
	rows, err := s.conn.Conn().Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("list writers of %s: %w", strings.Join(s.subscription.Tables, ", "), err)
	}
	transactions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return transactions, problem.Doing(err, "list writers of %s", strings.Join(s.subscription.Tables, ", "))
}

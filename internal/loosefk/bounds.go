package loosefk

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// Bounds are the timeouts of the short transactions of operator commands. These run while
// workers and the application use the same tables.
type Bounds struct {
	StatementTimeout time.Duration
	LockTimeout      time.Duration
}

// Waker wakes the workers that process tombstones when tx commits, as the trigger on
// inserted tombstones does.
type Waker func(ctx context.Context, tx pgx.Tx) error

// boundedSettings are the settings of one transaction. With READ COMMITTED each statement
// sees all rows committed before it, whatever the default of role and database is.
// Policies could hide rows, which would then count as deleted. row_security = off makes
// that an error. The text forms of keys are the ones that the tracking triggers write.
const boundedSettings = `
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL statement_timeout = %d;
SET LOCAL lock_timeout = %d;
SET LOCAL idle_in_transaction_session_timeout = '10s';
SET LOCAL row_security = off;
SET LOCAL jit = off;
`

// Run runs do in one bounded transaction. more may add settings as complete SET LOCAL
// commands.
func (b Bounds) Run(ctx context.Context, db pgcatalog.Beginner, more string, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		script := fmt.Sprintf(boundedSettings, b.StatementTimeout.Milliseconds(), b.LockTimeout.Milliseconds()) + pgcatalog.SetTexts() + more
		if _, err := tx.Exec(ctx, script); err != nil {
			return fmt.Errorf("settle session: %w", err)
		}
		return do(tx)
	})
}

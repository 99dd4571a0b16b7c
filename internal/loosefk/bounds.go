package loosefk

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// Bounds are the timeouts of the short transactions that an operator's commands run beside workers and the
// application.
type Bounds struct {
	StatementTimeout time.Duration
	LockTimeout      time.Duration
}

// Waker wakes the workers of the tombstones' kind once tx commits, as the trigger on inserted tombstones does.
type Waker func(ctx context.Context, tx pgx.Tx) error

// boundedSettings hold for one transaction. READ COMMITTED, so that each statement sees what was committed before it,
// whatever role and database have for a default. Policies would hide rows, and what cannot be seen would count as
// gone: off makes that an error. The text forms of keys are the ones that the tracking triggers write.
const boundedSettings = `
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SET LOCAL statement_timeout = %d;
SET LOCAL lock_timeout = %d;
SET LOCAL idle_in_transaction_session_timeout = '10s';
SET LOCAL row_security = off;
SET LOCAL jit = off;
`

// Run runs do in one bounded transaction. More settings, complete SET LOCAL commands, may follow the usual ones.
func (b Bounds) Run(ctx context.Context, db pgcatalog.Beginner, more string, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		script := fmt.Sprintf(boundedSettings, b.StatementTimeout.Milliseconds(), b.LockTimeout.Milliseconds()) + pgcatalog.SetTexts() + more
		if _, err := tx.Exec(ctx, script); err != nil {
			return fmt.Errorf("settle session: %w", err)
		}
		return do(tx)
	})
}

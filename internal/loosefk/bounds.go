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
`

// Read runs do in a bounded transaction that only reads. settings are complete SET LOCAL
// commands, for example for the planner.
func (b Bounds) Read(ctx context.Context, db pgcatalog.Beginner, settings string, do func(tx pgx.Tx) error) error {
	return b.run(ctx, db, "SET TRANSACTION READ ONLY;\nSET LOCAL jit = off;\n"+settings, do)
}

// Write runs do in a bounded transaction. The application's triggers run in it, so it sets
// nothing that would change their plans.
func (b Bounds) Write(ctx context.Context, db pgcatalog.Beginner, do func(tx pgx.Tx) error) error {
	return b.run(ctx, db, "", do)
}

func (b Bounds) run(ctx context.Context, db pgcatalog.Beginner, settings string, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		script := fmt.Sprintf(boundedSettings, b.StatementTimeout.Milliseconds(), b.LockTimeout.Milliseconds()) + pgcatalog.SetTexts() + settings
		if _, err := tx.Exec(ctx, script); err != nil {
			return fmt.Errorf("settle session: %w", err)
		}
		return do(tx)
	})
}

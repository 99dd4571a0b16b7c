package undo

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// settle gives a transaction the settings of the functions undo_text and undo_value.
// Triggers of the application would see them, so no trigger may fire in it afterwards.
func settle(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, pgcatalog.Pinned()+"SET LOCAL lc_monetary = 'C';\nSET LOCAL xmloption = 'content'")
	return problem.Doing(err, "set how values are written")
}

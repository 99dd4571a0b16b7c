package undo

import (
	"context"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// setValueSettings sets the settings that the functions undo_text and undo_value need,
// until the transaction ends. The settings also apply to triggers of the application, so
// no trigger may fire afterwards.
func setValueSettings(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, pgcatalog.Pinned()+"SET LOCAL lc_monetary = 'C';\nSET LOCAL xmloption = 'content'")
	return problem.Doing(err, "set the settings of kept values")
}

package sample

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Count returns the exact number of rows in all of the application's tables together.
func Count(ctx context.Context, pool *pgxpool.Pool) (int64, error) {
	var total int64
	for _, s := range newPlan(0).tables() {
		var rows int64
		if err := pool.QueryRow(ctx, "SELECT count(*) FROM "+pgx.Identifier{s.table}.Sanitize()).Scan(&rows); err != nil {
			return 0, fmt.Errorf("count %s: %w", s.table, err)
		}
		total += rows
	}
	return total, nil
}

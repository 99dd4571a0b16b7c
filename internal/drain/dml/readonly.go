package dml

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/pgcatalog"
)

// ReadOnly returns a Reader that runs statements in READ ONLY transactions with a
// statement timeout.
func ReadOnly(db pgcatalog.Beginner, statementTime time.Duration) Reader {
	return func(ctx context.Context, statements ...batch.Statement) error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('transaction_read_only', 'on', true), "+
				"pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true), "+
				"pg_catalog.set_config('statement_timeout', $1, true)", statementTime.String())
			for i := 0; i < len(statements) && err == nil; i++ {
				var rows pgx.Rows
				if rows, err = tx.Query(ctx, statements[i].SQL, statements[i].Args...); err == nil {
					err = statements[i].Scan(rows)
					rows.Close()
				}
				if err == nil {
					err = rows.Err()
				}
			}
			return err
		})
	}
}

package database

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"
)

// GenericPlan is the SQL expression that makes the statements behind it, up to the end of the transaction, use the plan that the connection
// keeps. Left to itself Postgres plans a query on arrays anew each time, which takes it ten times as long as to run it. A pipeline is one
// transaction.
const GenericPlan = "pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', true)"

// Sender sends pipelines.
type Sender interface {
	SendBatch(ctx context.Context, pipeline *pgx.Batch) pgx.BatchResults
}

// Behind runs a query in the round trip of the one ahead of it, whose row goes into into.
func Behind(ctx context.Context, on Sender, ahead string, aheadArgs, into []any, sql string, args ...any) pgx.Row {
	pipeline := &pgx.Batch{}
	pipeline.Queue(ahead, aheadArgs...)
	pipeline.Queue(sql, args...)
	results := on.SendBatch(ctx, pipeline)
	return lastRow{results, results.QueryRow().Scan(into...)}
}

// lastRow is the last result of a pipeline, which its Scan closes.
type lastRow struct {
	results pgx.BatchResults
	err     error
}

func (r lastRow) Scan(into ...any) error {
	err := r.err
	if err == nil {
		err = r.results.QueryRow().Scan(into...)
	}
	return cmp.Or(err, r.results.Close())
}

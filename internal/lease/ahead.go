package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/dbsqlc"
)

// Ahead are the first reads of a holder. They go with the statement that begins the lease, in one round trip and one transaction: behind the wait
// for an earlier holder's batch, so that they see all that such a holder has committed.
type Ahead interface {
	// Queue queues statements that read, or reports that this connection cannot take them along.
	Queue(conn *pgx.Conn, pipeline *pgx.Batch) bool
	// Read reads their results.
	Read(results pgx.BatchResults) error
	// Under is called where they were read behind the fence, at the lease's token.
	Under(token int64)
	// Refused is called where the server has refused one of the statements.
	Refused(conn *pgx.Conn)
}

// together sends a query with the first reads, if there are any, behind it.
type together struct {
	dbsqlc.DBTX

	conn  *pgxpool.Conn
	ahead Ahead
	// read is true once all was read.
	read bool
}

func (t *together) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	pipeline := &pgx.Batch{}
	pipeline.Queue("BEGIN ISOLATION LEVEL READ COMMITTED")
	pipeline.Queue(sql, args...)
	if t.ahead == nil || !t.ahead.Queue(t.conn.Conn(), pipeline) {
		return t.conn.QueryRow(ctx, sql, args...)
	}
	pipeline.Queue("COMMIT")
	return &aheadRow{together: t, ctx: ctx, sql: sql, args: args, results: t.conn.SendBatch(ctx, pipeline)}
}

// aheadRow is the row of the query.
type aheadRow struct {
	*together

	ctx     context.Context //nolint:containedctx // pgx.Row's Scan has none
	sql     string
	args    []any
	results pgx.BatchResults
}

// Scan also reads what was read ahead. Where that is refused, the query goes alone, and its holder learns by itself what is wrong with it.
func (r *aheadRow) Scan(into ...any) error {
	_, err := r.results.Exec()
	if err == nil {
		err = r.results.QueryRow().Scan(into...)
	}
	if err == nil {
		err = r.ahead.Read(r.results)
	}
	if err == nil {
		_, err = r.results.Exec()
	}
	err = cmp.Or(err, r.results.Close())
	if r.read = err == nil; r.read {
		return nil
	}
	if _, refused := errors.AsType[*pgconn.PgError](err); !refused || r.conn.Conn().IsClosed() {
		return err //nolint:wrapcheck // Begin names the lease
	}
	r.ahead.Refused(r.conn.Conn())
	if _, err := r.conn.Exec(r.ctx, "ROLLBACK"); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	return r.conn.QueryRow(r.ctx, r.sql, r.args...).Scan(into...)
}

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
	// Refused is called where the server has refused one of the statements, or an answer cannot be read.
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

// Scan also reads what was read ahead. Where the server refuses that, the query goes alone, and its holder learns by itself what is wrong with it.
// Where this side cannot make sense of it, the query has been committed all the same, and the holder meets that again, too.
func (r *aheadRow) Scan(into ...any) error {
	_, err := r.results.Exec() // Its error may also be that one of the others cannot be prepared.
	opened, begun := err == nil, false
	if opened {
		err = r.results.QueryRow().Scan(into...)
		begun = err == nil
	}
	if begun {
		err = r.ahead.Read(r.results)
	}
	if err == nil {
		_, err = r.results.Exec()
	}
	err = cmp.Or(err, r.results.Close())
	conn := r.conn.Conn()
	if r.read = err == nil; r.read || conn.IsClosed() {
		return err //nolint:wrapcheck // Begin names the lease
	}
	r.ahead.Refused(conn)
	_, refused := errors.AsType[*pgconn.PgError](err)
	switch {
	case !refused && begun && conn.PgConn().TxStatus() == 'I':
		return nil
	case !refused:
		return err //nolint:wrapcheck // likewise
	}
	if _, err := conn.Exec(r.ctx, "ROLLBACK"); err != nil {
		return fmt.Errorf("roll back: %w", err)
	}
	if opened && !begun { // A lock of an earlier holder would be waited for once more.
		return err //nolint:wrapcheck // likewise
	}
	return conn.QueryRow(r.ctx, r.sql, r.args...).Scan(into...)
}

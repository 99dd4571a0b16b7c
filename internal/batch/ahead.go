package batch

import (
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// aheadSQL is begin_batch for statements that write nothing, in the transaction that has raised the fence: whatever its token. The path is a batch's:
// under another one the server would plan statements anew, here and in the next batch.
const aheadSQL = `SELECT pg_catalog.set_config('transaction_read_only', 'on', true), "sexton".begin_batch($1,
    (SELECT fence.token FROM "sexton".fences AS fence WHERE fence.key OPERATOR(pg_catalog.=) $1), $2, $3, false),
    pg_catalog.set_config('search_path', coalesce($4::pg_catalog.text, "sexton".application_path($5)), true)`

// Ahead are statements that read, to be sent behind the one that begins a lease, in its transaction. Their answers are those of a first batch
// under it.
type Ahead struct {
	Statements []Statement
	Names      pgcatalog.Names
	// Key is the lease's.
	Key    string
	Limits Limits

	token int64
}

// Queue queues them, unless the connection would have to prepare them first.
func (a *Ahead) Queue(conn *pgx.Conn, pipeline *pgx.Batch) bool {
	session := &Session{Conn: conn}
	if _, known := session.knows(a.Statements); !session.prepares() || !known {
		return false
	}
	statement, lock := a.Limits.Timeouts()
	pipeline.Queue(a.Names.Render(aheadSQL), a.Key, statement, lock, session.knownPath(), a.Names.Path)
	for _, statement := range a.Statements {
		pipeline.Queue(statement.SQL, statement.Args...)
	}
	return true
}

// Read reads the answers.
func (a *Ahead) Read(results pgx.BatchResults) error {
	if _, err := results.Exec(); err != nil {
		return fmt.Errorf("bound the first look: %w", err)
	}
	for i, statement := range a.Statements {
		rows, err := results.Query()
		if err == nil {
			err = statement.Scan(rows)
			rows.Close()
		}
		if err != nil {
			return &StatementError{Index: i, Err: err}
		}
	}
	return nil
}

// Under says under which token they were read. Without one they were not.
func (a *Ahead) Under(token int64) { a.token = token }

// Refused has the connection prepare its statements again, and ends the reading ahead.
func (a *Ahead) Refused(conn *pgx.Conn) { unprepare(conn) }

// Token returns it.
func (a *Ahead) Token() int64 { return a.token }

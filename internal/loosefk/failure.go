package loosefk

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/batch"
	"sexton/internal/lease"
)

// verdict says what an error means for the tombstones in hand.
type verdict int

const (
	// fatal ends the run: the connection, the lease or the server is gone, and no tombstone is to blame.
	fatal verdict = iota
	// hopeless concerns the table or the statement, so that fewer parents would fail alike.
	hopeless
	// conflict comes from running beside others; the same statement may succeed the next time.
	conflict
	// timeout is a statement that took too long, lockTimeout one that waited too long for a lock.
	timeout
	lockTimeout
	// rowError is anything else: it may be due to a single row.
	rowError
	// unfinished is no error: the run's limits came first.
	unfinished
	// unavailable is another database that cannot be reached, or a definition that does not fit for now. No tombstone is to blame.
	unavailable
)

// failure is why a tombstone could not be finished.
type failure struct {
	table    string
	sqlState string
	message  string
	verdict  verdict
}

// judge classifies an error by its SQLSTATE. What a function on the way raised, a trigger's above all, may
// carry any SQLSTATE and says nothing about table or server: it counts as a row's error.
func judge(err error, table string) failure {
	var pgErr *pgconn.PgError
	var failed *batch.StatementError
	if trouble, ok := errors.AsType[*troubleError](err); ok {
		f := trouble.failure
		f.table = table
		return f
	}
	switch {
	case errors.Is(err, lease.ErrLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), !errors.As(err, &pgErr):
		return failure{verdict: fatal}
	case errors.As(err, &failed) && failed.Index == batch.Frame, pgErr.Severity == "FATAL", pgErr.Severity == "PANIC":
		return failure{verdict: fatal}
	}
	f := failure{table: table, sqlState: pgErr.Code, message: pgErr.Message, verdict: rowError}
	switch pgErr.Code {
	case "57014":
		f.verdict = timeout
	case "55P03":
		f.verdict = lockTimeout
	case "40001", "40P01":
		f.verdict = conflict
	default:
		if !strings.Contains(pgErr.Where, "PL/") && !strings.Contains(pgErr.Where, "SQL function") {
			f.verdict = byClass(pgErr.Code[:2])
		}
	}
	return f
}

func byClass(class string) verdict {
	switch class {
	case "08", "25", "53", "57": // connection, read-only or broken transaction, resources, shutdown
		return fatal
	case "42", "0A", "3F", "58", "XX": // syntax or access, not supported, no schema, system, corruption
		return hopeless
	default:
		return rowError
	}
}

// text is what the tombstone records.
func (f failure) text() string {
	parts := make([]string, 0, 3)
	if f.table != "" {
		parts = append(parts, f.table)
	}
	if f.sqlState != "" {
		parts = append(parts, "SQLSTATE "+f.sqlState)
	}
	return strings.Join(append(parts, f.message), ": ")
}

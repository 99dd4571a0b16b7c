package ghostuser

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/batch"
	"sexton/internal/lease"
)

// verdict says what an error means for the user in hand.
type verdict int

const (
	// fatal ends the run: the connection, the lease or the server is gone, and no user is to blame.
	fatal verdict = iota
	// conflict comes from running beside others; the same statement may succeed the next time.
	conflict
	// timeout is a statement that took too long, lockTimeout one that waited too long for a lock.
	timeout
	lockTimeout
	// duplicate is a row whose like is there already.
	duplicate
	// userError is anything else. It concerns this user, as far as anybody knows.
	userError
)

// failure is why a user could not be deleted.
type failure struct {
	table    string
	sqlState string
	message  string
	// stack is what the server says of functions and statements on the way to the error.
	stack   string
	verdict verdict
}

// judge classifies an error by its SQLSTATE. What a function on the way raised, a trigger's above all, may carry any
// SQLSTATE and says nothing about the server: it concerns the user.
func judge(err error) failure {
	var pgErr *pgconn.PgError
	var failed *batch.StatementError
	switch {
	case err == nil:
		return failure{}
	case errors.Is(err, lease.ErrLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), !errors.As(err, &pgErr):
		return failure{message: err.Error()}
	}
	f := failure{sqlState: pgErr.Code, message: pgErr.Message, stack: pgErr.Where, verdict: userError}
	if errors.As(err, &failed) && failed.Index == batch.Frame || pgErr.Severity == "FATAL" || pgErr.Severity == "PANIC" {
		f.verdict = fatal
		return f
	}
	switch pgErr.Code {
	case "57014":
		f.verdict = timeout
	case "55P03":
		f.verdict = lockTimeout
	case "40001", "40P01":
		f.verdict = conflict
	default:
		if !strings.Contains(pgErr.Where, "PL/") && !strings.Contains(pgErr.Where, "SQL function") {
			switch pgErr.Code[:2] {
			case "08", "25", "53", "57": // connection, read-only or broken transaction, resources, shutdown
				f.verdict = fatal
			}
		}
	}
	return f
}

// judgeStep is judge for a statement of one step. Only a constraint of the step's own table makes a duplicate: what a
// trigger does elsewhere is an error.
func judgeStep(err error, s *step) failure {
	f := judge(err)
	f.table = s.tableLabel
	var pgErr *pgconn.PgError
	if f.verdict != userError || !errors.As(err, &pgErr) || pgErr.Code != "23505" && pgErr.Code != "23P01" {
		return f
	}
	for _, leaf := range append([]Table{s.table}, s.leaves...) {
		if pgErr.SchemaName == leaf.Schema && pgErr.TableName == leaf.Name {
			f.verdict = duplicate
		}
	}
	return f
}

// text is what the queue records.
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

package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/lease"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// Verdict is the class of an error.
type Verdict int

const (
	// Fatal is the loss of the connection, the lease or the server. No row caused it, and
	// the run ends.
	Fatal Verdict = iota
	// Hopeless is an error of the table or the statement. Fewer rows would fail in the
	// same way.
	Hopeless
	// Conflict is a serialization failure or deadlock with another session. A retry may
	// succeed.
	Conflict
	// Timeout is a statement that took too long.
	Timeout
	// LockTimeout is a statement that waited too long for a lock.
	LockTimeout
	// Row is any other error. A single row may have caused it.
	Row
	// Unfinished is a run that has reached its limits. Judge does not return it.
	Unfinished
	// Unavailable is another database that cannot be reached, or a definition that does
	// not fit its table now. No row caused it. Judge does not return it.
	Unavailable
)

// Fault describes why an operation failed.
type Fault struct {
	// Table is the label of the table. It is empty if the error concerns no table.
	Table string
	// SQLState is empty if the error is not from the server.
	SQLState string
	Message  string
	// Detail is the server's detail of a foreign key violation, which names the key that
	// a row of another table refers to. Details of other errors are dropped, because they
	// contain complete rows.
	Detail string
	// Stack lists the functions and statements in which the server raised the error.
	Stack   string
	Verdict Verdict
}

// FaultError is a fault that is not from the server. Judge returns it unchanged.
type FaultError struct{ Fault }

func (e *FaultError) Error() string { return e.Text() }

// LostConnection is the prefix of a fault's message if the connection was lost while the
// statement was running.
const LostConnection = "the connection was lost: "

// FaultIn returns the fault of a failed statement on a table.
func FaultIn(err error, table string) Fault {
	f := Judge(err)
	f.Table = table
	return f
}

// Judge classifies an error of a batch by its SQLSTATE. A function, for example of a
// trigger, can raise any SQLSTATE, which then does not describe the table or the server.
// Judge therefore returns Row for errors in functions, except lock conflicts, timeouts
// and lost connections.
func Judge(err error) Fault {
	var pgErr *pgconn.PgError
	var failed *StatementError
	var own *FaultError
	switch {
	case err == nil:
		return Fault{}
	case errors.As(err, &own):
		return own.Fault
	case errors.Is(err, lease.ErrLost), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		!errors.As(err, &pgErr):
		return Fault{Message: err.Error()}
	}
	f := Fault{SQLState: pgErr.Code, Message: pgErr.Message + PathHint(err), Stack: pgErr.Where, Verdict: Row}
	if pgErr.Code == "23503" || pgErr.Code == "23001" {
		f.Detail = pgErr.Detail
	}
	verdict, lock := lockVerdict(pgErr.Code)
	switch {
	case errors.As(err, &failed) && failed.Index == Frame, EndsSession(pgErr):
		f.Verdict = Fatal
	case pgErr.Code == "57014":
		f.Verdict = Timeout
	case lock:
		f.Verdict = verdict
	case !inFunction(pgErr):
		f.Verdict = serverVerdict(pgErr)
	}
	return f
}

// EndsSession reports whether the server closed the connection after an error. Poolers
// send only Severity, which they do not translate.
func EndsSession(err *pgconn.PgError) bool {
	severity := cmp.Or(err.SeverityUnlocalized, err.Severity)
	return severity == "FATAL" || severity == "PANIC"
}

// inFunction reports whether an error was raised in a function. It reads the error's
// context (Where), which is in the language of the server, but the names PL/pgSQL and SQL
// are not translated. The context of a foreign key's query also has a line with SQL,
// which contains OPERATOR.
func inFunction(err *pgconn.PgError) bool {
	for line := range strings.Lines(err.Where) {
		if strings.Contains(line, "PL/") || strings.Contains(line, "SQL") && !strings.Contains(line, "OPERATOR(") {
			return true
		}
	}
	return false
}

// Lock reports whether another session caused the fault: by a lock, a deadlock or a
// concurrent change. A retry may succeed when that session has finished.
func (f Fault) Lock() bool { return f.Verdict == LockTimeout || f.Verdict == Conflict }

// WithBlocker adds the session that holds the lock to the message, if it is known.
func (f Fault) WithBlocker(blocker string) Fault {
	if blocker != "" && f.Verdict == LockTimeout {
		f.Message += " (" + blocker + ")"
	}
	return f
}

// AddBlocker adds the session that holds the lock to an error.
func AddBlocker(err error, blocker string) error {
	if f := Judge(err); f.WithBlocker(blocker) != f {
		return fmt.Errorf("%w (%s)", err, blocker)
	}
	return err
}

// LockIn reports whether a recorded fault is a lock conflict. text is the result of
// Fault.Text, which contains the SQLSTATE.
func LockIn(text string) bool {
	found := recordedState.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	_, lock := lockVerdict(found[1])
	return lock
}

var recordedState = regexp.MustCompile(`SQLSTATE ([0-9A-Z]{5})`)

// lockVerdict returns the verdict of a SQLSTATE that other sessions cause. It returns
// false for all other SQLSTATEs.
func lockVerdict(code string) (Verdict, bool) {
	switch code {
	case "55P03":
		return LockTimeout, true
	case "40001", "40P01":
		return Conflict, true
	default:
		return Row, false
	}
}

// serverVerdict returns the verdict of an error that no function has raised.
func serverVerdict(err *pgconn.PgError) Verdict {
	switch err.Code {
	// One statement ran out of memory, or exceeded a limit such as temp_file_limit.
	case "53200", "53400":
		if strings.Contains(err.Hint, "max_locks_per_transaction") {
			return Hopeless // Each partition and index takes a lock, however few the rows are.
		}
		return Row
	}
	switch err.Code[:2] {
	case "08", "25", "53", "57": // lost connection, read-only or broken transaction, resources, shutdown
		return Fatal
	case "42", "0A", "3F", "58", "XX": // syntax or access, not supported, missing schema, system error, corruption
		return Hopeless
	default:
		return Row
	}
}

// DuplicateIn reports whether a row could not be written because one of the tables has an
// equal row. It is false for other tables, for example one that a trigger writes into.
func DuplicateIn(err error, tables ...pgcatalog.Table) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pgErr.Code != "23505" && pgErr.Code != "23P01" {
		return false
	}
	return slices.ContainsFunc(tables, func(t pgcatalog.Table) bool {
		return pgErr.SchemaName == t.Schema &&
			pgErr.TableName == t.Name
	})
}

// Refusal returns the message and hint of a function in the database that refused a
// deletion. It returns nil for other errors.
func Refusal(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok || !strings.HasPrefix(pgErr.Code, "SX01") && !strings.HasPrefix(pgErr.Code, "SX02"):
		return nil
	case pgErr.Hint != "":
		return fmt.Errorf("%s (%s)", pgErr.Message, pgErr.Hint)
	}
	return errors.New(pgErr.Message)
}

// ShortError returns the short form of a connection error. Its full text contains
// addresses and may have several lines.
func ShortError(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fmt.Sprintf("%s (SQLSTATE %s)", pgErr.Message, pgErr.Code)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer"
	}
	return "the connection failed"
}

// FirstLine returns the first line of an error, since the text of a connection error may
// have several lines. If the line does not contain about, which names the failed part, it
// prepends about.
func FirstLine(err error, about string) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	if strings.Contains(first, about) {
		return first
	}
	return about + ": " + first
}

// Text returns the fault in the form in which queues record it: table, SQLSTATE, message
// and detail.
func (f Fault) Text() string {
	parts := make([]string, 0, 3)
	if f.Table != "" {
		parts = append(parts, f.Table)
	}
	if f.SQLState != "" {
		parts = append(parts, "SQLSTATE "+f.SQLState)
	}
	parts = append(parts, f.Message)
	if f.Detail != "" {
		parts = append(parts, f.Detail)
	}
	return strings.Join(parts, ": ")
}

// FaultCounts counts equal faults of one table in a run.
type FaultCounts struct {
	Table    string `json:"table"`
	SQLState string `json:"sqlstate"`
	Message  string `json:"message"`
	Count    int64  `json:"count"`
}

// Text returns the error with its count.
func (c FaultCounts) Text() string {
	text := Fault{Table: c.Table, SQLState: c.SQLState, Message: c.Message}.Text()
	return fmt.Sprintf("%s (%s)", text, render.Counted(c.Count, "time"))
}

// mostCounts limits the list of a run. Messages can contain single rows, and a run may
// process thousands of them.
const mostCounts = 20

// CountFault adds a fault to a run's list and returns the list. If the list is full, a
// new fault counts for the last entry.
func CountFault(list []FaultCounts, f Fault) []FaultCounts {
	at := slices.IndexFunc(list, func(c FaultCounts) bool {
		return c.Table == f.Table && c.SQLState == f.SQLState && c.Message == f.Message
	})
	switch {
	case at < 0 && len(list) < mostCounts:
		return append(list, FaultCounts{Table: f.Table, SQLState: f.SQLState, Message: f.Message, Count: 1})
	case at < 0:
		at = len(list) - 1
	}
	list[at].Count++
	return list
}

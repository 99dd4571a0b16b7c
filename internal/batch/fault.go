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

// Verdict says what an error means.
type Verdict int

const (
	// Fatal ends the run: the connection, the lease or the server is gone, and nothing in
	// hand is to blame.
	Fatal Verdict = iota
	// Hopeless concerns the table or the statement, so that fewer rows would fail alike.
	Hopeless
	// Conflict comes from running beside others; the same statement may succeed the next
	// time.
	Conflict
	// Timeout is a statement that took too long.
	Timeout
	// LockTimeout is a statement that waited too long for a lock.
	LockTimeout
	// Row is anything else: it may be due to a single row.
	Row
	// Unfinished is no error: the run's limits came first. Judge does not return it.
	Unfinished
	// Unavailable is another database that cannot be reached, or something that does not
	// fit for now; nothing in hand is to blame. Judge does not return it.
	Unavailable
)

// Fault is why something could not be finished.
type Fault struct {
	// Table is for people, and empty where no table is concerned.
	Table string
	// SQLState is empty where the server has not spoken.
	SQLState string
	Message  string
	// Detail is the key that a foreign key of another table still needs. Details of other
	// errors show whole rows.
	Detail string
	// Stack is the server's account of functions and statements on the way to the error.
	Stack   string
	Verdict Verdict
}

// FaultError is a fault that did not come from a server: Judge returns it as it is.
type FaultError struct{ Fault }

func (e *FaultError) Error() string { return e.Text() }

// LostConnection begins the message of what fails because its statements cost the
// connection.
const LostConnection = "the connection was lost: "

// FaultIn judges an error of a statement on a table.
func FaultIn(err error, table string) Fault {
	f := Judge(err)
	f.Table = table
	return f
}

// Judge classifies an error of a batch by its SQLSTATE. What a function on the way
// raised, a trigger's above all, may carry any SQLSTATE and says nothing about table or
// server: it counts as a row's error.
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
	others, waits := inTheWay(pgErr.Code)
	switch {
	case errors.As(err, &failed) && failed.Index == Frame, EndsSession(pgErr):
		f.Verdict = Fatal
	case pgErr.Code == "57014":
		f.Verdict = Timeout
	case waits:
		f.Verdict = others
	case !inFunction(pgErr):
		f.Verdict = ofServer(pgErr)
	}
	return f
}

// EndsSession reports whether the server closed the connection after an error. Poolers
// send only the other severity, and do not translate it.
func EndsSession(err *pgconn.PgError) bool {
	severity := cmp.Or(err.SeverityUnlocalized, err.Severity)
	return severity == "FATAL" || severity == "PANIC"
}

// inFunction reports whether an error came up in a function. The context is in the
// language of the server, which leaves the names PL/pgSQL and SQL as they are. The
// queries of foreign keys also have a line with SQL in it.
func inFunction(err *pgconn.PgError) bool {
	for line := range strings.Lines(err.Where) {
		if strings.Contains(line, "PL/") || strings.Contains(line, "SQL") && !strings.Contains(line, "OPERATOR(") {
			return true
		}
	}
	return false
}

// Lock reports that others were in the way: a lock, a deadlock, a change of theirs. It is
// no failure of what was tried, and may go through once they are done.
func (f Fault) Lock() bool { return f.Verdict == LockTimeout || f.Verdict == Conflict }

// By adds to the message which session was in the way, if that is known.
func (f Fault) By(blocker string) Fault {
	if blocker != "" && f.Verdict == LockTimeout {
		f.Message += " (" + blocker + ")"
	}
	return f
}

// AddBlocker does the same with an error.
func AddBlocker(err error, blocker string) error {
	if f := Judge(err); f.By(blocker) != f {
		return fmt.Errorf("%w (%s)", err, blocker)
	}
	return err
}

// LockIn reports the same as Lock, by a fault's recorded text, which names its SQLSTATE.
func LockIn(text string) bool {
	found := recordedState.FindStringSubmatch(text)
	if found == nil {
		return false
	}
	_, others := inTheWay(found[1])
	return others
}

var recordedState = regexp.MustCompile(`SQLSTATE ([0-9A-Z]{5})`)

// inTheWay returns the verdict of a SQLSTATE that tells of others in the way.
func inTheWay(code string) (Verdict, bool) {
	switch code {
	case "55P03":
		return LockTimeout, true
	case "40001", "40P01":
		return Conflict, true
	default:
		return Row, false
	}
}

func ofServer(err *pgconn.PgError) Verdict {
	switch err.Code {
	case "53200", "53400": // out of memory, or over a limit such as temp_file_limit: that of one statement alone
		if strings.Contains(err.Hint, "max_locks_per_transaction") {
			return Hopeless // Each partition and index takes a lock, however few the rows are.
		}
		return Row
	}
	switch err.Code[:2] {
	case "08", "25", "53", "57": // connection, read-only or broken transaction, resources, shutdown
		return Fatal
	case "42", "0A", "3F", "58", "XX": // syntax or access, not supported, no schema, system, corruption
		return Hopeless
	default:
		return Row
	}
}

// DuplicateIn reports whether a row could not be written because one of the tables has
// its like already. The same error of any other table, as from a trigger that writes into
// another table, is none.
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

// Refusal is the answer of one of the functions in the database that delete things to a
// request that it does not grant, and nil where the error is another one.
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

// Gist is the short form of an error of a connection: its text names addresses and may
// have several lines.
func Gist(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return fmt.Sprintf("%s (SQLSTATE %s)", pgErr.Message, pgErr.Code)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer"
	}
	return "the connection failed"
}

// FirstLine is the first line of an error, after the name of the thing that it is about.
// The text of a server that is down names addresses and may have several lines.
func FirstLine(err error, about string) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	if strings.Contains(first, about) {
		return first
	}
	return about + ": " + first
}

// Text is the form that a queue records.
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

// FaultCounts says how often one error of one table came up in a run.
type FaultCounts struct {
	Table    string `json:"table"`
	SQLState string `json:"sqlstate"`
	Message  string `json:"message"`
	Count    int64  `json:"count"`
}

// Text renders the error and its count.
func (c FaultCounts) Text() string {
	text := Fault{Table: c.Table, SQLState: c.SQLState, Message: c.Message}.Text()
	return fmt.Sprintf("%s (%s)", text, render.Counted(c.Count, "time"))
}

// mostCounts bounds a run's list: messages can name single rows, and a run over thousands
// of them must not list them all.
const mostCounts = 20

// CountFault adds a fault to a run's list and returns it, as append does. What there is
// no room for counts with the last one.
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

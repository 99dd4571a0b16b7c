package components

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/riverqueue/river/rivertype"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/drain/dml"
	"sexton/internal/installation"
	"sexton/internal/pace"
	"sexton/internal/render"
)

// PendingCap limits the count of a backlog.
const PendingCap = 10_000

// Shown is the number of rows of a deletion table that status prints.
const Shown = 10

// Backlog holds the counts of pending rows in one deletion table, for status, page and
// metrics.
type Backlog struct {
	Table    string `json:"table"`
	Database string `json:"database"`
	// Pending and Deferred are at most PendingCap. Capped and DeferredCapped report that
	// there are more.
	Pending          int64   `json:"pending"`
	Capped           bool    `json:"capped"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	Deferred         int64   `json:"deferred"`
	DeferredCapped   bool    `json:"deferred_capped"`
	// DeferredUntil is the time at which the first deferred row becomes due.
	DeferredUntil *time.Time `json:"deferred_until,omitempty"`
	// DeferredReason is the reason for which rows are deferred. If there are several
	// reasons, it contains the number of rows for each reason.
	DeferredReason string `json:"deferred_reason,omitempty"`
	// Parents are the parents with tombstones, the oldest first.
	Parents []Parent `json:"parents,omitempty"`
	// Undefined are parents with tombstones but without a definition. Their tombstones
	// are never processed.
	Undefined []string `json:"undefined,omitempty"`
	// Confirming counts parents whose tombstones were removed and that wait for a
	// recheck. They are not part of the backlog.
	Confirming int64 `json:"confirming"`
	// GivenUp counts rows that are not retried any more, up to PendingCap. It is absent
	// for tables whose rows are always retried.
	GivenUp *int64 `json:"given_up,omitempty"`
	// Unreachable is the reason for which the database cannot be read.
	Unreachable string `json:"unreachable,omitempty"`

	// Unit is the word for one row, such as tombstone.
	Unit string `json:"-"`
	// Lacks names what the application must provide before rows can be due, such as a
	// period. It is empty if nothing is missing.
	Lacks string `json:"-"`
	// Details are specific to the component. Their JSON keys are added to those of
	// Backlog, and status prints them below the table.
	Details Details `json:"-"`
}

// Details is output that only one component has.
type Details interface {
	Print(w io.Writer)
}

// Parent is the backlog of one parent table.
type Parent struct {
	Parent string `json:"parent"`
	// Pending counts the parent's tombstones up to a limit. Capped reports that there are
	// more.
	Pending          int64   `json:"pending"`
	Capped           bool    `json:"capped"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
}

// Oldest returns the age of the parent's oldest tombstone.
func (p Parent) Oldest() time.Duration {
	return time.Duration(p.OldestAgeSeconds * float64(time.Second))
}

// Oldest returns the age of the oldest row.
func (b Backlog) Oldest() time.Duration {
	return time.Duration(b.OldestAgeSeconds * float64(time.Second))
}

// DeferredText returns Deferred as text.
func (b Backlog) DeferredText() string { return render.Capped(b.Deferred, b.DeferredCapped) }

// AllDeferred reports whether all pending rows are deferred. If both counts have reached
// PendingCap, it returns true.
func (b Backlog) AllDeferred() bool {
	return b.Deferred > 0 && b.Deferred == b.Pending && b.DeferredCapped == b.Capped
}

// MarshalJSON adds the JSON keys of Details to those of Backlog.
func (b Backlog) MarshalJSON() ([]byte, error) {
	type plain Backlog
	encoded, err := json.Marshal(plain(b))
	if err != nil || b.Details == nil {
		return encoded, err
	}
	details, err := json.Marshal(b.Details)
	if err != nil || bytes.Equal(details, []byte("{}")) {
		return encoded, err
	}
	return append(append(encoded[:len(encoded)-1], ','), details[1:]...), nil
}

// Obstacle returns the reason for which no pending row can be processed now. It returns
// "" if rows can be processed.
func (b Backlog) Obstacle() (reason string, class pace.WaitClass) {
	switch {
	case len(b.Undefined) > 0:
		return "a definition for tombstones of " + render.Listed(b.Undefined), WaitDefinition
	case b.Lacks != "":
		return b.Lacks, WaitDefinition
	case b.AllDeferred():
		reason = render.AtLeast(b.DeferredCapped) + render.Counted(b.Deferred, b.Unit) + " deferred"
		if b.DeferredUntil != nil {
			if b.Deferred > 1 {
				reason += ", the first"
			}
			reason += " until " + b.DeferredUntil.Format(time.RFC3339)
		}
		if b.DeferredReason != "" {
			reason += ", after: " + render.Cell(&b.DeferredReason)
		}
		return reason, WaitDeferred
	}
	return "", ""
}

// ReadBacklog reads a backlog with the SQL function backlog_of_NAME(), which the view
// "sexton".backlog also uses.
func ReadBacklog(ctx context.Context, db database.Database, name string) (Backlog, error) {
	b := Backlog{Database: db.Name}
	// The name is a constant of the program, so it needs no quoting.
	sql := `
SELECT deletion_table, pending, capped, oldest_age_seconds, deferred,
    CASE WHEN pg_catalog.isfinite(deferred_until) THEN deferred_until END, coalesce(deferred_reason, '')
FROM "sexton".backlog_of_` + name + `()`
	err := db.Pool.QueryRow(ctx, db.Names.Render(sql)).
		Scan(&b.Table, &b.Pending, &b.Capped, &b.OldestAgeSeconds, &b.Deferred, &b.DeferredUntil, &b.DeferredReason)
	if err != nil {
		return b, fmt.Errorf("read backlog of %s: %w", name, err)
	}
	b.Deferred, b.DeferredCapped = min(b.Deferred, PendingCap), b.Deferred > PendingCap
	if b.DeferredUntil != nil {
		b.DeferredUntil = new(b.DeferredUntil.UTC())
	}
	return b, nil
}

// These constants are the classes of the reasons that Obstacle returns.
const (
	WaitDefinition pace.WaitClass = "definition"
	WaitDeferred   pace.WaitClass = "deferred"
)

// FailureWindow limits the rows that a search for failures reads, because an open page
// repeats the search.
const FailureWindow = 500

// Failures lists the failed rows of one component, or the failed jobs of River.
type Failures struct {
	// Name is the name of the list, such as tombstones. A retry refers to the list by it.
	Name string
	// Everywhere reports that each database has its own rows, so that a retry names the
	// database.
	Everywhere bool
	// List returns at most limit failures, and whether there are more. It omits
	// unreachable databases.
	List func(ctx context.Context, all *installation.Connections, limit int) (failures []Failure, more bool, err error)
	// Retry makes the row id of a database due now. If id is empty, it does so for all
	// failed rows, up to FailureWindow. It returns a message for the user. If the row
	// cannot be retried, it returns a *RefusedError.
	Retry func(ctx context.Context, all *installation.Connections, db database.Database, id dml.ID) (string, error)
	// Keyed reports that ids can be keys of any type, and not only numbers.
	Keyed bool
	// Shows, if set, returns a function that reports whether this list includes one of
	// River's jobs. The list of jobs omits these jobs.
	Shows func(ctx context.Context, all *installation.Connections) (func(*rivertype.JobRow) bool, error)
}

// Failure is a row or a River job that failed and is deferred or given up.
type Failure struct {
	// Source is the name of the list with the failure, to which a retry refers. Database
	// is the name of the row's database, or empty if only one database has such rows.
	Source   string `json:"source"`
	Database string `json:"database,omitempty"`
	ID       string `json:"id"`
	// What describes the row in output, such as "tombstone of public.projects, key 7".
	What     string `json:"what"`
	Error    string `json:"error"`
	Attempts int64  `json:"attempts"`
	// Next is the time of the next attempt. It is zero if the row is due now or never
	// retried.
	Next time.Time `json:"-"`
	// GivenUp reports that the row is not retried.
	GivenUp bool `json:"given_up"`
	// Since is the time of the last failure or, if that is unknown, of the insertion. It
	// is zero if both are unknown.
	Since time.Time `json:"-"`
}

// Locked reports whether the row only waits for a lock of another session, which is not a
// failure.
func (f Failure) Locked() bool { return !f.GivenUp && batch.LockIn(f.Error) }

// MarshalJSON writes null if there is no next attempt.
func (f Failure) MarshalJSON() ([]byte, error) {
	type plain Failure
	document := struct {
		plain

		Next   *time.Time `json:"next_attempt_at"`
		Locked bool       `json:"locked"`
	}{plain: plain(f), Locked: f.Locked()}
	if !f.Next.IsZero() {
		document.Next = &f.Next
	}
	return json.Marshal(document)
}

// Retry selects the failed rows to retry.
type Retry struct {
	// Source and Database are as in Failure.
	Source   string
	Database string
	// ID selects one row. If it is empty, all rows are selected.
	ID string
	// Reason, if set, is the key of a reason and the only field that is set. It selects
	// all rows with that reason.
	Reason string
}

// RefusedError reports that a requested change is impossible, now or always.
type RefusedError struct {
	Reason string
	// Wrong reports that the change is never possible, because its subject does not
	// exist.
	Wrong bool
}

func (e *RefusedError) Error() string { return e.Reason }

// Refuse returns a *RefusedError.
func Refuse(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// Rows returns Failures for rows with numeric ids in the jobs database. unit is the word
// for one row. read returns at most limit rows. id returns the id of a row, and describe
// its failure.
//
// retry makes one row due, or all rows if id is 0. It returns the number of rows. The
// message for the user contains this number and the text due. If a single row was not
// made due, the text missing is the reason in a *RefusedError.
func Rows[T any](
	name, unit, due, missing string,
	read func(ctx context.Context, all *installation.Connections, limit int) ([]T, error), id func(T) int64,
	describe func(*installation.Connections, T) Failure,
	retry func(ctx context.Context, all *installation.Connections, id int64) (int64, error),
) *Failures {
	failures := Keyed(name, unit, due, missing, read, func(row T) dml.ID { return dml.IntegerID(id(row)) }, describe,
		func(ctx context.Context, all *installation.Connections, id dml.ID) (int64, error) {
			return retry(ctx, all, id.Number())
		})
	failures.Keyed = false
	return failures
}

// Keyed returns the same as Rows, for rows with keys of any type.
func Keyed[T any](
	name, unit, due, missing string,
	read func(ctx context.Context, all *installation.Connections, limit int) ([]T, error), id func(T) dml.ID,
	describe func(*installation.Connections, T) Failure,
	retry func(ctx context.Context, all *installation.Connections, id dml.ID) (int64, error),
) *Failures {
	toFailure := func(all *installation.Connections, row T) Failure {
		failure := describe(all, row)
		failure.Source, failure.ID = name, id(row).Text
		failure.What = fmt.Sprintf("%s %s%s", unit, id(row), failure.What)
		return failure
	}
	list := func(ctx context.Context, all *installation.Connections, limit int) (failures []Failure, more bool,
		err error,
	) {
		rows, err := read(ctx, all, limit+1)
		if err != nil {
			return nil, false, err
		}
		for _, row := range rows[:min(limit, len(rows))] {
			failures = append(failures, toFailure(all, row))
		}
		return failures, len(rows) > limit, nil
	}
	retryRows := func(ctx context.Context, all *installation.Connections, _ database.Database, wanted dml.ID) (string,
		error,
	) {
		count, err := retry(ctx, all, wanted)
		switch {
		case err != nil:
			return "", err
		case count == 0 && wanted.Text != "":
			return "", Refuse("%s %s %s", unit, wanted, missing)
		}
		return render.Counted(count, unit) + " " + due, nil
	}
	return &Failures{Name: name, List: list, Retry: retryRows, Keyed: true}
}

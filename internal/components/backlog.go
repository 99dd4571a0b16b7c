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

// PendingCap bounds the counting of a backlog; ten thousand is a backlog by any measure.
const PendingCap = 10_000

// Shown is how many rows of a deletion table status lists.
const Shown = 10

// Backlog counts the rows that wait in one deletion table, as status, page and metrics
// show them.
type Backlog struct {
	Table    string `json:"table"`
	Database string `json:"database"`
	// Pending and Deferred stop counting at PendingCap; Capped reports that more are
	// pending, DeferredCapped that more are deferred.
	Pending          int64   `json:"pending"`
	Capped           bool    `json:"capped"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	Deferred         int64   `json:"deferred"`
	DeferredCapped   bool    `json:"deferred_capped"`
	// DeferredUntil is when the first of the deferred ones falls due.
	DeferredUntil *time.Time `json:"deferred_until,omitempty"`
	// DeferredReason is why they were put off: each cause with the number of its rows, if
	// there are several.
	DeferredReason string `json:"deferred_reason,omitempty"`
	// Parents are the parents with tombstones, the oldest first.
	Parents []Parent `json:"parents,omitempty"`
	// Undefined are parents with tombstones that no definition names: nothing will ever
	// work them off.
	Undefined []string `json:"undefined,omitempty"`
	// Confirming counts parents whose tombstones were removed and that wait for a
	// recheck, until every transaction that was open then has ended. They are no backlog.
	Confirming int64 `json:"confirming"`
	// GivenUp counts rows that will not be tried any more; absent for tables whose rows
	// are never given up. It stops at the cap.
	GivenUp *int64 `json:"given_up,omitempty"`
	// Unreachable is why nothing is known of the database.
	Unreachable string `json:"unreachable,omitempty"`

	// Unit names one row.
	Unit string `json:"-"`
	// Lacks names what the application has to provide before anything is due; empty where
	// nothing is missing.
	Lacks string `json:"-"`
	// Details are of this component alone: their JSON keys stand beside the others, and
	// status prints them below the table.
	Details Details `json:"-"`
}

// Details are an account that one component alone has.
type Details interface {
	Print(w io.Writer)
}

// Parent is the backlog of one parent table.
type Parent struct {
	Parent string `json:"parent"`
	// Pending stops counting at a cap; Capped reports that there are more.
	Pending          int64   `json:"pending"`
	Capped           bool    `json:"capped"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
}

// Oldest is the age of its first row.
func (p Parent) Oldest() time.Duration {
	return time.Duration(p.OldestAgeSeconds * float64(time.Second))
}

// Oldest is the age of its first row.
func (b Backlog) Oldest() time.Duration {
	return time.Duration(b.OldestAgeSeconds * float64(time.Second))
}

// PutOff is Deferred for people.
func (b Backlog) PutOff() string { return render.Capped(b.Deferred, b.DeferredCapped) }

// AllPutOff reports whether nothing else waits. Where both counts have stopped that is
// not known, and taken to be so.
func (b Backlog) AllPutOff() bool {
	return b.Deferred > 0 && b.Deferred == b.Pending && b.DeferredCapped == b.Capped
}

// MarshalJSON puts the keys of the details beside the others.
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

// Obstacle says what in the backlog itself keeps it from being worked off.
func (b Backlog) Obstacle() (reason string, class pace.WaitClass) {
	switch {
	case len(b.Undefined) > 0:
		return "a definition for tombstones of " + render.Listed(b.Undefined), WaitDefinition
	case b.Lacks != "":
		return b.Lacks, WaitDefinition
	case b.AllPutOff():
		reason = render.AtLeast(b.DeferredCapped) + render.Counted(b.Deferred, b.Unit) + " put off"
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

// ReadBacklog reads what waits by the function backlog_of_NAME() of the database, which
// is the one definition of a component's backlog: "sexton".backlog shows the same.
func ReadBacklog(ctx context.Context, db database.Database, name string) (Backlog, error) {
	b := Backlog{Database: db.Name}
	// The name is a constant of the caller.
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

// The classes of reasons to wait that a backlog itself has.
const (
	WaitDefinition pace.WaitClass = "definition"
	WaitDeferred   pace.WaitClass = "deferred"
)

// FailureWindow bounds the look for failures: a page that is left open must not read a
// big backlog again and again.
const FailureWindow = 500

// Failures are what failed in the tables of one component, or in River.
type Failures struct {
	// Name is for people, and for a retry to name it, such as tombstones.
	Name string
	// Everywhere reports that each database has rows of its own, so that a retry names
	// the database.
	Everywhere bool
	// List returns at most limit failures, and whether there are more. Databases that are
	// down are left out.
	List func(ctx context.Context, all *installation.Connections, limit int) (failures []Failure, more bool, err error)
	// Retry has the row id of a database tried again now, or as many as one look shows if
	// id is empty, and says what came of it. What makes no sense is a *RefusedError.
	Retry func(ctx context.Context, all *installation.Connections, db database.Database, id dml.ID) (string, error)
	// Keyed reports that ids are keys of any type, and not numbers alone.
	Keyed bool
	// Shows, if set, returns which of River's jobs this list shows, so that they need no
	// line among the jobs.
	Shows func(ctx context.Context, all *installation.Connections) (func(*rivertype.JobRow) bool, error)
}

// Failure is a row, or a job of River's, that failed and was put off or given up.
type Failure struct {
	// Source names where it is, for a retry; Database is empty where there is one place
	// only.
	Source   string `json:"source"`
	Database string `json:"database,omitempty"`
	ID       string `json:"id"`
	// What names it for people, such as "tombstone of public.projects, key 7".
	What     string `json:"what"`
	Error    string `json:"error"`
	Attempts int64  `json:"attempts"`
	// Next is when it is tried again by itself; zero where that is now or never.
	Next time.Time `json:"-"`
	// GivenUp reports that it is not tried again by itself.
	GivenUp bool `json:"given_up"`
	// Since is when it came in or, where that is known, failed last; zero where neither
	// is.
	Since time.Time `json:"-"`
}

// Locked reports that it only waits for a lock of another session, which is no failure.
func (f Failure) Locked() bool { return !f.GivenUp && batch.LockIn(f.Error) }

// MarshalJSON has null where there is no next attempt.
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

// Retry says which failed rows are to be tried again.
type Retry struct {
	// Source and Database are those of the Failure.
	Source   string
	Database string
	// ID is that of one row; empty stands for all.
	ID string
	// Reason, if set, is the key of one reason, and nothing else is: all rows that fail
	// for it.
	Reason string
}

// RefusedError is a change that makes no sense, or cannot be made now.
type RefusedError struct {
	Reason string
	// Wrong is true of a change that no state of the databases could allow, as what was
	// asked for does not exist.
	Wrong bool
}

func (e *RefusedError) Error() string { return e.Reason }

// Refuse is a *RefusedError.
func Refuse(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// Rows are failures of rows with a number in the jobs database, which the component names
// by unit. read returns at most limit of them. word describes one behind its unit and
// number, and its ID is taken from id. retry returns how many are due now; of one row 0
// means that it is refused as missing.
func Rows[T any](
	name, unit, due, missing string,
	read func(ctx context.Context, all *installation.Connections, limit int) ([]T, error), id func(T) int64,
	word func(*installation.Connections, T) Failure,
	retry func(ctx context.Context, all *installation.Connections, id int64) (int64, error),
) *Failures {
	failures := Keyed(name, unit, due, missing, read, func(row T) dml.ID { return dml.IntegerID(id(row)) }, word,
		func(ctx context.Context, all *installation.Connections, id dml.ID) (int64, error) {
			return retry(ctx, all, id.Number())
		})
	failures.Keyed = false
	return failures
}

// Keyed is Rows for rows with keys of any type.
func Keyed[T any](
	name, unit, due, missing string,
	read func(ctx context.Context, all *installation.Connections, limit int) ([]T, error), id func(T) dml.ID,
	word func(*installation.Connections, T) Failure,
	retry func(ctx context.Context, all *installation.Connections, id dml.ID) (int64, error),
) *Failures {
	one := func(all *installation.Connections, row T) Failure {
		failure := word(all, row)
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
			failures = append(failures, one(all, row))
		}
		return failures, len(rows) > limit, nil
	}
	again := func(ctx context.Context, all *installation.Connections, _ database.Database, wanted dml.ID) (string,
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
	return &Failures{Name: name, List: list, Retry: again, Keyed: true}
}

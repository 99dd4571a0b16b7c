package component

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river/rivertype"

	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/words"
)

// FailureWindow bounds the look for failures: a page that is left open must not read a big backlog again and again.
const FailureWindow = 500

// Failures are what failed in the tables of one component, or in River.
type Failures struct {
	// Name is for people, and for a retry to name it, such as tombstones.
	Name string
	// Everywhere reports that each database has rows of its own, so that a retry names the database.
	Everywhere bool
	// List returns at most limit failures, and whether there are more. Databases that are down are left out.
	List func(ctx context.Context, all *installation.Connections, limit int) (failures []Failure, more bool, err error)
	// Retry has the row id of a database tried again now, or as many as one look shows where id is 0, and says what came of it. What makes no
	// sense is a *RefusedError.
	Retry func(ctx context.Context, all *installation.Connections, db database.Database, id int64) (string, error)
	// Shows, if set, returns which of River's jobs this list shows, so that they need no line among the jobs.
	Shows func(ctx context.Context, all *installation.Connections) (func(*rivertype.JobRow) bool, error)
}

// Failure is a row, or a job of River's, that failed and was put off or given up.
type Failure struct {
	// Source names where it is, for a retry; Database is empty where there is one place only.
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
}

// MarshalJSON has null where there is no next attempt.
func (f Failure) MarshalJSON() ([]byte, error) {
	type plain Failure
	document := struct {
		plain

		Next *time.Time `json:"next_attempt_at"`
	}{plain: plain(f)}
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
}

// RefusedError is a change that makes no sense, or cannot be made now.
type RefusedError struct {
	Reason string
	// Wrong is true of a change that no state of the databases could allow, as what was asked for does not exist.
	Wrong bool
}

func (e *RefusedError) Error() string { return e.Reason }

// Refuse is a *RefusedError.
func Refuse(format string, args ...any) error {
	return &RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// Rows are failures of rows with a number in the jobs database, which the component names by unit. read returns at most so many of them,
// word describes one, and its ID is taken from id. retry returns how many are due now; of one row 0 means that it is refused as missing.
func Rows[T any](
	name, unit, due, missing string,
	read func(ctx context.Context, all *installation.Connections, limit int) ([]T, error), id func(T) int64, word func(*installation.Connections, T) Failure,
	retry func(ctx context.Context, all *installation.Connections, id int64) (int64, error),
) *Failures {
	list := func(ctx context.Context, all *installation.Connections, limit int) (failures []Failure, more bool, err error) {
		rows, err := read(ctx, all, limit+1)
		if err != nil {
			return nil, false, err
		}
		for _, row := range rows[:min(limit, len(rows))] {
			failure := word(all, row)
			failure.Source, failure.ID = name, strconv.FormatInt(id(row), 10)
			if failure.What == "" {
				failure.What = fmt.Sprintf("%s %d", unit, id(row))
			}
			failures = append(failures, failure)
		}
		return failures, len(rows) > limit, nil
	}
	again := func(ctx context.Context, all *installation.Connections, _ database.Database, wanted int64) (string, error) {
		count, err := retry(ctx, all, wanted)
		switch {
		case err != nil:
			return "", err
		case count == 0 && wanted != 0:
			return "", Refuse("%s %d %s", unit, wanted, missing)
		}
		return words.Counted(count, unit) + " " + due, nil
	}
	return &Failures{Name: name, List: list, Retry: again}
}

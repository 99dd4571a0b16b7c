package component

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"sexton/internal/database"
	"sexton/internal/pace"
	"sexton/internal/words"
)

// PendingCap bounds the counting of a backlog; ten thousand is a backlog by any measure.
const PendingCap = 10_000

// Shown is how many rows of a deletion table status lists.
const Shown = 10

// Backlog counts the rows that wait in one deletion table, as status, page and metrics show them.
type Backlog struct {
	Table    string `json:"table"`
	Database string `json:"database"`
	// Pending stops counting at PendingCap; Capped reports that there are more.
	Pending          int64   `json:"pending"`
	Capped           bool    `json:"capped"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	Deferred         int64   `json:"deferred"`
	// DeferredUntil is when the first of the deferred ones falls due.
	DeferredUntil *time.Time `json:"deferred_until,omitempty"`
	// DeferredReason is why that one was put off.
	DeferredReason string `json:"deferred_reason,omitempty"`
	// Parents are the parents with tombstones, the oldest first.
	Parents []Parent `json:"parents,omitempty"`
	// Undefined are parents with tombstones that no definition names: nothing will ever work them off.
	Undefined []string `json:"undefined,omitempty"`
	// Confirming counts parents that are cleaned up after and wait for a second look, until every transaction that
	// was open then has ended. They are no backlog.
	Confirming int64 `json:"confirming"`
	// GivenUp counts rows that will not be tried any more; absent for tables whose rows are never given up. It stops at the cap.
	GivenUp *int64 `json:"given_up,omitempty"`
	// Disabled is the configuration key that has to be true for a worker to work this off.
	Disabled string `json:"disabled,omitempty"`
	// Unreachable is why nothing is known of the database.
	Unreachable string `json:"unreachable,omitempty"`

	// Unit names one row.
	Unit string `json:"-"`
	// Lacks names what the application has to provide before anything is due; empty where nothing is missing.
	Lacks string `json:"-"`
	// Details are of this component alone: their JSON keys stand beside the others, and status prints them below the table.
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
		return "a definition for tombstones of " + words.Listed(b.Undefined), WaitDefinition
	case b.Lacks != "":
		return b.Lacks, WaitDefinition
	case b.Deferred > 0 && b.Deferred == b.Pending:
		reason = words.Counted(b.Deferred, b.Unit) + " put off"
		if b.DeferredUntil != nil {
			reason += " until " + b.DeferredUntil.Format(time.RFC3339)
		}
		if b.DeferredReason != "" {
			reason += ", after: " + words.Cell(&b.DeferredReason)
		}
		return reason, WaitDeferred
	}
	return "", ""
}

// ReadBacklog reads what waits by the function backlog_of_NAME() of the database, which is the one definition of a component's backlog:
// "sexton".backlog shows the same.
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
	if b.DeferredUntil != nil {
		at := b.DeferredUntil.UTC()
		b.DeferredUntil = &at
	}
	return b, nil
}

// The classes of reasons to wait that a backlog itself has.
const (
	WaitDefinition pace.WaitClass = "definition"
	WaitDeferred   pace.WaitClass = "deferred"
)

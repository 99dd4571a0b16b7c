package page

import (
	"context"
	"encoding/json"
	"time"

	"sexton/internal/component"
	"sexton/internal/web"
)

// Source serves the page's readings and changes. It may be called by several requests at a time.
type Source interface {
	Overview(ctx context.Context) (Overview, error)
	// History is the backlog of the last span, the highest value of each bin.
	History(ctx context.Context, span, bin time.Duration) ([]Series, error)
	// Pause and Resume act on a kind of job, on all workers. A *RefusedError is shown to the user.
	Pause(ctx context.Context, by web.Visitor, kind, reason string) error
	Resume(ctx context.Context, by web.Visitor, kind, reason string) error
	// Retry has failed rows tried again now and says what came of it.
	Retry(ctx context.Context, by web.Visitor, what Retry) (string, error)
}

type (
	// Failure is a row, or a job of River's, that failed.
	Failure = component.Failure
	// Retry says which failed rows are to be tried again.
	Retry = component.Retry
	// RefusedError is a change that makes no sense, or cannot be made now.
	RefusedError = component.RefusedError
)

// Overview is the state of everything at one time.
type Overview struct {
	Tables  []Table
	Jobs    []Job
	Leases  []Lease
	Workers []Worker
	// Leader is the worker that follows the schedules for all until LeaderUntil; empty where none does.
	Leader      string
	LeaderUntil time.Time
	Failures    []Failure
	// MoreFailures tells that the list is not complete.
	MoreFailures bool
	Runs         []Run
	Changes      []Change
}

// Table is the backlog of one deletion table.
type Table struct {
	Name     string
	Database string
	// Unit names one row, such as tombstone.
	Unit string
	// Pending counts rows up to the cap of the count; Capped tells that there are more.
	Pending   int64
	Capped    bool
	OldestAge time.Duration
	// Deferred counts rows that failed and are put off, the first of them until DeferredUntil (zero: unknown), for DeferredReason.
	Deferred       int64
	DeferredUntil  time.Time
	DeferredReason string
	// Confirming counts finished rows that wait for a second look. They are no backlog.
	Confirming int64
	// Parents are those with the oldest rows.
	Parents []Parent
	// Undefined are parents whose rows nothing will work off.
	Undefined []string
	// Unreachable is why nothing is known.
	Unreachable string
}

// Parent is the backlog of one parent table.
type Parent struct {
	Name      string
	Pending   int64
	Capped    bool
	OldestAge time.Duration
}

// Job is one kind.
type Job struct {
	Kind    string
	Summary string
	// Schedule is in cron's form; empty where another kind inserts the jobs.
	Schedule string
	// Table is the deletion table in which its work waits.
	Table  string
	Paused bool
	Lanes  []Lane
}

// Lane is the state of a job in one database.
type Lane struct {
	Database string
	// LastTick and Next are the last and the next tick of its schedule; zero where there is none.
	LastTick    time.Time
	Next        time.Time
	LastRun     time.Time
	LastOutcome string
	LastError   string
	// WaitingFor says why nothing happens; empty where nothing stands in the way.
	WaitingFor string
	// Running is the pass at work; nil where none is.
	Running *Pass
}

// Pass is a run that has not ended.
type Pass struct {
	RunID     int64
	Holder    string
	StartedAt time.Time
	// Stats are the run's statistics so far, a JSON object of the kind's own shape.
	Stats json.RawMessage
	// Pending is the backlog that it works off; Capped tells that there is more. Unit names a row of it.
	Pending int64
	Capped  bool
	Unit    string
}

// Lease is one that is held.
type Lease struct {
	Key       string
	Holder    string
	ExpiresAt time.Time
}

// Worker is one that is alive.
type Worker struct {
	ID        string
	Host      string
	StartedAt time.Time
	// Polls are the jobs, as kind/database, that it polls for because notifications do not reach it.
	Polls []string
}

// Run is one that has ended.
type Run struct {
	ID        int64
	Kind      string
	Database  string
	StartedAt time.Time
	Took      time.Duration
	Outcome   string
	Error     string
	// Held is why it got nothing done although there was work; empty for all others.
	Held  string
	Stats json.RawMessage
	// Unit names a row that it worked off, such as tombstone.
	Unit string
}

// Change is something that somebody did.
type Change struct {
	At     time.Time
	Actor  string
	Remote string
	Action string
	Target string
	Reason string
}

// Series is the backlog of one deletion table over time.
type Series struct {
	Table    string
	Database string
	// Points are in the order of time.
	Points []Point
}

// Point is the backlog at one time, in seconds of the epoch.
type Point struct {
	At               int64
	Pending          int64
	OldestAgeSeconds float64
}

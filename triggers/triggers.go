package triggers

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// The names of the triggers: the first two on every tracked table, the third on deletion
// tables, the fourth on those among them whose rows become work by a change.
const (
	TrackTrigger      = "sexton_track"
	TruncateTrigger   = "sexton_truncate"
	WakeTrigger       = "sexton_wake"
	WakeUpdateTrigger = "sexton_wake_update"
	// KeepTrigger and KeepUpdateTrigger are on tables below rows that are kept, where
	// native foreign keys delete or change rows.
	KeepTrigger       = "sexton_keep"
	KeepUpdateTrigger = "sexton_keep_update"
)

// Policy says what TRUNCATE of a tracked parent does. The session setting sexton.truncate
// overrides it.
type Policy string

// The policies.
const (
	Reject Policy = "reject" // TRUNCATE fails with SQLSTATE SX002 and a hint.
	Ignore Policy = "ignore" // TRUNCATE passes and leaves the children.
)

// Config holds the facts that all triggers of one database share.
type Config struct {
	// TrackedSchema holds the tombstones.
	TrackedSchema string
	// Truncate is empty for Reject.
	Truncate Policy
	// Wake are the deletion tables whose rows wake a worker, each for one kind.
	Wake []Wake
	// Undo says how deleted rows of parents with Undo are kept.
	Undo Undo
	// SameKey says that a key which is another column now has the values of the one
	// before, so that waiting tombstones fit.
	SameKey bool
	// LockTimeout bounds one wait for one table's lock, behind which the application
	// queues; 0 means 2 s.
	LockTimeout time.Duration
	// LockAttempts bounds how often one table is tried; 0 means 5.
	LockAttempts int
	// Waits, if set, is called when Install or Uninstall waits for a lock, with its name
	// and the sessions that hold it.
	Waits func(lock, holders string)
}

func (c Config) withDefaults() (Config, error) {
	c.Truncate = cmp.Or(c.Truncate, Reject)
	c.LockTimeout = cmp.Or(c.LockTimeout, 2*time.Second)
	c.LockAttempts = cmp.Or(c.LockAttempts, 5)
	switch {
	case c.TrackedSchema == "":
		return c, errors.New("configure triggers: the schema is empty")
	case c.Truncate != Reject && c.Truncate != Ignore:
		return c, fmt.Errorf("configure triggers: truncate policy %q is neither reject nor ignore", c.Truncate)
	}
	return c, c.checkWake()
}

// Undo says which rows and columns the trigger keeps.
type Undo struct {
	// Exclude are columns that are never kept, MaxRow is the size from which on a row is
	// not.
	Exclude []string
	MaxRow  int
	// Children are the tables whose rows batches delete and keep.
	Children []Table
	// Users is the table of users if their rows are never kept, else empty. Excluded are
	// further tables whose rows are never kept.
	Users    Table
	Excluded []Table
}

// Table names a table.
type Table struct{ Schema, Name string }

// Parent is a table whose deletions are recorded, with the columns whose values name its
// rows, in the order of recorded keys.
type Parent struct {
	Schema     string
	Table      string
	KeyColumns []string
	// Undo says which deleted rows the trigger keeps.
	Undo Keeps
}

// Keeps says which deleted rows of a parent its trigger keeps: none, all, or the ones
// that go on account of rows that are kept.
type Keeps string

// The choices.
const (
	KeepsNone  Keeps = ""
	KeepsAll   Keeps = "undo"
	KeepsBelow Keeps = "undo below"
)

// Kind says how a trigger or function differs from what it should be.
type Kind string

// The kinds.
const (
	Missing  Kind = "missing"
	Surplus  Kind = "surplus"
	Altered  Kind = "altered"
	Disabled Kind = "disabled"
	// Swapped marks triggers of a table that had a parent's name, or was its partition,
	// when they were installed, and is another table now.
	Swapped Kind = "swapped"
	// Plain marks a trigger that works but does not fire under session_replication_role =
	// replica. It is no drift: a role that does not own the table cannot do better.
	Plain Kind = "plain"
)

// Finding is one difference between the database and what the parents need.
type Finding struct {
	// Table is schema.table, quoted where needed; empty if the finding concerns a
	// function.
	Table string `json:"table,omitempty"`
	// Trigger is the trigger's name, or that of the function.
	Trigger string `json:"trigger"`
	Kind    Kind   `json:"kind"`
	Detail  string `json:"detail"`
	Fix     string `json:"fix"`
}

// Drift reports whether the finding needs attention. Plain triggers do their work.
func (f Finding) Drift() bool { return f.Kind != Plain }

// Action says what was done to a trigger.
type Action string

// The actions.
const (
	Created  Action = "created"
	Replaced Action = "replaced"
	Dropped  Action = "dropped"
)

// Change is one trigger that was created, replaced or dropped.
type Change struct {
	Table   string `json:"table"`
	Trigger string `json:"trigger"`
	Action  Action `json:"action"`
}

// Report says what Install or Uninstall did.
type Report struct {
	// Functions are the names of the functions written or dropped.
	Functions []string `json:"functions"`
	Triggers  []Change `json:"triggers"`
	// Unchanged counts the triggers that were as they should be; their tables were not
	// locked.
	Unchanged int `json:"unchanged"`
	// Surplus are triggers of ours that nothing asks for (any more). Install leaves them.
	Surplus []Finding `json:"surplus"`
}

func newReport() Report {
	return Report{Functions: []string{}, Triggers: []Change{}, Surplus: []Finding{}}
}

// LockError says that a table could not be locked because others hold it. Nothing of that
// table was changed.
type LockError struct {
	Table    string
	Attempts int
	Timeout  time.Duration
	// Holders names the sessions that were last seen holding the table.
	Holders string
	Err     error
}

// Error names the table, the sessions in the way and what to do.
func (e *LockError) Error() string {
	return fmt.Sprintf("lock table %s: held by %s through %d attempts of %s each; end the long transaction and run the command again",
		e.Table, e.Holders, e.Attempts, e.Timeout)
}

// Unwrap returns the error of the last attempt.
func (e *LockError) Unwrap() error { return e.Err }

// NotMigratedError says that the tables which the triggers write to are missing, or a
// function that they call.
type NotMigratedError struct {
	// Missing is the table or function, schema-qualified.
	Missing string
}

// Error says what to run first.
func (e *NotMigratedError) Error() string {
	return fmt.Sprintf("find %s: it does not exist; run `sexton migrate up` first", e.Missing)
}

// PrivilegeError says that the role in use lacks a privilege.
type PrivilegeError struct {
	Role string
	// Missing names what the role cannot do, Grant the statement that changes it.
	Missing string
	Grant   string
}

// Error names the role, the privilege and the statement that grants it.
func (e *PrivilegeError) Error() string {
	return fmt.Sprintf("role %s lacks %s; run: %s", quoteIdent(e.Role), e.Missing, e.Grant)
}

package triggers

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// These constants are the names of the triggers. Every tracked table has TrackTrigger and
// TruncateTrigger. Every deletion table has WakeTrigger. WakeUpdateTrigger is on tables
// whose rows become due by an UPDATE.
const (
	TrackTrigger      = "sexton_track"
	TruncateTrigger   = "sexton_truncate"
	WakeTrigger       = "sexton_wake"
	WakeUpdateTrigger = "sexton_wake_update"
	// KeepTrigger and KeepUpdateTrigger are on tables below rows that are saved, where
	// native foreign keys delete or change rows.
	KeepTrigger       = "sexton_keep"
	KeepUpdateTrigger = "sexton_keep_update"
)

// Policy is the effect of TRUNCATE of a tracked parent. The session setting
// sexton.truncate overrides it.
type Policy string

// These constants are the values of Policy.
const (
	Reject Policy = "reject" // TRUNCATE fails with SQLSTATE SX002 and a hint.
	Ignore Policy = "ignore" // TRUNCATE succeeds, and the children are kept.
)

// Config is the configuration of all triggers of one database.
type Config struct {
	// TrackedSchema is the schema of the tombstones.
	TrackedSchema string
	// Truncate is the policy. If it is empty, Reject applies.
	Truncate Policy
	// Wake holds the deletion tables whose rows wake the workers of a job kind.
	Wake []Wake
	// Undo configures how deleted rows are saved.
	Undo Undo
	// SameKey states that a parent's new key column has the same values as the old one,
	// so that pending tombstones remain valid.
	SameKey bool
	// LockTimeout limits one wait for the lock of a table, because the application waits
	// during that time. 0 means 2 s.
	LockTimeout time.Duration
	// LockAttempts is the maximum number of attempts per table. 0 means 5.
	LockAttempts int
	// Waits, if set, is called while Install or Uninstall waits for a lock, with its name
	// and its holders.
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

// Undo configures which rows and columns are saved.
type Undo struct {
	// Exclude holds the columns that are never saved. MaxRow is the maximum size in bytes
	// of a row that is saved.
	Exclude []string
	MaxRow  int
	// Children holds the tables whose rows batches delete and save.
	Children []Table
	// Users is the table of users if rows of users are never saved, and otherwise empty.
	// Excluded holds other tables whose rows are never saved.
	Users    Table
	Excluded []Table
}

// Table holds the schema and the name of a table.
type Table struct{ Schema, Name string }

// Parent is a table whose deletions are recorded. KeyColumns are in the order of recorded
// keys.
type Parent struct {
	Schema     string
	Table      string
	KeyColumns []string
	// Undo selects the deleted rows that the trigger saves.
	Undo Keeps
}

// Keeps selects the deleted rows of a parent that its trigger saves: none, all, or only
// rows that are deleted as a consequence of another saved deletion.
type Keeps string

// These constants are the values of Keeps.
const (
	KeepsNone  Keeps = ""
	KeepsAll   Keeps = "undo"
	KeepsBelow Keeps = "undo below"
)

// Kind is the kind of a finding.
type Kind string

// These constants are the values of Kind.
const (
	Missing  Kind = "missing"
	Surplus  Kind = "surplus"
	Altered  Kind = "altered"
	Disabled Kind = "disabled"
	// Swapped marks a trigger that was installed when its table had the name of a parent,
	// or was a partition of a parent, which is no longer the case.
	Swapped Kind = "swapped"
	// Plain marks a trigger that does not fire under session_replication_role = replica.
	// Such a trigger is not drift, because only the table's owner can change it.
	Plain Kind = "plain"
)

// Finding is one difference between the installed and the expected triggers and
// functions.
type Finding struct {
	// Table is schema.table, quoted if necessary. It is empty for a function.
	Table string `json:"table,omitempty"`
	// Trigger is the name of the trigger or function.
	Trigger string `json:"trigger"`
	Kind    Kind   `json:"kind"`
	Detail  string `json:"detail"`
	Fix     string `json:"fix"`
}

// Drift reports whether the finding needs a correction. A plain trigger needs none.
func (f Finding) Drift() bool { return f.Kind != Plain }

// Action is a change of a trigger.
type Action string

// These constants are the values of Action.
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

// Report describes the changes of Install or Uninstall.
type Report struct {
	// Functions holds the names of the functions that were created or dropped.
	Functions []string `json:"functions"`
	Triggers  []Change `json:"triggers"`
	// Unchanged is the number of triggers that were up to date. Their tables were not
	// locked.
	Unchanged int `json:"unchanged"`
	// Surplus holds Sexton's triggers that are not needed. Install does not drop them.
	Surplus []Finding `json:"surplus"`
}

func newReport() Report {
	return Report{Functions: []string{}, Triggers: []Change{}, Surplus: []Finding{}}
}

// LockError reports that a table could not be locked. That table was not changed.
type LockError struct {
	Table    string
	Attempts int
	Timeout  time.Duration
	// Holders describes the last known lock holders.
	Holders string
	Err     error
}

// Error names the table, the lock holders and the fix.
func (e *LockError) Error() string {
	return fmt.Sprintf("lock table %s: held by %s during %d attempts of %s each; end that transaction and run the command again",
		e.Table, e.Holders, e.Attempts, e.Timeout)
}

// Unwrap returns the error of the last attempt.
func (e *LockError) Unwrap() error { return e.Err }

// NotMigratedError reports that a table or function that the triggers use is missing.
type NotMigratedError struct {
	// Missing is the qualified table or function.
	Missing string
}

// Error names the missing object and the fix.
func (e *NotMigratedError) Error() string {
	return fmt.Sprintf("%s does not exist; run `sexton migrate up` first", e.Missing)
}

// PrivilegeError reports that a role lacks a privilege.
type PrivilegeError struct {
	Role string
	// Missing is the missing privilege. Grant is the statement that grants it.
	Missing string
	Grant   string
}

// Error names the role, the privilege and the statement that grants it.
func (e *PrivilegeError) Error() string {
	return fmt.Sprintf("role %s lacks %s; run: %s", quoteIdent(e.Role), e.Missing, e.Grant)
}

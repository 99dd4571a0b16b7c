package triggers

import (
	"fmt"
	"time"
)

// LockError says that a table could not be locked because others hold it. Nothing of that table was
// changed.
type LockError struct {
	Table    string
	Attempts int
	Timeout  time.Duration
	// PIDs are the sessions seen holding the table, the first to look at; empty where they had gone by
	// the time of the look.
	PIDs []int32
	Err  error
}

// Error names the table, the sessions in the way and what to do.
func (e *LockError) Error() string {
	holders := "unknown sessions"
	if len(e.PIDs) > 0 {
		holders = fmt.Sprintf("pid %v", e.PIDs)
	}
	return fmt.Sprintf("lock table %s: held by %s through %d attempts of %s each; end the long transaction and run the command again",
		e.Table, holders, e.Attempts, e.Timeout)
}

// Unwrap returns the error of the last attempt.
func (e *LockError) Unwrap() error { return e.Err }

// NotMigratedError says that the tables which the triggers write to are missing.
type NotMigratedError struct {
	// Table is the missing table, schema-qualified.
	Table string
}

// Error says what to run first.
func (e *NotMigratedError) Error() string {
	return fmt.Sprintf("find table %s: it does not exist; run `sexton migrate up` first", e.Table)
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

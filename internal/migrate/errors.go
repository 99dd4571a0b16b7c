package migrate

import "fmt"

// SchemaError says that this program cannot work with what a database has, and what to
// do.
type SchemaError struct {
	// Object names the thing that differs, and Fix the way out: for a report that has the
	// two beside the text.
	Object, Fix string
	text        string
}

func (e *SchemaError) Error() string { return e.text }

// unfit is the error about a component that is not as this program needs it.
func (db Database) unfit(component, fix, format string, args ...any) error {
	text := fmt.Sprintf("schema of database %s: %s", db.Name, fmt.Sprintf(format, args...))
	return &SchemaError{Object: "component " + component, Fix: fix, text: text}
}

// PrivilegeError says that the role in use lacks a privilege.
type PrivilegeError struct {
	Database string
	Role     string
	// Missing names the right that the role lacks, Grant the statement that gives it.
	Missing string
	Grant   string
}

// Error names the role, what it lacks and the statement that grants it.
func (e *PrivilegeError) Error() string {
	return fmt.Sprintf("role %s in database %s: %s; run: %s", e.Role, e.Database, e.Missing, e.Grant)
}

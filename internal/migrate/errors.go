package migrate

import "fmt"

// SchemaError reports that this program cannot work with a database's schema.
type SchemaError struct {
	// Object and Fix are for reports with separate columns. The text of Error contains
	// both.
	Object, Fix string
	text        string
}

func (e *SchemaError) Error() string { return e.text }

// unfit returns the error for a component whose installed objects do not fit this
// program.
func (db Database) unfit(component, fix, format string, args ...any) error {
	text := fmt.Sprintf("schema of database %s: %s", db.Name, fmt.Sprintf(format, args...))
	return &SchemaError{Object: "component " + component, Fix: fix, text: text}
}

// PrivilegeError reports that the current role lacks a privilege.
type PrivilegeError struct {
	Database string
	Role     string
	// Missing describes the missing privilege. Grant is the statement that grants the
	// missing privilege.
	Missing string
	Grant   string
}

// Error names the role, the missing privilege and the statement that grants it.
func (e *PrivilegeError) Error() string {
	return fmt.Sprintf("role %s in database %s: %s; run: %s", e.Role, e.Database, e.Missing, e.Grant)
}

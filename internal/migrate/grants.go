package migrate

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	sqlfiles "sexton/sql"
)

// Roles are the names of the roles that share the work.
type Roles struct {
	// Application deletes its own rows and calls the functions that ask for work.
	Application string
	// Worker is for "sexton run".
	Worker string
	// Viewer reads state and history and changes nothing.
	Viewer string
}

// Grants returns the least privileges that an application, a worker and a viewer role need in the database,
// as SQL with psql's variables application, worker and viewer for their names. Only in the jobs database does the
// application need any.
func Grants(db Database) string {
	names := []string{"header"}
	for _, c := range db.components() {
		names = append(names, c.name())
	}
	return db.replacer().Replace(readGrants(names...))
}

// Check refuses names that Postgres would cut or refuse, and names that would end the body of the block that creates them.
func (r Roles) Check() error {
	const longest = 63
	for _, role := range []struct{ use, name string }{{"application", r.Application}, {"worker", r.Worker}, {"viewer", r.Viewer}} {
		if role.name == "" || len(role.name) > longest || strings.HasPrefix(role.name, "pg_") || strings.ContainsAny(role.name, "$\x00\n") {
			return fmt.Errorf("role of the %s: %q is no name of 1 to %d bytes without $, not beginning with pg_", role.use, role.name, longest)
		}
	}
	return nil
}

// GrantRoles returns SQL for any client that creates the roles where they are missing, and grants them what Grants says.
func GrantRoles(db Database, roles Roles) string {
	var replacements []string
	for variable, name := range map[string]string{"application": roles.Application, "worker": roles.Worker, "viewer": roles.Viewer} {
		replacements = append(replacements,
			`:"`+variable+`"`, pgx.Identifier{name}.Sanitize(),
			`:'`+variable+`'`, "'"+strings.ReplaceAll(name, "'", "''")+"'")
	}
	header, rest, _ := strings.Cut(Grants(db), "\n\n")
	return strings.NewReplacer(replacements...).Replace(header + "\n\n" + readGrants("roles") + "\n" + rest)
}

// The tables that refer to one by a foreign key, for TableGrant.
const (
	// Directly is by a key of their own, Anyhow through others, too.
	Directly = "direct"
	Anyhow   = "all"
)

// TableGrant is a right that the worker needs on a table of the application's.
type TableGrant struct {
	// Table is its name in SQL, with its schema.
	Table string `json:"name"`
	// Privileges are those of a GRANT, such as "SELECT, UPDATE".
	Privileges string `json:"privileges"`
	// Referring grants them on the tables that refer to this one instead, Directly or Anyhow; empty: on this one.
	Referring string `json:"referring"`
}

// GrantTables returns SQL for any client that grants a worker role rights on the application's tables, as the database has them
// when it is run: what is not there is left out, and what the role that runs it may not grant is a warning.
func GrantTables(tables []TableGrant, worker string) (string, error) {
	if len(tables) == 0 {
		return "", nil
	}
	listed, err := json.Marshal(tables)
	if err != nil {
		return "", fmt.Errorf("list tables: %w", err)
	}
	literal := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	// Within the body of the block nothing may look like its end.
	names := strings.NewReplacer(`$`, `\u0024`).Replace(string(listed))
	return strings.NewReplacer(`:'tables'`, "E"+literal(strings.ReplaceAll(names, `\`, `\\`)), `:'worker'`, literal(worker)).
		Replace(readGrants("tables")), nil
}

// readGrants returns sections of the grants. The files are part of the program; a missing one shows in the tests.
func readGrants(names ...string) string {
	sections := make([]string, 0, len(names))
	for _, name := range names {
		text, _ := sqlfiles.Grants.ReadFile("grants/" + name + ".sql")
		sections = append(sections, string(text))
	}
	return strings.Join(sections, "\n")
}

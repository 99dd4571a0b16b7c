package migrate

import (
	"strings"

	sqlfiles "sexton/sql"
)

// Grants returns the least privileges that a worker role and a viewer role need in the database, as SQL
// for psql with the variables worker and viewer. An application role needs none.
func Grants(db Database) string {
	names := []string{"header"}
	for _, c := range db.components() {
		names = append(names, c.name())
	}
	sections := make([]string, 0, len(names))
	for _, name := range names {
		// The files are part of the program; a missing one shows in the tests.
		text, _ := sqlfiles.Grants.ReadFile("grants/" + name + ".sql")
		sections = append(sections, string(text))
	}
	return db.replacer().Replace(strings.Join(sections, "\n"))
}

package migrate

import (
	"strings"

	sqlfiles "sexton/sql"
)

// Grants returns the least privileges that an application, a worker and a viewer role need in the database,
// as SQL for psql with the variables application, worker and viewer. Only in the jobs database does the
// application need any, to enqueue.
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

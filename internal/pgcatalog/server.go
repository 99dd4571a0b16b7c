package pgcatalog

import (
	"fmt"

	"sexton/internal/problem"
)

// The oldest and newest major versions of Postgres that every release is tested with.
const oldest, newest = 14, 18

// Untested reports what there is to say of a server's version, as the server writes it: an error for one that is too old, a warning for
// one that is newer than those of the tests. For all others, and for a text that is no version, the problem is empty.
func Untested(version string) problem.Problem {
	var major int
	_, _ = fmt.Sscan(version, &major) // What is no number says nothing.
	switch {
	case major > 0 && major < oldest:
		return problem.Problem{
			Severity: problem.Error, Message: "the server is PostgreSQL " + version + ", which is too old",
			Fix: fmt.Sprintf("upgrade it to PostgreSQL %d or newer", oldest),
		}
	case major > newest:
		return problem.Problem{
			Severity: problem.Warning, Message: fmt.Sprintf("the server is PostgreSQL %s, and this release was tested with %d to %d", version, oldest, newest),
			Fix: "look for a newer release, and try it with a copy of the database first",
		}
	}
	return problem.Problem{}
}

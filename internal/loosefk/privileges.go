package loosefk

import (
	"context"

	"sexton/internal/drain"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// MissingPrivileges lists what the connected role lacks to clean up those children of parents that are in one database.
// Only passes need it: triggers are installed and compared without.
func MissingPrivileges(ctx context.Context, db pgcatalog.Beginner, database string, parents []*Parent) (problem.List, error) {
	asking := UsableIn(database, parents)
	var needs []drain.Need
	for at, reference := range asking {
		needs = append(needs, reference.Needs(at, reference.Action)...)
	}
	return drain.Lacking(ctx, db, needs, func(by int) problem.Problem {
		d := asking[by].Definition
		return problem.Problem{Position: d.Position, Key: d.Key}
	})
}

package loosefk

import (
	"context"
	"fmt"
	"strings"

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
	lacks, err := drain.Lacking(ctx, db, needs)
	if err != nil {
		return nil, err
	}
	var problems problem.List
	for _, lack := range lacks {
		reference := asking[lack.By]
		report := func(message, fix string, args ...any) {
			d := reference.Definition
			problems.Add(problem.Problem{Position: d.Position, Key: d.Key, Message: message, Fix: fmt.Sprintf(fix, args...)})
		}
		if lack.Schema != "" {
			report("the database role may not use schema "+lack.Schema, "GRANT USAGE ON SCHEMA %s TO %s", lack.Schema, lack.Role)
		}
		if len(lack.Missing) > 0 {
			all := []string{"SELECT", "UPDATE", "DELETE"}
			if reference.Updates() {
				all = all[:2]
			}
			report("the database role may not clean up table "+lack.Table, "GRANT %s ON %s TO %s", strings.Join(all, ", "), lack.Table, lack.Role)
		}
		if lack.Hidden {
			report("row-level security hides rows of "+lack.Table+" from the database role", "ALTER ROLE %s BYPASSRLS", lack.Role)
		}
	}
	return problems, nil
}

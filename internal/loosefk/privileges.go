package loosefk

import (
	"cmp"
	"context"

	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// MissingPrivileges lists the privileges that the role of db lacks to clean up the
// parents' children in one database. Only passes need these privileges. Triggers are
// installed and compared without them.
func MissingPrivileges(ctx context.Context, db pgcatalog.Beginner, database string,
	parents []*Parent,
) (problem.List, error) {
	missing, _, err := missingPrivileges(ctx, db, database, parents)
	return missing, err
}

// BreakUnprivileged returns the same list as MissingPrivileges, and marks the leaves on
// which the role lacks privileges as broken. The other leaves are still cleaned up, for
// example while a new partition lacks its grants. If a privilege on the child itself is
// missing, the whole reference is marked as broken.
func BreakUnprivileged(ctx context.Context, db pgcatalog.Beginner, database string,
	parents []*Parent,
) (problem.List, error) {
	missing, tables, err := missingPrivileges(ctx, db, database, parents)
	for i, lack := range missing {
		why, reference := lack.Message+": "+lack.Fix, tables[i].reference
		if tables[i].oid == reference.Child.OID {
			reference.Broken = cmp.Or(reference.Broken, why)
			continue
		}
		if reference.BrokenLeaves == nil {
			reference.BrokenLeaves = map[uint32]string{}
		}
		reference.BrokenLeaves[tables[i].oid] = cmp.Or(reference.BrokenLeaves[tables[i].oid], why)
	}
	return missing, err
}

// neededTable is a table on which the statements for a reference need privileges: the
// child or one of its leaves.
type neededTable struct {
	reference *Reference
	oid       uint32
}

// missingPrivileges returns the missing privileges, each with its table.
func missingPrivileges(
	ctx context.Context, db pgcatalog.Beginner, database string, parents []*Parent,
) (missing problem.List, of []neededTable, err error) {
	var needs []dml.Need
	var tables []neededTable
	for _, reference := range UsableIn(database, parents) {
		for _, need := range reference.Needs(0, reference.Action) {
			table := neededTable{reference, need.Table}
			if len(tables) == 0 || tables[len(tables)-1] != table {
				tables = append(tables, table)
			}
			need.By = len(tables) - 1
			needs = append(needs, need)
		}
	}
	missing, err = dml.Lacking(ctx, db, needs, func(by int) problem.Problem {
		of = append(of, tables[by])
		d := tables[by].reference.Definition
		return problem.Problem{Position: d.Position, Key: d.Key}
	})
	return missing, of, err
}

// UnreadableParents lists the parents whose keys the role of db may not read. Their
// tombstones are not processed, because the role cannot see whether a parent row exists
// again.
func UnreadableParents(ctx context.Context, db pgcatalog.Beginner, parents []*Parent) (problem.List, error) {
	var needs []dml.Need
	for i, p := range parents {
		for _, column := range p.KeyColumns {
			needs = append(needs, dml.Need{By: i, Table: p.OID, Privilege: "SELECT", Column: column})
		}
	}
	return dml.Lacking(ctx, db, needs, func(by int) problem.Problem {
		return problem.Problem{Key: parents[by].Label()}
	})
}

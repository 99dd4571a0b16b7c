package loosefk

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// MissingPrivileges lists the privileges that the role of db lacks to clean up the
// parents' children in one database. Only passes need them. Triggers are installed and
// compared without them.
func MissingPrivileges(ctx context.Context, db pgcatalog.Beginner, database string,
	parents []*Parent,
) (problem.List, error) {
	missing, _, err := missingPrivileges(ctx, db, database, parents)
	return missing, err
}

// BreakUnprivileged lists the same as MissingPrivileges. It also marks the leaves on
// which the role lacks privileges as broken, or the reference if a privilege on the child
// itself is missing. So the other partitions of a child are cleaned up while a new one
// lacks its grants.
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

// unreadableArgs returns the arguments of unreadable.sql, which returns one row per
// parent that a role may not read, in the given order: schemas, tables, JSON arrays of
// the key columns, and the role, "" for the connected one.
func unreadableArgs(parents []*Parent, role string) []any {
	schemas, names := namesOf(parents)
	return []any{schemas, names, render.Each(parents, func(p *Parent) string {
		columns, _ := json.Marshal(p.KeyColumns) // Marshal of strings never fails.
		return string(columns)
	}), role}
}

// eachUnreadable calls do for each row of unreadable.sql.
func eachUnreadable(rows pgx.Rows, do func(table, fix string)) error {
	var table, fix string
	_, err := pgx.ForEachRow(rows, []any{&table, &fix}, func() error {
		do(table, fix)
		return nil
	})
	return err
}

// namesOf returns the parents' schemas and tables.
func namesOf(parents []*Parent) (schemas, names []string) {
	return render.Each(parents, func(p *Parent) string { return p.Schema }),
		render.Each(parents, func(p *Parent) string { return p.Name })
}

// UnreadableParents lists parents whose keys the role of db may not read. They are
// not cleaned up: a row that cannot be read does not count as deleted.
func UnreadableParents(ctx context.Context, db pgcatalog.Beginner, parents []*Parent) (problem.List, error) {
	var problems problem.List
	err := pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, statement("unreadable"), unreadableArgs(parents, pgcatalog.RoleOf(db))...)
		return eachUnreadable(rows, func(table, fix string) {
			problems.Add(problem.Problem{
				Key:     table,
				Message: "the database role may not read this parent, so its tombstones are held", Fix: fix,
			})
		})
	})
	return problems, problem.Doing(err, "read privileges")
}

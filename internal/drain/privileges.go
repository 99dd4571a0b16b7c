package drain

import (
	"context"
	_ "embed"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Need is a privilege on a table. UPDATE is needed on a column or, where none is named, on any: a statement that locks a row needs that
// much. By is the place of what needs it among the caller's things.
type Need struct {
	By                int
	Table             uint32
	Privilege, Column string
}

// Needs are the privileges for the edge's statements with such actions, table by table.
func (e *Edge) Needs(by int, actions ...Action) []Need {
	var needs []Need
	if e.Partitioned() {
		needs = append(needs, Need{by, e.Child.OID, "SELECT", ""}) // looked through for rows that are left
	}
	if e.Moves { // Rows are written through the partitioned table.
		needs = append(needs, Need{by, e.Child.OID, "UPDATE", ""})
	}
	for _, leaf := range e.Leaves {
		needs = append(needs, Need{by, leaf.OID, "SELECT", ""})
		for _, do := range actions {
			switch do {
			case Forbid:
			case Remove:
				needs = append(needs, Need{by, leaf.OID, "UPDATE", ""}, Need{by, leaf.OID, "DELETE", ""})
			case Assign:
				needs = append(needs, Need{by, leaf.OID, "UPDATE", e.Target.Column})
			case Nullify, SetDefault, Move:
				for _, column := range e.Columns {
					needs = append(needs, Need{by, leaf.OID, "UPDATE", column})
				}
			}
		}
	}
	return needs
}

// Lack says why the connected role cannot work on one table: privileges that it misses, the use of a schema, or a policy that hides rows.
type Lack struct {
	By          int
	Table, Role string
	// Schema is empty where the role may use it.
	Schema  string
	Missing []string
	Hidden  bool
}

//go:embed queries/lacks.sql
var lacksSQL string

// Lacking lists what the connected role lacks of needs, in their order.
func Lacking(ctx context.Context, db pgcatalog.Beginner, needs []Need) (lacks []Lack, err error) {
	var by []int
	var oids []uint32
	var wanted, columns []string
	for _, n := range needs {
		by, oids, wanted, columns = append(by, n.By), append(oids, n.Table), append(wanted, n.Privilege), append(columns, n.Column)
	}
	err = pgcatalog.Settled(ctx, db, func(tx pgx.Tx) (err error) {
		rows, _ := tx.Query(ctx, lacksSQL, by, oids, wanted, columns)
		lacks, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Lack])
		return err
	})
	return lacks, problem.Doing(err, "read privileges")
}

package dml

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Need is a privilege on a table, or on one of its columns if Column is set. UPDATE
// without a column means UPDATE on any column, which a statement that locks a row needs.
// By identifies the part of the configuration that needs the privilege, such as an edge.
// The caller chooses its meaning.
type Need struct {
	By                int
	Table             uint32
	Privilege, Column string
}

// Needs returns the privileges that the edge's statements with the given actions need,
// table by table. by is the value of Need.By in each of them.
func (e *Edge) Needs(by int, actions ...Action) []Need {
	var needs []Need
	if e.Partitioned() {
		// The query for rows that are left reads the partitioned table.
		needs = append(needs, Need{by, e.Child.OID, "SELECT", ""})
	}
	if e.Moves {
		// Rows are written through the partitioned table.
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

//go:embed queries/lacks.sql
var lacksSQL string

// lack is a row of lacks.sql: the privileges on one table that the role lacks. Schema is
// empty if the role may use the schema.
type lack struct {
	By                  int
	Table, Role, Schema string
	Missing             []string
	// Hidden reports that a row-level security policy hides rows from the role.
	Hidden bool
}

// Lacking returns a problem for each of the needs that the role of the database lacks, in
// the order of needs. about returns the problem for a Need.By, to which Lacking adds the
// message and the fix.
func Lacking(ctx context.Context, db pgcatalog.Beginner, needs []Need,
	about func(by int) problem.Problem,
) (problems problem.List, err error) {
	var by []int
	var oids []uint32
	var wanted, columns []string
	for _, n := range needs {
		by, oids, wanted, columns = append(by, n.By), append(oids, n.Table), append(wanted, n.Privilege),
			append(columns, n.Column)
	}
	var lacks []lack
	err = pgcatalog.Settled(ctx, db, func(tx pgx.Tx) (err error) {
		rows, _ := tx.Query(ctx, lacksSQL, by, oids, wanted, columns, pgcatalog.RoleOf(db))
		lacks, err = pgx.CollectRows(rows, pgx.RowToStructByPos[lack])
		return err
	})
	for _, l := range lacks {
		report := func(fix, format string, args ...any) {
			p := about(l.By)
			p.Message, p.Fix = fmt.Sprintf(format, args...), fix
			problems.Add(p)
		}
		if l.Schema != "" {
			report(fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO %s", l.Schema, l.Role),
				"the database role lacks USAGE on schema %s of table %s", l.Schema, l.Table)
		}
		if missing := strings.Join(l.Missing, ", "); missing != "" {
			report(fmt.Sprintf("GRANT %s ON %s TO %s", missing, l.Table, l.Role),
				"the database role lacks %s on table %s", missing, l.Table)
		}
		if l.Hidden {
			report(fmt.Sprintf("ALTER ROLE %s BYPASSRLS", l.Role),
				"row-level security hides rows of %s from the database role", l.Table)
		}
	}
	return problems, problem.Doing(err, "read privileges")
}

package dml

import (
	"strings"

	"sexton/internal/pgcatalog"
)

// Loose is a reference without a constraint. Rows of Child refer to the row of Parent
// whose Targets have the values of their Columns. If Targets is empty, they refer to the
// primary key. Child and Parent are pairs of a schema and a table name.
type Loose struct {
	Child, Parent    [2]string
	Columns, Targets []string
	// Action is Remove or Nullify.
	Action Action
	// Only restricts the reference to rows with given values. Each entry is a column name
	// and the text form of its value.
	Only [][2]string
}

// LooseTables returns the schemas and names of the tables of loose references.
func LooseTables(all []Loose) (schemas, tables []string) {
	for _, l := range all {
		schemas, tables = append(schemas, l.Child[0], l.Parent[0]), append(tables, l.Child[1], l.Parent[1])
	}
	return schemas, tables
}

// AddLoose adds the loose references to a table to the table's keys. part is their
// Ref.Part. It leaves out references that do not fit the tables or cannot be compared.
func (c *Catalog) AddLoose(to *Table, part int, all ...Loose) {
	for _, l := range all {
		child := c.Named(l.Child[0], l.Child[1])
		if c.Named(l.Parent[0], l.Parent[1]) != to.Relation || child == nil || !child.IsTable() {
			continue
		}
		targets := l.Targets
		if len(targets) == 0 {
			targets = to.PrimaryKey()
		}
		if !has(child, l.Columns) || !has(to.Relation, targets) || len(targets) != len(l.Columns) {
			continue
		}
		f := &Ref{
			target: to.OID, Table: c.Table(child), Leaves: child.Leaves, From: FromItem(child), Columns: l.Columns,
			Targets: targets,
			Action:  l.Action, set: l.Columns, Part: part,
		}
		if c.compare(f, child) && c.restrict(f, child, l.Only) {
			to.Refs = append(to.Refs, f)
		}
	}
}

// restrict restricts a key to rows with given values. It returns false if a column is
// missing or cannot be compared with a value.
func (c *Catalog) restrict(f *Ref, from *pgcatalog.Relation, only [][2]string) bool {
	terms := make([]string, len(only))
	for i, one := range only {
		if !has(from, []string{one[0]}) {
			return false
		}
		own, err := c.Operators.Own(from.Columns[one[0]])
		if err != nil {
			if c.Report != nil {
				c.Report("change its type to text", "column %s of %s: %v", one[0], from.Label(), err)
			}
			return false
		}
		terms[i] = own.Equal("child."+pgcatalog.Quote(one[0]), pgcatalog.Literal(one[1]))
	}
	f.Where = strings.Join(terms, " AND ")
	return true
}

func has(table *pgcatalog.Relation, columns []string) bool {
	for _, column := range columns {
		if _, there := table.Columns[column]; !there {
			return false
		}
	}
	return true
}

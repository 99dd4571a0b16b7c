package drain

import (
	"strings"

	"sexton/internal/pgcatalog"
)

// Loose is a reference without a constraint: rows of Child whose Columns have the values of Targets in a row of Parent, or of its primary
// key where there are none. Tables are schema and name.
type Loose struct {
	Child, Parent    [2]string
	Columns, Targets []string
	// Action is Remove or Nullify.
	Action Action
	// Only are columns of the rows that are meant, each followed by the text form of its value.
	Only [][2]string
}

// LooseTables are the schemas and names of the tables of loose references.
func LooseTables(all []Loose) (schemas, tables []string) {
	for _, l := range all {
		schemas, tables = append(schemas, l.Child[0], l.Parent[0]), append(tables, l.Child[1], l.Parent[1])
	}
	return schemas, tables
}

// AddLoose has the loose references to a table count as keys, at this part. What does not fit the tables is left out.
func (c *Catalog) AddLoose(to *Table, all []Loose, part int) {
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
		f := c.Columns(to, child, l.Columns, targets, l.Action)
		if f == nil {
			continue
		}
		terms := make([]string, 0, len(l.Only))
		for _, only := range l.Only {
			if own, err := c.Operators.Own(child.Columns[only[0]]); err == nil {
				terms = append(terms, own.Equal("child."+pgcatalog.Quote(only[0]), pgcatalog.Literal(only[1])))
			}
		}
		f.Part, f.Where = part, strings.Join(terms, " AND ")
		to.Refs = append(to.Refs, f)
	}
}

func has(table *pgcatalog.Relation, columns []string) bool {
	for _, column := range columns {
		if _, there := table.Columns[column]; !there {
			return false
		}
	}
	return true
}

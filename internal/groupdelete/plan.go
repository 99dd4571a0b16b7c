package groupdelete

import (
	"strings"

	"sexton/internal/pgcatalog"
)

// action is what becomes of the rows that refer to a row which is to go.
type action int

const (
	// remove deletes them first, with all that hangs below them.
	remove action = iota
	nullify
	setDefault
	// forbid does nothing: while there are such rows, the row that they refer to stays.
	forbid
)

// ref is a foreign key, or a column that the application treats as one.
type ref struct {
	// constraint is the key's name; empty for a mere column.
	constraint string
	// target is the relation that it refers to; where that is a partition, only holds the leaves below it.
	target uint32
	only   map[uint32]bool
	// table has the key, or has the partition that has it; leaves and from are of the latter: what statements address,
	// and the item of a FROM clause that stands for all of them.
	table            *table
	leaves           []pgcatalog.Table
	from             string
	columns, targets []string
	// compare is how each of columns is compared with that of targets.
	compare []pgcatalog.Comparison
	action  action
	// chain tells that it leads from ordinary rows of a table to others of the same one, which may go on for thousands of rows.
	chain bool
	// set are the columns that the action changes. setNull tells that a forbidding key would set them to NULL, which they
	// cannot be.
	set     []string
	setNull bool
	// where restricts the rows of a mere column further, with the alias child.
	where string
	// part is the place in the order of a group's destruction.
	part part
	// rows is the size of a statement that changes rows of the key in place.
	rows float64
}

// part orders what a group's destruction does.
type part int

const (
	projectsPart part = iota
	subgroupsPart
	membershipsPart
	restPart
	// lastPart goes in the transaction that deletes the group.
	lastPart
)

// what tells the rows of a table apart whose end is an event.
type what int

const (
	ordinary what = iota
	project
	group
)

// table is an ordinary table, or a partitioned one with all its partitions.
type table struct {
	*pgcatalog.Relation

	what what
	// refs are the keys that refer to it, in the order in which they are worked off: what refers to other tables of
	// the plan comes before them.
	refs []*ref
	// rows is the size of a statement that deletes rows, window that of the rows whose trees are taken down together.
	rows, window float64
	slow         bool
}

// Plan says what hangs below groups and projects, as the foreign keys of one state of the database have it: resolve anew
// for each run. A plan must not be used by two runs at a time.
type Plan struct {
	groups, projects, members, users *table
	// bots reports that project bots pass to the queue of users who are deleted, with their memberships in groups and projects.
	bots bool
	// reachable are all tables whose rows may be deleted along, children first.
	reachable []*table
	// projectPath tells that projects have a path.
	projectPath bool
	forbidden   []*ref
}

// Tables returns the labels of the tables whose rows may be deleted along with a group, in the order of the work.
func (p *Plan) Tables() []string {
	var labels []string
	for _, t := range p.reachable {
		labels = append(labels, t.Label())
	}
	return labels
}

// refsOf are the keys that refer to rows in the leaf.
func (t *table) refsOf(leaf pgcatalog.Table) []*ref {
	var refs []*ref
	for _, f := range t.refs {
		if f.only == nil || f.only[leaf.OID] {
			refs = append(refs, f)
		}
	}
	return refs
}

// label names the key for people: table.column, or table(column, column).
func (f *ref) label() string {
	if len(f.columns) == 1 {
		return f.table.Label() + "." + f.columns[0]
	}
	return f.table.Label() + "(" + strings.Join(f.columns, ", ") + ")"
}

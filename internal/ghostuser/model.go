package ghostuser

import (
	"strings"

	"sexton/internal/definitions"
	"sexton/internal/drain"
	"sexton/internal/pgcatalog"
)

// Columns names columns of one table that refer to users. Names of tables are "table", in the database's own schema, or
// "schema.table".
type Columns struct {
	Table   string
	Columns []string
	// Event, for rows that are deleted, asks for an event with their keys, for the owner of the files behind them.
	Event bool
}

// Move names columns whose rows pass to the ghost user.
type Move struct {
	Table   string
	Columns []string
	// Always moves the rows on a hard delete, too.
	Always bool
	// Conditions, all of which must hold, restrict the move to some rows. The others are treated as on a hard delete.
	Conditions []definitions.Condition
}

// Lists say what becomes of the rows of a deleted user. Of a column that is moved, Delete and Nullify may say as well
// what becomes of rows that are not: on a hard delete, rows that conditions leave out, and rows that the ghost user
// cannot have because it has their like already. Foreign keys that no list names follow their own action.
type Lists struct {
	Move    []Move
	Delete  []Columns
	Nullify []Columns
}

// Table is a relation of the database.
type Table = pgcatalog.Table

// counter is the column of the queue that counts the action's rows.
func counter(do drain.Action) string {
	switch do {
	case drain.Move:
		return "moved_rows"
	case drain.Remove:
		return "deleted_rows"
	default:
		return "nullified_rows"
	}
}

// field is the action's field in the statistics.
func field(do drain.Action) string { return strings.TrimSuffix(counter(do), "_rows") }

// step is one column that refers to users. A step that does nothing about its rows (drain.Forbid) refuses the deletion of each user that has
// some.
type step struct {
	drain.Edge

	// otherwise is the action for a row that cannot be moved because the ghost user has its like.
	otherwise drain.Action
	// label is table.column for people, logs and statistics, tableLabel the table alone.
	label, tableLabel string
	// key reports that the column is part of a unique index: changing it takes the stronger lock.
	key  bool
	size drain.Size
	// twins are, by leaf, the conditions under which a row of the ghost user (twin) stands in the way of the row child. They cover
	// the unique indexes whose meaning is known. doubled says that such rows were met in this run.
	twins   map[uint32][]string
	doubled bool
	// refusal says why nothing can be done about the rows of a step that refuses, and shown selects the name of one.
	refusal, shown string
}

// column is the one that refers to users.
func (s *step) column() string { return s.Columns[0] }

// toldOf reports whether each row that the step deletes is to be in an event. Steps behind it must not take such rows along.
func (s *step) toldOf() bool { return s.Action == drain.Remove && s.Tells }

// Plan lists the work for a user, in this order: moves, deletions with an event, other deletions, nullifications, other foreign keys. It is
// bound to one state of the database: resolve anew for each run. A plan must not be used by two runs at a time.
type Plan struct {
	users Table
	soft  []*step
	hard  []*step
}

func (p *Plan) steps(hardDelete bool) []*step {
	if hardDelete {
		return p.hard
	}
	return p.soft
}

// label is the name of a table for people.
func (p *Plan) label(t *drain.Table) string {
	if t.Schema == p.users.Schema {
		return t.Name
	}
	return t.Label()
}

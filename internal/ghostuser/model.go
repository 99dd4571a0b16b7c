// Package ghostuser deletes users and keeps what they have written.
//
// A user that is to go stands in the queue users_ghost_user_migrations. Resolve binds the configured lists to the
// columns of the database that refer to users; Engine.Run then takes the due users and, in small transactions, moves
// their contributions to the ghost user, deletes and nullifies the rest, and in a last transaction each deletes the user
// itself. Users take turns; the rows of many small ones are worked off together.
//
// Each batch commits alone and counts itself in the queue's row, so a run may end or be killed anywhere. What comes
// in meanwhile is not lost: the last transaction locks the user, which keeps foreign keys to it from appearing, looks
// again at every column, and deletes the user only where nothing refers to it.
package ghostuser

import (
	"strings"

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

// Condition says which rows of a table are meant: those whose column has the value.
type Condition struct {
	Column string
	Value  string
}

// Move names columns whose rows pass to the ghost user.
type Move struct {
	Table   string
	Columns []string
	// Always moves the rows on a hard delete, too.
	Always bool
	// Conditions, all of which must hold, restrict the move to some rows. The others are treated as on a hard delete.
	Conditions []Condition
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

// action says what is done to rows.
type action int

const (
	// restrict does nothing: the rows keep their user. As a step it refuses the deletion of each user that has such rows.
	restrict action = iota
	move
	remove
	nullify
	// setDefault is for foreign keys of that action alone. It counts as nullified.
	setDefault
)

// list is the configured list that asks for the action.
func (a action) list() string {
	if a == remove {
		return "delete"
	}
	return "nullify"
}

// counter is the column of the queue that counts the action's rows.
func (a action) counter() string {
	switch a {
	case move:
		return "moved_rows"
	case remove:
		return "deleted_rows"
	default:
		return "nullified_rows"
	}
}

// field is the action's field in the statistics.
func (a action) field() string { return strings.TrimSuffix(a.counter(), "_rows") }

// step is one column that refers to users, and what is done to its rows.
type step struct {
	action action
	// otherwise is the action for a row that cannot be moved because the ghost user has its like.
	otherwise action
	table     Table
	// leaves are the tables that statements address: the table itself, or the leaf partitions below it. Row pointers
	// (ctid) mean nothing across partitions.
	leaves []Table
	column string
	// label is table.column for people, logs and statistics, tableLabel the table alone.
	label, tableLabel string
	// conditions restrict the step to the rows that meet all of them, except to the ones that do not.
	conditions, except []typedCondition
	// key tells that the column is part of a unique index: changing it takes the stronger lock.
	key  bool
	size size
	// told are the columns of the primary key, where the deletion of rows is an event with their keys.
	told []string
	// twins are, by leaf, the conditions under which a row of the ghost user (twin) stands in the way of the row child. They cover
	// the unique indexes whose meaning is known. doubled says that such rows were met in this run.
	twins   map[uint32][]string
	doubled bool
	// refusal says why nothing can be done about the rows of a step that restricts, and shown selects the name of one.
	refusal, shown string
}

type typedCondition struct {
	column string
	// full is the column's declared type.
	full    string
	compare pgcatalog.Comparison
	value   string
}

func (s *step) partitioned() bool { return len(s.leaves) != 1 || s.leaves[0].OID != s.table.OID }

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

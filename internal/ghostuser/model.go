package ghostuser

import (
	"cmp"
	"fmt"
	"time"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
)

// Columns names columns of one table that refer to users. The name of a table is "table",
// in the database's own schema, or "schema.table".
type Columns struct {
	Table   string
	Columns []string
	// Event requests an event with the keys of deleted rows and EventColumns, so that the
	// application can delete their files.
	Event        bool
	EventColumns []string
}

// Move names columns that are set to the ghost user.
type Move struct {
	Table   string
	Columns []string
	// Always moves the rows on a hard delete, too. Without it, a hard delete moves no
	// rows of these columns.
	Always bool
	// Conditions restrict the move to rows that meet all of them. Other rows are treated
	// as on a hard delete.
	Conditions []definitions.Condition
}

// Lists holds the actions for the rows of a deleted user. A column in Move may also be in
// Delete or Nullify, for rows that are not moved: on a hard delete, if they do not meet
// the conditions, or if the ghost user has an equal row. Foreign keys that are in no list
// use their own action.
type Lists struct {
	Users   Users
	Move    []Move
	Delete  []Columns
	Nullify []Columns
}

// Users names the table of users. Its zero value is GitLab's: the table users with the
// key id, and with GitLab's columns and rules.
type Users struct {
	// Table is in the database's own schema.
	Table, Key string
	// Ghost is the key of the ghost user, to whom rows are moved.
	Ghost string
}

// gitlab reports that the users have GitLab's columns and rules.
func (u Users) gitlab() bool { return u.Table == "" }

// Table is a relation of the database.
type Table = pgcatalog.Table

// Sizes limits the statements. The zero values mean 50 moved, 1000 deleted and 100
// nullified rows for each statement.
type Sizes struct {
	// Move, Delete and Nullify are the maximum numbers of rows of one statement. They are
	// used only if Target is 0.
	Move, Delete, Nullify int
	// Target is the time that one statement should take. The number of rows adapts to it.
	Target time.Duration
	// Duty is the share of time during which a run with a target works, from 0 to 1. 0
	// means 1.
	Duty float64
}

// rows returns the limit of rows for one statement, or 0 if the size adapts.
func (s Sizes) rows(do dml.Action) int {
	switch {
	case s.Target > 0:
		return 0
	case do == dml.Move:
		return cmp.Or(max(s.Move, 0), 50)
	case do == dml.Remove:
		return cmp.Or(max(s.Delete, 0), 1000)
	default:
		return cmp.Or(max(s.Nullify, 0), 100)
	}
}

// counter returns the column of the queue that counts the rows of an action.
func counter(do dml.Action) string {
	switch do {
	case dml.Move:
		return "moved_rows"
	case dml.Remove:
		return "deleted_rows"
	default:
		return "nullified_rows"
	}
}

// step is one column that refers to users, with its action. If the action is dml.Forbid,
// users with rows in the column cannot be deleted.
type step struct {
	dml.Edge

	// otherwise is the action for a row that cannot be moved because the ghost user has
	// an equal one.
	otherwise dml.Action
	// label is the display name of the column, as table.column. tableLabel is the display
	// name of the table.
	label, tableLabel string
	// twins holds SQL conditions by the OID of the leaf. If a condition is true for a row
	// of the ghost user (alias twin), a unique index prevents the move of the row with
	// the alias child. Unique indexes without a condition here fail the move with an
	// error.
	twins map[uint32][]string
	// below reports that foreign keys refer to the table.
	below bool
	// refusal is the reason for which users with rows in the column cannot be deleted.
	// shown is the SQL expression for the name of a row.
	refusal, shown string
}

// column returns the column that refers to users.
func (s *step) column() string { return s.Columns[0] }

// Plan holds the steps for a user, in this order: moves, deletions with an event, other
// deletions, nullifications, other foreign keys. A plan describes one state of the
// database, so each run must resolve its own plan.
type Plan struct {
	users Table
	key   dml.Key
	// gitlab reports that the users have GitLab's columns and rules.
	gitlab bool
	// ghost is the configured ghost user. It is empty for GitLab's users, because the SQL
	// function ghost_user finds their ghost user.
	ghost dml.ID
	soft  []*step
	hard  []*step
}

func (p *Plan) steps(hardDelete bool) []*step {
	if hardDelete {
		return p.hard
	}
	return p.soft
}

// column returns the users' key column in SQL.
func (p *Plan) column(alias string) string { return alias + "." + pgcatalog.Quote(p.key.KeyColumns[0]) }

// is returns the SQL condition that the users' key is equal to a value.
func (p *Plan) is(alias, value string) string {
	return p.key.KeyCompare[0].Equal(p.column(alias), value)
}

// value returns parameter n, cast to the type of a user's key.
func (p *Plan) value(n int) string {
	if p.key.Integer {
		return fmt.Sprintf("$%d::bigint", n)
	}
	return fmt.Sprintf("$%d::pg_catalog.text::%s", n, p.key.KeyTypes[0])
}

// literal returns a user's key as an SQL literal.
func (p *Plan) literal(id dml.ID) string {
	if p.key.Integer {
		return id.Text
	}
	return fmt.Sprintf("%s::%s", pgcatalog.Literal(id.Text), p.key.KeyTypes[0])
}

// label returns the display name of a table.
func (p *Plan) label(t *dml.Table) string { return t.In(p.users.Schema) }

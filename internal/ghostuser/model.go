package ghostuser

import (
	"cmp"
	"fmt"
	"time"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
)

// Columns names columns of one table that refer to users. Names of tables are "table", in
// the database's own schema, or "schema.table".
type Columns struct {
	Table   string
	Columns []string
	// Event requests an event with the keys of deleted rows and EventColumns, so that the
	// application can delete their files.
	Event        bool
	EventColumns []string
}

// Move names columns whose rows pass to the ghost user.
type Move struct {
	Table   string
	Columns []string
	// Always moves the rows on a hard delete, too.
	Always bool
	// Conditions, all of which must hold, restrict the move to some rows. The others are
	// treated as on a hard delete.
	Conditions []definitions.Condition
}

// Lists say what becomes of the rows of a deleted user. Of a column that is moved, Delete
// and Nullify may say as well what becomes of rows that are not: on a hard delete, rows
// that conditions leave out, and rows that the ghost user cannot have because it already
// has an equal one. Foreign keys that no list names follow their own action.
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
	// Ghost is the key of the row that moved rows pass to.
	Ghost string
}

// gitlab reports that the users have GitLab's columns and rules.
func (u Users) gitlab() bool { return u.Table == "" }

// Table is a relation of the database.
type Table = pgcatalog.Table

// Sizes bound the statements. Zero values stand for the defaults 50, 1000 and 100.
type Sizes struct {
	// Move, Delete and Nullify are the most rows of one statement without a Target.
	Move, Delete, Nullify int
	// Target is the time that one statement should take. The engine finds the sizes for
	// it.
	Target time.Duration
	// Duty is the share of its time that a run with a target works; the rest it leaves to
	// others. 0 and 1 are all of it.
	Duty float64
}

// rows is the most rows of one statement; 0 leaves it to the engine.
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

// counter is the column of the queue that counts the action's rows.
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

// step is one column that refers to users. A step whose rows nothing can be done about
// (dml.Forbid) prevents the deletion of each user that has some.
type step struct {
	dml.Edge

	// otherwise is the action for a row that cannot be moved because the ghost user has
	// an equal one.
	otherwise dml.Action
	// label is table.column for people, logs and statistics, tableLabel the table alone.
	label, tableLabel string
	// twins are, by leaf, conditions under which a row of the ghost user (twin) prevents
	// the move of the row child. They cover the unique indexes whose meaning is known.
	twins map[uint32][]string
	// below reports that foreign keys refer to the table.
	below bool
	// refusal is why nothing can be done about the rows, and shown selects the name of
	// one.
	refusal, shown string
}

// column is the one that refers to users.
func (s *step) column() string { return s.Columns[0] }

// Plan lists the work for a user, in this order: moves, deletions with an event, other
// deletions, nullifications, other foreign keys. It is bound to one state of the
// database: resolve again for each run.
type Plan struct {
	users Table
	key   dml.Key
	// gitlab reports that the users have GitLab's columns and rules.
	gitlab bool
	// ghost is the configured ghost user; empty with GitLab's users, where the database
	// knows it.
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

// column is the users' key in SQL, and is compares it with a value.
func (p *Plan) column(alias string) string { return alias + "." + pgcatalog.Quote(p.key.KeyColumns[0]) }

func (p *Plan) is(alias, value string) string {
	return p.key.KeyCompare[0].Equal(p.column(alias), value)
}

// value is a user's key in parameter n.
func (p *Plan) value(n int) string {
	if p.key.Integer {
		return fmt.Sprintf("$%d::bigint", n)
	}
	return fmt.Sprintf("$%d::pg_catalog.text::%s", n, p.key.KeyTypes[0])
}

// literal is a user's key as a literal.
func (p *Plan) literal(id dml.ID) string {
	if p.key.Integer {
		return id.Text
	}
	return fmt.Sprintf("%s::%s", pgcatalog.Literal(id.Text), p.key.KeyTypes[0])
}

// parameter is a user's key as a parameter of value.
func (p *Plan) parameter(id dml.ID) any {
	if p.key.Integer {
		return id.Number()
	}
	return id.Text
}

// label is the name of a table for people.
func (p *Plan) label(t *dml.Table) string { return t.In(p.users.Schema) }

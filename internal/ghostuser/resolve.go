package ghostuser

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// section is the key of the configuration that lists live under.
const section = "ghost_users"

// QueueTable is the name of the table in which users wait to be deleted.
const QueueTable = "users_ghost_user_migrations"

// Resolve binds the lists to the tables of a database, whose own schema is the one of its
// users, and finds all other foreign keys to users.
//
// Its findings carry keys such as ghost_users.move[3].columns[0] and no position. Errors:
// a missing table or column, a type that is not the key's, nullify on a NOT NULL column,
// a column that is listed twice, a ghost user that cannot be made. Warnings: a column
// without an index, rows for which nothing is said, and a foreign key that refuses the
// deletion of the users with rows there, such as one without an action that no list
// answers for. The plan is nil if there is an error.
func Resolve(ctx context.Context, db pgcatalog.Beginner, schema string, lists Lists) (*Plan, problem.List, error) {
	r := &resolver{schema: schema, lists: lists, columns: map[columnRef]*bound{}}
	err := pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error {
		// All tables of the schema and of the others that lists name, and every foreign
		// key.
		oids, err := pgcatalog.InSchemas(ctx, tx, append(r.schemas(), schema))
		if err != nil {
			return err
		}
		if r.Catalog, err = dml.Read(ctx, tx, oids); err != nil {
			return err
		}
		r.users, r.key = r.Named(schema, cmp.Or(lists.Users.Table, "users")), cmp.Or(lists.Users.Key, "id")
		return r.resolve(ctx, tx)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("bind lists of %s: %w", section, err)
	}
	if r.problems.Err() != nil {
		return nil, r.problems, nil
	}
	plan := r.plan()
	if r.problems.Err() != nil {
		return nil, r.problems, nil
	}
	return plan, r.problems, nil
}

// columnRef is a column of a table, the partitioned one where it has partitions.
type columnRef struct {
	table  uint32
	column string
}

// bound is everything that is said about one column.
type bound struct {
	relation *pgcatalog.Relation
	// table is its name for people.
	table  string
	column string
	// key is where the configuration speaks of the column first; empty where only a
	// foreign key does.
	key string
	// moves reports that a list moves the column, and how.
	moves      bool
	always     bool
	conditions []dml.Value
	// listed is the action of the other two lists, keyed that of the foreign key.
	listed dml.Action
	keyed  dml.Action
	// told asks for an event with the keys of rows that are deleted, and these columns.
	told         bool
	eventColumns []string
	// foreign is the name of a foreign key, if there is one.
	foreign string
	// refusal is why the users that have rows here cannot be deleted: a foreign key wants
	// what cannot be done.
	refusal string
}

// rest is the action for rows that are not moved.
func (b *bound) rest() dml.Action {
	if b.listed != dml.Forbid || b.refusal != "" {
		return b.listed
	}
	return b.keyed
}

func (b *bound) label() string { return b.table + "." + b.column }

type resolver struct {
	*dml.Catalog

	schema string
	users  *pgcatalog.Relation
	// key is the users' key column, stored the type in which it is stored, and ghost the
	// configured ghost user.
	key, stored string
	ghost       dml.ID
	lists       Lists
	problems    problem.List
	columns     map[columnRef]*bound
	// order has the columns as the lists and then the catalogue name them first, for
	// moves and for the rest.
	moves, deletes, nullifies, keys []*bound
	// told are the tables whose rows are told of, those below others first.
	told []uint32
}

func (r *resolver) reportf(severity problem.Severity, key, fix, format string, args ...any) {
	r.problems.Add(problem.Problem{Severity: severity, Key: key, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// schemas are the ones that lists name.
func (r *resolver) schemas() []string {
	schemas := []string{}
	add := func(table string) {
		if name, err := definitions.ParseName(table); err == nil && name.Schema != "" {
			schemas = append(schemas, name.Schema)
		}
	}
	for _, m := range r.lists.Move {
		add(m.Table)
	}
	for _, l := range slices.Concat(r.lists.Delete, r.lists.Nullify) {
		add(l.Table)
	}
	return schemas
}

func (r *resolver) resolve(ctx context.Context, tx pgx.Tx) error {
	if !r.checkUsers() {
		return nil
	}
	if err := r.checkGhost(ctx, tx); err != nil {
		return err
	}
	for i, m := range r.lists.Move {
		if err := r.bindMove(ctx, tx, fmt.Sprintf("%s.move[%d]", section, i), m); err != nil {
			return err
		}
	}
	for i, l := range r.lists.Delete {
		r.bindRest(fmt.Sprintf("%s.delete[%d]", section, i), l, dml.Remove, &r.deletes)
	}
	for i, l := range r.lists.Nullify {
		r.bindRest(fmt.Sprintf("%s.nullify[%d]", section, i), l, dml.Nullify, &r.nullifies)
	}
	for _, key := range r.Keys {
		if key.Target == r.users.OID {
			r.bindKey(key)
		}
	}
	seen := map[*bound]bool{}
	for _, b := range slices.Concat(r.moves, r.deletes, r.nullifies, r.keys) {
		if !seen[b] {
			seen[b] = true
			r.checkRest(b)
			r.checkIndex(b)
		}
	}
	r.orderTold()
	return nil
}

// orderTold finds which of the tables whose rows are told of hang below which.
func (r *resolver) orderTold() {
	for _, b := range r.deletes {
		if b.told && !slices.Contains(r.told, b.relation.OID) {
			r.told = append(r.told, b.relation.OID)
		}
	}
	if len(r.told) < 2 {
		return
	}
	var roots []*dml.Table
	for _, oid := range r.told {
		if t := r.Table(r.Relations[oid]); t != nil {
			roots = append(roots, t)
		}
	}
	r.told = nil
	for _, t := range dml.Order(r.Expand(roots, nil, nil), roots...) {
		r.told = append(r.told, t.OID)
	}
}

// rest are the columns whose rows are deleted or changed. What is told of comes first, as
// rows of other columns would take it along without an event.
func (r *resolver) rest() []*bound {
	rank := func(b *bound) int {
		if !b.told {
			return len(r.told)
		}
		return slices.Index(r.told, b.relation.OID)
	}
	all := slices.Concat(r.deletes, r.nullifies, r.keys)
	slices.SortStableFunc(all, func(a, b *bound) int { return rank(a) - rank(b) })
	return all
}

func (r *resolver) plan() *Plan {
	id := r.users.Key([]string{r.key})[0]
	same, err := r.Operators.Parent(id)
	if err != nil {
		r.reportf(problem.Error, section, "", "%s: %v", r.keyLabel(), err)
	}
	key := dml.Key{
		Table: r.users.Table, KeyColumns: []string{r.key}, KeyTypes: []string{r.stored},
		KeyCompare: []pgcatalog.Comparison{same},
		Integer:    r.stored == "bigint",
	}
	return &Plan{
		users: r.users.Table, key: key, gitlab: r.lists.Users.gitlab(), ghost: r.ghost,
		soft: r.steps(id, false), hard: r.steps(id, true),
	}
}

// steps lists what is done on a soft or a hard delete. What is moved must not meet the
// deletion or nullification of the same column: a row that comes in after the move would.
func (r *resolver) steps(id pgcatalog.Key, hard bool) []*step {
	var steps []*step
	for _, b := range r.moves {
		if !hard || b.always {
			s := r.step(id, b, dml.Move)
			s.Conditions, s.twins = b.conditions, r.twins(b)
			steps = append(steps, s)
		}
	}
	for _, b := range r.rest() {
		moved := b.moves && (!hard || b.always)
		if b.rest() == dml.Forbid && b.refusal == "" || moved && len(b.conditions) == 0 {
			continue
		}
		s := r.step(id, b, b.rest())
		s.refusal = b.refusal
		if moved {
			s.Except = b.conditions
		}
		steps = append(steps, s)
	}
	return steps
}

func (r *resolver) step(id pgcatalog.Key, b *bound, do dml.Action) *step {
	otherwise := b.rest()
	if otherwise == dml.Forbid {
		// A row that says what one of the ghost user's says already.
		otherwise = dml.Remove
	}
	compare, err := r.Operators.Compare(id, b.relation.Columns[b.column])
	if err != nil {
		r.reportf(problem.Error, b.where(), "", "%s: %v", b.label(), err)
	}
	indexed, create, all := map[uint32]bool{}, map[uint32]string{}, true
	for _, leaf := range b.relation.Leaves {
		indexed[leaf.OID], create[leaf.OID] = b.relation.Leads(leaf.OID, b.column),
			b.relation.CreateIndex(leaf, b.column)
		all = all && indexed[leaf.OID]
	}
	return &step{
		Edge: dml.Edge{
			Child: b.relation.Table, Leaves: b.relation.Leaves, Columns: []string{b.column},
			Compare: []pgcatalog.Comparison{compare}, Action: do,
			PrimaryKey: b.relation.PrimaryKey(), EmitsEvent: b.told, EventColumns: b.eventColumns, Index: all,
			Indexed:     indexed,
			CreateIndex: create,
		},
		otherwise: otherwise, label: b.label(), tableLabel: b.table, below: r.refersTo(b.relation),
		shown: b.relation.Shown("child"),
	}
}

// refersTo reports whether a foreign key refers to the table or to a part of it.
func (r *resolver) refersTo(table *pgcatalog.Relation) bool {
	return slices.ContainsFunc(r.Keys, func(key pgcatalog.ForeignKey) bool {
		target := r.Relations[key.Target]
		return target != nil && (target.Root == table.Root || target.OID == table.OID)
	})
}

// twins returns per leaf a condition for each unique index with the column: the row twin
// has what the row child has in all other columns of the index. Indexes on some rows
// only, on expressions, or with another equality than their type's own are left out.
func (r *resolver) twins(b *bound) map[uint32][]string {
	twins := map[uint32][]string{}
	for _, leaf := range b.relation.Leaves {
		for _, index := range b.relation.Indexes[leaf.OID] {
			if !index.Unique || !index.Complete() || !slices.Contains(index.Columns, b.column) {
				continue
			}
			terms := []string{"true"}
			for position, name := range index.Columns {
				if name == b.column {
					continue
				}
				compare, err := r.Operators.Own(b.relation.Columns[name])
				if name == "" || err != nil || !r.Operators.Serves(index, position, compare) {
					terms = nil
					break
				}
				terms = append(terms, compare.Equal("twin."+pgcatalog.Quote(name), "child."+pgcatalog.Quote(name)))
			}
			if terms != nil {
				twins[leaf.OID] = append(twins[leaf.OID], strings.Join(terms, " AND "))
			}
		}
	}
	return twins
}

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

// section is the configuration key of the lists.
const section = "ghost_users"

// QueueTable is the name of the table with the queue of users to be deleted.
const QueueTable = "users_ghost_user_migrations"

// Resolve binds the lists to the tables of a database and finds all other foreign keys to
// users. schema is the schema of the users.
//
// Its findings have keys such as ghost_users.move[3].columns[0] and no position. Errors
// are a missing table or column, another type than the key's, nullify on a NOT NULL
// column, and a column that is listed twice. Warnings are a column without an index, rows
// without an action, and a foreign key that prevents the deletion of users with rows
// there. The plan is nil if there is an error.
func Resolve(ctx context.Context, db pgcatalog.Beginner, schema string, lists Lists) (*Plan, problem.List, error) {
	r := &resolver{schema: schema, lists: lists, columns: map[columnRef]*bound{}}
	err := pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error {
		// dml.Read must read all tables of the users' schema and of the schemas in the
		// lists, and every foreign key.
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

// columnRef identifies a column by the OID of its table and by its name.
type columnRef struct {
	table  uint32
	column string
}

// bound is a column that refers to users, with its actions.
type bound struct {
	relation *pgcatalog.Relation
	// table is the display name of the table.
	table  string
	column string
	// key is the first configuration key for the column, or empty if only a foreign key
	// refers to users.
	key string
	// moves reports that the list move contains the column. always and conditions are the
	// options of its entry.
	moves      bool
	always     bool
	conditions []dml.Value
	// listed is the action of the list delete or nullify, if one of them contains the
	// column. keyed is the action of the foreign key.
	listed dml.Action
	keyed  dml.Action
	// event requests an event with the keys of deleted rows and eventColumns.
	event        bool
	eventColumns []string
	// foreign is the name of the foreign key from the column to users, or empty.
	foreign string
	// refusal is the reason for which users with rows in the column cannot be deleted:
	// the foreign key has no action or an impossible one. It is empty if they can be
	// deleted.
	refusal string
}

// unmovedAction returns the action for rows that are not moved.
func (b *bound) unmovedAction() dml.Action {
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
	// key is the name of the users' key column, stored is its type, and ghost is the
	// configured ghost user.
	key, stored string
	ghost       dml.ID
	lists       Lists
	problems    problem.List
	columns     map[columnRef]*bound
	// moves, deletes and nullifies are the columns of the three lists, in their order.
	// keys are the columns with a foreign key that are not in the lists delete and
	// nullify.
	moves, deletes, nullifies, keys []*bound
	// eventTables lists the tables whose deleted rows are published in events, children
	// first.
	eventTables []uint32
}

func (r *resolver) reportf(severity problem.Severity, key, fix, format string, args ...any) {
	r.problems.Add(problem.Problem{Severity: severity, Key: key, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// schemas returns the schemas in the table names of the lists.
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
	if err := r.readGhost(ctx, tx); err != nil {
		return err
	}
	for i, m := range r.lists.Move {
		if err := r.bindMove(ctx, tx, fmt.Sprintf("%s.move[%d]", section, i), m); err != nil {
			return err
		}
	}
	for i, l := range r.lists.Delete {
		r.bindList(fmt.Sprintf("%s.delete[%d]", section, i), l, dml.Remove, &r.deletes)
	}
	for i, l := range r.lists.Nullify {
		r.bindList(fmt.Sprintf("%s.nullify[%d]", section, i), l, dml.Nullify, &r.nullifies)
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
			r.checkUnmoved(b)
			r.checkIndex(b)
		}
	}
	r.sortEventTables()
	return nil
}

// sortEventTables sets eventTables to the tables of the columns with events, children
// first.
func (r *resolver) sortEventTables() {
	for _, b := range r.deletes {
		if b.event && !slices.Contains(r.eventTables, b.relation.OID) {
			r.eventTables = append(r.eventTables, b.relation.OID)
		}
	}
	if len(r.eventTables) < 2 {
		return
	}
	var roots []*dml.Table
	for _, oid := range r.eventTables {
		if t := r.Table(r.Relations[oid]); t != nil {
			roots = append(roots, t)
		}
	}
	r.eventTables = nil
	for _, t := range dml.Order(r.Expand(roots, nil, nil), roots...) {
		r.eventTables = append(r.eventTables, t.OID)
	}
}

// unmoved returns the columns that may have an action for rows that are not moved.
// Columns with events come first, because cascades from the other columns would delete
// rows without an event.
func (r *resolver) unmoved() []*bound {
	rank := func(b *bound) int {
		if !b.event {
			return len(r.eventTables)
		}
		return slices.Index(r.eventTables, b.relation.OID)
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

// steps returns the steps of a soft or a hard delete. A column that is moved without
// conditions has no other step, because another step would delete rows that are inserted
// after the move.
func (r *resolver) steps(id pgcatalog.Key, hard bool) []*step {
	var steps []*step
	for _, b := range r.moves {
		if !hard || b.always {
			s := r.step(id, b, dml.Move)
			s.Conditions, s.twins = b.conditions, r.twins(b)
			steps = append(steps, s)
		}
	}
	for _, b := range r.unmoved() {
		moved := b.moves && (!hard || b.always)
		if b.unmovedAction() == dml.Forbid && b.refusal == "" || moved && len(b.conditions) == 0 {
			continue
		}
		s := r.step(id, b, b.unmovedAction())
		s.refusal = b.refusal
		if moved {
			s.Except = b.conditions
		}
		steps = append(steps, s)
	}
	return steps
}

func (r *resolver) step(id pgcatalog.Key, b *bound, do dml.Action) *step {
	otherwise := b.unmovedAction()
	if otherwise == dml.Forbid {
		// A row that cannot be moved, because the ghost user has an equal row, is
		// deleted.
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
			PrimaryKey: b.relation.PrimaryKey(), EmitsEvent: b.event, EventColumns: b.eventColumns, Index: all,
			Indexed:     indexed,
			CreateIndex: create,
		},
		otherwise: otherwise, label: b.label(), tableLabel: b.table, below: r.refersTo(b.relation),
		shown: b.relation.Shown("child"),
	}
}

// refersTo reports whether a foreign key refers to the table or to one of its partitions.
func (r *resolver) refersTo(table *pgcatalog.Relation) bool {
	return slices.ContainsFunc(r.Keys, func(key pgcatalog.ForeignKey) bool {
		target := r.Relations[key.Target]
		return target != nil && (target.Root == table.Root || target.OID == table.OID)
	})
}

// twins returns, for each leaf, a condition for each unique index that contains the
// column. A condition is true if the row twin equals the row child in all other columns
// of the index. Partial indexes, indexes on expressions, and indexes with another
// equality than the default of the type have no condition.
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

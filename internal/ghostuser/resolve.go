package ghostuser

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/problem"
)

// section is the key of the configuration that lists live under.
const section = "ghost_users"

// queueTable is the name of the table of users to be deleted.
const queueTable = "users_ghost_user_migrations"

// Beginner is a pool or a connection.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Resolve binds the lists to the tables of a database, whose own schema is the one of its users, and finds all other
// foreign keys to users.
//
// Its findings carry keys such as ghost_users.move[3].columns[0] and no position. Errors: a missing table or column, a
// type that is no integer, nullify on a NOT NULL column, a column that is listed twice, a foreign key without an action
// that no list answers for, a ghost user that cannot be made. Warnings: a column without an index, rows for
// which nothing is said. The plan is nil where there is an error among them.
func Resolve(ctx context.Context, db Beginner, schema string, lists Lists) (*Plan, problem.List, error) {
	r := &resolver{lists: lists, columns: map[place]*bound{}}
	err := pgx.BeginFunc(ctx, db, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog; SET LOCAL quote_all_identifiers = off"); err != nil {
			return fmt.Errorf("settle session: %w", err)
		}
		if r.catalog, err = readCatalog(ctx, tx, schema, r.schemas()); err != nil {
			return err
		}
		return r.resolve(ctx, tx)
	})
	if err != nil {
		return nil, nil, fmt.Errorf("bind lists of %s: %w", section, err)
	}
	if r.problems.Err() != nil {
		return nil, r.problems, nil
	}
	return r.plan(), r.problems, nil
}

// place is a column of a table, the partitioned one where it has partitions.
type place struct {
	table  uint32
	column string
}

// bound is everything that is said about one column.
type bound struct {
	relation *relation
	column   string
	// key is where the configuration speaks of the column first; empty where only a foreign key does.
	key string
	// moves tells that a list moves the column, and how.
	moves      bool
	always     bool
	conditions []typedCondition
	// listed is what the other two lists say, keyed what the foreign key says.
	listed action
	keyed  action
	// foreign tells that there is a foreign key.
	foreign string
}

// rest is what becomes of rows that are not moved.
func (b *bound) rest() action {
	if b.listed != restrict {
		return b.listed
	}
	return b.keyed
}

func (b *bound) label() string { return b.relation.label + "." + b.column }

type resolver struct {
	lists    Lists
	catalog  *catalog
	problems problem.List
	columns  map[place]*bound
	// order has the columns as the lists and then the catalogue name them first, for moves and for the rest.
	moves, deletes, nullifies, keys []*bound
}

func (r *resolver) report(severity problem.Severity, key, fix, format string, args ...any) {
	r.problems.Add(problem.Problem{Severity: severity, Key: key, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// schemas are those that lists name.
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
		r.bindRest(fmt.Sprintf("%s.delete[%d]", section, i), l, remove, &r.deletes)
	}
	for i, l := range r.lists.Nullify {
		r.bindRest(fmt.Sprintf("%s.nullify[%d]", section, i), l, nullify, &r.nullifies)
	}
	for _, key := range r.catalog.keys {
		r.bindKey(key)
	}
	seen := map[*bound]bool{}
	for _, b := range slices.Concat(r.moves, r.deletes, r.nullifies, r.keys) {
		if !seen[b] {
			seen[b] = true
			r.checkRest(b)
			r.checkIndex(b)
		}
	}
	return nil
}

// checkUsers tells whether the application has what all the rest is built on.
func (r *resolver) checkUsers() bool {
	users, queue := r.catalog.users, r.catalog.named(r.catalog.schema, queueTable)
	switch {
	case users == nil || users.kind != "r" && users.kind != "p":
		r.report(problem.Error, section, "point the database's schema to where it is", "there is no table users in schema %s", r.catalog.schema)
	case queue == nil || queue.columns["attempts"].base == "":
		r.report(problem.Error, section, "run `sexton migrate up`", "the table %s is not installed", queueTable)
	default:
		for _, name := range []string{"id", "username", "email", "name", "state", "user_type", "admin"} {
			if _, found := users.columns[name]; !found {
				r.report(problem.Error, section, "add it", "table users has no column %s", name)
			}
		}
		if id, found := users.columns["id"]; found && !integer(id.base) {
			r.report(problem.Error, section, "only integers are supported", "users.id is of type %s", id.base)
		}
		if !queue.columns["consume_after"].leads {
			r.report(problem.Warning, section, fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (consume_after, id)", queue.SQL()),
				"no index of %s begins with consume_after, so every look at it reads the whole table", queueTable)
		}
	}
	return r.problems.Err() == nil
}

// checkGhost finds out early whether "sexton".ghost_user() could make the ghost user.
func (r *resolver) checkGhost(ctx context.Context, tx pgx.Tx) error {
	var unknown []string
	for name, c := range r.catalog.users.columns {
		known := []string{"username", "email", "name", "state", "user_type", "admin", "created_at", "updated_at"}
		if c.notNull && !c.hasDefault && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	var there bool
	query := fmt.Sprintf("SELECT EXISTS (SELECT FROM %s WHERE user_type = %d)", r.catalog.users.SQL(), ghostType)
	if err := tx.QueryRow(ctx, query).Scan(&there); err != nil {
		return fmt.Errorf("look for the ghost user: %w", err)
	}
	if !there {
		slices.Sort(unknown)
		r.report(problem.Error, section, "insert one yourself, with user_type 5, or give these columns defaults",
			"the ghost user cannot be made: users need a value for %s", strings.Join(unknown, ", "))
	}
	return nil
}

// table returns the table that a list names, or nil.
func (r *resolver) table(key, text string) *relation {
	name, err := definitions.ParseName(text)
	if err != nil {
		r.report(problem.Error, key+".table", "", "table %q %v", text, err)
		return nil
	}
	if name.Schema == "" {
		name.Schema = r.catalog.schema
	}
	table := r.catalog.named(name.Schema, name.Table)
	fix := "name the table behind it"
	switch {
	case table == nil:
		fix = "create it, or remove the entry"
		if near := problem.Nearest(text, r.catalog.tables); near != "" {
			fix = fmt.Sprintf("did you mean %s?", near)
		}
		r.report(problem.Error, key+".table", fix, "table %s does not exist", text)
		return nil
	case table.kind != "r" && table.kind != "p":
		r.report(problem.Error, key+".table", fix, "%s is not a table", text)
		return nil
	case table.root != table.OID:
		r.report(problem.Error, key+".table", "name the partitioned table", "%s is a partition", text)
		return nil
	case table.foreign != "":
		r.report(problem.Error, key+".table", "detach it, or remove the entry", "partition %s of %s is a foreign table", table.foreign, text)
		return nil
	case table.Schema == r.catalog.schema && table.Name == queueTable:
		r.report(problem.Error, key+".table", "remove the entry", "%s is the queue itself", text)
		return nil
	}
	return table
}

// at returns what is known of a column that a list names, or nil.
func (r *resolver) at(key string, table *relation, name string) *bound {
	found, there := table.columns[name]
	switch {
	case !there:
		fix := "correct the name, or remove it"
		if near := problem.Nearest(name, slices.Sorted(maps.Keys(table.columns))); near != "" {
			fix = fmt.Sprintf("did you mean %s?", near)
		}
		r.report(problem.Error, key, fix, "table %s has no column %s", table.label, name)
		return nil
	case !integer(found.base):
		r.report(problem.Error, key, "only integers can refer to users", "%s.%s is of type %s, but users.id is of type %s",
			table.label, name, found.base, r.catalog.users.columns["id"].base)
		return nil
	case table == r.catalog.users && name == "id":
		r.report(problem.Error, key, "remove it", "users.id is the user itself")
		return nil
	}
	b := r.columns[place{table.OID, name}]
	if b == nil {
		b = &bound{relation: table, column: name, key: key}
		r.columns[place{table.OID, name}] = b
	}
	return b
}

// checkChange refuses columns that cannot be set.
func (r *resolver) checkChange(key string, b *bound, to action) bool {
	c := b.relation.columns[b.column]
	switch {
	case c.generated:
		r.report(problem.Error, key, "delete the rows", "%s is a generated column and cannot be set", b.label())
	case c.partitioning:
		r.report(problem.Error, key, "delete the rows", "%s decides about the partition of a row and cannot be set", b.label())
	case to == nullify && c.notNull:
		r.report(problem.Error, key, "drop the constraint, or delete the rows", "%s is NOT NULL and cannot be nullified", b.label())
	default:
		return true
	}
	return false
}

func (r *resolver) bindMove(ctx context.Context, tx pgx.Tx, key string, m Move) error {
	table := r.table(key, m.Table)
	if table == nil {
		return nil
	}
	conditions, err := r.bindConditions(ctx, tx, key, table, m.Conditions)
	if err != nil {
		return err
	}
	for i, name := range m.Columns {
		at := fmt.Sprintf("%s.columns[%d]", key, i)
		b := r.at(at, table, name)
		switch {
		case b == nil || !r.checkChange(at, b, move):
		case b.moves:
			r.report(problem.Error, at, "remove one of them", "%s is moved by %s already", b.label(), b.key)
		default:
			b.moves, b.always, b.conditions = true, m.Always, conditions
			r.moves = append(r.moves, b)
		}
	}
	return nil
}

// bindConditions casts every value once, so that one which does not fit is found here and not in the middle of a batch.
func (r *resolver) bindConditions(ctx context.Context, tx pgx.Tx, key string, table *relation, conditions []Condition) ([]typedCondition, error) {
	var typed []typedCondition
	for i, c := range conditions {
		at := fmt.Sprintf("%s.conditions[%d]", key, i)
		found, there := table.columns[c.Column]
		if !there {
			r.report(problem.Error, at+".column", "correct the name", "table %s has no column %s", table.label, c.Column)
			continue
		}
		err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
			_, err := nested.Exec(ctx, fmt.Sprintf("SELECT $1::text::%s", found.full), c.Value)
			return err
		})
		if f := judge(err); err != nil && (f.sqlState == "" || f.sqlState[:2] != "22" && f.sqlState[:2] != "23") {
			return nil, fmt.Errorf("check value of column %s: %w", c.Column, err)
		}
		if err != nil {
			r.report(problem.Error, at+".value", "give a value of that type", "value %q does not fit column %s of type %s", c.Value, c.Column, found.full)
			continue
		}
		typed = append(typed, typedCondition{column: c.Column, full: found.full, value: c.Value})
	}
	return typed, nil
}

func (r *resolver) bindRest(key string, l Columns, to action, into *[]*bound) {
	table := r.table(key, l.Table)
	if table == nil {
		return
	}
	if to == remove && table == r.catalog.users {
		r.report(problem.Error, key+".table", "nullify the column", "deleting one user would delete others")
		return
	}
	for i, name := range l.Columns {
		at := fmt.Sprintf("%s.columns[%d]", key, i)
		b := r.at(at, table, name)
		switch {
		case b == nil || to != remove && !r.checkChange(at, b, to):
		case b.listed != restrict:
			r.report(problem.Error, at, "remove one of them", "%s is in the lists delete and nullify already", b.label())
		case b.moves && b.always && len(b.conditions) == 0:
			r.report(problem.Error, at, "remove one of them", "%s is always moved, so this entry would find nothing", b.label())
		default:
			b.listed = to
			*into = append(*into, b)
		}
	}
}

// bindKey binds one foreign key. One that only a partition has belongs to the partitioned table's column where that is
// listed.
func (r *resolver) bindKey(key foreignKey) {
	relation := r.catalog.byOID[key.table]
	if relation.Schema == r.catalog.schema && relation.Name == queueTable {
		return
	}
	if !key.whole {
		r.report(problem.Warning, section, "refer to users by their id alone",
			"foreign key %s of %s does not refer to users by id alone: it is left to Postgres, in one statement, or stops the deletion", key.name, relation.label)
		return
	}
	b := r.columns[place{relation.root, key.column}]
	if b == nil {
		b = r.columns[place{relation.OID, key.column}]
	}
	if b == nil {
		b = &bound{relation: relation, column: key.column}
		r.columns[place{relation.OID, key.column}] = b
		r.keys = append(r.keys, b)
	} else if b.key != "" && !slices.Contains(r.keys, b) && b.listed == restrict {
		// Moved on a soft delete; on a hard one the key's own action comes with the others.
		r.keys = append(r.keys, b)
	}
	b.foreign = key.name
	switch key.action {
	case "c":
		b.keyed = remove
	case "n":
		b.keyed = nullify
	case "d":
		b.keyed = setDefault
	}
}

// checkRest tells of rows that nothing is done about.
func (r *resolver) checkRest(b *bound) {
	column := b.relation.columns[b.column]
	last := b.moves && b.always && len(b.conditions) == 0
	switch {
	case b.rest() == restrict && b.foreign != "" && !last:
		said := "no list says what becomes of its rows"
		if b.moves {
			said = "no list says what becomes of rows that are not moved, as on a hard delete"
		}
		r.report(problem.Error, b.where(), fmt.Sprintf("add {table: %s, columns: [%s]} to ghost_users.nullify, delete or move", b.relation.label, b.column),
			"%s refers to users without an action (foreign key %s), and %s", b.label(), b.foreign, said)
	case b.rest() == restrict && b.moves && !last:
		r.report(problem.Warning, b.where(), "add the column to ghost_users.nullify or delete",
			"no list says what becomes of rows of %s that are not moved, as on a hard delete: they keep the id of a user that is gone", b.label())
	case b.listed == restrict && b.keyed == remove && b.relation == r.catalog.users:
		r.report(problem.Error, b.where(), "change the key's action to SET NULL, or list the column in ghost_users.nullify",
			"foreign key %s: deleting one user would delete others", b.foreign)
	case b.listed == restrict && b.keyed == nullify && column.notNull:
		r.report(problem.Error, b.where(), "drop the constraint, or change the key's action",
			"foreign key %s sets %s to NULL, which is NOT NULL", b.foreign, b.label())
	case b.listed == restrict && (b.keyed == nullify || b.keyed == setDefault):
		r.checkChange(b.where(), b, b.keyed)
	}
}

func (b *bound) where() string {
	if b.key != "" {
		return b.key
	}
	return section
}

func (r *resolver) checkIndex(b *bound) {
	if b.relation.columns[b.column].leads {
		return
	}
	fix := fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s)", b.relation.SQL(), identifier(b.column))
	if b.relation.kind == "p" {
		// Postgres refuses CONCURRENTLY on the table itself.
		fix = fmt.Sprintf("CREATE INDEX CONCURRENTLY on each partition, then CREATE INDEX ON %s (%s)", b.relation.SQL(), identifier(b.column))
		unindexed := func(leaf Table) bool {
			found := r.catalog.byOID[leaf.OID]
			return found == nil || !found.columns[b.column].leads
		}
		if !slices.ContainsFunc(b.relation.leaves, unindexed) {
			return
		}
	}
	r.report(problem.Warning, b.where(), fix, "no index of %s begins with %s, so every batch reads the whole table", b.relation.label, b.column)
}

func (r *resolver) plan() *Plan {
	return &Plan{users: r.catalog.users.Table, soft: r.steps(false), hard: r.steps(true)}
}

// steps lists what is done on a soft or a hard delete. What is moved must not meet the deletion or nullification of the
// same column: a row that comes in after the move would.
func (r *resolver) steps(hard bool) []*step {
	var steps []*step
	for _, b := range r.moves {
		if !hard || b.always {
			s := r.step(b, move)
			s.conditions = b.conditions
			steps = append(steps, s)
		}
	}
	for _, rest := range [][]*bound{r.deletes, r.nullifies, r.keys} {
		for _, b := range rest {
			moved := b.moves && (!hard || b.always)
			if b.rest() == restrict || moved && len(b.conditions) == 0 {
				continue
			}
			s := r.step(b, b.rest())
			if moved {
				s.except = b.conditions
			}
			steps = append(steps, s)
		}
	}
	return steps
}

func (r *resolver) step(b *bound, do action) *step {
	otherwise := b.rest()
	if otherwise == restrict {
		// A row that says what one of the ghost user's says already.
		otherwise = remove
	}
	key := b.relation.columns[b.column].unique
	for _, leaf := range b.relation.leaves {
		if found := r.catalog.byOID[leaf.OID]; found != nil {
			key = key || found.columns[b.column].unique
		}
	}
	return &step{
		action: do, otherwise: otherwise, table: b.relation.Table, leaves: b.relation.leaves,
		column: b.column, label: b.label(), tableLabel: b.relation.label, key: key,
	}
}

func integer(typeName string) bool {
	return slices.Contains([]string{"smallint", "integer", "bigint"}, typeName)
}

func identifier(name string) string { return pgx.Identifier{name}.Sanitize() }

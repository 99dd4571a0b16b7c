package ghostuser

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// checkUsers reports whether the application has the tables that all the rest is built on.
func (r *resolver) checkUsers() bool {
	users, queue := r.users, r.Named(r.schema, QueueTable)
	switch {
	case users == nil || !users.IsTable():
		r.reportf(problem.Error, section, "point the database's schema to where it is", "there is no table %s in schema %s",
			cmp.Or(r.lists.Users.Table, "users"), r.schema)
	case !r.lists.Users.gitlab():
		return r.checkKey(queue)
	case !r.integer("id") || !r.integer("user_type"): // Reported. Nothing else can be installed or asked.
	case queue == nil || queue.Columns["attempts"].Base == "":
		r.reportf(problem.Error, section, "run `sexton migrate up`", "the table %s is not installed", QueueTable)
	default:
		for _, name := range []string{"id", "username", "email", "name", "state", "user_type", "admin"} {
			if _, found := users.Columns[name]; !found {
				r.reportf(problem.Error, section, "add it", "table users has no column %s", name)
			}
		}
		r.checkGroups()
		if !r.queued(queue, "bigint") {
			r.reportf(problem.Error, section, "run `sexton migrate up`", "the table %s does not refer to %s", QueueTable, r.keyLabel())
		}
		if !queue.Leads(queue.OID, "consume_after") {
			r.reportf(problem.Warning, section, queue.CreateIndex(queue.Table, "consume_after", "id"),
				"no index of %s begins with consume_after, so every look at it reads the whole table", QueueTable)
		}
	}
	if users != nil && r.stored == "" {
		r.stored = "bigint"
	}
	return r.problems.Err() == nil
}

// checkKey reports whether the table of users has the key. That the queue does not refer to it is a problem that hides no other.
func (r *resolver) checkKey(queue *pgcatalog.Relation) bool {
	const table = section + ".users"
	column, found := r.users.Columns[r.key]
	if !found {
		r.reportf(problem.Error, table+".key", problem.Meant(r.key, r.users.ColumnNames(), "correct the name"),
			"table %s has no column %s", r.users.In(r.schema), r.key)
		return false
	}
	stored, err := dml.IDType(column.Base)
	unique := slices.ContainsFunc(r.users.Indexes[r.users.OID], func(i pgcatalog.Index) bool {
		return i.Unique && i.Complete() && slices.Equal(i.Columns, []string{r.key})
	})
	switch {
	case err != nil:
		r.reportf(problem.Error, table+".key", "name another column", "%s %v", r.keyLabel(), err)
	case !unique:
		r.reportf(problem.Error, table+".key", "name a column with a unique index", "%s has no unique index", r.keyLabel())
	case queue == nil || queue.Columns["attempts"].Base == "":
		r.reportf(problem.Error, section, "run `sexton migrate up`", "the table %s is not installed", QueueTable)
	case !r.queued(queue, stored):
		r.reportf(problem.Error, table, "run `sexton migrate up`", "the table %s does not refer to %s", QueueTable, r.keyLabel())
	}
	r.stored = stored
	return err == nil && unique
}

// queued reports whether the queue refers to the users by their key of this type. GitLab's may do so without a foreign key.
func (r *resolver) queued(queue *pgcatalog.Relation, stored string) bool {
	found, err := dml.IDType(queue.Columns["user_id"].Base)
	keys := slices.DeleteFunc(slices.Clone(r.Keys), func(key pgcatalog.ForeignKey) bool {
		return key.Table != queue.OID || !slices.Equal(key.Columns, []string{"user_id"})
	})
	return err == nil && found == stored && (len(keys) == 0 && r.lists.Users.gitlab() || slices.ContainsFunc(keys, func(key pgcatalog.ForeignKey) bool {
		return key.Target == r.users.OID && slices.Equal(key.TargetColumns, []string{r.key})
	}))
}

// keyLabel is the name of the users' key for people.
func (r *resolver) keyLabel() string { return r.users.In(r.schema) + "." + r.key }

// checkRule reports why the application's rule must not be called.
func (r *resolver) checkRule(ctx context.Context, tx pgx.Tx) error {
	rule := r.lists.Users.MayDelete
	if rule == "" {
		return nil
	}
	wrong, fix, err := pgcatalog.RuleProblem(ctx, tx, r.schema, rule, "text", r.stored, r.stored)
	if wrong != "" {
		r.reportf(problem.Error, section+".may_delete", fix, "%s", wrong)
	}
	return problem.Doing(err, "look at the function %s", rule)
}

// integer reports whether a column of the users is one, if it is there, and reports where it is not.
func (r *resolver) integer(name string) bool {
	c, found := r.users.Columns[name]
	if !found || pgcatalog.Integer(c.Base) {
		return true
	}
	r.reportf(problem.Error, section, "only integers are supported", "users.%s is of type %s", name, c.Type)
	return false
}

// checkGroups reports whether "sexton".delete_user could look for groups that would be left without an owner.
func (r *resolver) checkGroups() {
	groups, members := r.Named(r.schema, "groups"), r.Named(r.schema, "members")
	if groups == nil || members == nil {
		return
	}
	check := func(table *pgcatalog.Relation, columns ...string) {
		for _, name := range columns {
			if _, found := table.Columns[name]; !found {
				r.reportf(problem.Error, section, "add it", "table %s has no column %s", table.In(r.schema), name)
			}
		}
	}
	check(groups, "id", "parent_id", "path")
	check(members, "user_id", "source_type", "source_id", "access_level", "state", "requested_at", "expires_at")
}

// checkGhost finds out early whether "sexton".ghost_user() could make the ghost user.
func (r *resolver) checkGhost(ctx context.Context, tx pgx.Tx) error {
	if !r.lists.Users.gitlab() {
		return r.readGhost(ctx, tx)
	}
	var unknown []string
	for name, c := range r.users.Columns {
		known := []string{"username", "email", "name", "state", "user_type", "admin", "created_at", "updated_at"}
		if c.NotNull && !c.HasDefault && !slices.Contains(known, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	var there bool
	query := fmt.Sprintf("SELECT EXISTS (SELECT FROM %s WHERE user_type OPERATOR(pg_catalog.=) %d)", r.users.SQL(), ghostType)
	if err := tx.QueryRow(ctx, query).Scan(&there); err != nil {
		return fmt.Errorf("look for the ghost user: %w", err)
	}
	if !there {
		slices.Sort(unknown)
		r.reportf(problem.Error, section, "insert one yourself, with user_type 5, or give these columns defaults",
			"the ghost user cannot be made: users need a value for %s", strings.Join(unknown, ", "))
	}
	return nil
}

// readGhost reads the key of the configured ghost user.
func (r *resolver) readGhost(ctx context.Context, tx pgx.Tx) error {
	text := r.lists.Users.Ghost
	if text == "" {
		return nil
	}
	key := pgcatalog.Quote(r.key)
	query := fmt.Sprintf("SELECT pg_catalog.to_jsonb(ghost.%s) FROM %s AS ghost WHERE ghost.%s OPERATOR(pg_catalog.=) $1::pg_catalog.text::%s",
		key, r.users.SQL(), key, dml.KeyType(r.stored))
	err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error { return nested.QueryRow(ctx, query, text).Scan(&r.ghost) })
	switch state := batch.Judge(err).SQLState; {
	case errors.Is(err, pgx.ErrNoRows):
		r.reportf(problem.Error, section+".ghost", "insert it, or name another one", "table %s has no row with the %s %s", r.users.In(r.schema), r.key, text)
	case err != nil && strings.HasPrefix(state, "22"):
		r.reportf(problem.Error, section+".ghost", "", "%q is not a value of type %s", text, pgcatalog.Short(r.stored))
	case err != nil:
		return fmt.Errorf("look for the ghost user: %w", err)
	}
	return nil
}

// checkRest reports rows that nothing is done about. A foreign key that refuses to let users go concerns those with rows there.
func (r *resolver) checkRest(b *bound) {
	column := b.relation.Columns[b.column]
	last := b.moves && b.always && len(b.conditions) == 0
	switch {
	case b.rest() == dml.Forbid && b.foreign != "" && !last:
		said := "no list says what becomes of its rows"
		if b.moves {
			said = "no list says what becomes of rows that are not moved, as on a hard delete"
		}
		fix := fmt.Sprintf("add {table: %s, columns: [%s]} to ghost_users.nullify, delete or move", b.table, b.column)
		said = fmt.Sprintf("%s refers to users without an action (foreign key %s), and %s", b.label(), b.foreign, said)
		if !r.lists.Users.gitlab() && !b.moves {
			r.reportf(problem.Error, b.where(), fix, "%s", said)
			return
		}
		r.refusef(b, fix, "%s", said)
	case b.rest() == dml.Forbid && b.moves && !last:
		r.reportf(problem.Warning, b.where(), "add the column to ghost_users.nullify or delete",
			"no list says what becomes of rows of %s that are not moved, as on a hard delete: they keep the id of a user that is gone", b.label())
	case b.listed != dml.Forbid:
	case b.keyed == dml.Remove && b.relation == r.users:
		r.refusef(b, "change the key's action to SET NULL, or list the column in ghost_users.nullify",
			"foreign key %s: deleting one user would delete others", b.foreign)
	case b.keyed == dml.Nullify && column.NotNull:
		r.refusef(b, "drop the constraint, or change the key's action", "foreign key %s sets %s to NULL, which is NOT NULL", b.foreign, b.label())
	case b.keyed == dml.Nullify || b.keyed == dml.SetDefault:
		if fix, wrong := unchangeable(b, b.keyed); wrong != "" {
			r.refusef(b, fix, "%s", wrong)
		}
	}
}

// refusef keeps the users that have rows in the column, and warns.
func (r *resolver) refusef(b *bound, fix, format string, args ...any) {
	b.refusal = fmt.Sprintf(format, args...)
	r.reportf(problem.Warning, b.where(), fix, "users with rows there stay, each with this reason: %s", b.refusal)
	b.refusal += " (" + fix + ")"
}

func (b *bound) where() string {
	if b.key != "" {
		return b.key
	}
	return section
}

func (r *resolver) checkIndex(b *bound) {
	if fix := b.relation.Unindexed(b.column); fix != "" {
		r.reportf(problem.Warning, b.where(), fix, "no index of %s begins with %s, so every batch reads the whole table", b.table, b.column)
	}
}

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

// checkUsers reports whether the application has a usable table of users. Migrations
// check the other columns of GitLab's users. If the queue does not refer to the users,
// checkUsers reports an error and returns true, so that the other checks continue.
func (r *resolver) checkUsers() bool {
	const table = section + ".users"
	users, queue := r.users, r.Named(r.schema, QueueTable)
	where, key := table+".table", table+".key"
	if r.lists.Users.gitlab() {
		where, key = section, section
	}
	if users == nil || !users.IsTable() {
		r.reportf(problem.Error, where, "set the schema of the database to the one with the table",
			"there is no table %s in schema %s",
			cmp.Or(r.lists.Users.Table, "users"), r.schema)
		return false
	}
	column, found := users.Columns[r.key]
	if !found {
		r.reportf(problem.Error, key, problem.Meant(r.key, users.ColumnNames(), "correct the name"),
			"table %s has no column %s", users.In(r.schema), r.key)
		return false
	}
	stored, err := dml.IDType(column.Base)
	unique := slices.ContainsFunc(users.Indexes[users.OID], func(i pgcatalog.Index) bool {
		return i.Unique && i.Complete() && slices.Equal(i.Columns, []string{r.key})
	})
	switch {
	case err != nil:
		r.reportf(problem.Error, key, "name another column", "%s %v", r.keyLabel(), err)
	case r.lists.Users.gitlab() && stored != "bigint":
		r.reportf(problem.Error, key, "name the table in ghost_users.users", "%s is of type %s instead of integer",
			r.keyLabel(), column.Type)
		return false
	case !unique:
		r.reportf(problem.Error, key, "name a column with a unique index", "%s has no unique index", r.keyLabel())
	case queue == nil || queue.Columns["attempts"].Base == "":
		r.reportf(problem.Error, section, "run `sexton migrate up`", "the table %s is not installed", QueueTable)
	case !r.queued(queue, stored):
		r.reportf(problem.Error, table, "run `sexton migrate up`", "the table %s does not refer to %s", QueueTable,
			r.keyLabel())
	case !queue.Leads(queue.OID, "consume_after"):
		r.reportf(problem.Warning, section, queue.CreateIndex(queue.Table, "consume_after", "id"),
			"no index of %s begins with consume_after, so every query of due users reads the whole table", QueueTable)
	}
	r.stored = stored
	return err == nil && unique
}

// queued reports whether the queue refers to the key of users, and whether its column has
// the type of that key. GitLab's queue may have no foreign key.
func (r *resolver) queued(queue *pgcatalog.Relation, stored string) bool {
	keys := slices.DeleteFunc(slices.Clone(r.Keys), func(key pgcatalog.ForeignKey) bool {
		return key.Table != queue.OID || !slices.Equal(key.Columns, []string{"user_id"})
	})
	return storedAs(queue.Columns["user_id"]) == stored && (len(keys) == 0 && r.lists.Users.gitlab() ||
		slices.ContainsFunc(keys, func(key pgcatalog.ForeignKey) bool {
			return key.Target == r.users.OID && slices.Equal(key.TargetColumns, []string{r.key})
		}))
}

func storedAs(c pgcatalog.Column) string {
	stored, _ := dml.IDType(c.Base)
	return stored
}

// keyLabel returns the display name of the users' key.
func (r *resolver) keyLabel() string { return r.users.In(r.schema) + "." + r.key }

// readGhost reads the key of the configured ghost user, if there is one.
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
		r.reportf(problem.Error, section+".ghost", "insert the row, or configure another ghost user",
			"table %s has no row with the %s %s", r.users.In(r.schema), r.key, text)
	case err != nil && strings.HasPrefix(state, "22"):
		r.reportf(problem.Error, section+".ghost", "", "%q is not a value of type %s", text, pgcatalog.Short(r.stored))
	case err != nil:
		return fmt.Errorf("read the ghost user: %w", err)
	}
	return nil
}

// checkUnmoved reports a column whose unmoved rows have no action. A foreign key whose
// action is impossible blocks only users with rows in the column, so it is a warning.
func (r *resolver) checkUnmoved(b *bound) {
	column := b.relation.Columns[b.column]
	movesAll := b.moves && b.always && len(b.conditions) == 0
	switch {
	case b.unmovedAction() == dml.Forbid && b.foreign != "" && !movesAll:
		reason := "no list contains it"
		if b.moves {
			reason = "no list has an action for rows that are not moved, as on a hard delete"
		}
		fix := fmt.Sprintf("add {table: %s, columns: [%s]} to ghost_users.nullify, delete or move", b.table, b.column)
		reason = fmt.Sprintf("%s refers to %s without an action (foreign key %s), and %s", b.label(), r.users.In(r.schema),
			b.foreign, reason)
		if !r.lists.Users.gitlab() && !b.moves {
			r.reportf(problem.Error, b.where(), fix, "%s", reason)
			return
		}
		r.refusef(b, fix, "%s", reason)
	case b.unmovedAction() == dml.Forbid && b.moves && !movesAll:
		r.reportf(problem.Warning, b.where(), "add the column to ghost_users.nullify or delete",
			"no list has an action for rows of %s that are not moved, as on a hard delete: they keep the id of a deleted user", b.label())
	case b.listed != dml.Forbid:
	case b.keyed == dml.Remove && b.relation == r.users:
		r.refusef(b, "change the key's action to SET NULL, or list the column in ghost_users.nullify",
			"foreign key %s: deleting one user would delete other users", b.foreign)
	case b.keyed == dml.Nullify && column.NotNull:
		r.refusef(b, "drop the constraint, or change the key's action",
			"foreign key %s sets %s to NULL, which is NOT NULL", b.foreign, b.label())
	case b.keyed == dml.Nullify || b.keyed == dml.SetDefault:
		if fix, wrong := unchangeable(b, b.keyed); wrong != "" {
			r.refusef(b, fix, "%s", wrong)
		}
	}
}

// refusef records the reason for which users with rows in the column cannot be deleted,
// and adds a warning.
func (r *resolver) refusef(b *bound, fix, format string, args ...any) {
	b.refusal = fmt.Sprintf(format, args...)
	r.reportf(problem.Warning, b.where(), fix, "users with rows there cannot be deleted: %s", b.refusal)
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
		r.reportf(problem.Warning, b.where(), fix,
			"no index of %s begins with %s, so every batch reads the whole table", b.table, b.column)
	}
}

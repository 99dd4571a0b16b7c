package ghostuser

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// table returns the table that a list names. If the table cannot be used, it reports an
// error and returns nil.
func (r *resolver) table(key, text string) *pgcatalog.Relation {
	table := r.ListedTable(r.reportf, key+".table", r.schema, text)
	if table != nil && table.Schema == r.schema && table.Name == QueueTable {
		r.reportf(problem.Error, key+".table", "remove the entry", "%s is the queue itself", text)
		return nil
	}
	return table
}

// bindColumn returns the bound column that a list names. It reports an error and returns
// nil if the column cannot be used.
func (r *resolver) bindColumn(key string, table *pgcatalog.Relation, name string) *bound {
	found, there := table.Columns[name]
	switch {
	case !there:
		r.reportf(problem.Error, key, problem.Meant(name, table.ColumnNames(), "correct the name, or remove it"),
			"table %s has no column %s", table.In(r.schema), name)
		return nil
	case storedAs(found) != r.stored:
		fix := "name a column of that type"
		if r.stored == "bigint" {
			fix = "only integers can refer to users"
		}
		r.reportf(problem.Error, key, fix, "%s.%s is of type %s, but %s is of type %s",
			table.In(r.schema), name, found.Type, r.keyLabel(), r.users.Columns[r.key].Type)
		return nil
	case table == r.users && name == r.key:
		r.reportf(problem.Error, key, "remove it", "%s is the key of the user itself", r.keyLabel())
		return nil
	}
	b := r.columns[columnRef{table.OID, name}]
	if b == nil {
		b = &bound{relation: table, table: table.In(r.schema), column: name, key: key}
		r.columns[columnRef{table.OID, name}] = b
	}
	return b
}

// checkChange reports whether a column can be set, and reports an error otherwise.
func (r *resolver) checkChange(key string, b *bound, to dml.Action) bool {
	fix, wrong := unchangeable(b, to)
	if wrong != "" {
		r.reportf(problem.Error, key, fix, "%s", wrong)
	}
	return wrong == ""
}

// unchangeable returns the reason for which a column cannot be set, and a fix. The reason
// is "" if the column can be set.
func unchangeable(b *bound, to dml.Action) (fix, wrong string) {
	c := b.relation.Columns[b.column]
	switch {
	case c.Generated:
		return "delete the rows", b.label() + " is a generated column and cannot be set"
	case c.Partitioning:
		return "delete the rows", b.label() + " is a partition key and cannot be set"
	case to == dml.Nullify && c.NotNull:
		return "drop the constraint, or delete the rows", b.label() + " is NOT NULL and cannot be nullified"
	}
	return "", ""
}

// bindMove binds the columns of an entry of the list move.
func (r *resolver) bindMove(ctx context.Context, tx pgx.Tx, key string, m Move) error {
	table := r.table(key, m.Table)
	if table == nil {
		return nil
	}
	conditions, err := r.BindConditions(ctx, tx, r.reportf, key, r.schema, table, m.Conditions)
	if err != nil {
		return err
	}
	for i, name := range m.Columns {
		at := fmt.Sprintf("%s.columns[%d]", key, i)
		b := r.bindColumn(at, table, name)
		switch {
		case b == nil || !r.checkChange(at, b, dml.Move):
		case b.moves:
			r.reportf(problem.Error, at, "remove one of them", "%s is moved by %s already", b.label(), b.key)
		default:
			b.moves, b.always, b.conditions = true, m.Always, conditions
			r.moves = append(r.moves, b)
		}
	}
	return nil
}

// bindList binds the columns of an entry of the lists delete and nullify.
func (r *resolver) bindList(key string, l Columns, to dml.Action, into *[]*bound) {
	table := r.table(key, l.Table)
	if table == nil {
		return
	}
	if to == dml.Remove && table == r.users {
		r.reportf(problem.Error, key+".table", "nullify the column", "deleting one user would delete other users")
		return
	}
	for i, name := range l.Columns {
		at := fmt.Sprintf("%s.columns[%d]", key, i)
		b := r.bindColumn(at, table, name)
		switch {
		case b == nil || to != dml.Remove && !r.checkChange(at, b, to):
		case b.listed != dml.Forbid:
			list := map[dml.Action]string{dml.Remove: "delete", dml.Nullify: "nullify"}[b.listed]
			r.reportf(problem.Error, at, "remove one of them", "%s is in the list %s already", b.label(), list)
		case b.moves && b.always && len(b.conditions) == 0:
			r.reportf(problem.Error, at, "remove one of them", "%s is always moved, so this entry has no effect",
				b.label())
		default:
			if why, fix := table.EventProblem(table.In(r.schema), l.EventColumns); l.Event && why != "" {
				r.reportf(problem.Error, key+".event", fix+", or omit event and cleaner_class", "%s", why)
			}
			b.listed, b.event, b.eventColumns = to, l.Event, l.EventColumns
			*into = append(*into, b)
		}
	}
}

// bindKey binds one foreign key. It binds a foreign key of a partition to the column of
// the partitioned table if a list has that column.
func (r *resolver) bindKey(key pgcatalog.ForeignKey) {
	relation, column := r.Relations[key.Table], key.Columns[0]
	if relation == nil || relation.Schema == r.schema && relation.Name == QueueTable {
		return
	}
	if !slices.Equal(key.TargetColumns, []string{r.key}) {
		r.reportf(problem.Warning, section, "refer to users by their "+r.key+" alone",
			"foreign key %s of %s does not refer to users by %s alone: Postgres applies its action in one statement, or it prevents the deletion",
			key.Name, relation.In(r.schema), r.key)
		return
	}
	b := r.columns[columnRef{relation.Root, column}]
	if b == nil {
		b = r.columns[columnRef{relation.OID, column}]
	}
	if b == nil {
		b = &bound{relation: relation, table: relation.In(r.schema), column: column}
		r.columns[columnRef{relation.OID, column}] = b
		r.keys = append(r.keys, b)
	} else if b.key != "" && !slices.Contains(r.keys, b) && b.listed == dml.Forbid {
		// On a soft delete, rows are moved. On a hard delete, the key's own action
		// applies.
		r.keys = append(r.keys, b)
	}
	b.foreign = key.Name
	switch key.OnDelete {
	case pgcatalog.Cascade:
		b.keyed = dml.Remove
	case pgcatalog.SetNull:
		b.keyed = dml.Nullify
	case pgcatalog.SetDefault:
		b.keyed = dml.SetDefault
	// Without an action, the foreign key prevents the deletion of users with rows.
	case pgcatalog.NoAction, pgcatalog.Restrict:
	}
}

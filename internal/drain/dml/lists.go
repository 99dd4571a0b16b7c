package dml

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Reporter reports a problem of the configuration.
type Reporter func(severity problem.Severity, key, fix, format string, args ...any)

// ListedTable returns the table that an entry of a configured list names. If the table is
// missing or unsuitable, it reports a problem of key and returns nil. schema is the
// schema that is assumed if the entry contains none.
func (c *Catalog) ListedTable(report Reporter, key, schema, text string) *pgcatalog.Relation {
	name, err := definitions.ParseName(text)
	if err != nil {
		report(problem.Error, key, "", "table %q %v", text, err)
		return nil
	}
	if name.Schema == "" {
		name.Schema = schema
	}
	table := c.Named(name.Schema, name.Table)
	switch {
	case table == nil:
		var known []string
		for _, one := range c.Relations {
			if !one.IsPartition() {
				known = append(known, one.In(schema))
			}
		}
		slices.Sort(known)
		report(problem.Error, key, problem.Meant(text, known, "create it, or remove the entry"),
			"table %s does not exist", text)
	case !table.IsTable():
		report(problem.Error, key, "use a table", "%s is not a table", text)
	case table.IsPartition():
		report(problem.Error, key, "name the partitioned table", "%s is a partition", text)
	case table.Foreign != nil:
		report(problem.Error, key, "detach it, or remove the entry", "partition %s of %s is a foreign table",
			table.Foreign.SQL(), text)
	default:
		return table
	}
	return nil
}

// BindConditions returns the configured conditions on a table. It casts each value in the
// database, so that a value of the wrong type is reported before a batch fails. It
// returns the text form of the cast value, which has the same meaning under the settings
// of every role.
func (c *Catalog) BindConditions(ctx context.Context, tx pgx.Tx, report Reporter, key, schema string,
	table *pgcatalog.Relation, conditions []definitions.Condition,
) (values []Value, _ error) {
	for i, condition := range conditions {
		at := fmt.Sprintf("%s.conditions[%d]", key, i)
		column, found := table.Columns[condition.Column]
		if !found {
			report(problem.Error, at+".column", problem.Meant(condition.Column, table.ColumnNames(), "correct the name"),
				"table %s has no column %s", table.In(schema), condition.Column)
			continue
		}
		v := Value{Column: condition.Column, Type: column.Type}
		err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
			return nested.QueryRow(ctx, fmt.Sprintf("SELECT $1::pg_catalog.text::%s::pg_catalog.text", column.Type),
				condition.Value).Scan(&v.Value)
		})
		state := batch.Judge(err).SQLState
		switch {
		case err == nil:
			if v.Compare, err = c.Operators.Own(column); err != nil {
				report(problem.Error, at+".column", "name another column", "column %s: %v", condition.Column, err)
				continue
			}
			values = append(values, v)
		case strings.HasPrefix(state, "22") || strings.HasPrefix(state, "23"):
			report(problem.Error, at+".value", "give a value of that type", "value %q does not fit column %s of type %s",
				condition.Value, condition.Column, column.Type)
		default:
			return nil, fmt.Errorf("check value of column %s: %w", condition.Column, err)
		}
	}
	return values, nil
}

package retention

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/migrate"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// section is the configuration key of the rules.
const section = "retention"

// Plan holds rules that are bound to the tables of a database.
type Plan struct{ rules []*rule }

// Resolve binds the rules of a database to its tables. schema is the schema of names
// without one.
//
// The problems have keys such as retention.rules[3].column and no position. Errors are a
// missing table or column, an unsupported type, a value that does not fit, and two rules
// that contradict each other. Warnings are a foreign key that prevents deletions, and a
// foreign key without an index. The plan is nil if there is an error.
func Resolve(ctx context.Context, db pgcatalog.Beginner, database, schema string,
	rules []Rule,
) (*Plan, problem.List, error) {
	r := &resolver{schema: schema}
	err := pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error {
		var schemas, names []string
		for _, one := range rules {
			if name, err := definitions.ParseName(one.Table); err == nil && one.Database == database {
				schemas, names = append(schemas, r.in(name)), append(names, name.Table)
			}
		}
		oids, err := pgcatalog.Named(ctx, tx, schemas, names)
		if err != nil {
			return err
		}
		if r.Catalog, err = dml.Read(ctx, tx, oids); err != nil {
			return err
		}
		for i, one := range rules {
			if one.Database != database {
				continue
			}
			if err := r.bind(ctx, tx, fmt.Sprintf("%s.rules[%d]", section, i), one); err != nil {
				return err
			}
		}
		r.compareRules()
		r.expand()
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("bind rules of %s: %w", section, err)
	}
	if r.problems.Err() != nil {
		return nil, r.problems, nil
	}
	return &Plan{r.rules}, r.problems, nil
}

type resolver struct {
	*dml.Catalog

	schema   string
	rules    []*rule
	problems problem.List
}

func (r *resolver) in(name definitions.Name) string {
	if name.Schema == "" {
		return r.schema
	}
	return name.Schema
}

func (r *resolver) reportf(severity problem.Severity, key, fix, format string, args ...any) {
	r.problems.Add(problem.Problem{Severity: severity, Key: key, Message: fmt.Sprintf(format, args...), Fix: fix})
}

func (r *resolver) bind(ctx context.Context, tx pgx.Tx, key string, of Rule) error {
	table := r.ListedTable(r.reportf, key+".table", r.schema, of.Table)
	if table == nil {
		return nil
	}
	var own bool
	if err := tx.QueryRow(ctx, `SELECT coalesce(pg_catalog.starts_with(pg_catalog.obj_description($1, 'pg_class'), 'Sexton:'), false)`,
		table.OID).Scan(&own); err != nil {
		return fmt.Errorf("read the comment of table %s: %w", of.Table, err)
	}
	if own || table.Schema == pgcatalog.Schema {
		r.reportf(problem.Error, key+".table", "remove the entry", "%s is a table of Sexton", of.Table)
		return nil
	}
	name := table.In(r.schema)
	column, found := table.Columns[of.Column]
	if !found {
		r.reportf(problem.Error, key+".column", problem.Meant(of.Column, table.ColumnNames(), "correct the name"),
			"table %s has no column %s", name, of.Column)
		return nil
	}
	base, integer := pgcatalog.Short(column.Base), pgcatalog.Integer(column.Base)
	switch {
	case !integer && !slices.Contains([]string{"timestamptz", "timestamp", "date"}, base), base == "int2":
		r.reportf(problem.Error, key+".column", "name a column of type "+migrate.Time,
			"%s.%s is of type %s", name, of.Column, column.Type)
	case integer && of.Unit == "":
		r.reportf(problem.Error, key+".column", "set unit to s or ms", "%s.%s is of type %s and needs a unit", name,
			of.Column, column.Type)
	case !integer && of.Unit != "":
		r.reportf(problem.Error, key+".unit", "remove it", "%s.%s is of type %s, which has no unit", name, of.Column,
			column.Type)
	}
	if why, fix := table.EventProblem(name, of.EventColumns); of.Event && why != "" {
		r.reportf(problem.Error, key+".event", fix+", or remove event", "%s", why)
	}
	bound := &rule{Rule: of, key: key, table: r.Catalog.Table(table), base: base, edge: dml.Edge{
		Child: table.Table, Leaves: table.Leaves, Action: dml.Remove, PrimaryKey: table.PrimaryKey(),
		EmitsEvent: of.Event, EventColumns: of.EventColumns,
	}}
	leading := append(render.Each(of.Conditions, func(c definitions.Condition) string { return c.Column }), of.Column)
	for _, leaf := range table.Leaves {
		if !slices.ContainsFunc(bound.table.Indexes[leaf.OID], func(i pgcatalog.Index) bool {
			return i.Valid && len(i.Columns) > 0 && slices.Contains(leading, i.Columns[0])
		}) {
			bound.unindexed = append(bound.unindexed, leaf.OID)
		}
	}
	for _, name := range table.PrimaryKey() {
		c := table.Columns[name]
		same, err := r.Operators.Own(c)
		if err != nil { // Every column of a primary key can be compared, so no error is expected here.
			return fmt.Errorf("compare column %s: %w", name, err)
		}
		bound.id = append(bound.id, dml.Value{Column: name, Type: c.Type, Compare: same})
	}
	var err error
	bound.edge.Conditions, err = r.BindConditions(ctx, tx, r.reportf, key, r.schema, table, of.Conditions)
	if err != nil {
		return err
	}
	r.rules = append(r.rules, bound)
	return nil
}

// compareRules reports rules of one column with different units. It also reports a rule
// that never deletes a row, because another rule of the column deletes the same rows
// earlier or at the same time. All conditions of that other rule are conditions of the
// first rule, too.
func (r *resolver) compareRules() {
	for i, one := range r.rules {
		for _, other := range slices.Concat(r.rules[:i], r.rules[i+1:]) {
			if one.table == other.table && one.Column == other.Column && one.Unit != other.Unit && one.Unit != "" &&
				other.Unit != "" {
				r.reportf(problem.Error, one.key+".unit", "a column has one unit",
					"%s has another unit for the same column", other.key)
				break
			}
			if one.table != other.table || one.Column != other.Column || other.Keep > one.Keep || !covers(other, one) {
				continue
			}
			if equal := covers(one, other) && one.Keep == other.Keep; equal && other.key > one.key {
				continue // If two rules are equal, only the later one is reported.
			}
			r.reportf(problem.Error, one.key, "remove one of them",
				"keeps rows of %s for %s, but %s deletes the same rows after %s", one.table.In(r.schema), one.Keep,
				other.key, other.Keep)
			break
		}
	}
}

// covers reports whether every row that meets the conditions of second also meets the
// conditions of first.
func covers(first, second *rule) bool {
	return !slices.ContainsFunc(first.edge.Conditions, func(c dml.Value) bool {
		return !slices.ContainsFunc(second.edge.Conditions,
			func(other dml.Value) bool { return c.Column == other.Column && c.Value == other.Value })
	})
}

// expand finds the tables whose rows the rules delete or change, and checks the foreign
// keys of these tables.
func (r *resolver) expand() {
	var roots []*dml.Table
	for _, one := range r.rules {
		if !slices.Contains(roots, one.table) {
			roots = append(roots, one.table)
		}
	}
	deleted := r.Expand(roots, nil, nil)
	dml.Order(deleted, roots...)
	for _, one := range r.rules {
		one.below = reach(one.table)
		for _, t := range append([]*dml.Table{one.table}, one.below...) {
			for _, f := range t.Refs {
				r.checkRef(one, t, f)
			}
		}
	}
}

// reach returns the tables whose rows are deleted together with rows of t.
func reach(t *dml.Table) (below []*dml.Table) {
	for todo := []*dml.Table{t}; len(todo) > 0; todo = todo[1:] {
		for _, f := range todo[0].Refs {
			if f.Action == dml.Remove && f.Table != t && !slices.Contains(below, f.Table) {
				below, todo = append(below, f.Table), append(todo, f.Table)
			}
		}
	}
	return below
}

func (r *resolver) checkRef(one *rule, t *dml.Table, f *dml.Ref) {
	if f.Action == dml.Forbid {
		r.reportf(problem.Warning, one.key,
			"add a rule that deletes these rows first, or change the key to ON DELETE CASCADE or SET NULL",
			"rows with references are kept: %s", f.Blocks(t))
	}
	for _, leaf := range r.Unindexed(f) {
		if f.Table.Relation != nil {
			r.reportf(problem.Warning, one.key, f.Table.CreateIndex(leaf, f.Columns...),
				"no index of %s begins with %s, so every batch reads the whole table", leaf.In(r.schema), f.Columns[0])
		}
	}
}

package loosefk

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// Resolve binds definitions to the tables of their databases. It returns the sorted
// parents of each database, by database name. Names without a schema belong to the
// database's schema. If a query in a database fails, the error is a *SiteError.
//
// Resolve only reports problems that cannot be found without a database. Errors are a
// missing table or column, types that cannot be compared, NOT NULL with async_nullify,
// and a partition as parent. A warning is a foreign-key column without an index.
//
// A definition with an error becomes a Broken reference of its parent. If the child's
// database cannot be reached, the reference is Unreachable. In both cases passes do not
// finish tombstones of the parent.
func Resolve(ctx context.Context, sites []Site,
	defs []definitions.Definition,
) (map[string][]*Parent, problem.List, error) {
	names := make([]definitions.Name, 0, 2*len(defs))
	for _, d := range defs {
		names = append(names, d.Child, d.Parent)
	}
	r := resolver{parents: map[string]map[string]*Parent{}}
	for _, s := range sites {
		found := &site{Site: s}
		if s.DB != nil {
			err := pgcatalog.Settled(ctx, s.DB, func(tx pgx.Tx) (err error) {
				found.catalog, err = readCatalog(ctx, tx, s.Schema, names)
				return err
			})
			if err != nil {
				return nil, nil, &SiteError{Database: s.Name, Err: err}
			}
		}
		r.sites = append(r.sites, found)
	}
	for _, d := range defs {
		r.bind(d)
	}
	if err := r.checkValues(ctx); err != nil {
		return nil, nil, err
	}
	r.attachBroken()
	resolved := map[string][]*Parent{}
	for name, found := range r.parents {
		parents := slices.Collect(maps.Values(found))
		slices.SortFunc(parents, func(a, b *Parent) int { return strings.Compare(a.Recorded, b.Recorded) })
		resolved[name] = parents
	}
	return resolved, r.problems, nil
}

type resolver struct {
	sites []*site
	// parents holds the parents by database and recorded name.
	parents  map[string]map[string]*Parent
	broken   []*Reference
	problems problem.List
}

// report adds a problem with one key of a definition, such as ".column", or with the
// whole definition if key is empty.
func (r *resolver) report(d definitions.Definition, severity problem.Severity, key, message, fix string) {
	r.problems.Add(problem.Problem{
		Severity: severity, Position: d.At(strings.TrimPrefix(key, ".")), Key: d.Key + key,
		Message: message, Fix: fix,
	})
}

// refuse adds an error about a definition. It always returns false, as the result of a
// failed check.
func (r *resolver) refuse(d definitions.Definition, key, fix, message string, args ...any) bool {
	r.report(d, problem.Error, key, fmt.Sprintf(message, args...), fix)
	return false
}

func (r *resolver) bind(d definitions.Definition) {
	before := len(r.problems)
	parent := r.parent(d)
	reference := r.reference(d, parent)
	for _, p := range r.problems[before:] {
		if p.Severity == problem.Error {
			schema := "public"
			if parent != nil {
				schema = parent.Schema
			}
			r.broken = append(r.broken, &Reference{
				Definition: d, Edge: edgeOf(d, named(d.Child, schema)),
				Broken: p.Message,
			})
			return
		}
	}
	if parent != nil {
		parent.References = append(parent.References, reference)
	}
}

// attachBroken adds each definition with an error to its parent, as a broken reference. A
// parent only exists if a definition without an error has created it.
func (r *resolver) attachBroken() {
	for _, reference := range r.broken {
		for _, s := range r.sites {
			if !s.has(reference.Definition.Parent) {
				continue
			}
			if parent := r.parents[s.Name][s.catalog.lookup(reference.Definition.Parent).Printed]; parent != nil {
				parent.References = append(parent.References, reference)
			}
		}
	}
}

// named returns a table of which only the name is known. schema is used if the name has
// no schema.
func named(name definitions.Name, schema string) Table {
	return Table{Schema: cmp.Or(name.Schema, schema), Name: name.Table}
}

// edgeOf returns an edge with the fields that depend on the definition only.
func edgeOf(d definitions.Definition, child Table) dml.Edge {
	actions := map[definitions.Action]dml.Action{
		definitions.Delete: dml.Remove, definitions.Nullify: dml.Nullify,
		definitions.UpdateColumn: dml.Assign,
	}
	return dml.Edge{
		Child: child, Columns: d.Columns, Action: actions[d.OnDelete], EmitsEvent: d.EmitsEvent(),
		EventColumns: d.Event,
	}
}

// reference binds a definition to its child. The result is only valid if no error was
// reported. Without a parent it still checks the child.
func (r *resolver) reference(d definitions.Definition, parent *Parent) *Reference {
	home := r.childSite(d)
	if home == nil {
		return nil
	}
	reference := &Reference{
		Definition: d, Edge: edgeOf(d, named(d.Child, home.Schema)), Database: home.Name, Remote: parent != nil &&
			home.Name != parent.Database,
	}
	if home.catalog == nil {
		reference.Unreachable = true
		return reference
	}
	child := r.child(d, home)
	if child == nil || parent == nil {
		return nil
	}
	reference.Child, reference.Leaves, reference.PrimaryKey = child.Table, child.Leaves, child.PrimaryKey()
	ok := r.checkColumns(d, parent, child, home.catalog.operators, reference)
	ok = r.bindValues(d, child, home.catalog.operators, reference) && ok
	if why, fix := child.EventProblem(d.Child.String(), d.Event); reference.EmitsEvent && why != "" {
		key := "event"
		if d.Event == nil {
			key = "cleaner_class"
		}
		ok = r.refuse(d, "."+key, fix+", or leave "+key+" out", "%s", why)
	}
	if !ok {
		return nil
	}
	reference.bindIndexes(child, home.catalog.operators)
	switch {
	case reference.Index:
	case reference.noIndexReason != "":
		r.report(d, problem.Warning, ".column", reference.noIndexReason+", so every batch reads the whole table",
			"give both columns the same type and collation")
	default:
		fix := child.CreateIndex(child.Table, d.Columns...)
		if reference.Partitioned() {
			// Postgres rejects CONCURRENTLY on the partitioned table itself.
			fix = "run the statements that sexton plan prints"
		}
		r.report(d, problem.Warning, ".column",
			fmt.Sprintf("no index of %s begins with %s, so every batch reads the whole table", d.Child, d.ColumnList()),
			fix)
	}
	for _, other := range parent.References {
		if other.same(reference) {
			// The two definitions differ only in that one names the schema. The check of
			// the definitions without a database finds all other duplicates.
			r.refuse(d, "", "remove one of them", "the same definition is at %s", other.Definition.Position)
		} else if other.contradicts(reference) {
			r.refuse(d, ".on_delete", "add conditions on the same column, with different values, to both",
				"a row of %s can match this definition and the definition at %s, which changes it differently, and their order is not defined",
				d.Child, other.Definition.Position)
		}
	}
	return reference
}

// childSite returns the database that the definition names for its child. Without a name
// it returns the database that has the child.
func (r *resolver) childSite(d definitions.Definition) *site {
	if d.Database != "" {
		if i := slices.IndexFunc(r.sites, func(s *site) bool { return s.Name == d.Database }); i >= 0 {
			return r.sites[i]
		}
		r.refuse(d, ".database", "use one of "+sitesOf(r.sites), "no database %q is configured", d.Database)
		return nil
	}
	home, wrong := r.home(d.Child)
	if wrong != nil {
		r.report(d, problem.Error, "", wrong.Message, wrong.Fix+", or database in the definition")
		return nil
	}
	return home
}

// same reports whether two references of one parent have the same child, columns and
// conditions.
func (r *Reference) same(other *Reference) bool {
	return r.Database == other.Database && r.Child.OID == other.Child.OID &&
		slices.Equal(r.Definition.Columns, other.Definition.Columns) && slices.Equal(r.Conditions, other.Conditions)
}

// contradicts reports whether two references of one parent may change one row
// differently, depending on their order. Such a row is in a leaf of both references. It
// matches both definitions, or it matches one of them only after the other one has
// changed it.
func (r *Reference) contradicts(other *Reference) bool {
	shared := slices.ContainsFunc(r.Leaves, func(leaf Table) bool {
		return slices.ContainsFunc(other.Leaves, func(l Table) bool { return l.OID == leaf.OID })
	})
	if r.Database != other.Database || !shared {
		return false
	}
	sameColumns := slices.Equal(r.Definition.Columns, other.Definition.Columns)
	sameAction := r.Definition.OnDelete == other.Definition.OnDelete
	sameTarget := r.Target.Column == other.Target.Column && r.Target.Value == other.Target.Value
	switch {
	case sameAction && sameTarget && (sameColumns || r.Action != dml.Nullify):
		return false // The result is the same in both orders.
	case sameColumns && !sameAction:
	case !r.overwrites(other) && !other.overwrites(r):
		return false
	}
	return !slices.ContainsFunc(r.Conditions, func(a dml.Value) bool {
		return slices.ContainsFunc(other.Conditions, func(b dml.Value) bool {
			return a.Column == b.Column && a.Value != b.Value && !r.assigns(b) && !other.assigns(a)
		})
	})
}

// overwrites reports whether r sets a column by which other finds its rows, or a column
// that other sets to another value.
func (r *Reference) overwrites(other *Reference) bool {
	set := []string{r.Target.Column}
	if r.Action == dml.Nullify {
		set = r.Columns
	}
	return r.Action != dml.Remove && slices.ContainsFunc(set, func(column string) bool {
		return slices.Contains(other.Columns, column) || other.Target.Column == column &&
			other.Target.Value != r.Target.Value ||
			slices.ContainsFunc(other.Conditions, func(condition dml.Value) bool { return condition.Column == column })
	})
}

// assigns reports whether the reference sets the value that a condition requires.
func (r *Reference) assigns(condition dml.Value) bool {
	return r.Target.Column == condition.Column && r.Target.Value == condition.Value
}

// parent returns the parent of a definition. It returns nil if the parent cannot be used
// or reached.
func (r *resolver) parent(d definitions.Definition) *Parent {
	home, wrong := r.home(d.Parent)
	switch {
	case wrong != nil:
		r.report(d, problem.Error, ".table", wrong.Message, wrong.Fix)
		return nil
	case home.catalog == nil:
		return nil
	}
	table, ok := home.catalog.lookup(d.Parent), true
	switch {
	case table == nil:
		ok = r.missingTable(d, ".table", "parent", home, d.Parent)
	case table.IsPartition():
		ok = r.refuse(d, ".table", "use its partitioned table", "parent %s is a partition", d.Parent)
	case !table.IsTable():
		ok = r.refuse(d, ".table", "use a table", "parent %s is not a table", d.Parent)
	}
	if !ok {
		return nil
	}
	key := r.key(d, table)
	if key == nil {
		return nil
	}
	parent, known := r.parents[home.Name][table.Printed]
	if !known && len(key) == 1 && !table.Unique(key[0]) {
		r.report(d, problem.Warning, ".table",
			fmt.Sprintf("%s is only a part of the primary key of %s: if two partitions share a value, deleting one row deletes the children of both",
				key[0], d.Parent), "take its values from one sequence")
	}
	if !known {
		parent = &Parent{
			Key: dml.Key{Table: table.Table, KeyColumns: key}, Database: home.Name,
			Recorded: table.Printed,
		}
		for _, column := range key {
			parent.KeyTypes = append(parent.KeyTypes, table.Columns[column].Base)
		}
		parent.keys = table.Key(key)
		for i, column := range parent.keys {
			compare, err := home.catalog.operators.Parent(column)
			if err == nil && len(key) == 1 && column.Polymorphic == "pg_catalog.anyarray" {
				err = fmt.Errorf("type %s is an array, and array keys cannot be recorded", column.Type)
			}
			if err != nil {
				r.refuse(d, element(".parent_column", key, i), "name another unique column",
					"column %s of parent %s: %v", key[i], d.Parent, err)
				return nil
			}
			parent.KeyCompare = append(parent.KeyCompare, compare)
		}
		parent.Integer = len(key) == 1 && pgcatalog.Integer(parent.KeyTypes[0])
		if r.parents[home.Name] == nil {
			r.parents[home.Name] = map[string]*Parent{}
		}
		r.parents[home.Name][table.Printed] = parent
	}
	if !slices.Equal(parent.KeyColumns, key) {
		r.refuse(d, ".parent_column",
			"all definitions of one parent must use the same columns in the same order, because a tombstone has one key",
			"another definition refers to %s by %s", d.Parent, parent.label())
		return nil
	}
	return parent
}

func (r *resolver) child(d definitions.Definition, home *site) *pgcatalog.Relation {
	table := home.catalog.lookup(d.Child)
	switch {
	case table == nil:
		r.missingTable(d, "", "child", home, d.Child)
	case !table.IsTable():
		r.refuse(d, "", "use a table", "child %s is not a table", d.Child)
	case table.Foreign != nil:
		r.refuse(d, "", "detach it, or remove the definition", "partition %s of child %s is a foreign table",
			table.Foreign.Label(), d.Child)
	default:
		return table
	}
	return nil
}

// bindValues sets the reference's conditions and target, with the types of their columns.
func (r *resolver) bindValues(d definitions.Definition, child *pgcatalog.Relation, operators *pgcatalog.Operators,
	reference *Reference,
) bool {
	ok := true
	typed := func(key string, column pgcatalog.Column, value string) dml.Value {
		compare, err := operators.Own(column)
		if err != nil {
			ok = r.refuse(d, key, "name another column", "%s.%s: %v", d.Child, column.Name, err)
		}
		return dml.Value{
			Column: column.Name, Type: column.Type, Base: column.Base,
			Array: column.Polymorphic == "pg_catalog.anyarray", Compare: compare, Value: value,
		}
	}
	for i, condition := range d.Conditions {
		key := fmt.Sprintf(".conditions[%d].column", i)
		if found, exists := child.Columns[condition.Column]; exists {
			reference.Conditions = append(reference.Conditions, typed(key, found, string(condition.Value)))
		} else {
			ok = r.missingColumn(d, key, d.Child, child, condition.Column)
		}
	}
	if d.OnDelete != definitions.UpdateColumn {
		return ok
	}
	target, exists := child.Columns[d.TargetColumn]
	switch {
	case !exists:
		return r.missingColumn(d, ".target_column", d.Child, child, d.TargetColumn)
	case target.Generated:
		return r.refuse(d, ".target_column", "name another column", "%s.%s is a generated column and cannot be set",
			d.Child, d.TargetColumn)
	}
	reference.Target, reference.Moves = typed(".target_column", target, string(d.TargetValue)), target.Partitioning
	return ok
}

func (r *resolver) missingTable(d definitions.Definition, key, role string, home *site, name definitions.Name) bool {
	where := ""
	if len(r.sites) > 1 {
		where = " in database " + home.Name
	}
	return r.refuse(d, key, "create it, correct the name, or remove the definition", "%s table %s does not exist%s",
		role, home.catalog.qualified(name), where)
}

func (r *resolver) missingColumn(d definitions.Definition, key string, name definitions.Name, table *pgcatalog.Relation,
	column string,
) bool {
	fix := problem.Meant(column, table.ColumnNames(), "correct the name, or remove the definition")
	return r.refuse(d, key, fix, "table %s has no column %s", name, column)
}

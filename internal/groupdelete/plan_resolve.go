package groupdelete

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

// errNoApplication reports that the required tables or columns do not exist.
var errNoApplication = errors.New("the application's tables do not match the configuration")

// Resolve reads the plan from the catalog. The plan is nil if one of the problems is an
// error.
//
// If ghostUsers is set, project bots of groups and projects are queued for deletion.
func Resolve(ctx context.Context, db pgcatalog.Beginner, names pgcatalog.Names, of Groups,
	ghostUsers bool,
) (*Plan, problem.List, error) {
	return (&resolver{names: names, groups: of, ghostUsers: ghostUsers}).run(ctx, db)
}

// ResolveLoose reads a plan for Foresee only. It treats loose foreign keys as foreign
// keys.
func ResolveLoose(ctx context.Context, db pgcatalog.Beginner, names pgcatalog.Names, of Groups, ghostUsers bool,
	loose []dml.Loose,
) (*Plan, error) {
	plan, problems, err := (&resolver{names: names, groups: of, ghostUsers: ghostUsers, loose: loose}).run(ctx, db)
	return plan, errors.Join(err, problems.Err())
}

func (r *resolver) run(ctx context.Context, db pgcatalog.Beginner) (*Plan, problem.List, error) {
	err := pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error { return r.resolve(ctx, tx) })
	if errors.Is(err, errNoApplication) || err == nil && r.problems.Err() != nil {
		return nil, r.problems, nil
	}
	return r.plan, r.problems, problem.Doing(err, "plan the destruction of groups")
}

// resolver holds the state of one call of Resolve or ResolveLoose.
type resolver struct {
	names      pgcatalog.Names
	groups     Groups
	ghostUsers bool
	loose      []dml.Loose
	plan       *Plan
	catalog    *dml.Catalog
	problems   problem.List
}

const section = "adjourned_groups"

func (r *resolver) reportf(severity problem.Severity, fix, format string, args ...any) {
	r.problems.Add(problem.Problem{Severity: severity, Key: section, Message: fmt.Sprintf(format, args...), Fix: fix})
}

// applicationTables returns the names of the application's tables that the plan needs.
func (r *resolver) applicationTables() []string {
	if r.groups.Table != "" {
		return []string{r.groups.Table}
	}
	return []string{
		"groups", "projects", "members", "group_group_links", "group_deletion_schedules",
		"import_placeholder_user_details", "users",
	}
}

// read reads the tables and foreign keys from the catalog.
func (r *resolver) read(ctx context.Context, tx pgx.Tx) error {
	wanted := r.applicationTables()
	schemas, tables := dml.LooseTables(r.loose)
	schemas, tables = append(schemas, slices.Repeat([]string{r.names.Tracked}, len(wanted))...),
		append(tables, wanted...)
	oids, err := pgcatalog.Named(ctx, tx, schemas, tables)
	if err != nil {
		return err
	}
	if r.catalog, err = dml.Read(ctx, tx, oids); err != nil {
		return err
	}
	if len(r.loose) == 0 {
		r.catalog.Report = func(fix, format string, args ...any) { r.reportf(problem.Error, fix, format, args...) }
	}
	return nil
}

// named returns a table of the application, or nil if it does not exist.
func (r *resolver) named(name string) *pgcatalog.Relation {
	return r.catalog.Named(r.names.Tracked, name)
}

func (r *resolver) resolve(ctx context.Context, tx pgx.Tx) error {
	if err := r.read(ctx, tx); err != nil {
		return err
	}
	p := &Plan{groups: groups{Groups: r.groups}}
	roots, err := r.roots(p)
	if err != nil {
		return err
	}
	if err := r.checkView(ctx, tx); err != nil {
		return err
	}
	r.plan = p
	p.reachable = dml.Order(r.catalog.Expand(roots, r.adapt, r.addColumns), p.groups.table)
	for _, t := range p.reachable {
		for _, f := range t.Refs {
			r.checkRef(t, f)
		}
	}
	return nil
}

// roots returns the tables of groups and projects, from which the plan follows foreign
// keys.
func (r *resolver) roots(p *Plan) ([]*table, error) {
	name, key := cmp.Or(r.groups.Table, "groups"), cmp.Or(r.groups.Key, "id")
	columns := []string{"id", "parent_id", "path", "marked_for_deletion_on"}
	if !p.gitlab() {
		columns = slices.DeleteFunc([]string{key, r.groups.Parent}, func(column string) bool { return column == "" })
	}
	if !r.requireColumns(name, columns...) || p.gitlab() && !r.requireColumns("projects", "id", "group_id") {
		return nil, errNoApplication
	}
	p.groups.table = r.catalog.Table(r.named(name))
	column := p.groups.table.Columns[key]
	stored, err := dml.IDType(column.Base)
	if err != nil {
		r.reportf(problem.Error, "", "%s.%s %v", name, key, err)
		return nil, errNoApplication
	}
	p.key = dml.Key{
		Table: p.groups.table.Table, KeyColumns: []string{key}, KeyTypes: []string{stored},
		Integer: pgcatalog.Integer(column.Base),
	}
	if !p.gitlab() {
		if !p.groups.table.Unique(key) {
			r.reportf(problem.Error, "name a column with a unique index", "%s.%s has no unique index", name, key)
			return nil, errNoApplication
		}
		return []*table{p.groups.table}, nil
	}
	for name, table := range map[string]**table{"projects": &p.projects, "members": &p.members, "users": &p.users} {
		*table = r.catalog.Table(r.named(name))
	}
	p.bots = r.ghostUsers && p.members != nil && p.users != nil
	_, p.projectPath = p.projects.Columns["path"]
	return []*table{p.groups.table, p.projects}, nil
}

// checkView reports an error if the view "sexton".groups was created for another table or
// other columns than the configured ones. Marks and permissions are read through the
// view, but rows are deleted from the configured table.
func (r *resolver) checkView(ctx context.Context, tx pgx.Tx) error {
	found, wanted := "", ""
	if r.groups.Table != "" {
		wanted = pgcatalog.GroupsComment(r.names.Tracked, r.groups.Table, r.groups.Key, r.groups.Parent)
	}
	const query = `SELECT coalesce(pg_catalog.obj_description(pg_catalog.to_regclass('"sexton".groups')::pg_catalog.oid, 'pg_class'), '')`
	if err := tx.QueryRow(ctx, query).Scan(&found); err != nil {
		return fmt.Errorf("look up the view of groups: %w", err)
	}
	if found != wanted {
		r.reportf(problem.Error, "run `sexton migrate up`",
			"the schema sexton was migrated for another table or other columns of groups than the configured ones")
	}
	return nil
}

// requireColumns reports whether the application has a table with these columns. If it
// does not, it adds an error to the problems.
func (r *resolver) requireColumns(name string, columns ...string) bool {
	found := r.named(name)
	if found == nil || !found.IsTable() {
		r.reportf(problem.Error, "set the schema of the database to the one with the table", "there is no table %s in schema %s",
			name, r.names.Tracked)
		return false
	}
	for _, column := range columns {
		if _, there := found.Columns[column]; !there {
			r.reportf(problem.Error, "add it", "table %s has no column %s", name, column)
		}
	}
	return r.problems.Err() == nil
}

// adapt sets the part of a foreign key, and the action of keys that the destruction
// follows itself. It returns false for a key of Sexton's own tables, which the plan
// omits.
func (r *resolver) adapt(t *table, from *pgcatalog.Relation, f *ref) bool {
	f.Part = restPart
	single := slices.Equal(f.Targets, r.plan.key.KeyColumns) && f.Only == nil && from.Schema == r.names.Tracked
	switch {
	case from.Schema == pgcatalog.Schema && from.Name == "group_destructions":
		// The last transaction of the destruction deletes the group's row in
		// group_destructions.
		return false
	case !single || t != r.plan.groups.table:
	case !r.plan.gitlab():
		if from.Name == r.groups.Table && slices.Equal(f.Columns, []string{r.groups.Parent}) {
			f.Action, f.Part = dml.Remove, subgroupsPart
		}
	case from.Name == "group_deletion_schedules":
		f.Action, f.Part = dml.Remove, lastPart
	case from.Name == "projects" && slices.Equal(f.Columns, []string{"group_id"}):
		f.Action, f.Part = dml.Remove, projectsPart
	case from.Name == "groups" && slices.Equal(f.Columns, []string{"parent_id"}):
		f.Action, f.Part = dml.Remove, subgroupsPart
	case f.Action == dml.Remove && (from.Name == "members" || from.Name == "group_group_links"):
		f.Part = membershipsPart
	}
	return true
}

// addColumns adds references to a table by columns of the application that have no
// foreign key.
func (r *resolver) addColumns(to *table) {
	r.catalog.AddLoose(to, restPart, r.loose...)
	groups := r.plan.groups.table
	if !r.plan.gitlab() {
		if r.groups.Parent != "" && to == groups && !slices.ContainsFunc(to.Refs,
			func(f *ref) bool { return f.Part == subgroupsPart }) {
			r.catalog.AddLoose(to, subgroupsPart, dml.Loose{
				Child: [2]string{to.Schema, to.Name}, Parent: [2]string{to.Schema, to.Name},
				Columns: []string{r.groups.Parent},
				Targets: r.plan.key.KeyColumns, Action: dml.Remove,
			})
		}
		return
	}
	for _, c := range []struct {
		of           *table
		name, column string
		part         int
		action       dml.Action
		only         [][2]string
	}{
		{groups, "projects", "group_id", projectsPart, dml.Remove, nil},
		{groups, "groups", "parent_id", subgroupsPart, dml.Remove, nil},
		{groups, "members", "source_id", membershipsPart, dml.Remove, [][2]string{{"source_type", "Namespace"}}},
		{r.plan.projects, "members", "source_id", membershipsPart, dml.Remove, [][2]string{{"source_type", "Project"}}},
		{groups, "group_group_links", "shared_group_id", membershipsPart, dml.Remove, nil},
		{groups, "group_group_links", "shared_with_group_id", membershipsPart, dml.Remove, nil},
		{groups, "import_placeholder_user_details", "namespace_id", restPart, dml.Nullify, nil},
		{groups, "group_deletion_schedules", "group_id", lastPart, dml.Remove, nil},
	} {
		keyed := slices.ContainsFunc(to.Refs, func(f *ref) bool {
			return f.Table.Relation == r.named(c.name) && slices.Equal(f.Columns, []string{c.column})
		})
		if c.of == to && !keyed {
			r.catalog.AddLoose(to, c.part, dml.Loose{
				Child: [2]string{r.names.Tracked, c.name}, Parent: [2]string{to.Schema, to.Name},
				Columns: []string{c.column}, Targets: []string{"id"},
				Action: c.action, Only: c.only,
			})
		}
	}
}

// checkRef adds a warning if a key has no index.
func (r *resolver) checkRef(t *table, f *ref) {
	for _, leaf := range r.catalog.Unindexed(f) {
		r.reportf(problem.Warning, f.Table.CreateIndex(leaf, f.Columns...),
			"no index of %s begins with %s, which refers to %s, so every query reads the whole table", leaf.Label(),
			strings.Join(f.Columns, " or "), t.Label())
	}
}

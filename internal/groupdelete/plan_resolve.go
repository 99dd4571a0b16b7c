package groupdelete

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/pgschema"
	"sexton/internal/problem"
)

// errNoApplication says that there is nothing to plan for.
var errNoApplication = errors.New("the application's tables do not fit")

// Resolve reads the plan from the catalogue. Problems of severity error mean that there is none: then the plan is nil.
//
// With ghostUsers there is the queue of users who are deleted, which the project bots of groups and projects enter.
func Resolve(ctx context.Context, db pgcatalog.Beginner, names pgschema.Names, ghostUsers bool) (*Plan, problem.List, error) {
	r := &resolver{names: names, ghostUsers: ghostUsers, tables: map[uint32]*table{}}
	err := pgcatalog.Settled(ctx, db, func(tx pgx.Tx) error { return r.resolve(ctx, tx) })
	if errors.Is(err, errNoApplication) || err == nil && r.problems.Err() != nil {
		return nil, r.problems, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("plan the destruction of groups: %w", err)
	}
	return r.plan, r.problems, nil
}

// resolver builds one plan.
type resolver struct {
	names      pgschema.Names
	ghostUsers bool
	plan       *Plan
	keys       []key
	roots      map[uint32]uint32
	relation   map[uint32]*pgcatalog.Relation
	operators  *pgcatalog.Operators
	tables     map[uint32]*table
	problems   problem.List
}

const section = "adjourned_groups"

func (r *resolver) reportf(severity problem.Severity, fix, format string, args ...any) {
	r.problems.Add(problem.Problem{Severity: severity, Key: section, Message: fmt.Sprintf(format, args...), Fix: fix})
}

func (r *resolver) resolve(ctx context.Context, tx pgx.Tx) error {
	named, err := r.read(ctx, tx)
	if err != nil {
		return err
	}
	p := &Plan{}
	if !r.fits(named, "groups", "id", "parent_id", "path", "marked_for_deletion_on") || !r.fits(named, "projects", "id", "group_id") {
		return errNoApplication
	}
	p.groups, p.projects, p.members = r.table(named["groups"]), r.table(named["projects"]), r.table(named["members"])
	p.users = r.table(named["users"])
	p.bots = r.ghostUsers && p.members != nil && p.users != nil
	p.groups.what, p.projects.what = group, project
	_, p.projectPath = p.projects.Columns["path"]
	r.plan = p
	doomed := r.spread(named)
	r.order(doomed)
	for _, t := range p.reachable {
		for _, f := range t.refs {
			r.checkRef(t, f)
		}
	}
	return nil
}

// fits tells whether a table of the application's is there with these columns.
func (r *resolver) fits(named map[string]*pgcatalog.Relation, name string, columns ...string) bool {
	found := named[name]
	if found == nil || !found.IsTable() {
		r.reportf(problem.Error, "point the database's schema to where it is", "there is no table %s in schema %s", name, r.names.Tracked)
		return false
	}
	for _, column := range columns {
		if _, there := found.Columns[column]; !there {
			r.reportf(problem.Error, "add it", "table %s has no column %s", name, column)
		}
	}
	return r.problems.Err() == nil
}

// table returns the one table for a relation, or for the partitioned table that it is a part of.
func (r *resolver) table(of *pgcatalog.Relation) *table {
	if of == nil || !of.IsTable() {
		return nil
	}
	if known := r.tables[of.Root]; known != nil {
		return known
	}
	t := &table{Relation: r.relation[of.Root]}
	r.tables[of.Root] = t
	return t
}

// spread hangs the keys onto the tables that they refer to, as far as deletions spread from groups and projects. It
// returns the tables whose rows may go.
func (r *resolver) spread(named map[string]*pgcatalog.Relation) map[*table]bool {
	byTarget := map[uint32][]key{}
	for _, k := range r.keys {
		byTarget[r.roots[k.target]] = append(byTarget[r.roots[k.target]], k)
	}
	doomed := map[*table]bool{r.plan.groups: true, r.plan.projects: true}
	for todo := []*table{r.plan.groups, r.plan.projects}; len(todo) > 0; todo = todo[1:] {
		t := todo[0]
		for _, k := range byTarget[t.OID] {
			if f := r.ref(t, k); f != nil {
				f.chain = f.table == t && f.action == remove && t.what == ordinary && len(t.Leaves) == 1
				t.refs = append(t.refs, f)
			}
		}
		r.addColumns(t, named)
		for _, f := range t.refs {
			if f.action == remove && !doomed[f.table] {
				doomed[f.table] = true
				todo = append(todo, f.table)
			}
		}
	}
	return doomed
}

// ref is the key of t's that the catalogue has as k; nil where there is nothing to be done about it.
func (r *resolver) ref(t *table, k key) *ref {
	from := r.relation[k.table]
	if from == nil || !from.IsTable() {
		return nil
	}
	f := &ref{
		constraint: k.name, target: k.target, table: r.table(from), leaves: from.Leaves, from: item(from),
		columns: k.columns, targets: k.targets, set: k.set, part: restPart,
	}
	if !r.compare(f, from) {
		return nil
	}
	if k.target != t.OID {
		f.only = map[uint32]bool{}
		for _, leaf := range r.relation[k.target].Leaves {
			f.only[leaf.OID] = true
		}
	}
	switch k.action {
	case pgcatalog.Cascade:
		f.action = remove
	case pgcatalog.SetNull:
		f.action = nullify
		for _, column := range f.set {
			if f.table.Columns[column].NotNull {
				f.action, f.setNull = forbid, true // As Postgres has it: the update would fail.
			}
		}
	case pgcatalog.SetDefault:
		f.action = setDefault
	default:
		f.action = forbid
	}
	single := slices.Equal(f.targets, []string{"id"}) && f.only == nil && from.Schema == r.names.Tracked
	switch {
	case from.Schema == r.names.Jobs && from.Name == "group_destructions":
		return nil // Sexton's own row for the group, which goes in the last transaction.
	case single && t == r.plan.groups && from.Name == "group_deletion_schedules":
		f.action, f.part = remove, lastPart
	case single && t == r.plan.groups && from.Name == "projects" && slices.Equal(f.columns, []string{"group_id"}):
		f.action, f.part = remove, projectsPart
	case single && t == r.plan.groups && from.Name == "groups" && slices.Equal(f.columns, []string{"parent_id"}):
		f.action, f.part = remove, subgroupsPart
	case single && t == r.plan.groups && f.action == remove && (from.Name == "members" || from.Name == "group_group_links"):
		f.part = membershipsPart
	}
	return f
}

// compare finds how the columns of a table are compared with those that they refer to. One comparison that depends on the
// session's time zone is made all the same, as the native key makes it.
func (r *resolver) compare(f *ref, from *pgcatalog.Relation) bool {
	for i, key := range r.relation[f.target].Key(f.targets) {
		found, err := r.operators.Compare(key, from.Columns[f.columns[i]])
		if err != nil && found.Operator == "" {
			r.reportf(problem.Error, "give the two columns one type",
				"%s.%s refers to %s: %v", f.table.Label(), f.columns[i], r.relation[f.target].Label(), err)
			return false
		}
		f.compare = append(f.compare, found)
	}
	return true
}

// item is what stands in a FROM clause for a relation. As with real foreign keys, tables that inherit from it are not
// its rows.
func item(of *pgcatalog.Relation) string {
	if of.Kind == "p" {
		return of.SQL()
	}
	return "ONLY " + of.SQL()
}

// addColumns adds what applications of this shape keep in columns without a foreign key.
func (r *resolver) addColumns(to *table, named map[string]*pgcatalog.Relation) {
	for _, c := range []struct {
		of            *table
		name, column  string
		part          part
		action        action
		value, needed string
	}{
		{r.plan.groups, "projects", "group_id", projectsPart, remove, "", ""},
		{r.plan.groups, "groups", "parent_id", subgroupsPart, remove, "", ""},
		{r.plan.groups, "members", "source_id", membershipsPart, remove, "'Namespace'", "source_type"},
		{r.plan.projects, "members", "source_id", membershipsPart, remove, "'Project'", "source_type"},
		{r.plan.groups, "group_group_links", "shared_group_id", membershipsPart, remove, "", ""},
		{r.plan.groups, "group_group_links", "shared_with_group_id", membershipsPart, remove, "", ""},
		{r.plan.groups, "import_placeholder_user_details", "namespace_id", restPart, nullify, "", ""},
		{r.plan.groups, "group_deletion_schedules", "group_id", lastPart, remove, "", ""},
	} {
		found := named[c.name]
		if c.of != to || found == nil || !found.IsTable() {
			continue
		}
		_, there := found.Columns[c.column]
		_, needed := found.Columns[c.needed]
		keyed := slices.ContainsFunc(c.of.refs, func(f *ref) bool {
			return f.table.OID == found.OID && slices.Equal(f.columns, []string{c.column})
		})
		if !there || c.needed != "" && !needed || keyed {
			continue
		}
		f := &ref{
			target: c.of.OID, table: r.table(found), leaves: found.Leaves, from: item(found), columns: []string{c.column}, targets: []string{"id"},
			action: c.action, set: []string{c.column}, part: c.part,
		}
		if !r.compare(f, found) {
			continue
		}
		if c.needed != "" {
			own, err := r.operators.Own(found.Columns[c.needed])
			if err != nil {
				r.reportf(problem.Error, "make it a text", "column %s of %s: %v", c.needed, found.Label(), err)
				continue
			}
			f.where = own.Equal("child."+identifier(c.needed), c.value)
		}
		c.of.refs = append(c.of.refs, f)
	}
}

// order sorts the keys of each table: first those whose rows are deleted, what refers to other tables of the plan before
// them, so that rows are not set to NULL first and deleted then.
func (r *resolver) order(doomed map[*table]bool) {
	rank := map[*table]int{}
	var visit func(t *table)
	visit = func(t *table) {
		if _, seen := rank[t]; seen {
			return
		}
		rank[t] = 0 // Keys that form a ring have to be cut somewhere.
		for _, f := range t.refs {
			if f.action != forbid {
				visit(f.table)
			}
		}
		r.plan.reachable = append(r.plan.reachable, t)
		rank[t] = len(r.plan.reachable)
	}
	visit(r.plan.groups)
	r.plan.reachable = slices.DeleteFunc(r.plan.reachable, func(t *table) bool { return !doomed[t] })
	for t := range maps.Keys(rank) {
		slices.SortStableFunc(t.refs, func(a, b *ref) int {
			if a.part != b.part {
				return int(a.part) - int(b.part)
			}
			if changes := (a.action != remove) != (b.action != remove); changes {
				return int(a.action) - int(b.action)
			}
			return rank[a.table] - rank[b.table]
		})
	}
}

// checkRef reports what stands in the way of a key, or makes it slow.
func (r *resolver) checkRef(t *table, f *ref) {
	if f.action == forbid {
		r.plan.forbidden = append(r.plan.forbidden, f)
	}
	for _, leaf := range f.leaves {
		leads := slices.ContainsFunc(f.columns, func(column string) bool {
			return r.relation[leaf.OID] != nil && r.relation[leaf.OID].Leads(leaf.OID, column) || f.table.Leads(leaf.OID, column)
		})
		if !leads {
			r.reportf(problem.Warning, fmt.Sprintf("CREATE INDEX CONCURRENTLY ON %s (%s)", leaf.SQL(), strings.Join(f.columns, ", ")),
				"no index of %s begins with %s, which refers to %s: every look reads the whole table", leaf.Label(), strings.Join(f.columns, " or "), t.Label())
		}
	}
}

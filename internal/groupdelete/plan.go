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

// action is what becomes of the rows that refer to a row which is to go.
type action int

const (
	// remove deletes them first, with all that hangs below them.
	remove action = iota
	nullify
	setDefault
	// forbid does nothing: while there are such rows, the row that they refer to stays.
	forbid
)

// ref is a foreign key, or a column that the application treats as one.
type ref struct {
	// constraint is the key's name; empty for a mere column.
	constraint string
	// target is the relation that it refers to; where that is a partition, only holds the leaves below it.
	target uint32
	only   map[uint32]bool
	// table has the key, or has the partition that has it; leaves and from are of the latter: what statements address,
	// and the item of a FROM clause that stands for all of them.
	table            *table
	leaves           []pgcatalog.Table
	from             string
	columns, targets []string
	action           action
	// set are the columns that the action changes. setNull tells that a forbidding key would set them to NULL, which they
	// cannot be.
	set     []string
	setNull bool
	// where restricts the rows of a mere column further, with the alias child. Those that later names as well stay until the
	// last transaction.
	where, later string
	// part is the place in the order of a group's destruction.
	part part
	// rows is the size of a statement that changes rows of the key in place.
	rows float64
}

// part orders what a group's destruction does.
type part int

const (
	projectsPart part = iota
	subgroupsPart
	membershipsPart
	restPart
	// lastPart goes in the transaction that deletes the group.
	lastPart
)

// what tells the rows of a table apart whose end is an event.
type what int

const (
	ordinary what = iota
	project
	group
)

// table is an ordinary table, or a partitioned one with all its partitions.
type table struct {
	*pgcatalog.Relation

	what what
	// refs are the keys that refer to it, in the order in which they are worked off: what refers to other tables of
	// the plan comes before them.
	refs []*ref
	// rows is the size of a statement that deletes rows, window that of the rows whose trees are taken down together.
	rows, window float64
	slow         bool
}

// Plan says what hangs below groups and projects, as the foreign keys of one state of the database have it: resolve anew
// for each run. A plan must not be used by two runs at a time.
type Plan struct {
	groups, projects, members, users *table
	// bots tells that project bots among the members pass to the queue of users who are deleted.
	bots bool
	// reachable are all tables whose rows may be deleted along, children first.
	reachable []*table
	// projectPath tells that projects have a path.
	projectPath bool
	forbidden   []*ref
}

// Tables returns the labels of the tables whose rows may be deleted along with a group, in the order of the work.
func (p *Plan) Tables() []string {
	var labels []string
	for _, t := range p.reachable {
		labels = append(labels, t.Label())
	}
	return labels
}

// refsOf are the keys that refer to rows in the leaf.
func (t *table) refsOf(leaf pgcatalog.Table) []*ref {
	var refs []*ref
	for _, f := range t.refs {
		if f.only == nil || f.only[leaf.OID] {
			refs = append(refs, f)
		}
	}
	return refs
}

// label names the key for people: table.column, or table(column, column).
func (f *ref) label() string {
	if len(f.columns) == 1 {
		return f.table.Label() + "." + f.columns[0]
	}
	return f.table.Label() + "(" + strings.Join(f.columns, ", ") + ")"
}

// errNoApplication says that there is nothing to plan for.
var errNoApplication = errors.New("the application's tables do not fit")

// Resolve reads the plan from the catalogue. Problems of severity error mean that there is none: then the plan is nil.
//
// With ghostUsers there is the queue of users who are deleted, which the groups' project bots enter.
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
		where, needed string
	}{
		{r.plan.groups, "projects", "group_id", projectsPart, remove, "", ""},
		{r.plan.groups, "groups", "parent_id", subgroupsPart, remove, "", ""},
		{r.plan.groups, "members", "source_id", membershipsPart, remove, "child.source_type = 'Namespace'", "source_type"},
		{r.plan.projects, "members", "source_id", membershipsPart, remove, "child.source_type = 'Project'", "source_type"},
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
			action: c.action, set: []string{c.column}, where: c.where, part: c.part,
		}
		if c.of == r.plan.groups && c.name == "members" && r.plan.bots {
			f.later = fmt.Sprintf("EXISTS (SELECT FROM %s AS bot WHERE bot.id = child.user_id AND bot.user_type = 6)", r.plan.users.SQL())
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

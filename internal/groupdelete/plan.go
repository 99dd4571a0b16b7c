package groupdelete

import (
	"cmp"
	"fmt"
	"strings"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

type (
	table  = dml.Table
	ref    = dml.Ref
	window = dml.Window
	rows   = dml.Rows
)

// The parts of a group's destruction, in their order: dml.Ref.Part of the keys that refer
// to groups.
const (
	projectsPart = iota
	subgroupsPart
	membershipsPart
	restPart
	// lastPart goes in the transaction that deletes the group.
	lastPart
)

// Plan says what hangs below groups and projects, as the foreign keys of one state of the
// database have it: resolve anew for each run. A plan must not be used by two runs at a
// time.
type Plan struct {
	groups                   groups
	projects, members, users *table
	key                      dml.Key
	// bots reports that project bots pass to the queue of users who are deleted, with
	// their memberships in groups and projects.
	bots bool
	// reachable are all tables whose rows may be deleted along, children first.
	reachable []*table
	// projectPath reports that projects have a path.
	projectPath bool
	// parallel reports that several projects can be deleted at the same time.
	parallel bool
}

// Groups names the table of groups in the tracked schema, its key, and the column of the
// key of the group above, if there is one. Path is the column by which people know a
// group. The zero value is GitLab's groups, with projects and memberships.
type Groups struct{ Table, Key, Parent, Path string }

// groups is the table of groups.
type groups struct {
	Groups

	table *table
}

// gitlab reports that the groups have GitLab's columns.
func (p *Plan) gitlab() bool { return p.groups.Table == "" }

// table is the table of groups in a FROM clause.
func (p *Plan) table() string { return dml.Item(p.groups.table.Relation) }

// marked is the same with GitLab's columns, including the mark.
func (p *Plan) marked(names pgcatalog.Names) string {
	if p.gitlab() {
		return p.table()
	}
	return names.Render(`"public".groups`)
}

// id is the key of a group.
func (p *Plan) id(alias string) string { return alias + "." + pgcatalog.Quote(p.key.KeyColumns[0]) }

// parent is the key of the group above.
func (p *Plan) parent(alias string) string {
	return p.column(alias, cmp.Or(p.groups.Parent, "parent_id"), p.gitlab() || p.groups.Parent != "", p.key.KeyTypes[0])
}

// path is the name of a group for people.
func (p *Plan) path(alias string) string {
	return p.column(alias, cmp.Or(p.groups.Path, "path"), p.gitlab() || p.groups.Path != "", "pg_catalog.text")
}

func (p *Plan) column(alias, name string, exists bool, kind string) string {
	if exists {
		return alias + "." + pgcatalog.Quote(name)
	}
	return "NULL::" + kind
}

// ID returns the key of a group by its text form.
func (p *Plan) ID(text string) dml.ID { return dml.ID{Text: text, Integer: p.key.Integer} }

// parameter is a key as a parameter of the type of the column that it is compared with.
func (p *Plan) parameter(id dml.ID) any {
	if p.key.Integer {
		return id.Number()
	}
	return id.Text
}

// lock locks a group.
func (p *Plan) lock(id dml.ID) batch.Statement {
	return batch.Statement{
		SQL: fmt.Sprintf("SELECT FROM %s AS target WHERE %s OPERATOR(pg_catalog.=) $1 FOR UPDATE", p.table(),
			p.id("target")),
		Args: []any{p.parameter(id)},
	}
}

// group is the run's group as a parameter.
func (r *run) group() any { return r.engine.Plan.parameter(r.engine.GroupID) }

// extra returns the further work of a statement that deletes rows of a table: it writes
// their event, or queues project bots for deletion.
func (p *Plan) extra(names pgcatalog.Names, t *table) dml.Extra {
	if p.bots && t == p.members {
		return dml.Extra{
			CTE: statement(names, "bots", "{users}", p.users.SQL()), Returning: []string{"target.user_id"},
			Selected: "(SELECT pg_catalog.count(*) FROM bot)",
		}
	}
	kind, columns := "project_destroyed", [][2]string{
		{"project_id", "target.id"},
		{"group_id", "target.group_id"},
		{"path", "target.path"},
	}
	switch {
	case t == p.groups.table:
		kind, columns = "group_destroyed", [][2]string{
			{"group_id", p.id("target")}, {"parent_id", p.parent("target")}, {"path", p.path("target")},
		}
	case t != p.projects:
		return dml.Extra{}
	case !p.projectPath:
		columns = columns[:2]
	}
	payload := render.Each(columns, func(c [2]string) string { return fmt.Sprintf("'%[1]s', deleted.%[1]s", c[0]) })
	return dml.Extra{
		Returning: render.Each(columns, func(c [2]string) string { return c[1] + " AS " + c[0] }),
		CTE: fmt.Sprintf(
			"event AS (INSERT INTO %s (kind, payload) SELECT '%s', pg_catalog.jsonb_build_object(%s, 'destroyed_with', $3::%s) FROM deleted)",
			names.Render(`"sexton".events`), kind, strings.Join(payload, ", "), p.key.KeyTypes[0]),
	}
}

// owner returns the Owner that counts rows for the group.
func (r *run) owner() dml.Owner {
	plan, names := r.engine.Plan, r.engine.Session.Names
	return dml.Owner{
		ID: r.group(), IDType: plan.key.KeyTypes[0],
		Deleted: statement(names, "touched", "{changed}", "deleted"),
		Changed: statement(names, "touched", "{changed}", "changed"),
		Extra:   func(t *table) dml.Extra { return plan.extra(names, t) },
		OnDeleted: func(t *table, n, bots int64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.final = r.final || n > 0
			r.stats.Bots += bots
			r.stats.count(plan, t, n)
		},
		OnChanged: func(f *ref, n int64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.final = true
			r.stats.Nullified[f.Label()] += n
		},
		Failed: func(f batch.Fault) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.stats.fail(f)
		},
	}
}

// Blocking returns the foreign keys without an action whose rows stop a destruction
// unless they are deleted before.
func (p *Plan) Blocking() (keys []string) {
	for _, t := range p.reachable {
		for _, f := range t.Refs {
			if f.Action == dml.Forbid {
				keys = append(keys, f.Blocks(t))
			}
		}
	}
	return keys
}

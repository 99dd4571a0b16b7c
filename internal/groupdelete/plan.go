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

// These constants are the parts of a group's destruction, in order. dml.Ref.Part holds
// the part of each key that refers to groups.
const (
	projectsPart = iota
	subgroupsPart
	membershipsPart
	restPart
	// lastPart contains the rows that are deleted in the same transaction as the group.
	lastPart
)

// Plan holds the tables below groups and projects, as of one snapshot of the database.
// Each run must resolve its own plan, and two runs must not use a plan at the same time.
type Plan struct {
	groups                   groups
	projects, members, users *table
	key                      dml.Key
	// bots reports that project bots are queued for deletion when their membership in a
	// group or project is deleted.
	bots bool
	// reachable lists all tables whose rows may be deleted, children first.
	reachable []*table
	// projectPath reports that projects have a path.
	projectPath bool
}

// Groups names the table of groups in the tracked schema. Key is its key column, Parent
// the column with the key of the group above, and Path the column with a display name.
// Parent and Path may be empty. The zero value means GitLab's groups with projects and
// memberships.
type Groups struct{ Table, Key, Parent, Path string }

// groups is the configured table of groups with its entry in the catalog.
type groups struct {
	Groups

	table *table
}

// gitlab reports that the groups have GitLab's columns.
func (p *Plan) gitlab() bool { return p.groups.Table == "" }

// table returns the table of groups for a FROM clause.
func (p *Plan) table() string { return dml.FromItem(p.groups.table.Relation) }

// marked returns a table or view for a FROM clause that has the columns of GitLab's table
// groups, including the mark.
func (p *Plan) marked(names pgcatalog.Names) string {
	if p.gitlab() {
		return p.table()
	}
	return names.Render(`"public".groups`)
}

// id returns the key column of groups.
func (p *Plan) id(alias string) string { return alias + "." + pgcatalog.Quote(p.key.KeyColumns[0]) }

// parent returns the column with the key of the group above, or a NULL.
func (p *Plan) parent(alias string) string {
	return p.column(alias, cmp.Or(p.groups.Parent, "parent_id"), p.gitlab() || p.groups.Parent != "", p.key.KeyTypes[0])
}

// path returns the column with the display name of a group, or a NULL.
func (p *Plan) path(alias string) string {
	return p.column(alias, cmp.Or(p.groups.Path, "path"), p.gitlab() || p.groups.Path != "", "pg_catalog.text")
}

func (p *Plan) column(alias, name string, exists bool, kind string) string {
	if exists {
		return alias + "." + pgcatalog.Quote(name)
	}
	return "NULL::" + kind
}

// ID returns the key of a group from its text form.
func (p *Plan) ID(text string) dml.ID { return dml.ID{Text: text, Integer: p.key.Integer} }

// lock returns a statement that locks a group.
func (p *Plan) lock(id dml.ID) batch.Statement {
	return batch.Statement{
		SQL: fmt.Sprintf("SELECT FROM %s AS target WHERE %s OPERATOR(pg_catalog.=) $1 FOR UPDATE", p.table(),
			p.id("target")),
		Args: []any{p.key.Argument(id)},
	}
}

// group returns the key of the run's group as an argument of statements.
func (r *run) group() any { return r.engine.Plan.key.Argument(r.engine.GroupID) }

// extra returns an addition to the statement that deletes rows of a table. The addition
// writes an event for each deleted group or project, or queues project bots for deletion.
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

// owner returns the dml.Owner that counts deleted and changed rows for the run's group.
func (r *run) owner() dml.Owner {
	plan, names := r.engine.Plan, r.engine.Session.Names
	return dml.Owner{
		ID: r.group(), IDType: plan.key.KeyTypes[0],
		Deleted: statement(names, "touched", "{changed}", "deleted"),
		Changed: statement(names, "touched", "{changed}", "changed"),
		Extra:   func(t *table) dml.Extra { return plan.extra(names, t) },
		OnDeleted: func(t *table, n, bots int64) {
			r.final = r.final || n > 0
			r.mu.Lock()
			defer r.mu.Unlock()
			r.stats.Bots += bots
			r.stats.count(plan, t, n)
		},
		OnChanged: func(f *ref, n int64) {
			r.final = true
			r.mu.Lock()
			defer r.mu.Unlock()
			r.stats.Nullified[f.Label()] += n
		},
		Failed: func(f batch.Fault) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.stats.fail(f)
		},
	}
}

// Blocking describes the foreign keys without an action. Rows that refer by these keys
// block a destruction unless the destruction deletes them first.
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

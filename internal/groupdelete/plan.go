package groupdelete

import (
	"fmt"
	"strings"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
)

type (
	table  = dml.Table
	ref    = dml.Ref
	window = dml.Window
	rows   = dml.Rows
)

// The parts of a group's destruction, in their order: dml.Ref.Part of the keys that refer to groups.
const (
	projectsPart = iota
	subgroupsPart
	membershipsPart
	restPart
	// lastPart goes in the transaction that deletes the group.
	lastPart
)

// Plan says what hangs below groups and projects, as the foreign keys of one state of the database have it: resolve anew
// for each run. A plan must not be used by two runs at a time.
type Plan struct {
	groups, projects, members, users *table
	// bots reports that project bots pass to the queue of users who are deleted, with their memberships in groups and projects.
	bots bool
	// reachable are all tables whose rows may be deleted along, children first.
	reachable []*table
	// projectPath reports that projects have a path.
	projectPath bool
	// parallel reports that several projects can be deleted at the same time.
	parallel bool
}

// extra returns the further work of a statement that deletes rows of a table: it writes their
// event, or queues project bots for deletion.
func (p *Plan) extra(names pgcatalog.Names, t *table) dml.Extra {
	if p.bots && t == p.members {
		return dml.Extra{
			CTE: statement(names, "bots", "{users}", p.users.SQL()), Returning: ", target.user_id", Selected: "(SELECT pg_catalog.count(*) FROM bot)",
		}
	}
	kind, columns := "project_destroyed", [][2]string{{"project_id", "id"}, {"group_id", "group_id"}, {"path", "path"}}
	switch {
	case t == p.groups:
		kind, columns = "group_destroyed", [][2]string{{"group_id", "id"}, {"parent_id", "parent_id"}, {"path", "path"}}
	case t != p.projects:
		return dml.Extra{}
	case !p.projectPath:
		columns = columns[:2]
	}
	var payload, returning strings.Builder
	for _, c := range columns {
		fmt.Fprintf(&payload, "'%s', gone.%s, ", c[0], c[1])
		returning.WriteString(", target." + c[1])
	}
	return dml.Extra{Returning: returning.String(), CTE: fmt.Sprintf(
		"event AS (INSERT INTO %s (kind, payload) SELECT '%s', pg_catalog.jsonb_build_object(%s'destroyed_with', $3::bigint) FROM gone)",
		names.Render(`"sexton".events`), kind, payload.String())}
}

// owner returns the Owner that counts rows for the group.
func (r *run) owner() dml.Owner {
	plan, names := r.engine.Plan, r.engine.Session.Names
	return dml.Owner{
		ID: r.engine.GroupID, Deleted: statement(names, "touched", "{changed}", "gone"), Changed: statement(names, "touched", "{changed}", "changed"),
		Extra: func(t *table) dml.Extra { return plan.extra(names, t) },
		Gone: func(t *table, n, bots int64) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.final = r.final || n > 0
			r.stats.Bots += bots
			r.stats.count(plan, t, n)
		},
		Altered: func(f *ref, n int64) {
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

// Blocking returns the foreign keys without an action whose rows stop a destruction unless they are deleted before.
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

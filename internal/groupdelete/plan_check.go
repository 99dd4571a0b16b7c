package groupdelete

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/drain"
)

const (
	// mostGroups bounds the groups that are looked at before a destruction begins, rootsAtOnce how many groups or projects
	// one statement looks below.
	mostGroups  = 100_000
	rootsAtOnce = 100
	// checkTime bounds the look for rows that forbid a destruction. What it does not find is found when its turn comes.
	checkTime = 15 * time.Second
	// mostPaths bounds the ways on which one table is looked at.
	mostPaths = 100
)

// subtree returns the group and those below it, at most mostGroups.
func (r *run) subtree(ctx context.Context) ([]int64, error) {
	groups := drain.Item(r.engine.Plan.groups.Relation)
	return drain.Query(ctx, r.Run, pgx.RowTo[int64], fmt.Sprintf(`
WITH RECURSIVE below AS (
	SELECT target.id FROM %[1]s AS target WHERE target.id OPERATOR(pg_catalog.=) $1
	UNION
	SELECT target.id FROM below JOIN %[1]s AS target ON target.parent_id OPERATOR(pg_catalog.=) below.id
)
SELECT below.id FROM below LIMIT $2`, groups), r.engine.GroupID, mostGroups)
}

// path is a way from groups or projects down to a table, from key to key. None is that table itself.
type path []*ref

// paths returns the ways on which deletions get to a table, none of them through a table twice.
func (p *Plan) paths(root, to *table) (found []path) {
	if !slices.Contains(p.reachable, to) {
		return nil
	}
	var walk func(at *table, so path, seen []*table)
	walk = func(at *table, so path, seen []*table) {
		if len(found) >= mostPaths {
			return
		}
		if at == to {
			found = append(found, slices.Clone(so))
			return
		}
		for _, f := range at.Refs {
			if leads(f) && !slices.Contains(seen, f.Table) {
				walk(f.Table, append(so, f), append(seen, f.Table))
			}
		}
	}
	walk(root, nil, []*table{root})
	return found
}

// leads reports whether deletions get further by a key. Those of groups to groups and projects are not followed: the roots are all of these.
func leads(f *ref) bool {
	return f.Action == drain.Remove && f.Part != projectsPart && f.Part != subgroupsPart
}

// endless are the tables at or below keys that lead in a ring. Deletions get to them on more ways than any number of paths.
func (p *Plan) endless() map[*table]bool {
	var rings []*table
	left := map[*table]bool{} // false for tables on the way to the one in hand
	var visit func(at *table)
	visit = func(at *table) {
		left[at] = false
		for _, f := range at.Refs {
			through, seen := left[f.Table]
			switch {
			case !leads(f):
			case !seen:
				visit(f.Table)
			case !through:
				rings = append(rings, f.Table)
			}
		}
		left[at] = true
	}
	for _, root := range []*table{p.groups, p.projects} {
		if _, seen := left[root]; !seen {
			visit(root)
		}
	}
	found := map[*table]bool{}
	for ; len(rings) > 0; rings = rings[1:] {
		at := rings[0]
		if found[at] {
			continue
		}
		found[at] = true
		for _, f := range at.Refs {
			if leads(f) {
				rings = append(rings, f.Table)
			}
		}
	}
	return found
}

// barrier is a key whose rows forbid the end of the rows that they refer to.
type barrier struct {
	of *table
	by *ref
}

// findBarriers finds the ones that can be looked for before the beginning: all ways on which rows of the key may go themselves have to be known.
func (p *Plan) findBarriers() {
	endless := p.endless()
	for _, t := range p.reachable {
		for _, f := range t.Refs {
			if f.Action == drain.Forbid && f.Only == nil && !endless[f.Table] &&
				len(p.paths(p.groups, f.Table)) < mostPaths && len(p.paths(p.projects, f.Table)) < mostPaths {
				p.barriers = append(p.barriers, barrier{of: t, by: f})
			}
		}
	}
}

// down is the FROM clause of a path, with the aliases prefix0, prefix1 … from its root on.
func (p path) down(root *table, prefix string) string {
	var sql strings.Builder
	fmt.Fprintf(&sql, "%s AS %s0", drain.Item(root.Relation), prefix)
	for i, f := range p {
		fmt.Fprintf(&sql, " JOIN %s AS %s%d ON %s", f.From, prefix, i+1, f.On(fmt.Sprint(prefix, i+1), fmt.Sprint(prefix, i)))
	}
	return sql.String()
}

// targeted is true for a row (alias child) that goes with one of the groups $2.
func (p *Plan) targeted(t *table) string {
	var terms []string
	for root, column := range map[*table]string{p.groups: "id", p.projects: "group_id"} {
		for _, way := range p.paths(root, t) {
			if len(way) == 0 {
				terms = append(terms, "child."+column+" OPERATOR(pg_catalog.=) ANY ($2::bigint[])")
				continue
			}
			last := way[len(way)-1]
			upper := way[:len(way)-1]
			terms = append(terms, fmt.Sprintf("EXISTS (SELECT FROM %s WHERE %s AND up0.%s OPERATOR(pg_catalog.=) ANY ($2::bigint[]))",
				upper.down(root, "up"), last.On("child", fmt.Sprint("up", len(upper))), column))
		}
	}
	slices.Sort(terms)
	return strings.Join(append(terms, "$2::bigint[] IS NULL"), "\n\tOR ")
}

// forbiddenStatement shows a row of the key that forbids the destruction: it refers to one that
// hangs below the roots $1, and does not go itself with the groups $2.
func (p *Plan) forbiddenStatement(root *table, way path, f *ref) string {
	return fmt.Sprintf(`SELECT %s FROM %s JOIN %s AS child ON %s
WHERE down0.id OPERATOR(pg_catalog.=) ANY ($1::bigint[]) AND (%s) IS NOT TRUE
LIMIT 1`, f.Table.Shown("child"), way.down(root, "down"), f.From, f.On("child", fmt.Sprint("down", len(way))), p.targeted(f.Table))
}

// forbidden looks, before the destruction begins, for rows that its end would be refused for. It returns the reason, or nil.
func (r *run) forbidden(ctx context.Context, groups []int64) (*batch.Fault, error) {
	p := r.engine.Plan
	if len(p.barriers) == 0 {
		return nil, nil //nolint:nilnil // documented: nothing forbids it
	}
	until := time.Now().Add(checkTime)
	for at := 0; at < len(groups) && time.Now().Before(until); at += rootsAtOnce {
		some := groups[at:min(at+rootsAtOnce, len(groups))]
		if found, err := r.forbiddenBelow(ctx, p.groups, some, groups); found != nil || err != nil {
			return found, err
		}
		for last := int64(0); time.Now().Before(until); {
			projects, err := drain.Query(ctx, r.Run, pgx.RowTo[int64], fmt.Sprintf(
				"SELECT project.id FROM %s AS project WHERE project.group_id OPERATOR(pg_catalog.=) ANY ($1::bigint[])"+
					" AND project.id OPERATOR(pg_catalog.>) $2 ORDER BY project.id LIMIT $3",
				drain.Item(p.projects.Relation)), some, last, rootsAtOnce)
			if err != nil {
				return nil, fmt.Errorf("look for rows that forbid the destruction: %w", err)
			}
			if len(projects) == 0 {
				break
			}
			if found, err := r.forbiddenBelow(ctx, p.projects, projects, groups); found != nil || err != nil {
				return found, err
			}
			last = projects[len(projects)-1]
		}
	}
	return nil, nil //nolint:nilnil // documented: nothing forbids it
}

// forbiddenBelow looks below some groups or projects. Where that takes too long it is left to the rows' own turn.
func (r *run) forbiddenBelow(ctx context.Context, root *table, roots, groups []int64) (*batch.Fault, error) {
	p := r.engine.Plan
	for _, b := range p.barriers {
		for _, way := range p.paths(root, b.of) {
			shown, err := drain.Query(ctx, r.Run, pgx.RowTo[string], p.forbiddenStatement(root, way, b.by), roots, groups)
			if verdict := batch.Judge(err).Verdict; err != nil && verdict != batch.Timeout && verdict != batch.LockTimeout {
				return nil, fmt.Errorf("look for rows that forbid the destruction: %w", err)
			}
			if len(shown) > 0 {
				return &batch.Fault{Table: b.by.Table.Label(), Message: b.by.Forbids(b.of, shown[0]), Verdict: batch.Row}, nil
			}
		}
	}
	return nil, nil //nolint:nilnil // documented: nothing forbids it
}

const (
	// sampled are the projects that stand for all in the estimate, mostSampled bounds the rows below them that are counted,
	// mostProjects the projects.
	sampled      = 5
	mostSampled  = 20_000
	mostProjects = 10_000
)

// estimate guesses how many rows will go: the groups, and so many times what hangs below a few projects as there are projects.
func (r *run) estimate(ctx context.Context, groups []int64) (int64, error) {
	projects := r.engine.Plan.projects
	total := int64(len(groups))
	counted, err := drain.Query(ctx, r.Run, pgx.RowTo[int64], fmt.Sprintf(
		"SELECT pg_catalog.count(*) FROM (SELECT FROM %s AS project WHERE project.group_id OPERATOR(pg_catalog.=) ANY ($1::bigint[]) LIMIT $2) AS counted",
		drain.Item(projects.Relation)), groups, mostProjects)
	if err != nil {
		return 0, fmt.Errorf("estimate the rows of the group: %w", err)
	}
	for _, leaf := range projects.Leaves {
		found, err := r.Versions(ctx, fmt.Sprintf(
			"SELECT project.ctid, project.xmin FROM ONLY %s AS project WHERE project.group_id OPERATOR(pg_catalog.=) ANY ($1::bigint[]) LIMIT $2",
			leaf.SQL()), groups, sampled)
		if err != nil {
			return 0, fmt.Errorf("estimate the rows of the group: %w", err)
		}
		if n := len(found); n > 0 {
			below, err := r.Expand(ctx, &window{Table: projects, Leaf: leaf, Rows: found}, mostSampled)
			if err != nil {
				return 0, fmt.Errorf("estimate the rows of the group: %w", err)
			}
			return total + counted[0]*int64(below.Rows)/int64(n), nil
		}
	}
	return total, nil
}

package groupdelete

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain/dml"
)

// mostGroups bounds the groups that are counted before a destruction begins.
const mostGroups = 100_000

// subtree returns the group and those below it, at most mostGroups.
func (p *Plan) subtree(ctx context.Context, read dml.Reader, group dml.ID) ([]dml.ID, error) {
	if p.groups.Parent == "" && !p.gitlab() {
		return []dml.ID{group}, nil
	}
	return dml.Select(ctx, read, pgx.RowTo[dml.ID], fmt.Sprintf(`
WITH RECURSIVE below AS (
	SELECT %[2]s AS id FROM %[1]s AS target WHERE %[2]s OPERATOR(pg_catalog.=) $1
	UNION
	SELECT %[2]s FROM below JOIN %[1]s AS target ON %[3]s OPERATOR(pg_catalog.=) below.id
)
SELECT pg_catalog.to_jsonb(below.id) FROM below LIMIT $2`, p.table(), p.id("target"), p.parent("target")), p.parameter(group), mostGroups)
}

const (
	// sampled is the number of projects below which the estimate counts, mostSampled bounds the rows below them, mostProjects
	// the projects.
	sampled      = 5
	mostSampled  = 20_000
	mostProjects = 10_000
)

// estimate estimates how many rows are deleted: the groups, and for each project as many as hang below a few of them.
func (p *Plan) estimate(ctx context.Context, read dml.Reader, below []dml.ID) (int64, error) {
	projects, groups := p.projects, dml.KeysOf(p.key.Integer, below...)
	total := int64(len(below))
	if projects == nil {
		return total, nil
	}
	counted, err := dml.Select(ctx, read, pgx.RowTo[int64], fmt.Sprintf(
		"SELECT pg_catalog.count(*) FROM (SELECT FROM %s AS project WHERE project.group_id OPERATOR(pg_catalog.=) ANY ($1::bigint[]) LIMIT $2) AS counted",
		dml.Item(projects.Relation)), groups, mostProjects)
	if err != nil {
		return 0, fmt.Errorf("estimate the rows of the group: %w", err)
	}
	for _, leaf := range projects.Leaves {
		found, err := dml.Select(ctx, read, dml.ScanRow, fmt.Sprintf(
			"SELECT project.ctid, project.xmin FROM ONLY %s AS project WHERE project.group_id OPERATOR(pg_catalog.=) ANY ($1::bigint[]) LIMIT $2",
			leaf.SQL()), groups, sampled)
		if err != nil {
			return 0, fmt.Errorf("estimate the rows of the group: %w", err)
		}
		if n := len(found); n > 0 {
			rows, err := (&window{Table: projects, Leaf: leaf, Rows: found}).Expand(ctx, read, mostSampled)
			if err != nil {
				return 0, fmt.Errorf("estimate the rows of the group: %w", err)
			}
			return total + counted[0]*int64(rows.Rows)/int64(n), nil
		}
	}
	return total, nil
}

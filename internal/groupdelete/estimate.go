package groupdelete

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"sexton/internal/drain/dml"
)

const (
	// mostGroups limits the groups that are counted before a destruction begins.
	mostGroups = 100_000
	// sampled is the number of projects below which rows are counted. mostSampled limits
	// the counted rows below these projects. mostProjects limits the counted projects.
	sampled      = 5
	mostSampled  = 20_000
	mostProjects = 10_000
)

// estimate returns an estimate of the rows that will be deleted. It counts the groups,
// and multiplies the number of projects by the average number of rows below a few
// projects. The ids of the groups are not sent to the client, because there may be
// mostGroups of them.
func (p *Plan) estimate(ctx context.Context, read dml.Reader, group dml.ID) (int64, error) {
	if p.groups.Parent == "" && !p.gitlab() {
		return 1, nil
	}
	subtree := fmt.Sprintf(`
WITH RECURSIVE reached AS (
	SELECT %[2]s AS id FROM %[1]s AS target WHERE %[2]s OPERATOR(pg_catalog.=) $1
	UNION
	SELECT %[2]s FROM reached JOIN %[1]s AS target ON %[3]s OPERATOR(pg_catalog.=) reached.id
), below AS MATERIALIZED (SELECT reached.id FROM reached LIMIT $2)`, p.table(), p.id("target"), p.parent("target"))
	total, err := dml.Select(ctx, read, pgx.RowTo[int64], subtree+" SELECT pg_catalog.count(*) FROM below",
		p.key.Argument(group), mostGroups)
	if err != nil {
		return 0, fmt.Errorf("count the groups below group %s: %w", group, err)
	}
	if p.projects == nil {
		return total[0], nil
	}
	var projects int64
	var leaf uint32
	var found rows
	_, err = dml.Select(ctx, read, func(row pgx.CollectableRow) (struct{}, error) {
		var of uint32
		var one dml.Row
		err := row.Scan(&projects, &of, &one.At, &one.Version)
		if len(found) == 0 {
			leaf = of
		}
		if of == leaf {
			found = append(found, one)
		}
		return struct{}{}, err
	}, fmt.Sprintf(subtree+`
SELECT pg_catalog.count(*) OVER (), project.* FROM (
	SELECT project.tableoid, project.ctid, project.xmin FROM %s AS project
	WHERE project.group_id OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT below.id FROM below)) LIMIT $3
) AS project LIMIT $4`, dml.FromItem(p.projects.Relation)), p.key.Argument(group), mostGroups, mostProjects, sampled)
	if err != nil {
		return 0, fmt.Errorf("estimate the rows of the group: %w", err)
	}
	w, known := p.projects.Window(leaf, found)
	if !known {
		return total[0], nil // The group has no projects, or their partition is newer than the plan.
	}
	below, err := w.Expand(ctx, read, mostSampled)
	if err != nil {
		return 0, fmt.Errorf("estimate the rows of the group: %w", err)
	}
	return total[0] + projects*int64(below.Rows)/int64(len(found)), nil
}

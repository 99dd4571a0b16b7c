package installation

import (
	"context"
	"slices"

	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
)

// CheckShapes compares the definitions and the tables and columns in the configuration of
// jobs with the databases. Sexton need not be installed: findings that only `sexton
// migrate up` can fix are omitted.
func (c *Connections) CheckShapes(ctx context.Context, defs []definitions.Definition) (problem.List, error) {
	var found problem.List
	if len(defs) > 0 {
		_, wrong, err := loosefk.Resolve(ctx, c.Sites(), defs)
		if err != nil {
			return nil, err //nolint:wrapcheck // It names what it read.
		}
		found.Add(wrong...)
	}
	for _, job := range riverjobs.Jobs(c.Config) {
		for _, name := range job.Databases {
			wrong, err := c.checkJob(ctx, job, name)
			if err != nil {
				return nil, err
			}
			found.Add(wrong...)
		}
	}
	return slices.DeleteFunc(found, func(p problem.Problem) bool { return p.Fix == "run `sexton migrate up`" }), nil
}

// checkJob compares the configuration of a kind with a database that it serves. It
// ignores an unreachable database.
func (c *Connections) checkJob(ctx context.Context, job riverjobs.Job, name string) (problem.List, error) {
	if job.Check == nil || c.Down[name] != nil {
		return nil, nil //nolint:nilerr // see above
	}
	return job.Check(ctx, c.Config, c.Database(name))
}

package groupdelete

import (
	"context"

	"sexton/internal/drain/dml"
)

// Tables returns the labels of the tables whose rows may be deleted along with a group,
// in the order of the work.
func (p *Plan) Tables() []string {
	var labels []string
	for _, t := range p.reachable {
		labels = append(labels, t.Label())
	}
	return labels
}

// Parallel reports whether several projects can be deleted at the same time.
func (p *Plan) Parallel() bool { return p.parallel }

// Estimate exports estimate.
func (p *Plan) Estimate(ctx context.Context, read dml.Reader, group dml.ID) (int64, error) {
	return p.estimate(ctx, read, group)
}

package groupdelete

import (
	"context"

	"sexton/internal/drain/dml"
)

// Tables returns the labels of the tables whose rows may be deleted with a group,
// children first.
func (p *Plan) Tables() []string {
	var labels []string
	for _, t := range p.reachable {
		labels = append(labels, t.Label())
	}
	return labels
}

// Estimate calls estimate for tests.
func (p *Plan) Estimate(ctx context.Context, read dml.Reader, group dml.ID) (int64, error) {
	return p.estimate(ctx, read, group)
}

package loosefk

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/drain"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgschema"
)

var (
	schemas = pgschema.Names{Jobs: "sexton_jobs", Tracked: `App "one"`}
	plain   = pgcatalog.Comparison{Operator: "OPERATOR(pg_catalog.=)", After: "OPERATOR(pg_catalog.>)"}
)

func TestChunkSizeFollowsTheHeaviestLiveReference(t *testing.T) {
	t.Parallel()

	light := &Reference{Edge: drain.Edge{Action: drain.Remove}}
	heavy := &Reference{Edge: drain.Edge{Action: drain.Remove}, Definition: definitions.Definition{DeleteLimit: 100}}
	parent := &Parent{References: []*Reference{light, heavy}}
	require.Equal(t, 9, parent.chunkSize([]bool{true, false}, (*Reference).limit), "100 rows per parent are assumed at first")
	light.learn(10, 20, false)
	require.Equal(t, 450, parent.chunkSize([]bool{true, false}, (*Reference).limit))
	heavy.learn(1, 1000, true)
	require.Equal(t, 1, parent.chunkSize([]bool{true, true}, (*Reference).limit), "at least one")
	require.Equal(t, 450, parent.chunkSize([]bool{true, false}, (*Reference).limit), "references without children do not count")
	require.Equal(t, mostLoaded, parent.chunkSize([]bool{false, false}, (*Reference).limit))
}

func TestLearnIsNotPulledDownByCutOffSamples(t *testing.T) {
	t.Parallel()

	var r Reference
	r.learn(1, 1000, true)
	r.learn(10, 1000, true)
	require.InDelta(t, 1000, r.rowsPerParent, 0.1, "a full statement says: at least this many")
	r.learn(10, 100, false)
	require.InDelta(t, 703, r.rowsPerParent, 0.1)
}

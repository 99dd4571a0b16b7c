package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestScanOfABitmapHasTheIndexOfTheNodeBelow(t *testing.T) {
	t.Parallel()
	plan := planNode{NodeType: "ModifyTable", Relation: "c", Plans: []planNode{
		{NodeType: "Seq Scan", Relation: "other"},
		{NodeType: "Bitmap Heap Scan", Relation: "c", Plans: []planNode{{
			NodeType:  "Bitmap Index Scan",
			IndexName: "c_idx",
		}}},
	}}
	require.Equal(t, scan{node: "Bitmap Heap Scan", index: "c_idx"}, plan.scan("c"))
	require.Equal(t, scan{node: "Seq Scan"}, plan.scan("other"))
	require.Equal(t, scan{}, plan.scan("none"))
}

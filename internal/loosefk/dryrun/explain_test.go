package dryrun

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// With other settings than batches have, another plan than theirs would be shown.
func TestEngineSettingsAreThoseOfBatches(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	source := pgtest.Scalar[string](t, db.Database, "SELECT prosrc FROM pg_proc WHERE proname = 'begin_batch'")
	var settings []string
	for _, match := range regexp.MustCompile(`'(enable_\w+|plan_cache_mode)', '(\w+)'`).FindAllStringSubmatch(source, -1) {
		settings = append(settings, "SET LOCAL "+match[1]+" = "+match[2])
	}
	require.NotEmpty(t, settings)
	require.ElementsMatch(t, settings, strings.Split(engineSettings, "; "))
}

func TestScanOfABitmapHasTheIndexOfTheNodeBelow(t *testing.T) {
	t.Parallel()
	plan := planNode{NodeType: "ModifyTable", Relation: "c", Plans: []planNode{
		{NodeType: "Seq Scan", Relation: "other"},
		{NodeType: "Bitmap Heap Scan", Relation: "c", Plans: []planNode{{NodeType: "Bitmap Index Scan", IndexName: "c_idx"}}},
	}}
	require.Equal(t, scan{node: "Bitmap Heap Scan", index: "c_idx"}, plan.scan("c"))
	require.Equal(t, scan{node: "Seq Scan"}, plan.scan("other"))
	require.Equal(t, scan{}, plan.scan("none"))
}

package undo_test

import (
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// delete_tombstones.sql and remove_origin.sql compare keys by a hash. A DELETE of 200,000
// rows has 200,000 tombstones, and comparing each of them with the 5,000 keys of a set
// would exceed the timeout.
func TestTombstonesAreComparedByHash(t *testing.T) {
	t.Parallel()
	b := setup(t, tree, treeDefinitions, "projects", "issues")
	for name, origin := range map[string]any{"delete_tombstones": []int64{1}, "remove_origin": int64(1)} {
		sql := string(pgtest.Must(os.ReadFile("queries/" + name + ".sql"))(t))
		rows, _ := b.Pool().Query(t.Context(), "EXPLAIN "+dbtest.Names().Render(sql), pgx.QueryExecModeExec, origin,
			[]string{"1"}, uint32(1))
		plan := pgtest.Must(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
		require.Contains(t, strings.Join(plan, "\n"), "hashed SubPlan", name)
	}
}

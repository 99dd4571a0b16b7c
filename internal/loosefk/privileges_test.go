package loosefk_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
)

// The fix of each finding is all that it takes.
func TestUnreadableParents(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec(parentsAndChildren + `CREATE SCHEMA "My App"; CREATE TABLE "My App"."Users" (id bigint PRIMARY KEY)`)
	parents := parentsOf(t, db.Pool(), `
children:
  - {table: parents, column: parent_id, on_delete: async_delete}
  - {table: '"My App"."Users"', column: id, on_delete: async_delete}
`)
	pool, err := pgxpool.New(t.Context(), db.AsRole(db.CreateRole()))
	require.NoError(t, err)
	defer pool.Close()
	unreadable := func() map[string]problem.Problem {
		found, err := loosefk.UnreadableParents(t.Context(), pool, parents)
		require.NoError(t, err)
		byTable := map[string]problem.Problem{}
		for _, p := range found {
			require.Equal(t, problem.Error, p.Severity)
			require.Contains(t, p.Message, "its tombstones are held")
			byTable[p.Key] = p
		}
		return byTable
	}
	found := unreadable()
	require.Len(t, found, 2)
	db.Exec(found["public.parents"].Fix)
	db.Exec(found[`"My App"."Users"`].Fix)
	require.Empty(t, unreadable())
}

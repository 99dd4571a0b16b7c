//go:build pooler

package root_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// If the role lacks its search_path setting, sessions behind a transaction pooler start
// with the search_path of the server. Functions of other roles still do not run.
// Transactions first set a fixed search_path. In other statements, the types of operands
// match the operators of Postgres exactly, so that Postgres does not choose an operator
// of another role.
func TestNoCodeOfOtherRolesRunsThroughAPooler(t *testing.T) {
	t.Parallel()
	for _, as := range []string{"superuser", "worker"} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			s, url := trapSite(t, as)
			s.Exec("ALTER ROLE " + pgx.Identifier{s.Worker}.Sanitize() + " RESET search_path")
			pooled := pgtest.Pooler(t, url)
			path := pgtest.Scalar[string](t, pgtest.Connect(t, pooled), "SHOW search_path")
			require.Equal(t, `"$user", public`, path)
			requireNoTraps(t, s, pooled, as)
		})
	}
}

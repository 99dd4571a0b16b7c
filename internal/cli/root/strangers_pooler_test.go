//go:build pooler

package root_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// Behind a transaction pooler, sessions start with another search path if the role lacks
// the setting. Transactions must set the pinned path first. Operands of other statements
// must match the operators of Postgres exactly.
func TestNoStrangersCodeRunsThroughAPooler(t *testing.T) {
	t.Parallel()
	for _, as := range []string{"superuser", "worker"} {
		t.Run(as, func(t *testing.T) {
			t.Parallel()
			s, url := strangers(t, as)
			s.Exec("ALTER ROLE " + pgx.Identifier{s.Worker}.Sanitize() + " RESET search_path")
			pooled := pgtest.Pooler(t, url)
			path := pgtest.Scalar[string](t, pgtest.Connect(t, pooled), "SHOW search_path")
			require.Equal(t, `"$user", public`, path)
			requireNoStrangersCode(t, s, pooled, as)
		})
	}
}

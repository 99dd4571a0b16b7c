package root_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

// What an operator sees of a key of two columns, from installing the triggers to repairing orphans.
func TestCompositeKeysFromEndToEnd(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	s.Exec(`CREATE TABLE tickets (tenant integer, number text, PRIMARY KEY (tenant, number));
		CREATE TABLE comments (id bigint PRIMARY KEY, tenant integer, ticket text);
		INSERT INTO tickets SELECT t, n FROM generate_series(1, 2) AS t, (VALUES ('a'), ('a,b'), ('"')) AS names (n);
		INSERT INTO comments SELECT row_number() OVER (), tenant, number FROM tickets, generate_series(1, 10);
		INSERT INTO comments VALUES (100, 1, NULL)`)
	s.Write("loose_foreign_keys.yml", "comments:\n  - {table: tickets, column: [tenant, ticket], on_delete: async_delete}\n")
	s.OK("migrate", "up")
	r := s.Run("triggers", "install")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stderr, ":2:30: comments[0].column: no index begins with tenant, ticket, so every statement reads all of comments")
	require.Contains(t, s.OK("triggers", "status"), "all triggers are as the definitions need them")

	s.Exec("DELETE FROM tickets WHERE tenant = 1 AND number <> 'a'")
	r = s.Run("plan")
	require.Zero(t, r.Code, r.Stderr)
	require.Empty(t, r.Stderr, "indexes are said once")
	require.Regexp(t, `(?m)^comments +tenant, ticket +tickets +async_delete +2 +0 +20 +Seq Scan on comments`, r.Stdout)
	require.Contains(t, r.Stdout, "CREATE INDEX CONCURRENTLY ON public.comments (tenant, ticket);\n")
	require.Contains(t, s.Run("doctor").Stdout, "CREATE INDEX CONCURRENTLY ON public.comments (tenant, ticket)")
	s.Exec("CREATE INDEX ON comments (ticket, tenant)")
	require.Contains(t, s.OK("tombstones", "list"), `{1,"a,b"}`)
	s.OK("job", "run", clitest.Kind)
	require.EqualValues(t, 41, pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM comments"))

	s.Exec("ALTER TABLE tickets DISABLE TRIGGER ALL; DELETE FROM tickets WHERE tenant = 2; ALTER TABLE tickets ENABLE ALWAYS TRIGGER sexton_track; ALTER TABLE tickets ENABLE ALWAYS TRIGGER sexton_truncate")
	require.Equal(t, 5, s.Run("audit").Code)
	s.Run("audit", "--repair")
	s.OK("job", "run", clitest.Kind)
	require.Zero(t, s.Run("audit").Code)
	require.EqualValues(t, 11, pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM comments"))
}

package operator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
)

func TestNotReadyWithoutGrants(t *testing.T) {
	t.Parallel()
	s := observe(t, "main")
	server := s.servers["main"]
	server.Exec("CREATE TABLE parents (id bigint PRIMARY KEY); CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint); CREATE INDEX ON children (parent_id)")
	defs, err := definitions.Parse(definitions.File{Name: "lfk.yml", Data: []byte("children: [{table: parents, column: parent_id, on_delete: async_delete}]")})
	require.NoError(t, err)
	parents, _, err := loosefk.Resolve(t.Context(), []loosefk.Site{{Name: "main", Schema: "public", DB: server.Pool()}}, defs)
	require.NoError(t, err)

	role := server.CreateRole()
	db, err := database.Open(t.Context(), "main", server.AsRole(role), "", dbtest.Names(), 2)
	require.NoError(t, err)
	t.Cleanup(db.Pool.Close)
	s.all.Databases[0] = db
	ready := NewReadiness(t.Context(), s.all, nil, beating(t, server.Connected))
	ready.WatchGrants(parents)
	reasons := func() []string {
		got := ready.Check(t.Context())
		require.Equal(t, len(got.Databases[0].Reasons) == 0, got.Ready)
		return got.Databases[0].Reasons
	}
	require.NotEmpty(t, reasons())
	for _, right := range []string{
		"USAGE ON SCHEMA sexton", "ALL ON ALL TABLES IN SCHEMA public, sexton", "ALL ON ALL SEQUENCES IN SCHEMA public, sexton",
		"EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton",
	} {
		server.Exec("GRANT " + right + " TO " + role)
	}
	require.NotEmpty(t, ready.grants[0].Get(t.Context()), "the answer is kept, whatever happens meanwhile")
	ready.grants[0].Forget()
	require.Empty(t, reasons())

	for _, lost := range []struct{ right, sentence string }{
		{"DELETE ON sexton.leases", "role " + role + " lacks DELETE on table sexton.leases (GRANT DELETE ON TABLE sexton.leases TO " + role + ")"},
		{"DELETE ON children", "the database role may not clean up table public.children (GRANT SELECT, UPDATE, DELETE ON public.children TO " + role + ")"},
		{
			"SELECT ON parents",
			"public.parents: the database role may not read this parent, so its tombstones are held (GRANT SELECT (id) ON public.parents TO " + role + ")",
		},
	} {
		server.Exec("REVOKE " + lost.right + " FROM " + role)
		ready.grants[0].Forget()
		require.Equal(t, []string{lost.sentence}, reasons())
		server.Exec("GRANT " + lost.right + " TO " + role)
		ready.grants[0].Forget()
		require.Empty(t, reasons())
	}

	server.Exec("REVOKE DELETE ON ALL TABLES IN SCHEMA sexton FROM " + role)
	ready.grants[0].Forget()
	require.Len(t, reasons(), grantsShown+1)
}

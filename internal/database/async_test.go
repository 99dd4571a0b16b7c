package database_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/database"
	"sexton/internal/pgschema"
	"sexton/internal/pgtest"
)

func TestWorkersCommitAsynchronouslyOnOneServerAlone(t *testing.T) {
	t.Parallel()
	first, second, far := pgtest.New(t), pgtest.New(t), pgtest.NewOn(t, pgtest.Server(t))
	first.Exec("ALTER DATABASE " + first.Name + " SET synchronous_commit = 'local'")
	type wants struct{ own, waiting string }
	for name, test := range map[string]struct {
		urls   []string
		direct string
		want   wants
	}{
		"one database":        {[]string{first.URL}, "", wants{"off", "local"}},
		"two on one server":   {[]string{first.URL, second.URL}, "", wants{"off", "local"}},
		"two servers":         {[]string{first.URL, far.URL}, "", wants{"local", ""}},
		"pooler":              {[]string{query(t, first.URL, "&default_query_exec_mode=exec")}, "", wants{"local", ""}},
		"pooler and listener": {[]string{first.URL}, second.URL, wants{"local", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			databases := make([]database.Database, len(test.urls))
			for i, url := range test.urls {
				direct := ""
				if i == 0 {
					direct = test.direct
				}
				db, err := database.Open(t.Context(), "main", url, direct, pgschema.Names{}, 4)
				require.NoError(t, err)
				databases[i] = db
			}
			require.NoError(t, database.ForWork(t.Context(), databases))
			kept := databases[0].Async()
			require.NoError(t, database.ForWork(t.Context(), databases))
			for i := range databases {
				t.Cleanup(databases[i].Close)
			}
			if test.want.own == "off" {
				require.Same(t, kept, databases[0].Async(), "the second time")
			}
			show := func(pool *pgxpool.Pool, setting string) (value string) {
				require.NoError(t, pool.QueryRow(t.Context(), "SELECT coalesce(current_setting($1, true), '')", setting).Scan(&value))
				return value
			}
			db := databases[0]
			require.Equal(t, test.want, wants{show(db.Async(), "synchronous_commit"), show(db.Async(), "sexton.synchronous_commit")})
			require.Equal(t, "local", show(db.Pool, "synchronous_commit"), "what an operator was told waits")
			require.NotEmpty(t, show(db.Sessions, "server_version"), "lanes connect")
		})
	}
}

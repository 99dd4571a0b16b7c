package migrate_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

func withDiffs(t *testing.T, d *pgtest.Database) migrate.Database {
	t.Helper()
	db := everything(t, d)
	db.Components = append(db.Components, migrate.ExternalDiffs)
	return db
}

func TestExternalDiffsComeAndGo(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(sample.Schema())
	before := catalogueWithoutWriters(d)
	db := withDiffs(t, d)
	up(t, db)
	require.NoError(t, migrate.Check(t.Context(), db))
	require.Equal(t, [][]string{{"A"}}, d.Rows("SELECT tgenabled FROM pg_trigger WHERE tgname = 'sexton_external_diffs_removed'"))
	require.Empty(t, component(t, up(t, db), migrate.ExternalDiffs).Applied, "the second run finds nothing to do")

	down(t, migrate.Database{Name: "main", Conn: db.Conn, JobsSchema: "sexton", TrackedSchema: "public"})
	require.Equal(t, before, catalogueWithoutWriters(d))
	up(t, db)
	d.Exec("DROP TABLE merge_request_diffs CASCADE")
	down(t, db)
}

func TestExternalDiffsGrants(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(sample.Schema())
	db := withDiffs(t, d)
	up(t, db)
	application, worker, viewer := d.CreateRole(), d.CreateRole(), d.CreateRole()
	d.Exec(strings.NewReplacer(
		`:"application"`, pgx.Identifier{application}.Sanitize(),
		`:"worker"`, pgx.Identifier{worker}.Sanitize(),
		`:"viewer"`, pgx.Identifier{viewer}.Sanitize(),
	).Replace(migrate.Grants(db)))
	d.Exec("GRANT SELECT, DELETE ON merge_request_diffs, merge_request_diff_files TO " + pgx.Identifier{application}.Sanitize())
	for role, statements := range map[string][]string{
		application: {"DELETE FROM merge_request_diffs", "SELECT * FROM sexton.external_diff_layout(1)"},
		worker: {
			"SELECT * FROM merge_request_diffs FOR UPDATE", "UPDATE merge_request_diff_files SET diff = NULL",
			"SELECT sexton.external_diff_body('x')", "DELETE FROM sexton.external_diff_removals", "SELECT FROM merge_requests, merge_request_metrics",
			"SELECT id, sexton.external_diff_place() FROM sexton.external_diff_installation", "INSERT INTO sexton.external_diff_stores (store) VALUES ('x')",
			"UPDATE sexton.external_diff_stores SET seal = gen_random_uuid()",
		},
		viewer: {"SELECT * FROM sexton.external_diffs, sexton.external_diff_removals, sexton.external_diff_stores"},
	} {
		conn := pgtest.Must(pgx.Connect(t.Context(), d.AsRole(role)+"&search_path=public"))(t)
		for _, statement := range statements {
			_, err := conn.Exec(t.Context(), statement)
			require.NoError(t, err, statement)
		}
		require.NoError(t, conn.Close(t.Context()))
	}
}

func TestEveryInstallationIsItself(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 2 {
		d := pgtest.New(t)
		d.Exec(sample.Schema())
		up(t, withDiffs(t, d))
		rows := d.Rows("SELECT id, sexton.external_diff_place() FROM sexton.external_diff_installation")
		require.Len(t, rows, 1)
		require.Regexp(t, `^[0-9]+/[0-9]+$`, rows[0][1], "the server's identifier and the database's number")
		require.False(t, seen[rows[0][0]] || seen[rows[0][1]])
		seen[rows[0][0]], seen[rows[0][1]] = true, true
	}
}

// Some services keep the server's identifier to themselves.
func TestThePlaceOfADatabaseThatMayNotKnowItsServer(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(sample.Schema())
	up(t, withDiffs(t, d))
	owner := pgx.Identifier{d.CreateRole()}.Sanitize()
	d.Exec("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
	d.Exec("GRANT USAGE, CREATE ON SCHEMA sexton TO " + owner)
	d.Exec("ALTER FUNCTION sexton.external_diff_place() OWNER TO " + owner)
	require.Regexp(t, `^unknown/[0-9]+$`, d.Rows("SELECT sexton.external_diff_place()")[0][0])
}

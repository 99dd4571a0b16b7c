package migrate_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

type probeArgs struct{}

func (probeArgs) Kind() string { return "probe" }

func TestGrants(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec("CREATE SCHEMA app; CREATE TABLE app.parents (id bigint PRIMARY KEY); INSERT INTO app.parents VALUES (1), (2)")
	db := everything(t, d)
	db.TrackedSchema = "app"
	db.Kinds = []migrate.Kind{{Kind: "tidy", Queue: "tidy", MaxAttempts: 1}}
	up(t, db)
	conn := pgtest.Connect(t, d.URL)
	pgtest.Must(triggers.Install(t.Context(), conn, triggers.Config{JobsSchema: "sexton", TrackedSchema: "app"},
		[]triggers.Parent{{Schema: "app", Table: "parents", KeyColumns: []string{"id"}}}))(t)

	application, worker, viewer := d.CreateRole(), d.CreateRole(), d.CreateRole()
	d.Exec(strings.NewReplacer(
		`:"application"`, pgx.Identifier{application}.Sanitize(),
		`:"worker"`, pgx.Identifier{worker}.Sanitize(),
		`:"viewer"`, pgx.Identifier{viewer}.Sanitize(),
	).Replace(migrate.Grants(db)))
	quoted := pgx.Identifier{application}.Sanitize()
	d.Exec("GRANT USAGE ON SCHEMA app TO " + quoted + "; GRANT SELECT, DELETE ON app.parents TO " + quoted)

	as := func(role string) *pgxpool.Pool {
		pool := pgtest.Must(pgxpool.New(t.Context(), d.AsRole(role)))(t)
		t.Cleanup(pool.Close)
		return pool
	}
	allowed := func(pool *pgxpool.Pool, statements ...string) {
		t.Helper()
		for _, statement := range statements {
			_, err := pool.Exec(t.Context(), statement)
			require.NoError(t, err, statement)
		}
	}
	refused := func(pool *pgxpool.Pool, statements ...string) {
		t.Helper()
		for _, statement := range statements {
			_, err := pool.Exec(t.Context(), statement)
			var pgErr *pgconn.PgError
			require.ErrorAs(t, err, &pgErr, statement)
			require.Equal(t, "42501", pgErr.Code, statement)
		}
	}

	allowed(as(application), "DELETE FROM app.parents WHERE id = 1", "SELECT sexton.enqueue('tidy')")
	refused(as(application), "SELECT FROM app.loose_foreign_keys_deleted_records", "SELECT FROM sexton.leases",
		"SELECT FROM sexton.river_job", "SELECT FROM sexton.job_kinds", "SELECT sexton.job_args('tidy', '{}', '{}', '{}')",
		"INSERT INTO app.loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('app.parents', 2)")

	work := as(worker)
	allowed(work,
		"INSERT INTO sexton.leases VALUES ('k', 1, 'h', now(), now())",
		"UPDATE sexton.leases SET token = 2",
		"INSERT INTO sexton.fences VALUES ('k', 1) ON CONFLICT (key) DO UPDATE SET token = excluded.token",
		"SELECT sexton.begin_batch('k', 1, 1000, 1000, false)",
		"INSERT INTO sexton.runs (kind, database, holder) VALUES ('k', 'd', 'h')",
		"DELETE FROM sexton.runs",
		"INSERT INTO sexton.clients (client_id, host, pid) VALUES ('c', 'h', 1)",
		"UPDATE sexton.clients SET seen_at = clock_timestamp()",
		"DELETE FROM sexton.clients",
		"INSERT INTO sexton.schedules VALUES ('k', 'd', now()) ON CONFLICT (kind, database) DO UPDATE SET last_tick = excluded.last_tick",
		"SELECT sexton.enqueue('tidy')",
		"INSERT INTO sexton.samples VALUES (now(), 'd', 't', 1, false, 0, 0, true)",
		"DELETE FROM sexton.samples",
		"INSERT INTO sexton.audit (actor, remote, action, target, reason) VALUES ('a', '', 'pause', 'tidy', '')",
		"DELETE FROM sexton.audit",
		"INSERT INTO sexton.events (kind, payload) VALUES ('k', '{}')",
		"SELECT FROM app.loose_foreign_keys_deleted_records ORDER BY id FOR UPDATE SKIP LOCKED",
		"UPDATE app.loose_foreign_keys_deleted_records SET cleanup_attempts = 1",
		"DELETE FROM app.loose_foreign_keys_deleted_records",
	)
	refused(work, "DELETE FROM app.parents", "DROP TABLE sexton.leases", "CREATE TABLE sexton.mine (id int)", "DELETE FROM sexton.objects",
		"DELETE FROM sexton.job_kinds", "UPDATE sexton.audit SET actor = 'another'")
	client := pgtest.Must(river.NewClient(riverpgxv5.New(work), &river.Config{Schema: "sexton"}))(t)
	pgtest.Must(client.Insert(t.Context(), probeArgs{}, nil))(t)

	db.Conn = connConfig(t, d.AsRole(worker))
	require.NoError(t, migrate.Check(t.Context(), db))
	db.Conn = connConfig(t, d.AsRole(viewer))
	require.NoError(t, migrate.Check(t.Context(), db))
	view := as(viewer)
	allowed(view, "SELECT FROM sexton.runs", "SELECT FROM sexton.leases", "SELECT FROM sexton.clients", "SELECT FROM sexton.schedules",
		"SELECT FROM sexton.job_kinds", "SELECT FROM sexton.samples", "SELECT FROM sexton.audit", "SELECT FROM sexton.river_job", "SELECT FROM app.loose_foreign_keys_deleted_records")
	refused(view, "DELETE FROM sexton.runs", "DELETE FROM sexton.audit", "UPDATE sexton.leases SET token = 3", "DELETE FROM app.loose_foreign_keys_deleted_records",
		"SELECT sexton.begin_batch('k', 1, 1000, 1000, false)", "SELECT sexton.enqueue('tidy')")

	// Without the grants, the error says where to find them.
	db.Conn = connConfig(t, d.AsRole(application))
	var privilege *migrate.PrivilegeError
	require.ErrorAs(t, migrate.Check(t.Context(), db), &privilege)
	require.ErrorContains(t, privilege, "--print-grants")
}

// Statements name the operators of a key by their schema, which takes USAGE there.
func TestTheWorkerMayUseTheOperatorsOfItsTables(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	worker := d.CreateRole()
	d.Exec(`CREATE SCHEMA extensions; CREATE EXTENSION citext SCHEMA extensions; CREATE SCHEMA types; CREATE DOMAIN types.login AS extensions.citext;
		CREATE SCHEMA unused; CREATE SCHEMA app; CREATE TABLE app.children (login types.login)`)
	grants := pgtest.Must(migrate.GrantTables([]migrate.TableGrant{{Table: `"app"."children"`, Privileges: "SELECT, DELETE"}}, worker))(t)
	const sql = "DELETE FROM app.children WHERE login OPERATOR(extensions.=) ANY ($1::pg_catalog.text[]::types.login[])"
	conn := pgtest.Connect(t, d.AsRole(worker))
	d.Exec("GRANT USAGE ON SCHEMA app TO " + pgx.Identifier{worker}.Sanitize())
	_, err := conn.Exec(t.Context(), sql, []string{"ALICE"})
	require.Error(t, err, "a right is missing")

	d.Exec(grants)
	pgtest.Exec(t, conn, sql, []string{"ALICE"})
	require.Equal(t, [][]string{{"false"}}, d.Rows("SELECT pg_catalog.has_schema_privilege($1, 'unused', 'USAGE')::pg_catalog.text", worker))
}

func TestGrantsNameOnlyWhatIsInstalled(t *testing.T) {
	t.Parallel()
	grants := migrate.Grants(migrate.Database{JobsSchema: "work", TrackedSchema: "app"})
	require.Contains(t, grants, `GRANT USAGE ON SCHEMA "work" TO :"worker"`)
	require.NotContains(t, grants, "river")
	require.NotContains(t, grants, "leases")
	require.NotContains(t, grants, "enqueue")
	require.NotContains(t, grants, `"sexton"`)
}

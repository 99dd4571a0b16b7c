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

func quoted(role string) string { return pgx.Identifier{role}.Sanitize() }

// as runs a statement as a role.
func as(t *testing.T, d *pgtest.Database, role, statement string) error {
	_, err := pgtest.Connect(t, d.AsRole(role)).Exec(t.Context(), statement)
	return err
}

// ownedUsers returns a database whose table of users belongs to the application's role.
// That role also calls Sexton's functions.
func ownedUsers(t *testing.T) (d *pgtest.Database, application string) {
	d = pgtest.New(t)
	application = d.CreateRole()
	d.Exec(usersTable + groupsTables[len("\nCREATE TABLE users (id bigint PRIMARY KEY, state text, admin boolean);"):] + `
		INSERT INTO users (id, username, email, name) VALUES (1, 'ada', 'ada@example.com', 'Ada'), (2, 'ben', 'ben@example.com', 'Ben');
		GRANT USAGE, CREATE ON SCHEMA public TO ` + quoted(application) + `; ALTER TABLE users OWNER TO ` + quoted(application))
	return d, application
}

func allowCalls(d *pgtest.Database, role string) {
	d.Exec("GRANT USAGE ON SCHEMA sexton TO " + quoted(role) + "; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO " +
		quoted(role))
}

func TestApplicationCodeGetsNoSuperuserPrivileges(t *testing.T) {
	t.Parallel()
	d, application := ownedUsers(t)
	db := with(t, d, migrate.AdjournedGroups)
	db.Components = append(db.Components, migrate.GhostUsers)
	d.Exec(`CREATE TABLE seen (role name, powerful boolean); GRANT INSERT ON seen TO PUBLIC`)
	const note = `INSERT INTO public.seen SELECT current_user, rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user`
	require.NoError(t, as(t, d, application, `
		CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+note+`; RETURN NEW; END $$;
		CREATE TRIGGER note BEFORE UPDATE ON users FOR EACH ROW EXECUTE FUNCTION note();
		CREATE FUNCTION period() RETURNS integer LANGUAGE plpgsql AS $$ BEGIN `+note+`; RETURN 7; END $$;
		CREATE VIEW application_settings AS SELECT period() AS deletion_adjourned_period`))
	up(t, db)
	allowCalls(d, application)

	require.NoError(t, as(t, d, application, "SELECT sexton.delete_user(1, 2)"))
	require.Equal(t, [][]string{{migrate.DefaultOwner, "f"}}, d.Rows("SELECT * FROM seen"))
	require.NoError(t, as(t, d, application, "SELECT sexton.group_deletion_cutoff()"))
	require.Len(t, d.Rows("SELECT FROM seen"), 1, "a view is not read as the table of settings")
	require.Empty(t, d.Rows(`
		SELECT p.oid::regprocedure::text FROM pg_proc AS p JOIN pg_roles AS r ON r.oid = p.proowner
		WHERE p.pronamespace = 'sexton'::regnamespace AND (r.rolsuper OR r.rolbypassrls OR r.rolcanlogin)
		UNION ALL
		SELECT c.oid::regclass::text FROM pg_class AS c JOIN pg_roles AS r ON r.oid = c.relowner
		WHERE c.relnamespace = 'sexton'::regnamespace AND (r.rolsuper OR r.rolbypassrls OR r.rolcanlogin)`), "functions and tables, River's included")
}

// Functions read an optional table only if the last migration has recorded it. A table
// that was created later, or that replaced the recorded table, is used after the next
// migration.
func TestFunctionsReadOnlyRecordedTables(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(groupsTables)
	db := with(t, d, migrate.AdjournedGroups)
	up(t, db)
	const cutoff = "SELECT sexton.group_deletion_cutoff() IS NOT NULL"
	const settings = "CREATE TABLE application_settings (deletion_adjourned_period integer); INSERT INTO application_settings VALUES (7)"
	d.Exec(settings)
	require.False(t, pgtest.Scalar[bool](t, d, cutoff), "the table was created after the migration")
	require.Contains(t, risks(t, db), migrate.OwnerRisk{
		Object:  `"public".application_settings`,
		Message: "functions do not read this table, because it was created after the last `sexton migrate up`", Fix: "sexton migrate up",
	})
	up(t, db)
	require.True(t, pgtest.Scalar[bool](t, d, cutoff))
	require.Empty(t, risks(t, db))

	d.Exec("ALTER TABLE application_settings RENAME TO elsewhere; " + settings)
	_, err := d.Pool().Exec(t.Context(), cutoff)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "SX016", pgErr.Code, "another table has the recorded name")
	require.NotEmpty(t, risks(t, db))
	up(t, db)
	require.True(t, pgtest.Scalar[bool](t, d, cutoff))
	d.Exec("DROP TABLE application_settings")
	require.False(t, pgtest.Scalar[bool](t, d, cutoff))
}

func risks(t *testing.T, db migrate.Database) []migrate.OwnerRisk {
	return pgtest.Must(migrate.OwnerRisks(t.Context(), db))(t)
}

// A function fails if row security hides users from it. Otherwise it would treat hidden
// users as deleted.
func TestRowSecurityNeedsMembershipInTheTablesOwner(t *testing.T) {
	t.Parallel()
	d, application := ownedUsers(t)
	db := with(t, d, migrate.GhostUsers)
	db.Owner = d.CreateRole()
	d.Exec("ALTER TABLE users ENABLE ROW LEVEL SECURITY; CREATE POLICY one ON users USING (id = 2)")
	up(t, db)
	allowCalls(d, application)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, as(t, d, application, "SELECT sexton.delete_user(1, 2)"), &pgErr)
	require.Contains(t, pgErr.Message, "row-level security")

	d.Exec("GRANT " + application + " TO " + db.Owner)
	require.NoError(t, as(t, d, application, "SELECT sexton.delete_user(1, 2)"))
}

// If the migrating role may not grant privileges on a rule of the application, Up returns
// the GRANT statements in Todo.
func TestUpReturnsGrantsThatTheRoleMayNotRun(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	migrator, owner := d.CreateRole(), d.CreateRole()
	d.Exec("GRANT CREATE ON DATABASE " + quoted(d.Name) + " TO " + quoted(migrator) +
		"; GRANT USAGE, CREATE ON SCHEMA public TO " + quoted(migrator) +
		"; GRANT " + quoted(owner) + " TO " + quoted(migrator) + `; CREATE SCHEMA rules;
		CREATE TABLE clubs (id bigint PRIMARY KEY, deleted_on date); ALTER TABLE clubs OWNER TO ` + quoted(migrator) + `;
		CREATE FUNCTION rules.may_remove(bigint, bigint) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'SELECT NULL';
		REVOKE ALL ON FUNCTION rules.may_remove FROM PUBLIC`)
	db := with(t, d, migrate.AdjournedGroups)
	db.Groups = migrate.Groups{
		Table: "clubs", Key: "id", MarkedOn: "deleted_on", Period: 30,
		MayRemove: "rules.may_remove",
	}
	db.Conn, db.Owner = connConfig(t, d.AsRole(migrator)), owner
	todo := []string{
		"GRANT USAGE ON schema rules TO " + quoted(owner),
		"GRANT EXECUTE ON function rules.may_remove(bigint, bigint) TO " + quoted(owner),
	}
	require.Equal(t, todo, up(t, db).Owner.Todo)
	for _, statement := range todo {
		d.Exec(statement)
	}
	require.Empty(t, up(t, db).Owner.Todo)
}

func TestUpWithoutThePrivilegeToCreateRoles(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	migrator := d.CreateRole()
	d.Exec("GRANT CREATE ON DATABASE " + quoted(d.Name) + " TO " + quoted(migrator) +
		"; GRANT USAGE, CREATE ON SCHEMA public TO " + quoted(migrator))
	db := everything(t, d)
	db.Conn, db.Owner = connConfig(t, d.AsRole(migrator)), migrator+"_missing"
	todo := []string{
		"CREATE ROLE " + quoted(db.Owner) + " NOLOGIN",
		"GRANT " + quoted(db.Owner) + " TO " + quoted(migrator),
	}
	before := catalog(d)
	_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
	var privilege *migrate.PrivilegeError
	require.ErrorAs(t, err, &privilege)
	require.Equal(t, strings.Join(todo, "; "), privilege.Grant)
	require.Equal(t, before, catalog(d), "nothing changed")

	for _, statement := range todo {
		d.Exec(statement)
	}
	t.Cleanup(func() { d.Exec("DROP OWNED BY " + quoted(db.Owner) + "; DROP ROLE " + quoted(db.Owner)) })
	require.Empty(t, up(t, db).Owner.Todo)
	require.Empty(t, risks(t, db))
	require.Empty(t,
		d.Rows(`SELECT relname FROM pg_class WHERE relnamespace = 'sexton'::regnamespace AND relowner <> (SELECT oid FROM pg_roles WHERE rolname = $1)`, db.Owner))
	up(t, db)
	down(t, db)
	require.Equal(t, [][]string{{"t"}}, d.Rows("SELECT to_regnamespace('sexton') IS NULL"))
	require.Len(t, d.Rows("SELECT FROM pg_roles WHERE rolname = $1", db.Owner), 1,
		"other databases of the server may use it")
}

func TestOwnerWithSuperuserPrivilegesIsRefused(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	for name, grant := range map[string]string{
		"superuser": "ALTER ROLE %s SUPERUSER", "row security": "ALTER ROLE %s BYPASSRLS",
		"member": "GRANT pg_write_server_files TO %s",
	} {
		t.Run(name, func(t *testing.T) {
			db := everything(t, d)
			db.Owner = d.CreateRole()
			d.Exec("DO $$ BEGIN EXECUTE format('" + grant + "', '" + db.Owner + "'); END $$")
			before := catalog(d)
			_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
			require.ErrorContains(t, err, "must not own Sexton's functions")
			require.ErrorContains(t, err, "jobs.owner")
			require.Equal(t, before, catalog(d))
		})
	}
}

// Concurrent migrations of several databases of a server create the owner's role once,
// because roles belong to the server.
func TestOwnerRoleIsCreatedOnce(t *testing.T) {
	t.Parallel()
	const databases = 4
	first := pgtest.New(t)
	owner := first.CreateRole() + "_race"
	errs := make(chan error, databases)
	var all []*pgtest.Database
	for range databases {
		d := pgtest.New(t)
		all = append(all, d)
		db := migrate.Database{Name: "main", Conn: connConfig(t, d.URL), TrackedSchema: "public", Owner: owner}
		go func() {
			_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
			errs <- err
		}()
	}
	for range databases {
		require.NoError(t, <-errs)
	}
	for _, d := range all {
		require.Equal(t, [][]string{{owner}},
			d.Rows("SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'sexton'"))
		d.Exec("DROP OWNED BY " + quoted(owner))
	}
	first.Exec("DROP ROLE " + quoted(owner))
}

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
	pgtest.Must(triggers.Install(t.Context(), conn, triggers.Config{TrackedSchema: "app"},
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
		for _, statement := range statements {
			_, err := pool.Exec(t.Context(), statement)
			require.NoError(t, err, statement)
		}
	}
	refused := func(pool *pgxpool.Pool, statements ...string) {
		for _, statement := range statements {
			_, err := pool.Exec(t.Context(), statement)
			var pgErr *pgconn.PgError
			require.ErrorAs(t, err, &pgErr, statement)
			require.Equal(t, "42501", pgErr.Code, statement)
		}
	}

	allowed(as(application), "DELETE FROM app.parents WHERE id = 1", "SELECT sexton.enqueue('tidy')")
	refused(as(application), "SELECT FROM app.loose_foreign_keys_deleted_records", "SELECT FROM sexton.leases",
		"SELECT FROM sexton.river_job", "SELECT FROM sexton.job_kinds",
		"SELECT sexton.job_args('tidy', '{}', '{}', '{}')",
		"INSERT INTO app.loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('app.parents', 2)")

	work := as(worker)
	allowed(work,
		"INSERT INTO sexton.leases VALUES ('k', 1, 'h', now(), now())",
		"UPDATE sexton.leases SET token = 2",
		"INSERT INTO sexton.fences VALUES ('k', 0, 1) ON CONFLICT (key, slot) DO UPDATE SET token = excluded.token",
		"SELECT sexton.begin_batch('k', 0, 1, 1000, 1000, false)",
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
	refused(work, "DELETE FROM app.parents", "DROP TABLE sexton.leases", "CREATE TABLE sexton.mine (id int)",
		"DELETE FROM sexton.application_tables",
		"DELETE FROM sexton.job_kinds", "UPDATE sexton.audit SET actor = 'another'")
	client := pgtest.Must(river.NewClient(riverpgxv5.New(work), &river.Config{Schema: "sexton"}))(t)
	pgtest.Must(client.Insert(t.Context(), probeArgs{}, nil))(t)

	db.Conn = connConfig(t, d.AsRole(worker))
	require.NoError(t, migrate.Check(t.Context(), db))
	db.Conn = connConfig(t, d.AsRole(viewer))
	require.NoError(t, migrate.Check(t.Context(), db))
	view := as(viewer)
	allowed(view, "SELECT FROM sexton.runs", "SELECT FROM sexton.leases", "SELECT FROM sexton.clients",
		"SELECT FROM sexton.schedules",
		"SELECT FROM sexton.job_kinds", "SELECT FROM sexton.samples", "SELECT FROM sexton.audit",
		"SELECT FROM sexton.river_job", "SELECT FROM app.loose_foreign_keys_deleted_records")
	refused(view, "DELETE FROM sexton.runs", "DELETE FROM sexton.audit", "UPDATE sexton.leases SET token = 3",
		"DELETE FROM app.loose_foreign_keys_deleted_records",
		"SELECT sexton.begin_batch('k', 0, 1, 1000, 1000, false)", "SELECT sexton.enqueue('tidy')")

	// If the grants are missing, the error names the command that prints them.
	db.Conn = connConfig(t, d.AsRole(application))
	var privilege *migrate.PrivilegeError
	require.ErrorAs(t, migrate.Check(t.Context(), db), &privilege)
	require.ErrorContains(t, privilege, "sexton grants")
}

// The worker gets USAGE on the schemas of its keys' operators and types, because
// statements qualify operators.
func TestGrantIncludesSchemasOfOperators(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	worker := d.CreateRole()
	d.Exec(`CREATE SCHEMA extensions; CREATE EXTENSION citext SCHEMA extensions; CREATE SCHEMA types; CREATE DOMAIN types.login AS extensions.citext;
		CREATE SCHEMA unused; CREATE SCHEMA app; CREATE TABLE app.children (login types.login)`)
	db := migrate.Database{Name: "main", TrackedSchema: "app", Conn: connConfig(t, d.URL)}
	tables := []migrate.TableGrant{{Table: `"app"."children"`, Privileges: "SELECT, DELETE"}}
	const sql = "DELETE FROM app.children WHERE login OPERATOR(extensions.=) ANY ($1::pg_catalog.text[]::types.login[])"
	conn := pgtest.Connect(t, d.AsRole(worker))
	d.Exec("GRANT USAGE ON SCHEMA app TO " + pgx.Identifier{worker}.Sanitize())
	_, err := conn.Exec(t.Context(), sql, []string{"ALICE"})
	require.Error(t, err, "a privilege is missing")

	left, done := pgtest.Must2(db.Grant(t.Context(), pgtest.Logger(t), migrate.Roles{Worker: worker}, tables, true))(t)
	require.Empty(t, left)
	require.NotZero(t, done)
	pgtest.Exec(t, conn, sql, []string{"ALICE"})
	require.Equal(t, [][]string{{"false"}},
		d.Rows("SELECT pg_catalog.has_schema_privilege($1, 'unused', 'USAGE')::pg_catalog.text", worker))
}

func TestGrantsNameOnlyInstalledObjects(t *testing.T) {
	t.Parallel()
	grants := migrate.Grants(migrate.Database{TrackedSchema: "app"})
	require.Contains(t, grants, `GRANT USAGE ON SCHEMA "sexton" TO :"worker"`)
	require.NotContains(t, grants, "river")
	require.NotContains(t, grants, "leases")
	require.NotContains(t, grants, "enqueue")
	require.NotContains(t, grants, `"public"`)
}

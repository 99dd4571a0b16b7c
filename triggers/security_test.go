package triggers_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

// application connects as a new role that has privileges on the given tables, but none on
// Sexton's tables.
func (b *bundle) application(tables string) *pgx.Conn {
	b.t.Helper()
	role := b.CreateRole()
	b.Exec("GRANT SELECT, INSERT, DELETE, TRUNCATE ON " + tables + " TO " + pgx.Identifier{role}.Sanitize())
	return b.connect(b.AsRole(role))
}

func TestDeletingRoleNeedsNoPrivilegesOnTombstones(t *testing.T) {
	t.Parallel()
	b := setup(t, parents, partitioned)
	b.install(id("parents"), id("events"))
	app := b.application("parents, events, events_low")
	_, err := app.Exec(t.Context(), "DELETE FROM parents WHERE id = 1; DELETE FROM events_low WHERE id = 1")
	require.NoError(t, err)
	require.Equal(t, []string{"public.events 1", "public.parents 1"}, b.tombstones())

	for _, statement := range []string{
		"INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.parents', 2)",
		"SELECT FROM loose_foreign_keys_deleted_records",
	} {
		_, err = app.Exec(t.Context(), statement)
		requireState(t, err, "42501")
	}
	// The role cannot insert tombstones with a trigger of its own either.
	function := pgtest.Scalar[string](t, b.Database,
		"SELECT proname::text FROM pg_proc WHERE proname ~ '^track_[0-9a-f]{12}_' LIMIT 1")
	b.Exec("GRANT USAGE ON SCHEMA sexton TO PUBLIC")
	_, err = app.Exec(t.Context(), "CREATE TEMP TABLE fake (id bigint); CREATE TRIGGER forged AFTER DELETE ON fake "+
		"REFERENCING OLD TABLE AS sexton_deleted FOR EACH STATEMENT EXECUTE FUNCTION sexton."+function+
		"('public.parents')")
	requireState(t, err, "42501")
}

// Temporary objects and the search_path of the session do not affect the trigger
// functions.
func TestFunctionsIgnoreShadowedNames(t *testing.T) {
	t.Parallel()
	b := setup(t, parents, "CREATE TABLE tags (id text); INSERT INTO tags VALUES ('a')")
	b.install(id("parents"), id("tags"))
	app := b.application("parents, tags")
	b.Exec(`CREATE SCHEMA evil; GRANT ALL ON SCHEMA evil TO PUBLIC`)
	pgtest.Exec(t, app, `
		CREATE FUNCTION evil.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT 'ignore' $$;
		CREATE FUNCTION evil.format(text, text) RETURNS text LANGUAGE sql AS $$ SELECT 'hijacked' $$;
		CREATE FUNCTION evil.never(text, text) RETURNS boolean LANGUAGE sql AS $$ SELECT true $$;
		CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.never);
		CREATE TEMP TABLE loose_foreign_keys_deleted_records (fully_qualified_table_name text, primary_key_value bigint, primary_key_text text);
		CREATE TEMP TABLE sexton_deleted (id bigint);
		INSERT INTO sexton_deleted VALUES (666);
		CREATE TEMP TABLE pg_class (oid oid, relkind "char");
		CREATE DOMAIN pg_temp.text AS varchar CHECK (value <> 'a');
		SET search_path = evil, pg_temp, pg_catalog, public;
		DELETE FROM public.parents WHERE id = 1;
		DELETE FROM public.tags`)
	_, err := app.Exec(t.Context(), "TRUNCATE public.tags")
	require.Equal(t, "truncate of public.tags is refused: its deletions are tracked",
		requireState(t, err, "SX002").Message)
	require.Equal(t, []string{"public.parents 1", "public.tags a"}, b.tombstones())
	require.Zero(t, pgtest.Scalar[int](t, app, "SELECT count(*) FROM pg_temp.loose_foreign_keys_deleted_records"))
}

// installer connects as a new role with these privileges that owns neither the database
// nor the parents.
func (b *bundle) installer(grants ...string) (role string, conn *pgx.Conn) {
	b.t.Helper()
	role = b.CreateRole()
	for _, grant := range grants {
		b.Exec("GRANT " + grant + " TO " + pgx.Identifier{role}.Sanitize())
	}
	return role, b.connect(b.AsRole(role))
}

func TestInstallWithoutOwnership(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	role, conn := b.installer("CREATE, USAGE ON SCHEMA sexton", "INSERT ON loose_foreign_keys_deleted_records",
		"TRIGGER ON parents",
		"EXECUTE ON FUNCTION sexton.is_as_installed")
	pgtest.Must(triggers.Install(t.Context(), conn, b.cfg, []triggers.Parent{id("parents")}))(t)
	before := b.catalog()
	report := pgtest.Must(triggers.Install(t.Context(), conn, b.cfg, []triggers.Parent{id("parents")}))(t)
	require.Equal(t, 2, report.Unchanged, "this role can only create plain triggers")
	require.Equal(t, before, b.catalog())

	findings := pgtest.Must(triggers.Status(t.Context(), conn, b.cfg, []triggers.Parent{id("parents")}))(t)
	require.Len(t, findings, 2)
	for _, finding := range findings {
		require.Equal(t, triggers.Plain, finding.Kind)
		require.False(t, finding.Drift())
		require.Contains(t, finding.Fix, "ALTER TABLE ONLY public.parents ENABLE ALWAYS TRIGGER "+finding.Trigger)
	}
	b.Exec("DELETE FROM parents WHERE id = 1; SET session_replication_role = replica; DELETE FROM parents WHERE id = 2; RESET session_replication_role")
	require.Equal(t, []string{"public.parents 1"}, b.tombstones())

	// The function runs with the privileges of its owner. If the owner loses a privilege,
	// Status reports that the function would fail.
	b.Exec("REVOKE INSERT ON loose_foreign_keys_deleted_records FROM " + pgx.Identifier{role}.Sanitize())
	require.Contains(t, b.status(id("parents"))[0].Detail, "may not insert into")
}

func TestInstallNamesTheMissingPrivilege(t *testing.T) {
	t.Parallel()
	create, insert := "CREATE, USAGE ON SCHEMA sexton", "INSERT ON loose_foreign_keys_deleted_records"
	execute := "EXECUTE ON FUNCTION sexton.is_as_installed"
	tests := map[string]struct {
		granted []string
		missing string
	}{
		"functions":  {[]string{"USAGE ON SCHEMA sexton"}, `CREATE on schema "sexton"`},
		"tombstones": {[]string{create}, `INSERT on table "public"."loose_foreign_keys_deleted_records"`},
		"function":   {[]string{create, insert}, `EXECUTE on function "sexton".is_as_installed`},
		"parent":     {[]string{create, insert, execute}, "TRIGGER on table public.parents"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, parents)
			role, conn := b.installer(test.granted...)
			_, err := triggers.Install(t.Context(), conn, b.cfg, []triggers.Parent{id("parents")})
			var privilege *triggers.PrivilegeError
			require.ErrorAs(t, err, &privilege)
			require.Equal(t, role, privilege.Role)
			require.Equal(t, test.missing, privilege.Missing)

			b.Exec(privilege.Grant)
			_, err = triggers.Install(t.Context(), conn, b.cfg, []triggers.Parent{id("parents")})
			if again := (*triggers.PrivilegeError)(nil); err != nil {
				require.ErrorAs(t, err, &again)
				require.NotEqual(t, test.missing, again.Missing, "the grant in the error adds the missing privilege")
			}
		})
	}
}

// Names with backslashes are recorded under any standard_conforming_strings of the
// deleting session, which applies to string constants in a function.
func TestBackslashesInNames(t *testing.T) {
	t.Parallel()
	tables := []string{`x\'`, `a\b`, `q"\`, `\', 1, 2 FROM pg_sleep(0); --`}
	b := setup(t, "")
	var parents []triggers.Parent
	for _, table := range tables {
		b.Exec(fmt.Sprintf(`CREATE TABLE %s ("k\'" text PRIMARY KEY, "l\" int UNIQUE); INSERT INTO %[1]s VALUES ('1', 1), ('2', 2)`, pgx.Identifier{table}.Sanitize()))
		parents = append(parents, triggers.Parent{Schema: "public", Table: table, KeyColumns: []string{`k\'`}})
	}
	b.install(parents...)
	for at, setting := range []string{"off", "on"} {
		session := b.connect(b.URL)
		_, err := session.Exec(t.Context(), "SET standard_conforming_strings = "+setting)
		require.NoError(t, err)
		for _, table := range tables {
			_, err := session.Exec(t.Context(), fmt.Sprintf(`DELETE FROM %s WHERE "l\" = %d`,
				pgx.Identifier{table}.Sanitize(), at+1))
			require.NoError(t, err, table)
		}
		require.Len(t, b.tombstones(), len(tables)*(at+1), setting)
	}
	require.Contains(t, b.tombstones(), `public."x\'" 1`)
}

package batch_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// policyTables creates a table with a row-level security policy, and a trigger function
// that reads it.
const policyTables = `
CREATE TABLE settings (name text, tenant name);
ALTER TABLE settings ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON settings USING (tenant = current_user);
CREATE TABLE seen (name text);
CREATE FUNCTION read_settings() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.seen SELECT name FROM public.settings; RETURN NULL; END $$;`

// connectUnprivileged connects the session as a role to which policies apply, and returns
// the role.
func connectUnprivileged(t *testing.T, db *dbtest.DB, session *batch.Session, mode pgx.QueryExecMode) (role string) {
	role = db.CreateRole()
	db.Exec("GRANT USAGE ON SCHEMA public, sexton TO " + role +
		"; GRANT ALL ON ALL TABLES IN SCHEMA public, sexton TO " + role +
		"; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO " + role)
	settings := pgtest.Must(pgx.ParseConfig(db.AsRole(role)))(t)
	settings.DefaultQueryExecMode = mode
	session.Conn = pgtest.ConnectAs(t, settings)
	return role
}

func TestTriggersReadTablesWithPolicies(t *testing.T) {
	t.Parallel()
	const row = "CREATE TRIGGER read_settings AFTER DELETE ON items FOR EACH ROW EXECUTE FUNCTION read_settings()"
	tests := map[string]struct {
		trigger string
		mode    pgx.QueryExecMode
		seen    int64
	}{
		"row trigger":                  {row, pgx.QueryExecModeCacheStatement, 2},
		"row trigger through a pooler": {row, pgx.QueryExecModeExec, 2},
		"statement trigger": {
			"CREATE TRIGGER read_settings BEFORE DELETE ON items EXECUTE FUNCTION read_settings()",
			pgx.QueryExecModeCacheStatement, 2,
		},
		"deferred constraint trigger": {"CREATE CONSTRAINT TRIGGER read_settings AFTER DELETE ON items INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION read_settings()", pgx.QueryExecModeCacheStatement, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, session := setup(t)
			db.Exec(policyTables + test.trigger)
			role := connectUnprivileged(t, db, session, test.mode)
			db.Exec("INSERT INTO settings VALUES ('own', '" + role + "'), ('foreign', 'other')")
			remove := func(id int) error {
				affected, err := session.Run(t.Context(), batch.Statement{SQL: "SELECT 1"},
					batch.Statement{SQL: "DELETE FROM items WHERE id = $1", Args: []any{id}})
				if err == nil {
					require.Equal(t, []int64{1, 1}, affected)
				}
				return err
			}
			for id := range test.seen { // The second batch uses prepared statements.
				require.NoError(t, remove(int(id)+1))
			}
			require.Equal(t, [][]string{{"own"}, {"own"}}, db.Rows("SELECT name FROM seen"))

			// If a table of the batch gets a policy, the next batches fail with an error
			// of the statement on that table.
			db.Exec("ALTER TABLE items ENABLE ROW LEVEL SECURITY; CREATE POLICY few ON items USING (id > 5)")
			for _, id := range []int{3, 7} {
				err := remove(id)
				requireCode(t, err, "42501")
				require.ErrorContains(t, err,
					`statement 1: ERROR: query would be affected by row-level security policy for table "items"`)
			}
			db.Exec("ALTER TABLE items DISABLE ROW LEVEL SECURITY")
			require.NoError(t, remove(7))
			require.EqualValues(t, 7, count(t, db))
		})
	}
}

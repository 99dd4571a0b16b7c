package batch_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

const ownPath = "pg_catalog, pg_temp"

// audited has a trigger that finds its table by a bare name, in a schema that is not public.
const audited = `
CREATE SCHEMA app;
CREATE TABLE app.trail (item bigint);
CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO trail VALUES (OLD.id); RETURN NULL; END $$;
CREATE TRIGGER note AFTER DELETE ON items FOR EACH ROW EXECUTE FUNCTION app.note();`

// onOwnPath has the session work on a connection as the program makes it.
func onOwnPath(t *testing.T, db *dbtest.DB, session *batch.Session, path string) {
	t.Helper()
	names := dbtest.Names()
	names.Path = path
	opened := pgtest.Must(database.Open(t.Context(), "main", db.URL, "", names, 2))(t)
	t.Cleanup(opened.Pool.Close)
	conn := pgtest.Acquire(t, opened.Pool)
	session.Conn, session.Names = conn.Conn(), opened.Names
}

func TestTriggersFindNamesByTheirOwnPath(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ configured, role, database string }{
		"of the configuration":            {"app", "nowhere", "nowhere"},
		"of the role":                     {"", "app, public", "nowhere"},
		"of the database":                 {"", "", "app"},
		"of the database beside our own":  {"", ownPath, "app"},
		"of the configuration, of quotes": {`"$user" , "app"`, "", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, session := setup(t)
			db.Exec(audited)
			database := pgx.Identifier{db.Name}.Sanitize()
			if test.role != "" {
				db.Exec("ALTER ROLE CURRENT_USER IN DATABASE " + database + " SET search_path = " + test.role)
			}
			if test.database != "" {
				db.Exec("ALTER DATABASE " + database + " SET search_path = " + test.database)
			}
			onOwnPath(t, db, session, test.configured)
			for id := range 2 { // Prepared, then not.
				_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM public.items WHERE id = $1", Args: []any{id + 1}})
				require.NoError(t, err)
			}
			require.EqualValues(t, 2, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM app.trail"))
			path := pgtest.Scalar[string](t, session.Conn, "SHOW search_path")
			require.Equal(t, ownPath, path, "the path ends with the batch")
		})
	}
}

// A path that the role has been given since is found without a new connection.
func TestAPathIsAskedForAnew(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	onOwnPath(t, db, session, "")
	path := func() (path string) {
		_, err := session.Run(t.Context(), batch.Statement{SQL: "SELECT pg_catalog.current_setting('search_path')", Scan: func(rows pgx.Rows) (err error) {
			path, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
			return err
		}})
		require.NoError(t, err)
		return path
	}
	before := path()
	db.Exec("ALTER DATABASE " + pgx.Identifier{db.Name}.Sanitize() + " SET search_path = app")
	require.Equal(t, before, path())
	batch.AgePath(session.Conn)
	require.Equal(t, "app", path())
	require.Equal(t, "app", path())
}

// A connection that has lost its statements prepares them again, and goes by no path that it did not get.
func TestALostStatementLosesNoPath(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	db.Exec(audited)
	onOwnPath(t, db, session, "app")
	remove := func(id int) {
		t.Helper()
		pgtest.Must(session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM public.items WHERE id = $1", Args: []any{id}}))(t)
	}
	remove(1)
	lost := pgtest.Scalar[string](t, session.Conn, "SELECT name FROM pg_prepared_statements WHERE statement LIKE $1", "%application_path%")
	pgtest.Exec(t, session.Conn, "DEALLOCATE "+pgx.Identifier{lost}.Sanitize())
	batch.AgePath(session.Conn)
	remove(2)
	require.EqualValues(t, 2, pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM app.trail"))
}

func TestTriggersFindNamesInPublicByDefault(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	onOwnPath(t, db, session, "")
	var path string
	_, err := session.Run(t.Context(), batch.Statement{SQL: "SELECT pg_catalog.current_setting('search_path')", Scan: func(rows pgx.Rows) (err error) {
		path, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		return err
	}})
	require.NoError(t, err)
	require.Equal(t, `"$user", public`, path)
}

func TestTriggerWithoutItsPathNamesTheKey(t *testing.T) {
	t.Parallel()
	db, session := setup(t)
	db.Exec(audited)
	onOwnPath(t, db, session, "")
	_, err := session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM public.items WHERE id = 1"})
	require.ErrorContains(t, err, `relation "trail" does not exist`)
	require.ErrorContains(t, err, "databases.<name>.search_path")
	db.Exec("ALTER DATABASE " + pgx.Identifier{db.Name}.Sanitize() + " SET search_path = app")
	_, err = session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM public.items WHERE id = 1"})
	require.NoError(t, err, "on the connection as it is")
	_, err = session.Run(t.Context(), batch.Statement{SQL: "DELETE FROM public.nothing"})
	require.ErrorContains(t, err, `relation "public.nothing" does not exist`)
	require.NotContains(t, err.Error(), "search_path", "no function looked for it")
}

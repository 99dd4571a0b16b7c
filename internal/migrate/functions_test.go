package migrate_test

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// A fix of a function is a new text of its file: nothing else says that the database has an old one.
func TestFunctionsOfAnotherReleaseAreInstalledAnew(t *testing.T) {
	t.Parallel()
	d, db := installed(t)
	before := catalogue(d)
	rights := `SELECT proowner::regrole::text, proacl::text, prosrc ~ 'other release' FROM pg_proc WHERE oid = to_regprocedure('sexton.session_name(text)')`
	d.Exec(`GRANT EXECUTE ON FUNCTION sexton.session_name(text) TO pg_monitor;
		CREATE OR REPLACE FUNCTION sexton.session_name(fence_key text) RETURNS text LANGUAGE sql AS 'SELECT ''other release''';
		UPDATE sexton.objects SET identity = 'other' WHERE kind = 'functions' AND component = 'base'`)
	want := d.Rows(rights)
	require.Equal(t, "t", want[0][2])

	var schema *migrate.SchemaError
	require.ErrorAs(t, migrate.Check(t.Context(), db), &schema)
	require.Equal(t, migrate.SchemaError{Database: "main", Component: migrate.Base, Current: 1, Want: 1, Functions: true}, *schema)
	for _, c := range pgtest.Must(migrate.Status(t.Context(), db))(t) {
		require.Equal(t, c.Component == migrate.Base, c.FunctionsDiffer, c.Component)
		require.Empty(t, c.Pending, c.Component)
	}

	require.Empty(t, component(t, up(t, db), migrate.Base).Applied)
	require.NoError(t, migrate.Check(t.Context(), db))
	want[0][2] = "f"
	require.Equal(t, want, d.Rows(rights), "owner and grants stay")
	require.NotEqual(t, before, catalogue(d))
	before = catalogue(d)
	up(t, db)
	require.Equal(t, before, catalogue(d), "the same text is not installed again")
}

// Old and new workers run side by side during a deploy: an old one may start again after `migrate up` of the new release, which must
// not work with functions that are older than its own.
func TestFunctionsOfALaterReleaseAreWorkedWith(t *testing.T) {
	t.Parallel()
	d, db := installed(t)
	d.Exec(`UPDATE sexton.objects SET identity = 'old' WHERE kind = 'functions' AND component = 'base'`)
	var schema *migrate.SchemaError
	require.ErrorAs(t, migrate.Check(t.Context(), db), &schema)
	up(t, db)
	require.Equal(t, [][]string{{"old"}}, d.Rows("SELECT identity FROM sexton.objects WHERE kind = 'earlier functions'"))

	d.Exec(`UPDATE sexton.objects SET kind = 'earlier functions' WHERE kind = 'functions' AND component = 'base';
		INSERT INTO sexton.objects (kind, identity, component) VALUES ('functions', 'new', 'base')`)
	require.NoError(t, migrate.Check(t.Context(), db))
	for _, c := range pgtest.Must(migrate.Status(t.Context(), db))(t) {
		require.Equal(t, c.Component == migrate.Base, c.FunctionsLater, c.Component)
	}

	var said bytes.Buffer
	pgtest.Must(migrate.Up(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), db))(t)
	require.Regexp(t, `level=WARN msg=functions_put_back database=main component=base`, said.String())
	require.NoError(t, migrate.Check(t.Context(), db))
	require.Empty(t, d.Rows("SELECT identity FROM sexton.objects WHERE kind = 'earlier functions' OR identity = 'new'"),
		"the step back was meant: the later release asks for migrate up")
}

// A function that another role has put there first would keep that role's rights on it.
func TestAFunctionOfAnotherRoleIsNotReplaced(t *testing.T) {
	t.Parallel()
	d, db := installed(t)
	d.Exec(`DROP FUNCTION sexton.job_waits(text, text); DELETE FROM sexton.objects WHERE kind = 'functions' AND component = 'jobs' OR identity ~ 'job_waits';
		CREATE FUNCTION sexton.job_waits(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
		CREATE OR REPLACE FUNCTION sexton.enqueue_new(kind text, args jsonb DEFAULT '{}', run_at timestamptz DEFAULT NULL) RETURNS bigint LANGUAGE sql AS 'SELECT 1'`)
	_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
	require.ErrorContains(t, err, `install function "sexton".job_waits(text, text): ERROR: function "job_waits" already exists`)
	require.Equal(t, [][]string{{"SELECT 1"}}, d.Rows("SELECT prosrc FROM pg_proc WHERE oid = to_regprocedure('sexton.enqueue_new(text, jsonb, timestamptz)')"),
		"all of a component or none")
}

package schema_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/exampleapp"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

func TestMigrateUpAndDown(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	empty := s.Snapshot()

	r := s.Run("migrate", "status")
	require.Equal(t, 3, r.Code)
	require.Regexp(t, `(?m)^main +loose_foreign_keys +0 +1 +1 +-$`, r.Stdout)
	require.Equal(t, "sexton: schema of database main: component base is not installed; run `sexton migrate up`\n",
		r.Stderr)
	require.Equal(t, empty, s.Snapshot())

	up := s.OK("migrate", "up")
	require.Regexp(t,
		`^DATABASE +COMPONENT +FROM +TO\nmain +base +0 +\d+\nmain +jobs +0 +\d+\nmain +river +0 +\d+\nmain +loose_foreign_keys +0 +\d+\n$`, up)
	first := s.Rows(sextonObjects)
	require.Regexp(t, `(?m)^main +river +(\d+) +(\d+)$`, s.OK("migrate", "up"))
	require.Equal(t, first, s.Rows(sextonObjects), "a second migrate up changes nothing")
	require.Regexp(t,
		`^DATABASE +COMPONENT +INSTALLED +THIS BINARY +PENDING +FUNCTIONS\n(main +\w+ +\d+ +\d+ +0 +this release's\n){4}$`, s.OK("migrate", "status"))

	s.OK("triggers", "install")
	s.Exec("DELETE FROM projects WHERE id = 1")
	pending := s.Snapshot()
	r = s.Run("migrate", "down")
	require.Equal(t, 1, r.Code)
	require.Contains(t, r.Stderr, "database main still has pending tombstones (1)")
	require.Contains(t, r.Stderr, "--force")
	require.Equal(t, pending, s.Snapshot())

	down := s.OK("migrate", "down", "--force")
	require.Regexp(t, `(?m)^main +base +\d+ +0$`, down)
	require.Contains(t, down, "main: 3 triggers removed\n")
	require.Equal(t, "main: nothing is installed\n", s.OK("migrate", "down"))
	require.Equal(t, [][]string{{"f", "f"}},
		s.Rows("SELECT to_regclass('loose_foreign_keys_deleted_records') IS NOT NULL, to_regnamespace('sexton') IS NOT NULL"))
}

// schemaCommands returns commands that need the schema version of this binary.
func schemaCommands() [][]string {
	return [][]string{
		{"status"},
		{"job", "list"},
		{"job", "run", clitest.Kind},
		{"triggers", "install"},
		{"triggers", "status"},
		{"migrate", "status"},
	}
}

func TestMissingSchema(t *testing.T) {
	t.Parallel()
	s := clitest.Plain(t)
	before := s.Snapshot()
	for _, args := range schemaCommands() {
		r := s.Run(args...)
		require.Equal(t, 3, r.Code, args)
		require.Equal(t, "sexton: schema of database main: component base is not installed; run `sexton migrate up`\n",
			r.Stderr, args)
	}
	require.Equal(t, before, s.Snapshot())
}

func TestNewerSchema(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("COMMENT ON SCHEMA sexton IS 'Sexton: base 99'")
	before := s.Snapshot()
	for _, args := range append(schemaCommands(), []string{"migrate", "up"}, []string{"migrate", "down", "--force"}) {
		s.RequireError(3, "component base is at version 99, this binary supports version 1; this binary is older than the schema, use a newer one", args...)
	}
	require.Equal(t, before, s.Snapshot())
}

// If a component in the database is newer than this binary, commands exit 3 and report
// the component and the fix.
func TestNewerComponents(t *testing.T) {
	t.Parallel()
	s := clitest.NewSite(t, pgtest.New(t))
	s.Configure(s.URL, clitest.EveryComponent)
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions)
	s.Exec(exampleapp.Schema())
	s.OK("migrate", "up")
	for _, installed := range migrate.Versions() {
		if installed.Component == migrate.River {
			s.Exec("INSERT INTO sexton.river_migration (line, version) VALUES ('main', 99)")
		} else {
			s.Exec("COMMENT ON SCHEMA sexton IS 'Sexton: " + installed.Component + " 99'")
		}
		for _, args := range [][]string{{"run", "--fail-fast"}, {"status"}, {"migrate", "up"}} {
			r := s.Run(args...)
			require.Equal(t, 3, r.Code, "%s with %s", args, installed.Component)
			require.Contains(t, r.Stderr,
				fmt.Sprintf("component %s is at version 99, this binary supports version %d; this binary is older than the schema, use a newer one",
					installed.Component, installed.Version), args)
		}
		s.Exec("DELETE FROM sexton.river_migration WHERE version = 99; COMMENT ON SCHEMA sexton IS NULL")
		s.OK("migrate", "up")
	}
	s.OK("status")
}

func TestTombstonesInAnotherSchema(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("CREATE SCHEMA other")
	before := s.Snapshot()
	s.Environ = append(s.Environ, "SEXTON_DATABASES__MAIN__SCHEMA=other")
	s.RequireError(3, `database main has its tombstones in "public".loose_foreign_keys_deleted_records`, "status")
	require.Equal(t, before, s.Snapshot())
}

// sextonObjects returns the tables, columns and functions in the schema sexton.
const sextonObjects = `
	SELECT relkind::text, relname::text, (SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) FROM pg_class AS c
	WHERE relnamespace = 'sexton'::regnamespace AND relkind <> 'S'
	UNION ALL SELECT 'function', oid::regprocedure::text, md5(prosrc) FROM pg_proc WHERE pronamespace = 'sexton'::regnamespace
	ORDER BY 1, 2`

package schema_test

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/sample"
)

// made lists what there is in Sexton's schema, apart from the versions.
const made = `
	SELECT relkind::text, relname::text, (SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) FROM pg_attribute
		WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) FROM pg_class AS c
	WHERE relnamespace = 'sexton'::regnamespace AND relname !~ '^migrations_' AND relkind <> 'S'
	UNION ALL SELECT 'function', oid::regprocedure::text, md5(prosrc) FROM pg_proc WHERE pronamespace = 'sexton'::regnamespace
	ORDER BY 1, 2`

// The SQL that --dry-run prints makes what the command makes.
func TestDryRuns(t *testing.T) {
	t.Parallel()
	const all = "ghost_users: {enabled: true}\nadjourned_groups: {enabled: true}\nexternal_diffs: {enabled: true}\n"
	site := func() *clitest.Site {
		s := clitest.Plain(t)
		s.Exec("DROP TABLE projects, issues, labels CASCADE; DROP TABLE builds")
		s.Exec(sample.Schema())
		s.Configure(s.URL, all)
		return s
	}
	previewed, installed := site(), site()
	untouched := previewed.Snapshot()
	sql := previewed.OK("migrate", "up", "--dry-run")
	require.Equal(t, untouched, previewed.Snapshot())
	require.Contains(t, sql, "-- GRANT ")
	// Each of River's migrations takes a transaction of its own.
	rest := sql
	for place := regexp.MustCompile(`\n-- (River's|functions)`).FindStringIndex(rest); place != nil; place = regexp.MustCompile(`\n-- (River's|functions)`).FindStringIndex(rest) {
		previewed.Exec(rest[:place[0]])
		rest = rest[place[0]+1:]
	}
	previewed.Exec(rest)
	installed.OK("migrate", "up")
	require.Equal(t, installed.Rows(made), previewed.Rows(made))
	require.Equal(t, "-- database main\n-- nothing to do\n", installed.OK("migrate", "up", "--dry-run"))
	installed.Says(2, "migrate up takes only one of --dry-run, --print-grants", "migrate", "up", "--dry-run", "--print-grants")

	before := installed.Snapshot()
	sql = installed.OK("triggers", "install", "--dry-run")
	require.Equal(t, before, installed.Snapshot())
	document, _ := installed.JSON(0, "triggers", "install", "--dry-run").([]any)
	require.Equal(t, "-- database main\n"+document[0].(map[string]any)["sql"].(string), sql)
	installed.Exec(sql)
	require.Regexp(t, `main: 0 triggers changed, \d\d as they should be`, installed.OK("triggers", "install"))
	require.Equal(t, "-- database main\n-- nothing to do\n", installed.OK("triggers", "install", "--dry-run"))
}

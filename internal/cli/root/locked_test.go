package root_test

import (
	"context"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

// Another session holds every table of the application, partitions included. What looks at the catalogue alone does not notice; what reads or
// changes the tables gives up and says why.
func TestLockedTablesHoldUpNoCommand(t *testing.T) {
	t.Parallel()
	s := clitest.Roles(t)
	s.Exec(`CREATE TABLE parts (id bigint, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
		CREATE TABLE parts_old PARTITION OF parts FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
		CREATE INDEX some_issues ON issues (project_id) WHERE project_id IS NOT NULL;
		CREATE INDEX other_issues ON issues (author_id) WHERE id > 7;
		ALTER TABLE issues ALTER project_id DROP NOT NULL, ADD CONSTRAINT some_project CHECK (project_id > 0) NOT VALID`)
	s.Write("loose_foreign_keys.yml", `issues: [{table: projects, column: project_id, on_delete: async_nullify}]
parts: [{table: projects, column: id, on_delete: async_delete}]
p_ci_builds: [{table: projects, column: project_id, on_delete: async_delete}]
notes: [{table: parts, column: id, on_delete: async_delete}]
`)
	s.Configure(s.URL+"&lock_timeout=200ms", clitest.EveryComponent)
	grants := s.OK("migrate", "up", "--print-grants", "--tables", "--application", s.Application, "--worker", s.Worker, "--viewer", s.Viewer)
	locking := pgtest.Connect(t, s.URL)
	pgtest.Exec(t, locking, `BEGIN; DO $$ DECLARE held text; BEGIN
		FOR held IN SELECT oid::regclass FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
			AND relname NOT IN ('loose_foreign_keys_deleted_records', 'users_ghost_user_migrations', 'import_placeholder_user_details', 'group_deletion_schedules')
		LOOP EXECUTE 'LOCK TABLE ONLY ' || held || ' IN ACCESS EXCLUSIVE MODE'; END LOOP; END $$`)
	if pgtest.Version(t) < 18 { // Since then GRANT itself waits for its table.
		s.Exec("SET lock_timeout = '200ms'; " + grants)
	}

	const gaveUp = "canceling statement due to lock timeout (SQLSTATE 55P03): another session holds a table or row"
	for _, each := range []struct {
		says    string
		command []string
	}{
		{"", []string{"config", "check"}},
		{"", []string{"migrate", "status"}},
		{"", []string{"job", "list"}},
		{"", []string{"tombstones", "list"}},
		{"", []string{"triggers", "status"}},
		{"check failed: count groups to be deleted.*lock timeout", []string{"doctor"}},
		{regexp.QuoteMeta(gaveUp), []string{"status"}},
		{regexp.QuoteMeta(gaveUp), []string{"failures", "list"}},
		{regexp.QuoteMeta(gaveUp), []string{"placeholders", "list"}},
		{regexp.QuoteMeta(gaveUp), []string{"group", "list"}},
	} {
		ended := make(chan clitest.Result, 1)
		go func() { ended <- s.Run(each.command...) }()
		var r clitest.Result
		pgtest.WaitFor(t, "the end of "+each.command[0], func(context.Context) (bool, error) {
			select {
			case r = <-ended:
				return true, nil
			default:
				return false, nil
			}
		})
		said := r.Stdout + r.Stderr
		if each.says == "" {
			require.NotContains(t, said, "timeout", each.command)
			require.Contains(t, []int{0, 5}, r.Code, each.command)
		} else {
			require.Regexp(t, each.says, said, each.command)
		}
	}
}

package root_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

// configured lists all commands that read the configuration.
func configured() [][]string {
	return [][]string{
		{"config", "check"},
		{"config", "show"},
		{"status"},
		{"job", "list"},
		{"job", "run", clitest.Kind},
		{"migrate", "up"},
		{"migrate", "status"},
		{"migrate", "down"},
		{"triggers", "install"},
		{"triggers", "status"},
		{"triggers", "uninstall"},
	}
}

// All commands read the configuration alike: what it can get wrong is tested where it is read.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Configure(s.URL, "jobs: {\n")
	s.Refused(t, 2, configured(), "DIR/sexton.yaml:")
	s.Configure(s.URL, `jobs: {schema: upper, databse: main}
loose_foreign_keys: {schedule: "61 * * * *"}
adjourned_groups: {schedule: "0 0 31 2 *"}
placeholder_users: {enabled: true}
`)
	s.Refused(t, 2, configured(), "DIR/sexton.yaml:3:8: jobs.schema: was removed (remove it; the schema is always sexton)",
		"DIR/sexton.yaml:3:23: jobs.databse: unknown key (did you mean database?)", "DIR/sexton.yaml:4:32: loose_foreign_keys.schedule: its field 1",
		"DIR/sexton.yaml:5:30: adjourned_groups.schedule: never fires",
		"DIR/sexton.yaml:6:30: placeholder_users.enabled: needs ghost_users, who delete the placeholders (set ghost_users.enabled: true)")
}

// definitionReaders are the commands that look at the definitions before they connect, if they do.
func definitionReaders() [][]string {
	return [][]string{{"config", "check"}, {"job", "run", clitest.Kind}, {"triggers", "install"}, {"triggers", "status"}}
}

func TestBadDefinitions(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Write("loose_foreign_keys.yml", "issues:\n  - {table: projects, column: project_id, on_delete: async_delete, database: ci}\n")
	s.Refused(t, 2, definitionReaders(), `DIR/loose_foreign_keys.yml:2:78: issues[0].database: no database "ci" is configured (there is main)`)
	s.Write("loose_foreign_keys.yml", `issues:
  - {tabel: projects, column: project_id, on_delete: async_delete}
  - {table: projects, column: author_id, on_delete: remove}
`)
	s.Refused(t, 2, definitionReaders(), "DIR/loose_foreign_keys.yml:2:6: issues[0].tabel: unknown key (did you mean table?)",
		"DIR/loose_foreign_keys.yml:2:5: issues[0].table: is missing",
		"DIR/loose_foreign_keys.yml:3:53: issues[1].on_delete: must be one of async_delete, async_nullify, update_column_to")
}

func TestDefinitionsThatTheDatabaseContradicts(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("DELETE FROM projects WHERE id = 1")
	s.Write("loose_foreign_keys.yml", clitest.GoodDefinitions+`  - {table: project, column: project_id, on_delete: async_delete}
  - {table: projects, column: projct_id, on_delete: async_delete}
  - {table: labels, column: project_id, on_delete: async_delete}
  - {table: projects, column: author_id, on_delete: async_nullify}
  - {table: builds_1, column: project_id, on_delete: async_delete}
  - {table: projects, column: id, on_delete: async_delete, parent_column: iid}
  - {table: projects, column: project_id, on_delete: async_delete, conditions: [{column: author_id, value: me}]}
issue:
  - {table: projects, column: project_id, on_delete: async_delete}
open_issues:
  - {table: projects, column: project_id, on_delete: async_delete}
  - {table: projects, column: project_id, on_delete: async_nullify}
`)
	s.Refused(t, 2, [][]string{{"job", "run", clitest.Kind}, {"triggers", "install"}, {"triggers", "status"}},
		"DIR/loose_foreign_keys.yml:5:13: issues[1].table: parent table public.project does not exist (create it, correct the name, or remove the definition)",
		"DIR/loose_foreign_keys.yml:6:31: issues[2].column: table issues has no column projct_id (did you mean project_id?)",
		"DIR/loose_foreign_keys.yml:7:29: issues[3].column: issues.project_id is of type int8, but labels.slug is of type text: "+
			"a foreign key of type int8 cannot refer to text (the two columns need one type",
		"DIR/loose_foreign_keys.yml:8:53: issues[4].on_delete: async_nullify, but issues.author_id is NOT NULL (drop the constraint, or use async_delete)",
		"DIR/loose_foreign_keys.yml:9:13: issues[5].table: parent builds_1 is a partition (name the partitioned table it belongs to)",
		"DIR/loose_foreign_keys.yml:10:75: issues[6].parent_column: table projects has no column iid (did you mean id?)",
		`DIR/loose_foreign_keys.yml:11:108: issues[7].conditions[0].value: value "me" does not fit column author_id of type bigint`,
		"DIR/loose_foreign_keys.yml:13:5: issue[0]: child table public.issue does not exist (create it, correct the name, or remove the definition)",
		"DIR/loose_foreign_keys.yml:15:5: open_issues[0]: child open_issues is not a table (name the table behind it)",
		"DIR/loose_foreign_keys.yml:16:5: open_issues[1]: repeats open_issues[0] at DIR/loose_foreign_keys.yml:15:5: child open_issues, column project_id, parent projects")
	require.EqualValues(t, 10, s.Orphans())
}

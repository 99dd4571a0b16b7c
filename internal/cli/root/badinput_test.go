package root_test

import (
	"testing"

	"sexton/internal/cli/clitest"
)

// configReaders returns commands that read the configuration.
func configReaders() [][]string {
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

// All commands report configuration errors in the same way and change nothing. Package
// config tests the errors themselves.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Configure(s.URL, "jobs: {\n")
	s.RequireRefused(t, 2, configReaders(), "DIR/sexton.yaml:")
	s.Configure(s.URL, `jobs: {schema: upper, databse: main}
loose_foreign_keys: {schedule: "61 * * * *"}
adjourned_groups: {schedule: "0 0 31 2 *"}
placeholder_users: {enabled: true}
`)
	s.RequireRefused(t, 2, configReaders(),
		"DIR/sexton.yaml:3:8: jobs.schema: was removed (remove it; the schema is always sexton)",
		"DIR/sexton.yaml:3:23: jobs.databse: unknown key (did you mean database?)",
		"DIR/sexton.yaml:4:32: loose_foreign_keys.schedule: field 1",
		"DIR/sexton.yaml:5:30: adjourned_groups.schedule: never fires",
		"DIR/sexton.yaml:6:30: placeholder_users.enabled: requires ghost_users, which deletes the placeholder users (set ghost_users.enabled: true)")
}

// definitionReaders returns commands that read the definitions before they connect.
func definitionReaders() [][]string {
	return [][]string{
		{"config", "check"},
		{"job", "run", clitest.Kind},
		{"triggers", "install"},
		{"triggers", "status"},
	}
}

func TestBadDefinitions(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Write("loose_foreign_keys.yml",
		"issues:\n  - {table: projects, column: project_id, on_delete: async_delete, database: ci}\n")
	s.RequireRefused(t, 2, definitionReaders(),
		`DIR/loose_foreign_keys.yml:2:78: issues[0].database: no database "ci" is configured (configured: main)`)
	s.Write("loose_foreign_keys.yml", `issues:
  - {tabel: projects, column: project_id, on_delete: async_delete}
  - {table: projects, column: author_id, on_delete: remove}
`)
	s.RequireRefused(t, 2, definitionReaders(),
		"DIR/loose_foreign_keys.yml:2:6: issues[0].tabel: unknown key (did you mean table?)",
		"DIR/loose_foreign_keys.yml:2:5: issues[0].table: is missing",
		"DIR/loose_foreign_keys.yml:3:53: issues[1].on_delete: must be one of async_delete, async_nullify, update_column_to")
}

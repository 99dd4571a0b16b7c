package definitions_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

func parse(text string) ([]definitions.Definition, error) {
	return definitions.Parse(definitions.File{Name: "f.yml", Data: []byte(text)})
}

func TestLoadReadsGitLabsFileUnchanged(t *testing.T) {
	t.Parallel()

	all := pgtest.Must(definitions.Load([]string{"testdata/gitlab_loose_foreign_keys.yml"}))(t)
	require.Len(t, all, 340)

	children, parents := map[string]bool{}, map[string]bool{}
	actions, workers := map[definitions.Action]int{}, map[definitions.WorkerClass]int{}
	for _, d := range all {
		children[d.Child.String()] = true
		parents[d.Parent.String()] = true
		actions[d.OnDelete]++
		workers[d.WorkerClass]++
	}
	require.Len(t, children, 243)
	require.Len(t, parents, 45)
	require.Equal(t, map[definitions.Action]int{
		definitions.Delete: 270, definitions.Nullify: 61, definitions.UpdateColumn: 9,
	}, actions)
	require.Equal(t, map[definitions.WorkerClass]int{
		"": 306,
		"LooseForeignKeys::CiPipelinesBuildsCleanupCronWorker":  33,
		"LooseForeignKeys::MergeRequestDiffCommitCleanupWorker": 1,
	}, workers)
}

func TestLoadReportsAllErrors(t *testing.T) {
	t.Parallel()

	_, err := definitions.Load([]string{"testdata/broken.yml"})
	want, readErr := os.ReadFile("testdata/broken.txt")
	require.NoError(t, readErr)
	require.Error(t, err)
	require.Empty(t, cmp.Diff(string(want), err.Error()+"\n"))
}

func TestParseFillsEveryField(t *testing.T) {
	t.Parallel()

	got, err := parse(`
p_ci_job_artifacts:
  - table: '"my.schema"."t""x"'
    column: Project_ID
    on_delete: async_delete
    parent_column: uuid
    database: ci
    delete_limit: 1_000
    worker_class: LooseForeignKeys::CleanupWorker
    cleaner_class: Ci::JobArtifacts::LooseForeignKeyCleanerService
    conditions:
      - {column: kind, value: Vulnerability}
      - {column: state, value: 0x10}
      - {column: live, value: true}
ci.caches:
  - {table: ci.projects, column: project_id, on_delete: update_column_to, target_column: status, target_value: 2}
`)
	require.NoError(t, err)
	require.Empty(t, cmp.Diff([]definitions.Definition{
		{
			Position:      problem.Position{File: "f.yml", Line: 3, Column: 5},
			Key:           "p_ci_job_artifacts[0]",
			Child:         definitions.Name{Table: "p_ci_job_artifacts"},
			Columns:       []string{"Project_ID"},
			Table:         `"my.schema"."t""x"`,
			Parent:        definitions.Name{Schema: "my.schema", Table: `t"x`},
			ParentColumns: []string{"uuid"},
			OnDelete:      definitions.Delete,
			Conditions: []definitions.Condition{
				{Column: "kind", Value: "Vulnerability"},
				{Column: "state", Value: "16"},
				{Column: "live", Value: "true"},
			},
			DeleteLimit:  1000,
			WorkerClass:  "LooseForeignKeys::CleanupWorker",
			CleanerClass: definitions.ArtifactsCleaner,
			Database:     "ci",
		},
		{
			Position:     problem.Position{File: "f.yml", Line: 16, Column: 5},
			Key:          "ci.caches[0]",
			Child:        definitions.Name{Schema: "ci", Table: "caches"},
			Columns:      []string{"project_id"},
			Table:        "ci.projects",
			Parent:       definitions.Name{Schema: "ci", Table: "projects"},
			OnDelete:     definitions.UpdateColumn,
			TargetColumn: "status",
			TargetValue:  "2",
		},
	}, got, cmpopts.IgnoreUnexported(definitions.Definition{})))
}

func TestParseErrors(t *testing.T) {
	t.Parallel()

	entry := func(rest string) string {
		return "a:\n  - table: p\n    column: c\n    on_delete: async_delete\n" + rest
	}
	type example struct{ text, want string }
	pgtest.Each(t, map[string]example{
		"empty file":     {"", "f.yml:1:1: the file has no definitions; a minimal file is\n\n" + definitions.Example},
		"list on top":    {"- table: p\n", "f.yml:1:1: the top level must be a mapping of keys"},
		"empty list":     {"a: []\n", "f.yml:1:1: a: has no entries"},
		"text for list":  {"a: p\n", "f.yml:1:4: a: must be a list of entries (begin every entry with a dash)"},
		"text for entry": {"a:\n  - p\n", "f.yml:2:5: a[0]: must be a mapping of keys, not a string"},
		"number as table": {
			"a:\n  - {table: 5, column: c, on_delete: async_delete}\n",
			"f.yml:2:13: a[0].table: must be a string, not a whole number (put it in quotes)",
		},
		"nothing as column": {
			"a:\n  - table: p\n    column:\n    on_delete: async_delete\n",
			"f.yml:3:5: a[0].column: has no value (write one, or remove the key)",
		},
		"empty column": {
			"a:\n  - {table: p, column: \"\", on_delete: async_delete}\n",
			"f.yml:2:24: a[0].column: the name is empty",
		},
		"nul in column": {
			"a:\n  - {table: p, column: \"x\\0\", on_delete: async_delete}\n",
			"f.yml:2:24: a[0].column: contains a NUL character",
		},
		"nul in child": {
			"\"a\\0\": [{table: p, column: c, on_delete: async_delete}]\n",
			"f.yml:1:1: \"a\\x00\": the child table's name contains a NUL character",
		},
		"unclosed quote": {
			"'\"a': [{table: p, column: c, on_delete: async_delete}]\n",
			"f.yml:1:1: \"\\\"a\": the child table's name lacks its closing double quote",
		},
		"text after quote": {
			"a:\n  - {table: '\"p\"q', column: c, on_delete: async_delete}\n",
			"f.yml:2:13: a[0].table: the name has text after its closing double quote",
		},
		"empty schema": {
			"a:\n  - {table: .p, column: c, on_delete: async_delete}\n",
			"f.yml:2:13: a[0].table: the name is empty",
		},
		"unknown key": {entry("    colum: c\n"), "f.yml:5:5: a[0].colum: unknown key (did you mean column?)"},
		"limit in quotes": {
			entry("    delete_limit: \"5\"\n"),
			"f.yml:5:19: a[0].delete_limit: must be a whole number up to 2147483647 (remove the quotes)",
		},
		"limit too large": {
			entry("    delete_limit: 99999999999999999999\n"),
			"f.yml:5:19: a[0].delete_limit: must be a whole number up to 2147483647",
		},
		"octal limit": {
			entry("    delete_limit: 010\n"),
			"f.yml:5:19: a[0].delete_limit: must be a whole number up to 2147483647",
		},
		"negative limit": {
			entry("    delete_limit: -1\n"),
			"f.yml:5:19: a[0].delete_limit: must be greater than 0",
		},
		"empty database": {entry("    database: \"\"\n"), "f.yml:5:15: a[0].database: is empty"},
		"unknown cleaner": {
			entry("    cleaner_class: X\n"),
			"f.yml:5:20: a[0].cleaner_class: must be one of Ci::JobArtifacts::LooseForeignKeyCleanerService",
		},
		"no conditions": {
			entry("    conditions: []\n"),
			"f.yml:5:17: a[0].conditions: is empty (remove the key, or add a condition)",
		},
		"null condition value": {
			entry("    conditions: [{column: k, value: ~}]\n"),
			"f.yml:5:30: a[0].conditions[0].value: has no value (write one, or remove the key)",
		},
		"two conditions on one column": {
			entry("    conditions: [{column: k, value: 1}, {column: k, value: 2}]\n"),
			"f.yml:5:50: a[0].conditions[1].column: is the column of an earlier condition; a row cannot have two values",
		},
		"target without update": {
			entry("    target_column: s\n    target_value: 1\n"),
			"f.yml:5:20: a[0].target_column: is allowed with on_delete: update_column_to only\n" +
				"f.yml:6:19: a[0].target_value: is allowed with on_delete: update_column_to only",
		},
		"update without target": {
			"a:\n  - {table: p, column: c, on_delete: update_column_to}\n",
			"f.yml:2:5: a[0].target_column: is missing; on_delete: update_column_to needs it\n" +
				"f.yml:2:5: a[0].target_value: is missing; on_delete: update_column_to needs it",
		},
		"duplicate with conditions in another order": {
			"a:\n" +
				"  - {table: p, column: c, on_delete: async_delete, conditions: [{column: x, value: 1}, {column: y, value: 2}]}\n" +
				"  - {table: p, column: c, on_delete: async_nullify, conditions: [{column: y, value: 2}, {column: x, value: \"1\"}]}\n",
			"f.yml:3:5: a[1]: repeats a[0] at f.yml:2:5: child a, column c, parent p",
		},
		"two documents": {
			"a:\n  - {table: p, column: c, on_delete: async_delete}\n---\nb: 1\n",
			"f.yml:4:1: a second document begins here (keep one document per file)",
		},
	}, func(t *testing.T, _ string, test example) {
		_, err := parse(test.text)
		require.EqualError(t, err, test.want)
	})
}

func TestParseReturnsValidDefinitionsWithTheError(t *testing.T) {
	t.Parallel()

	got, err := parse("a:\n  - {table: p, column: c, on_delete: async_delete}\n  - {table: p, column: c, on_delete: async_nullify}\n  - {table: q}\n")
	require.Error(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "a[0]", got[0].Key)
}

func TestParseAcceptsSimilarDefinitions(t *testing.T) {
	t.Parallel()

	got, err := parse(`
a:
  - {table: p, column: c, on_delete: async_delete, conditions: [{column: k, value: A}]}
  - {table: p, column: c, on_delete: async_delete, conditions: [{column: k, value: B}]}
  - {table: p, column: d, on_delete: async_delete, parent_column: id}
  - {table: q, column: c, on_delete: async_delete, parent_column: uuid}
  - {table: s.p, column: c, on_delete: async_delete, parent_column: uuid}
  - {table: p, column: c, on_delete: async_nullify, database: ci}
`)
	require.NoError(t, err)
	require.Len(t, got, 6)
}

func TestLoadFindsConflictsAcrossFiles(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	first, second := filepath.Join(dir, "a.yml"), filepath.Join(dir, "b.yml")
	text := "t:\n  - {table: p, column: c, on_delete: async_delete}\n"
	require.NoError(t, os.WriteFile(first, []byte(text), 0o600))
	require.NoError(t, os.WriteFile(second, []byte("# second\n"+text), 0o600))

	_, err := definitions.Load([]string{first, second})
	require.EqualError(t, err, second+":3:5: t[0]: repeats t[0] at "+first+":2:5: child t, column c, parent p")
}

func TestLoadReportsUnreadableFiles(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	missing := filepath.Join(dir, "missing.yml")
	_, err := definitions.Load([]string{missing, dir})
	require.EqualError(t, err, dir+": the definitions file cannot be read: is a directory\n"+
		missing+": the definitions file does not exist; a minimal file is\n\n"+definitions.Example)
}

func TestExampleIsShortAndLoads(t *testing.T) {
	t.Parallel()

	got := pgtest.Must(parse(definitions.Example))(t)
	require.Len(t, got, 1)
	require.LessOrEqual(t, strings.Count(definitions.Example, "\n"), 5)
}

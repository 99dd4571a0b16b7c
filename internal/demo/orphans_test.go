package demo

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgschema"
	"sexton/internal/pgtest"
)

func TestOrphansAreCountedExactly(t *testing.T) {
	t.Parallel()
	const (
		plain = `CREATE TABLE parents (id bigint PRIMARY KEY, code bigint UNIQUE);
			CREATE TABLE kids (parent_id bigint, kind text, state integer);
			INSERT INTO parents VALUES (1, 10), (2, 20);`
		elsewhere = `CREATE SCHEMA "Other ""App""";
			CREATE TABLE "Other ""App"""."Parents" (id bigint PRIMARY KEY, "Code" bigint);
			CREATE TABLE "Other ""App"""."My.Kids" ("Parent ""Id" bigint, "Kind" text);
			CREATE TABLE "Parents" (id bigint PRIMARY KEY);
			INSERT INTO "Other ""App"""."Parents" VALUES (1, 10), (2, NULL);
			INSERT INTO "Parents" VALUES (8);`
	)
	for name, test := range map[string]struct {
		tracked     string
		definitions string
		sql         string
		want        int64
	}{
		"delete": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: async_delete}]`,
			sql:         plain + `INSERT INTO kids VALUES (1), (2), (NULL), (NULL), (3), (3), (4)`,
			want:        3,
		},
		"nullify": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: async_nullify}]`,
			sql:         plain + `INSERT INTO kids VALUES (1), (NULL), (3), (4)`,
			want:        2,
		},
		"no parents left": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: async_delete}]`,
			sql:         plain + `DELETE FROM parents; INSERT INTO kids VALUES (1), (2), (NULL)`,
			want:        2,
		},
		"update to a value that is reached, not reached, NULL": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 5}]`,
			sql: plain + `INSERT INTO kids (parent_id, state) VALUES
				(1, 4), (1, 5), (1, NULL), (NULL, 4),
				(3, 5), (3, 5), (3, 5), (3, 4), (3, NULL)`,
			want: 2,
		},
		"condition": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: kind, value: Issue}]}]`,
			sql: plain + `INSERT INTO kids (parent_id, kind) VALUES
				(1, 'Issue'), (NULL, 'Issue'), (3, 'issue'), (3, 'Epic'), (3, NULL), (3, 'Issue')`,
			want: 1,
		},
		"two conditions and a target": {
			definitions: `kids: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: kind, target_value: gone,
				conditions: [{column: kind, value: Issue}, {column: state, value: 1}]}]`,
			sql: plain + `INSERT INTO kids VALUES
				(3, 'Issue', 1), (3, 'Issue', 1), (3, 'Issue', 2), (3, 'Epic', 1), (3, 'gone', 1), (1, 'Issue', 1)`,
			want: 2,
		},
		"parent column": {
			// 1 and 2 are keys of parents, 10 and 20 what the children name.
			definitions: `kids: [{table: parents, column: parent_id, parent_column: code, on_delete: async_delete}]`,
			sql:         plain + `INSERT INTO kids VALUES (10), (20), (20), (1), (2), (30), (NULL)`,
			want:        3,
		},
		"names in quotes and in another schema": {
			definitions: `'"Other ""App"""."My.Kids"': [{table: '"Other ""App"""."Parents"', column: 'Parent "Id', on_delete: async_nullify,
				conditions: [{column: Kind, value: "it's"}]}]`,
			sql: elsewhere + `INSERT INTO "Other ""App"""."My.Kids" VALUES
				(1, 'it''s'), (8, 'it''s'), (8, 'it'), (9, 'it''s'), (NULL, 'it''s')`,
			want: 2,
		},
		"parent column in quotes": {
			definitions: `'"Other ""App"""."My.Kids"': [{table: '"Other ""App"""."Parents"', column: 'Parent "Id', parent_column: Code, on_delete: async_nullify}]`,
			sql:         elsewhere + `INSERT INTO "Other ""App"""."My.Kids" VALUES (10), (1), (2), (NULL)`,
			want:        2,
		},
		"tracked schema of a name without one": {
			tracked:     `Other "App"`,
			definitions: `'"My.Kids"': [{table: Parents, column: 'Parent "Id', on_delete: async_delete}]`,
			sql:         elsewhere + `INSERT INTO "Other ""App"""."My.Kids" VALUES (1), (2), (8)`,
			want:        1,
		},
		"several definitions": {
			definitions: `kids:
  - {table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: kind, value: a}]}
  - {table: parents, column: state, on_delete: async_nullify}`,
			sql:  plain + `INSERT INTO kids VALUES (3, 'a', 1), (3, 'a', 3), (3, 'b', 3), (1, 'a', NULL), (1, 'a', 3)`,
			want: 2 + 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			db.Exec(test.sql)
			names := pgschema.Names{Jobs: "sexton", Tracked: "public"}
			if test.tracked != "" {
				names.Tracked = test.tracked
			}
			got := pgtest.Must(orphans(t.Context(), stage{pool: db.Pool(), names: names, definitions: parsed(t, test.definitions)}))(t)
			require.Equal(t, test.want, got)
		})
	}
}

func TestOrphansOfAMissingTable(t *testing.T) {
	t.Parallel()
	_, err := orphans(t.Context(), stage{
		pool: pgtest.New(t).Pool(), names: pgschema.Names{Tracked: "public"},
		definitions: parsed(t, `app.kids: [{table: parents, column: parent_id, on_delete: async_delete}]`),
	})
	require.ErrorContains(t, err, "count orphans of parents in app.kids: ")
	require.ErrorContains(t, err, "42P01")
}

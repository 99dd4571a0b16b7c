package loosefk_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

const catalogTables = `
CREATE TABLE deferred (id bigint PRIMARY KEY DEFERRABLE);
CREATE TABLE parents (id bigint PRIMARY KEY, code text UNIQUE, label text);
CREATE TABLE keyless (id bigint);
CREATE TABLE pairs (a bigint, b bigint, PRIMARY KEY (a, b));
CREATE TABLE parted (id bigint, part int, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE VIEW seen AS SELECT * FROM parents;
CREATE TYPE mood AS ENUM ('good', 'bad');
CREATE TABLE children (
	id bigint PRIMARY KEY, parent_id bigint NOT NULL, code varchar(9), flag boolean, mood mood, part_id int, stage int,
	twice bigint GENERATED ALWAYS AS (id * 2) STORED, list bigint[], at timestamp
);
CREATE DOMAIN present AS bigint CHECK (value IS NOT NULL);
CREATE TABLE checked (
	id bigint PRIMARY KEY, parent_id bigint CONSTRAINT there CHECK (parent_id IS NOT NULL), domained present, state int CHECK (state < 3),
	free bigint, CHECK (free IS NOT NULL OR state IS NOT NULL)
);
CREATE TABLE halved (id bigint, parent_id bigint) PARTITION BY LIST (id);
CREATE TABLE halved_1 PARTITION OF halved FOR VALUES IN (1);
CREATE TABLE lists (list bigint[] PRIMARY KEY);
CREATE TABLE moments (at timestamptz PRIMARY KEY);
CREATE INDEX ON children (parent_id);
CREATE INDEX ON children (code) WHERE flag;
CREATE INDEX ON children (part_id, id);
CREATE TABLE rowless (parent_id bigint);
CREATE INDEX ON rowless (parent_id);
CREATE TABLE ruled (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON ruled (parent_id);
CREATE RULE stays AS ON DELETE TO ruled WHERE old.id = 1 DO INSTEAD NOTHING;
CREATE TABLE ruled_in_part (id bigint PRIMARY KEY, parent_id bigint) PARTITION BY LIST (id);
CREATE TABLE ruled_part PARTITION OF ruled_in_part FOR VALUES IN (1);
CREATE INDEX ON ruled_in_part (parent_id);
CREATE RULE also AS ON DELETE TO ruled_part DO ALSO INSERT INTO rowless VALUES (old.id);
CREATE TABLE a (id bigint PRIMARY KEY, b_id bigint);
CREATE TABLE b (id bigint PRIMARY KEY, a_id bigint);`

func TestResolveErrors(t *testing.T) {
	t.Parallel()
	db := newDB(t, catalogTables)
	for name, test := range map[string]struct{ entry, want string }{
		"missing child": {
			"nobody: [{table: parents, column: parent_id, on_delete: async_delete}]",
			"lfk.yml:1:10: nobody[0]: child table public.nobody does not exist (create it, correct the name, or remove the definition)",
		},
		"missing parent": {
			"children: [{table: nobody, column: parent_id, on_delete: async_delete}]",
			"children[0].table: parent table public.nobody does not exist",
		},
		"missing column": {
			"children: [{table: parents, column: parnt_id, on_delete: async_delete}]",
			"children[0].column: table children has no column parnt_id (did you mean parent_id?)",
		},
		"missing parent column": {"children: [{table: parents, column: parent_id, parent_column: cod, on_delete: async_delete}]", "children[0].parent_column: table parents has no column cod (did you mean code?)"},
		"parent not unique":     {"children: [{table: parents, column: code, parent_column: label, on_delete: async_delete}]", "children[0].parent_column: column label of parent parents is not unique"},
		"deferrable key": {
			"children: [{table: deferred, column: parent_id, on_delete: async_delete}]",
			"children[0].parent_column: the constraint on id of parent deferred is deferrable (make it NOT DEFERRABLE",
		},
		"parent without key": {
			"children: [{table: keyless, column: parent_id, on_delete: async_delete}]",
			"parent keyless has no primary key of one column",
		},
		"parent of two columns": {
			"children: [{table: pairs, column: parent_id, on_delete: async_delete}]",
			"parent pairs has no primary key of one column (name a unique column with parent_column)",
		},
		"types": {
			"children: [{table: parents, column: code, on_delete: async_delete}]",
			`children[0].column: children.code is of type varchar, but parents.id is of type int8`,
		},
		"nullify on not null": {
			"children: [{table: parents, column: parent_id, on_delete: async_nullify}]",
			"children[0].on_delete: async_nullify, but children.parent_id is NOT NULL (drop the constraint, or use async_delete)",
		},
		"nullify generated": {
			"children: [{table: parents, column: twice, on_delete: async_nullify}]",
			"children[0].column: children.twice is a generated column and cannot be set",
		},
		"array": {
			"children: [{table: lists, column: list, on_delete: async_delete}]",
			"children[0].parent_column: column list of parent lists: type bigint[] is an array, and array keys cannot be recorded",
		},
		"time zones": {
			"children: [{table: moments, column: at, on_delete: async_delete}]",
			"children.at is of type timestamp, but moments.at is of type timestamptz: comparing timestamp with timestamptz depends on the time zone of the session",
		},
		"overlap":                {"children: [{table: parents, column: part_id, on_delete: async_delete, conditions: [{column: flag, value: true}]}, {table: parents, column: part_id, on_delete: async_nullify}]", "children[1].on_delete: a row of children can match this definition and the definition at lfk.yml:1:12, which changes it differently"},
		"overlap, partition":     {"{halved: [{table: parents, column: id, on_delete: update_column_to, target_column: parent_id, target_value: 1}], halved_1: [{table: parents, column: id, on_delete: async_delete}]}", "halved_1[0].on_delete: a row of halved_1 can match this definition and the definition at lfk.yml:1:11"},
		"overlap, afterwards":    {"children: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: stage, target_value: 2, conditions: [{column: stage, value: 1}]}, {table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: stage, value: 2}]}]", "children[1].on_delete: a row of children can match this definition and the definition at lfk.yml:1:12"},
		"overlap, one target":    {"children: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: stage, target_value: 1}, {table: parents, column: part_id, on_delete: update_column_to, target_column: stage, target_value: 2}]", "children[1].on_delete: a row of children can match this definition and the definition at lfk.yml:1:12"},
		"overlap, by a key":      {"children: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: part_id, target_value: 1}, {table: parents, column: part_id, on_delete: async_delete}]", "children[1].on_delete: a row of children can match this definition and the definition at lfk.yml:1:12"},
		"overlap, by conditions": {"children: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: stage, target_value: 1}, {table: parents, column: part_id, on_delete: async_delete, conditions: [{column: stage, value: 1}]}]", "children[1].on_delete: a row of children can match this definition and the definition at lfk.yml:1:12"},
		"overlap, nullified":     {"children: [{table: parents, column: part_id, on_delete: async_nullify}, {table: parents, column: parent_id, on_delete: update_column_to, target_column: part_id, target_value: 2}]", "children[1].on_delete: a row of children can match this definition and the definition at lfk.yml:1:12"},
		"overlap, two targets":   {"children: [{table: parents, column: part_id, on_delete: update_column_to, target_column: stage, target_value: 1}, {table: parents, column: part_id, on_delete: update_column_to, target_column: flag, target_value: true, conditions: [{column: stage, value: 0}]}]", "children[1].on_delete: a row of children can match this definition and the definition at lfk.yml:1:12"},
		"partition as parent": {
			"children: [{table: parted_1, column: part_id, on_delete: async_delete}]",
			"children[0].table: parent parted_1 is a partition (use its partitioned table)",
		},
		"view as parent": {
			"children: [{table: seen, column: parent_id, on_delete: async_delete}]",
			"children[0].table: parent seen is not a table",
		},
		"view as child": {
			"seen: [{table: parents, column: id, on_delete: async_delete}]",
			"seen[0]: child seen is not a table",
		},
		"missing condition":     {"children: [{table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: kind, value: x}]}]", "children[0].conditions[0].column: table children has no column kind"},
		"missing target":        {"children: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: status, target_value: 1}]", "children[0].target_column: table children has no column status"},
		"generated target":      {"children: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: twice, target_value: 1}]", "children[0].target_column: children.twice is a generated column and cannot be set"},
		"value of wrong type":   {"children: [{table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: mood, value: sad}]}]", `children[0].conditions[0].value: value "sad" does not fit column mood of type public.mood (give a value of that type)`},
		"truncated value":       {"children: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: code, target_value: 1234567890}]", `children[0].target_value: value "1234567890" does not fit column code of type character varying(9) (it would become "123456789")`},
		"cleaner without key":   {`rowless: [{table: parents, column: parent_id, on_delete: async_delete, cleaner_class: "Ci::JobArtifacts::LooseForeignKeyCleanerService"}]`, "rowless[0].cleaner_class: table rowless has no primary key to identify its rows"},
		"cleaner with a rule":   {`ruled: [{table: parents, column: parent_id, on_delete: async_delete, cleaner_class: "Ci::JobArtifacts::LooseForeignKeyCleanerService"}]`, "ruled[0].cleaner_class: table ruled has the rule stays, and Postgres does not support DELETE ... RETURNING with such a rule (replace the rule with a trigger, or leave cleaner_class out)"},
		"event, missing column": {`children: [{table: parents, column: parent_id, on_delete: async_delete, event: [moods]}]`, "children[0].event: table children has no column moods (name one of its columns, or leave event out)"},
		"event without key":     {`rowless: [{table: parents, column: parent_id, on_delete: async_delete, event: true}]`, "rowless[0].event: table rowless has no primary key to identify its rows"},
		"cleaner, partition":    {`ruled_in_part: [{table: parents, column: parent_id, on_delete: async_delete, cleaner_class: "Ci::JobArtifacts::LooseForeignKeyCleanerService"}]`, "ruled_in_part[0].cleaner_class: table ruled_in_part has the rule also,"},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := resolve(t, db.Pool(), test.entry)
			found := problems.Only(problem.Error)
			require.Len(t, found, 1)
			require.Contains(t, found[0].String(), test.want)
			require.True(t, strings.HasPrefix(found[0].String(), "lfk.yml:1:"), found[0].String())
		})
	}
}

func TestResolveOfWholeFiles(t *testing.T) {
	t.Parallel()
	db := newDB(t, catalogTables)
	for name, test := range map[string]struct {
		definitions string
		// errors holds all errors. warnings are only compared if some are given.
		errors, warnings []string
	}{
		"duplicates with different spelling": {definitions: `
children: [{table: parents, column: parent_id, on_delete: async_delete}]
public.children: [{table: public.parents, column: parent_id, on_delete: async_delete}]
`, errors: []string{"lfk.yml:3:19: public.children[0]: the same definition is at lfk.yml:2:12 (remove one of them)"}},
		"several errors": {definitions: `
children:
  - {table: nobody, column: parent_id, on_delete: async_delete}
  - {table: parents, column: wrong, on_delete: async_delete}
  - {table: parents, column: code, on_delete: async_delete}
`, errors: []string{"parent table public.nobody does not exist", "table children has no column wrong", "children.code is of type varchar"}},
		"missing indexes": {definitions: `
children:
  - {table: parents, column: parent_id, on_delete: async_delete}
  - {table: parents, column: id, on_delete: async_delete}
  - {table: parted, column: part_id, on_delete: async_delete}
keyless: [{table: parents, column: id, on_delete: async_delete}]
`, warnings: []string{
			"children[2].table: id is only a part of the primary key of parted",
			`lfk.yml:6:36: keyless[0].column: no index of keyless begins with id, so every batch reads the whole table (CREATE INDEX CONCURRENTLY ON "public"."keyless" ("id"))`,
		}},
		"values that constraints allow": {definitions: `
checked:
  - {table: parents, column: free, on_delete: async_nullify}
  - {table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 2}
children:
  - {table: parents, column: part_id, on_delete: async_delete, conditions: [{column: flag, value: true}]}
  - {table: parents, column: part_id, on_delete: async_nullify, conditions: [{column: flag, value: false}]}
parted:
  - {table: parents, column: id, on_delete: update_column_to, target_column: part, target_value: 1, conditions: [{column: part, value: 0}]}
  - {table: parents, column: part, on_delete: update_column_to, target_column: part, target_value: 1, conditions: [{column: part, value: 0}]}
`},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := resolve(t, db.Pool(), test.definitions)
			for severity, want := range map[problem.Severity][]string{
				problem.Error:   test.errors,
				problem.Warning: test.warnings,
			} {
				found := problems.Only(severity)
				if len(want) > 0 || severity == problem.Error {
					require.Len(t, found, len(want), "%v", found)
				}
				for i, text := range want {
					require.Contains(t, found[i].String(), text)
				}
			}
		})
	}
}

func TestResolveChoosesTheKey(t *testing.T) {
	t.Parallel()
	parents := parentsOf(t, newDB(t, catalogTables).Pool(), `
children:
  - {table: parents, column: code, parent_column: code, on_delete: async_delete}
  - {table: parted, column: part_id, on_delete: async_delete}
`)
	require.Len(t, parents, 2)
	require.Equal(t, []string{"code"}, parents[0].KeyColumns)
	require.False(t, parents[0].Integer)
	require.Equal(t, []string{"id"}, parents[1].KeyColumns, "id identifies a row of a partitioned table")
	require.True(t, parents[1].Integer)
}

func TestMissingPrivileges(t *testing.T) {
	t.Parallel()
	db := newDB(t, catalogTables)
	role := db.CreateRole()
	db.Exec("GRANT SELECT ON parents, children TO " + role)
	conn := pgtest.Connect(t, db.AsRole(role))
	missing := func() problem.List {
		const yaml = "children: [{table: parents, column: parent_id, on_delete: async_delete}]"
		return pgtest.Must(loosefk.MissingPrivileges(t.Context(), conn, "main", parentsOf(t, conn, yaml)))(t)
	}
	require.EqualError(t, missing().Err(),
		"lfk.yml:1:12: children[0]: the database role lacks DELETE, UPDATE on table public.children "+
			"(GRANT DELETE, UPDATE ON public.children TO "+role+")")
	db.Exec("GRANT DELETE ON children TO " + role)
	require.Len(t, missing(), 1, "locking a row needs UPDATE")
	db.Exec("GRANT UPDATE ON children TO " + role)
	require.Empty(t, missing())
}

const compositeTables = `
CREATE TABLE pairs (a bigint, b text, c int, d int, e int, PRIMARY KEY (a, b));
CREATE UNIQUE INDEX ON pairs (d, c); CREATE UNIQUE INDEX ON pairs (c, e) WHERE c > 0; CREATE INDEX ON pairs (a, c); CREATE UNIQUE INDEX ON pairs (b, (e + 1));
CREATE TABLE keyless (a bigint, b text);
CREATE TABLE single (id bigint PRIMARY KEY);
CREATE TABLE parted (a bigint, b int, part int, PRIMARY KEY (a, b, part)) PARTITION BY LIST (part);
CREATE TABLE children (
	id bigint PRIMARY KEY, a smallint NOT NULL, b varchar(9), c int, d int, part int, twice text GENERATED ALWAYS AS (id::text) STORED
);
CREATE INDEX ON children (b, a, id);`

func TestResolveComposite(t *testing.T) {
	t.Parallel()
	db := newDB(t, compositeTables)
	for name, test := range map[string]struct{ entry, want string }{
		"missing columns": {
			"{table: pairs, column: [a, q], on_delete: async_delete}",
			"lfk.yml:1:39: children[0].column[1]: table children has no column q",
		},
		"missing parent column": {
			"{table: pairs, column: [a, b], parent_column: [a, x], on_delete: async_delete}",
			"lfk.yml:1:62: children[0].parent_column[1]: table pairs has no column x",
		},
		"types": {
			"{table: pairs, column: [b, twice], on_delete: async_delete}",
			"lfk.yml:1:36: children[0].column[0]: children.b is of type varchar, but pairs.a is of type int8",
		},
		"types of the second": {
			"{table: pairs, column: [a, c], on_delete: async_delete}",
			"lfk.yml:1:39: children[0].column[1]: children.c is of type int4, but pairs.b is of type text",
		},
		"nullify on not null": {
			"{table: pairs, column: [a, b], on_delete: async_nullify}",
			"children[0].on_delete: async_nullify, but children.a is NOT NULL",
		},
		"nullify generated": {
			"{table: pairs, column: [d, twice], parent_column: [a, b], on_delete: async_nullify}",
			"children[0].column[1]: children.twice is a generated column and cannot be set",
		},
		"not unique together": {
			"{table: pairs, column: [a, c], parent_column: [a, c], on_delete: async_delete}",
			"children[0].parent_column: parent pairs has no unique index on exactly a, c (name all columns of a unique index: if two rows share a key, deleting one would delete the children of both)",
		},
		"partial unique": {
			"{table: pairs, column: [c, d], parent_column: [c, e], on_delete: async_delete}",
			"parent pairs has no unique index on exactly c, e",
		},
		"more than unique": {
			"{table: pairs, column: [a, b, c], parent_column: [a, b, c], on_delete: async_delete}",
			"parent pairs has no unique index on exactly a, b, c",
		},
		"unique on expression": {
			"{table: pairs, column: [b, c], parent_column: [b, e], on_delete: async_delete}",
			"parent pairs has no unique index on exactly b, e",
		},
		"part of a partitioned": {
			"{table: parted, column: [a, c], parent_column: [a, b], on_delete: async_delete}",
			"parent parted has no unique index on exactly a, b",
		},
		"no primary key": {
			"{table: keyless, column: [a, b], on_delete: async_delete}",
			"children[0].table: parent keyless has no primary key (name the columns of a unique index with parent_column)",
		},
		"primary key of one": {
			"{table: single, column: [a, b], on_delete: async_delete}",
			"lfk.yml:1:36: children[0].column: the definition names 2 columns, but the primary key of parent single has 1: id",
		},
		"primary key of three": {
			"{table: parted, column: [a, c], on_delete: async_delete}",
			"the definition names 2 columns, but the primary key of parent parted has 3: a, b, part",
		},
		"one column of a pair": {
			"{table: pairs, column: a, on_delete: async_delete}",
			"parent pairs has no primary key of one column",
		},
		"other key of a parent":           {"{table: pairs, column: [a, b], on_delete: async_delete}, {table: pairs, column: [c, d], parent_column: [c, d], on_delete: async_delete}", "children[1].parent_column: another definition refers to pairs by a, b (all definitions of one parent must use the same columns in the same order, because a tombstone has one key)"},
		"same key, other spelling":        {"{table: pairs, column: [d, c], parent_column: [d, c], on_delete: async_delete}, {table: public.pairs, column: [c, d], parent_column: [c, d], on_delete: async_delete}", "another definition refers to public.pairs by d, c"},
		"same definition, other spelling": {"{table: pairs, column: [a, b], on_delete: async_delete}, {table: public.pairs, column: [a, b], on_delete: async_delete}", "the same definition is at lfk.yml:1:12"},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems := resolve(t, db.Pool(), "children: ["+test.entry+"]")
			found := problems.Only(problem.Error)
			require.Len(t, found, 1, "%v", found)
			require.Contains(t, found[0].String(), test.want)
		})
	}
}

func TestResolveChoosesCompositeKeys(t *testing.T) {
	t.Parallel()
	db := newDB(t, compositeTables)
	for entry, want := range map[string][]string{
		"{table: pairs, column: [a, b], on_delete: async_delete}":                        {"a", "b"},
		"{table: pairs, column: [b, a], parent_column: [b, a], on_delete: async_delete}": {"b", "a"},
		"{table: pairs, column: [c, d], parent_column: [c, d], on_delete: async_delete}": {"c", "d"},
		"{table: parted, column: [a, c, part], on_delete: async_delete}": {
			"a", "b",
			"part",
		},
		"{table: single, column: [id], parent_column: [id], on_delete: async_delete}": {"id"},
		"{table: single, column: [a], on_delete: async_delete}":                       {"id"},
		"{table: parted, column: [part, a, c], parent_column: [part, a, b], on_delete: async_delete}": {
			"part", "a",
			"b",
		},
	} {
		parents := parentsOf(t, db.Pool(), "children: ["+entry+"]")
		require.Len(t, parents, 1)
		require.Equal(t, want, parents[0].KeyColumns)
		require.Equal(t, len(want) == 1, parents[0].Integer)
	}
}

// Resolve warns unless an index begins with all columns, in any order. A partial index is
// sufficient if it only leaves out rows with NULL in one of the columns.
func TestResolveWarnsOfMissingCompositeIndexes(t *testing.T) {
	t.Parallel()
	db := newDB(t, compositeTables)
	for index, usable := range map[string]bool{
		"CREATE INDEX ON children (b, a, id)":                                   true,
		"SELECT":                                                                false,
		"CREATE INDEX ON children (a, b)":                                       true,
		"CREATE INDEX ON children (a, id, b)":                                   false,
		"CREATE INDEX ON children (a)":                                          false,
		"CREATE INDEX ON children (b, lower(b), a)":                             false,
		"CREATE UNIQUE INDEX ON children (b)":                                   true,
		"CREATE INDEX ON children (a, b) WHERE b IS NOT NULL":                   true,
		"CREATE INDEX ON children (a, b) WHERE b IS NOT NULL AND a IS NOT NULL": true,
		"CREATE INDEX ON children (a, b) WHERE b IS NOT NULL AND c IS NOT NULL": false,
		"CREATE INDEX ON children USING brin (a, b)":                            false,
		"CREATE INDEX ON children (a, b) INCLUDE (c)":                           true,
		"CREATE INDEX ON children (a) INCLUDE (b)":                              false,
	} {
		t.Run(index, func(t *testing.T) {
			db.Exec("DO $$ BEGIN EXECUTE (SELECT coalesce(string_agg('DROP INDEX ' || indexname, ';'), 'SELECT') FROM pg_indexes " +
				"WHERE tablename = 'children' AND indexname <> 'children_pkey'); END $$; " + index)
			parents, problems := resolve(t, db.Pool(),
				"children: [{table: pairs, column: [a, b], on_delete: async_delete}]")
			require.Equal(t, usable, parents[0].References[0].Index)
			created := creates(planOn(t, db, "children: [{table: pairs, column: [a, b], on_delete: async_delete}]",
				planLimits()))
			if usable {
				require.Empty(t, created)
			} else {
				require.Equal(t,
					`lfk.yml:1:35: children[0].column: no index of children begins with a, b, so every batch reads the whole table `+
						`(CREATE INDEX CONCURRENTLY ON "public"."children" ("a", "b"))`, problems.Error())
				require.Regexp(t,
					`^CREATE INDEX CONCURRENTLY ON "public"."children" \("a", "b"\);$`,
					strings.Join(created, "\n"))
			}
		})
	}
}

func TestCompositeNullifyNeedsAllColumns(t *testing.T) {
	t.Parallel()
	db := newDB(t, compositeTables)
	role := db.CreateRole()
	db.Exec("GRANT SELECT ON pairs, children TO " + role)
	conn := pgtest.Connect(t, db.AsRole(role))
	const yaml = "children: [{table: pairs, column: [d, c], parent_column: [d, c], on_delete: async_nullify}]"
	missing := func() int {
		return len(pgtest.Must(loosefk.MissingPrivileges(t.Context(), conn, "main", parentsOf(t, conn, yaml)))(t))
	}
	require.Equal(t, 1, missing())
	db.Exec("GRANT UPDATE (d) ON children TO " + role)
	require.Equal(t, 1, missing(), "UPDATE is granted on one of two columns")
	db.Exec("GRANT UPDATE (c) ON children TO " + role)
	require.Zero(t, missing())
}

package loosefk_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/loosefk"
	"sexton/internal/loosefk/dryrun"
	"sexton/internal/problem"
)

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

	db := with(t, compositeTables)
	for name, test := range map[string]struct{ entry, want string }{
		"missing columns":        {"{table: pairs, column: [a, q], on_delete: async_delete}", "lfk.yml:1:39: children[0].column[1]: table children has no column q"},
		"missing parent column":  {"{table: pairs, column: [a, b], parent_column: [a, x], on_delete: async_delete}", "lfk.yml:1:62: children[0].parent_column[1]: table pairs has no column x"},
		"types":                  {"{table: pairs, column: [b, twice], on_delete: async_delete}", "lfk.yml:1:36: children[0].column[0]: children.b is of type varchar, but pairs.a is of type int8"},
		"types of the second":    {"{table: pairs, column: [a, c], on_delete: async_delete}", "lfk.yml:1:39: children[0].column[1]: children.c is of type int4, but pairs.b is of type text"},
		"nullify on not null":    {"{table: pairs, column: [a, b], on_delete: async_nullify}", "children[0].on_delete: async_nullify, but children.a is NOT NULL"},
		"nullify generated":      {"{table: pairs, column: [d, twice], parent_column: [a, b], on_delete: async_nullify}", "children[0].column[1]: children.twice is a generated column and cannot be set"},
		"not unique together":    {"{table: pairs, column: [a, c], parent_column: [a, c], on_delete: async_delete}", "children[0].parent_column: parent pairs has no unique index on exactly a, c (name all columns of one: a key that two rows share would lose the children of both)"},
		"partial unique":         {"{table: pairs, column: [c, d], parent_column: [c, e], on_delete: async_delete}", "parent pairs has no unique index on exactly c, e"},
		"more than unique":       {"{table: pairs, column: [a, b, c], parent_column: [a, b, c], on_delete: async_delete}", "parent pairs has no unique index on exactly a, b, c"},
		"unique on expression":   {"{table: pairs, column: [b, c], parent_column: [b, e], on_delete: async_delete}", "parent pairs has no unique index on exactly b, e"},
		"part of a partitioned":  {"{table: parted, column: [a, c], parent_column: [a, b], on_delete: async_delete}", "parent parted has no unique index on exactly a, b"},
		"no primary key":         {"{table: keyless, column: [a, b], on_delete: async_delete}", "children[0].table: parent keyless has no primary key (name the columns of a unique index with parent_column)"},
		"primary key of one":     {"{table: single, column: [a, b], on_delete: async_delete}", "lfk.yml:1:36: children[0].column: names 2 columns, but the primary key of parent single has 1: id"},
		"primary key of three":   {"{table: parted, column: [a, c], on_delete: async_delete}", "names 2 columns, but the primary key of parent parted has 3: a, b, part"},
		"one column of a pair":   {"{table: pairs, column: a, on_delete: async_delete}", "parent pairs has no primary key of one column"},
		"other key of a parent":  {"{table: pairs, column: [a, b], on_delete: async_delete}, {table: pairs, column: [c, d], parent_column: [c, d], on_delete: async_delete}", "children[1].parent_column: another definition refers to pairs by a, b (all definitions of one parent have to use the same columns in the same order, as a tombstone carries one key)"},
		"same key, other spelt":  {"{table: pairs, column: [d, c], parent_column: [d, c], on_delete: async_delete}, {table: public.pairs, column: [c, d], parent_column: [c, d], on_delete: async_delete}", "another definition refers to public.pairs by d, c"},
		"same definition, spelt": {"{table: pairs, column: [a, b], on_delete: async_delete}, {table: public.pairs, column: [a, b], on_delete: async_delete}", "the same definition stands at lfk.yml:1:12"},
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

	db := with(t, compositeTables)
	for entry, want := range map[string][]string{
		"{table: pairs, column: [a, b], on_delete: async_delete}":                                     {"a", "b"},
		"{table: pairs, column: [b, a], parent_column: [b, a], on_delete: async_delete}":              {"b", "a"},
		"{table: pairs, column: [c, d], parent_column: [c, d], on_delete: async_delete}":              {"c", "d"},
		"{table: parted, column: [a, c, part], on_delete: async_delete}":                              {"a", "b", "part"},
		"{table: single, column: [id], parent_column: [id], on_delete: async_delete}":                 {"id"},
		"{table: single, column: [a], on_delete: async_delete}":                                       {"id"},
		"{table: parted, column: [part, a, c], parent_column: [part, a, b], on_delete: async_delete}": {"part", "a", "b"},
	} {
		parents := parentsOf(t, db.Pool(), "children: ["+entry+"]")
		require.Len(t, parents, 1)
		require.Equal(t, want, parents[0].KeyColumns)
		require.Equal(t, len(want) == 1, parents[0].Integer)
	}
}

// An index has to begin with all columns, in any order; a partial one may leave out what has no key.
func TestResolveWarnsOfMissingCompositeIndexes(t *testing.T) {
	t.Parallel()

	for index, usable := range map[string]bool{
		"SELECT":                                                                true,
		"DROP INDEX children_b_a_id_idx":                                        false,
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
			t.Parallel()
			db := with(t, compositeTables)
			if index != "SELECT" {
				db.Exec("DROP INDEX children_b_a_id_idx")
			}
			if !strings.HasPrefix(index, "DROP") {
				db.Exec(index)
			}
			const yaml = "children: [{table: pairs, column: [a, b], on_delete: async_delete}]"
			parents, problems := resolve(t, db.Pool(), yaml)
			require.Equal(t, usable, parents[0].References[0].Index)
			var missing []string
			if !usable {
				require.Equal(t, `lfk.yml:1:35: children[0].column: no index of children begins with a, b, so every batch reads the whole table `+
					`(CREATE INDEX CONCURRENTLY ON "public"."children" ("a", "b"))`, problems.Error())
				missing = []string{"CREATE INDEX CONCURRENTLY ON public.children (a, b);"}
			}
			require.Equal(t, missing, append([]string(nil), creates(planOn(t, db, yaml, planLimits()))...))
		})
	}
}

func TestPlanOfCompositeKeys(t *testing.T) {
	t.Parallel()
	b := composites(t, compositeKinds()[1].tables("CASCADE", "CREATE INDEX keyed ON children (b, a);", ""),
		"children: [{table: parents, column: [a, b], on_delete: async_delete}]", "parents")
	b.Exec("DELETE FROM parents WHERE number <= 7; ANALYZE children")
	plan := planOn(t, b.DB, "children: [{table: parents, column: [a, b], on_delete: async_delete}]", planLimits()).Definitions[0]
	require.Equal(t, "a, b", plan.Column)
	require.EqualValues(t, 21, plan.Rows)
	require.Empty(t, plan.Findings)
	require.Empty(t, plan.MissingIndexes)
	require.Equal(t, dryrun.AccessPath{Node: "Bitmap Heap Scan", Index: "keyed", UsesIndex: true, Table: "children", Pages: plan.Access.Pages}, plan.Access)
	require.EqualValues(t, 21, b.run(t).DeleteCount)

	b.Exec("DROP INDEX keyed; DELETE FROM parents WHERE number <= 9")
	plan = planOn(t, b.DB, "children: [{table: parents, column: [a, b], on_delete: async_delete}]", planLimits()).Definitions[0]
	require.EqualValues(t, 6, plan.Rows)
	require.Equal(t, "Seq Scan", plan.Access.Node)
	require.Equal(t, []string{"CREATE INDEX CONCURRENTLY ON public.children (a, b);"}, []string{plan.MissingIndexes[0].Create})
}

func TestCompositeNullifyNeedsAllColumns(t *testing.T) {
	t.Parallel()

	db := with(t, compositeTables)
	role := db.CreateRole()
	db.Exec("GRANT SELECT ON pairs, children TO " + role)
	pool, err := pgxpool.New(t.Context(), db.AsRole(role))
	require.NoError(t, err)
	defer pool.Close()
	const yaml = "children: [{table: pairs, column: [d, c], parent_column: [d, c], on_delete: async_nullify}]"
	missing := func() int {
		found, err := loosefk.MissingPrivileges(t.Context(), pool, "main", parentsOf(t, pool, yaml))
		require.NoError(t, err)
		return len(found)
	}
	require.Equal(t, 1, missing())
	db.Exec("GRANT UPDATE (d) ON children TO " + role)
	require.Equal(t, 1, missing(), "one of two columns")
	db.Exec("GRANT UPDATE (c) ON children TO " + role)
	require.Zero(t, missing())
}

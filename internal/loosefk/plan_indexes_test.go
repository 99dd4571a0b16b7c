package loosefk_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk/dryrun"
	"sexton/internal/problem"
)

func TestPlanKnowsWhichIndexesServe(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	const plain = "{table: parents, column: parent_id, on_delete: async_delete}"
	const conditional = "{table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: kind, value: A}]}"
	const byCode = "{table: codes, column: code, on_delete: async_delete}"
	db.Exec(`
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE codes (id text PRIMARY KEY);`)
	for name, test := range map[string]struct {
		index, entry, missing string
		// why is what stands there instead.
		why string
	}{
		"one column":              {"CREATE INDEX x ON children (parent_id)", plain, "", ""},
		"first of two":            {"CREATE INDEX x ON children (parent_id, other)", plain, "", ""},
		"without NULLs":           {"CREATE INDEX x ON children (parent_id) WHERE parent_id IS NOT NULL", plain, "", ""},
		"behind its condition":    {"CREATE INDEX x ON children (kind, parent_id)", conditional, "", ""},
		"condition without NULLs": {"CREATE INDEX x ON children (parent_id) WHERE kind IS NOT NULL", conditional, "", ""},
		"both without NULLs":      {"CREATE INDEX x ON children (parent_id) WHERE kind IS NOT NULL AND parent_id IS NOT NULL", conditional, "", ""},
		"none":                    {"", plain, "parent_id", "no index begins with parent_id, so every statement reads all of children"},
		"second of two":           {"CREATE INDEX x ON children (other, parent_id)", plain, "parent_id", ""},
		"behind another's condition": {
			"CREATE INDEX x ON children (kind, parent_id)", plain, "parent_id", "",
		},
		"included":   {"CREATE INDEX x ON children (other) INCLUDE (parent_id)", plain, "parent_id", ""},
		"expression": {"CREATE INDEX x ON children ((parent_id + 0))", plain, "parent_id", ""},
		"hash":       {"CREATE INDEX x ON children USING hash (parent_id)", plain, "parent_id", ""}, // looks up one value at a time
		"brin":       {"CREATE INDEX x ON children USING brin (parent_id)", plain, "parent_id", ""},
		"partial": {
			"CREATE INDEX x ON children (parent_id) WHERE other > 0", plain, "parent_id",
			"x is partial: its predicate (other > 0) is not known to hold when the statement is planned",
		},
		// The engine's statements carry values as parameters.
		"partial by the condition": {
			"CREATE INDEX x ON children (parent_id) WHERE kind = 'A'", conditional, "parent_id", "x is partial: its predicate (kind = 'A'::text)",
		},
		"other column without NULLs": {"CREATE INDEX x ON children (parent_id, other) WHERE other IS NOT NULL", plain, "parent_id", "x is partial"},
		"invalid": {
			"CREATE INDEX x ON children (parent_id); UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'x'::regclass", plain, "parent_id",
			"x is invalid: it is being built, or building it failed (REINDEX INDEX CONCURRENTLY public.x)",
		},
		"text":              {"CREATE INDEX x ON children (code)", byCode, "", ""},
		"text pattern":      {"CREATE INDEX x ON children (code text_pattern_ops)", byCode, "", ""},
		"another collation": {`CREATE INDEX x ON children (code COLLATE "C")`, byCode, "code", ""},
	} {
		t.Run(name, func(t *testing.T) {
			db.Exec("DROP TABLE IF EXISTS children; CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint, other bigint, kind text, code text)")
			if test.index != "" {
				db.Exec(test.index)
			}
			parents, problems := resolve(t, db.Pool(), "children: ["+test.entry+"]")
			require.Equal(t, test.missing != "", len(problems.Only(problem.Warning)) == 1, "as the installation of triggers says: %v", problems)
			site := dryrun.Site{Name: "main", DB: db.Pool(), Names: dbtest.Names(), Parents: parents}
			missing, err := dryrun.MissingIndexes(t.Context(), site, []dryrun.Site{site}, planLimits().StatementTimeout)
			require.NoError(t, err)
			require.Equal(t, test.missing != "", len(missing) == 1, "as the doctor says")
			d := planOn(t, db, "children: ["+test.entry+"]", planLimits()).Definitions[0]
			require.Equal(t, test.missing == "", d.Access.UsesIndex, "what Postgres itself does: %+v", d.Access)
			if test.missing == "" {
				require.Empty(t, d.MissingIndexes)
				return
			}
			require.Len(t, d.MissingIndexes, 1)
			require.Equal(t, "children", d.MissingIndexes[0].Table)
			require.Equal(t, []string{test.missing}, d.MissingIndexes[0].Columns)
			require.Equal(t, "CREATE INDEX CONCURRENTLY ON public.children ("+test.missing+");", d.MissingIndexes[0].Create)
			require.Contains(t, d.MissingIndexes[0].Why, test.why)
		})
	}
}

// run executes lines one by one, as psql does: CREATE INDEX CONCURRENTLY takes no company.
func run(db *dbtest.DB, lines []string) {
	for _, line := range lines {
		db.Exec(line)
	}
}

func TestPlanQuotesNamesThatNeedIt(t *testing.T) {
	t.Parallel()
	db := with(t, `
		CREATE SCHEMA "My App";
		CREATE TABLE "My App"."Parents" (id bigint PRIMARY KEY);
		CREATE TABLE "My App"."it's ""x""" (id bigint PRIMARY KEY, "order" bigint, "Größe" bigint);
		CREATE TABLE "My App".plain (id bigint PRIMARY KEY, kid_id bigint REFERENCES "My App"."it's ""x""");`)
	const yaml = `
'"My App"."it''s ""x"""':
  - {table: '"My App"."Parents"', column: order, on_delete: async_delete}
  - {table: '"My App"."Parents"', column: Größe, on_delete: async_nullify}
`
	lines := creates(planOn(t, db, yaml, planLimits()))
	require.Equal(t, []string{
		`CREATE INDEX CONCURRENTLY ON "My App"."it's ""x""" ("Größe");`,
		`CREATE INDEX CONCURRENTLY ON "My App"."it's ""x""" ("order");`,
		`CREATE INDEX CONCURRENTLY ON "My App".plain (kid_id);`,
	}, lines)
	run(db, lines)
	require.Empty(t, creates(planOn(t, db, yaml, planLimits())), "the lines are what was missing")
}

const partitioned = `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE SCHEMA parts;
CREATE TABLE children (id bigint, parent_id bigint, part int) PARTITION BY LIST (part);
CREATE TABLE parts.children_1 PARTITION OF children FOR VALUES IN (1);
CREATE TABLE parts.children_2 PARTITION OF children FOR VALUES IN (2, 3) PARTITION BY LIST (part);
CREATE TABLE parts."Children 2" PARTITION OF parts.children_2 FOR VALUES IN (2);
CREATE TABLE children_with_a_name_that_is_as_long_as_names_may_be_in_postgre PARTITION OF parts.children_2 FOR VALUES IN (3);`

func TestPlanGivesARecipeForPartitionedTables(t *testing.T) {
	t.Parallel()
	db := with(t, partitioned)
	db.Exec("CREATE TABLE children_parent_id_idx ()") // the name is taken
	plan := planOn(t, db, deleteChildren, planLimits())
	require.Len(t, plan.Definitions[0].MissingIndexes, 1)
	require.Contains(t, plan.Definitions[0].MissingIndexes[0].Why, "no index of parts.children_1, parts.Children 2, children_with_")
	lines := creates(plan)
	require.Equal(t, []string{
		"CREATE INDEX children_parent_id_idx1 ON ONLY public.children (parent_id);",
		"CREATE INDEX CONCURRENTLY children_1_parent_id_idx ON parts.children_1 (parent_id);",
		"ALTER INDEX public.children_parent_id_idx1 ATTACH PARTITION parts.children_1_parent_id_idx;",
		"CREATE INDEX children_2_parent_id_idx ON ONLY parts.children_2 (parent_id);",
		`CREATE INDEX CONCURRENTLY "Children 2_parent_id_idx" ON parts."Children 2" (parent_id);`,
		`ALTER INDEX parts.children_2_parent_id_idx ATTACH PARTITION parts."Children 2_parent_id_idx";`,
		"CREATE INDEX CONCURRENTLY children_with_a_name_that_is_as_long_as_names_may_be_in_pos_idx ON public.children_with_a_name_that_is_as_long_as_names_may_be_in_postgre (parent_id);",
		"ALTER INDEX parts.children_2_parent_id_idx ATTACH PARTITION public.children_with_a_name_that_is_as_long_as_names_may_be_in_pos_idx;",
		"ALTER INDEX public.children_parent_id_idx1 ATTACH PARTITION parts.children_2_parent_id_idx;",
	}, lines)
	run(db, lines)
	require.Equal(t, [][]string{{"t"}}, db.Rows("SELECT indisvalid FROM pg_index WHERE indexrelid = 'children_parent_id_idx1'::regclass"))
	after := planOn(t, db, deleteChildren, planLimits()).Definitions[0]
	require.Empty(t, after.MissingIndexes)
	require.True(t, after.Access.UsesIndex)
}

func TestPlanNamesThePartitionsThatLackAnIndex(t *testing.T) {
	t.Parallel()
	db := with(t, partitioned)
	db.Exec(`CREATE INDEX ON parts.children_1 (parent_id, id);
		CREATE INDEX ON parts."Children 2" (parent_id) WHERE parent_id IS NOT NULL AND id IS NULL;`)
	lines := creates(planOn(t, db, deleteChildren, planLimits()))
	require.Equal(t, []string{
		`CREATE INDEX CONCURRENTLY ON parts."Children 2" (parent_id);`,
		"CREATE INDEX CONCURRENTLY ON public.children_with_a_name_that_is_as_long_as_names_may_be_in_postgre (parent_id);",
	}, lines)
	run(db, lines)
	require.Empty(t, creates(planOn(t, db, deleteChildren, planLimits())))
}

func TestPlanOfAPartitionedTableWithoutPartitions(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec("CREATE TABLE parents (id bigint PRIMARY KEY); CREATE TABLE children (parent_id bigint) PARTITION BY LIST (parent_id)")
	plan := planOn(t, db, deleteChildren, planLimits())
	require.Empty(t, plan.Definitions[0].Access)
	lines := creates(plan)
	require.Equal(t, []string{"CREATE INDEX children_parent_id_idx ON ONLY public.children (parent_id);"}, lines)
	run(db, lines)
	require.Empty(t, creates(planOn(t, db, deleteChildren, planLimits())))
}

package loosefk_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/plan"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
)

func TestPlanFindsUsableIndexes(t *testing.T) {
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
		// why is a part of the field Why of the missing index.
		why string
	}{
		"one column":   {"CREATE INDEX x ON children (parent_id)", plain, "", ""},
		"first of two": {"CREATE INDEX x ON children (parent_id, other)", plain, "", ""},
		"without NULLs": {
			"CREATE INDEX x ON children (parent_id) WHERE parent_id IS NOT NULL", plain, "",
			"",
		},
		"after its condition": {"CREATE INDEX x ON children (kind, parent_id)", conditional, "", ""},
		"condition without NULLs": {
			"CREATE INDEX x ON children (parent_id) WHERE kind IS NOT NULL", conditional, "",
			"",
		},
		"both without NULLs": {"CREATE INDEX x ON children (parent_id) WHERE kind IS NOT NULL AND parent_id IS NOT NULL", conditional, "", ""},
		"none": {
			"", plain, "parent_id",
			"no index begins with parent_id, so every statement reads all of children",
		},
		"second of two": {"CREATE INDEX x ON children (other, parent_id)", plain, "parent_id", ""},
		"after another condition": {
			"CREATE INDEX x ON children (kind, parent_id)", plain, "parent_id", "",
		},
		"included":   {"CREATE INDEX x ON children (other) INCLUDE (parent_id)", plain, "parent_id", ""},
		"expression": {"CREATE INDEX x ON children ((parent_id + 0))", plain, "parent_id", ""},
		// A hash index cannot be used for a comparison with a list of values.
		"hash": {"CREATE INDEX x ON children USING hash (parent_id)", plain, "parent_id", ""},
		"brin": {"CREATE INDEX x ON children USING brin (parent_id)", plain, "parent_id", ""},
		"partial": {
			"CREATE INDEX x ON children (parent_id) WHERE other > 0", plain, "parent_id",
			"x is partial: its predicate (other > 0) is not known to hold when the statement is planned",
		},
		// The engine passes values as parameters, so Postgres cannot prove that the
		// predicate is true.
		"partial by the condition": {
			"CREATE INDEX x ON children (parent_id) WHERE kind = 'A'", conditional, "parent_id",
			"x is partial: its predicate (kind = 'A'::text)",
		},
		"other column without NULLs": {
			"CREATE INDEX x ON children (parent_id, other) WHERE other IS NOT NULL", plain,
			"parent_id", "x is partial",
		},
		"invalid": {
			"CREATE INDEX x ON children (parent_id); UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'x'::regclass", plain, "parent_id",
			"x is invalid: it is being built, or building it failed",
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
			require.Equal(t, test.missing != "", len(problems.Only(problem.Warning)) == 1,
				"the warnings of Resolve: %v", problems)
			site := plan.Site{Name: "main", DB: db.Pool(), Names: dbtest.Names(), Parents: parents}
			missing := pgtest.Must(plan.MissingIndexes(t.Context(), site, []plan.Site{site},
				planLimits().StatementTimeout))(t)
			require.Equal(t, test.missing != "", len(missing) == 1, "the result of MissingIndexes")
			d := planOn(t, db, "children: ["+test.entry+"]", planLimits()).Definitions[0]
			require.Equal(t, test.missing == "", d.Access.UsesIndex, "the query plan of Postgres: %+v", d.Access)
			if test.missing == "" {
				require.Empty(t, d.MissingIndexes)
				return
			}
			require.Len(t, d.MissingIndexes, 1)
			require.Equal(t, "children", d.MissingIndexes[0].Table)
			require.Equal(t, []string{test.missing}, d.MissingIndexes[0].Columns)
			create := `CREATE INDEX CONCURRENTLY ON "public"."children" ("` + test.missing + `");`
			if name == "invalid" {
				create = "REINDEX INDEX CONCURRENTLY public.x;"
				require.Equal(t, "REINDEX INDEX CONCURRENTLY public.x", problems[0].Fix)
				require.Equal(t, map[uint32]string{parents[0].References[0].Child.OID: problems[0].Fix},
					parents[0].References[0].CreateIndex)
			}
			require.Equal(t, create, d.MissingIndexes[0].Create)
			require.Contains(t, d.MissingIndexes[0].Why, test.why)
		})
	}
}

// runLines executes lines one by one, as psql does: CREATE INDEX CONCURRENTLY cannot run
// in a transaction.
func runLines(db *dbtest.DB, lines []string) {
	for _, line := range lines {
		db.Exec(line)
	}
}

const partitioned = `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE SCHEMA parts;
CREATE TABLE children (id bigint, parent_id bigint, part int) PARTITION BY LIST (part);
CREATE TABLE parts.children_1 PARTITION OF children FOR VALUES IN (1);
CREATE TABLE parts.children_2 PARTITION OF children FOR VALUES IN (2, 3) PARTITION BY LIST (part);
CREATE TABLE parts."Children 2" PARTITION OF parts.children_2 FOR VALUES IN (2);
CREATE TABLE children_with_a_name_that_is_as_long_as_names_may_be_in_postgre PARTITION OF parts.children_2 FOR VALUES IN (3);`

// After the printed statements have been run, no index is missing.
func TestPlanPrintsIndexStatements(t *testing.T) {
	t.Parallel()
	type example struct {
		tables, definitions string
		lines               []string
	}
	pgtest.Each(t, map[string]example{
		"names that need quotes": {`
			CREATE SCHEMA "My App";
			CREATE TABLE "My App"."Parents" (id bigint PRIMARY KEY);
			CREATE TABLE "My App"."it's ""x""" (id bigint PRIMARY KEY, "order" bigint, "Größe" bigint);
			CREATE TABLE "My App".plain (id bigint PRIMARY KEY, kid_id bigint REFERENCES "My App"."it's ""x""");`, `
'"My App"."it''s ""x"""':
  - {table: '"My App"."Parents"', column: order, on_delete: async_delete}
  - {table: '"My App"."Parents"', column: Größe, on_delete: async_nullify}
`, []string{
			`CREATE INDEX CONCURRENTLY ON "My App"."it's ""x""" ("Größe");`,
			`CREATE INDEX CONCURRENTLY ON "My App"."it's ""x""" ("order");`,
			`CREATE INDEX CONCURRENTLY ON "My App"."plain" ("kid_id");`,
		}},
		"a partitioned table, and the name is taken": {
			partitioned + "CREATE TABLE children_parent_id_idx ();",
			deleteChildren,
			[]string{
				`CREATE INDEX CONCURRENTLY ON "parts"."children_1" ("parent_id");`,
				`CREATE INDEX CONCURRENTLY ON "parts"."Children 2" ("parent_id");`,
				`CREATE INDEX CONCURRENTLY ON "public"."children_with_a_name_that_is_as_long_as_names_may_be_in_postgre" ("parent_id");`,
				`CREATE INDEX ON "public"."children" ("parent_id");`,
			},
		},
		"some partitions": {partitioned + `CREATE INDEX ON parts.children_1 (parent_id, id);
			CREATE INDEX ON parts."Children 2" (parent_id) WHERE parent_id IS NOT NULL AND id IS NULL;`, deleteChildren, []string{
			`CREATE INDEX CONCURRENTLY ON "parts"."Children 2" ("parent_id");`,
			`CREATE INDEX CONCURRENTLY ON "public"."children_with_a_name_that_is_as_long_as_names_may_be_in_postgre" ("parent_id");`,
		}},
		"no partitions": {"CREATE TABLE parents (id bigint PRIMARY KEY); CREATE TABLE children (parent_id bigint) PARTITION BY LIST (parent_id)", deleteChildren, []string{
			`CREATE INDEX ON "public"."children" ("parent_id");`,
		}},
	}, func(t *testing.T, name string, test example) {
		db := newDB(t, test.tables)
		planned := planOn(t, db, test.definitions, planLimits())
		require.Equal(t, test.lines, creates(planned))
		runLines(db, test.lines)
		after := planOn(t, db, test.definitions, planLimits())
		require.Empty(t, creates(after))
		switch name {
		case "no partitions":
			require.Empty(t, planned.Definitions[0].Access)
		case "a partitioned table, and the name is taken":
			require.Len(t, planned.Definitions[0].MissingIndexes, 1)
			require.Contains(t, planned.Definitions[0].MissingIndexes[0].Why,
				"no index of parts.children_1, parts.Children 2, children_with_")
			require.Equal(t, [][]string{{"t"}},
				db.Rows("SELECT indisvalid FROM pg_index WHERE indexrelid = 'children_parent_id_idx1'::regclass"))
			require.True(t, after.Definitions[0].Access.UsesIndex)
		}
	})
}

// If CREATE INDEX CONCURRENTLY fails, the plan prints a statement that rebuilds the
// invalid index.
func TestPlanRepairsAnIndexWhoseCreationFailed(t *testing.T) {
	t.Parallel()
	type example struct {
		tables, fails string
		repair        []string
	}
	pgtest.Each(t, map[string]example{
		"table": {
			parentsAndChildren + "DROP INDEX children_parent_id_idx", "children",
			[]string{"REINDEX INDEX CONCURRENTLY public.children_parent_id_idx;"},
		},
		"partition": {
			partitioned + "DROP TABLE children_with_a_name_that_is_as_long_as_names_may_be_in_postgre",
			"parts.children_1",
			[]string{
				"REINDEX INDEX CONCURRENTLY parts.children_1_parent_id_idx;",
				`CREATE INDEX CONCURRENTLY ON "parts"."Children 2" ("parent_id");`,
			},
		},
	}, func(t *testing.T, _ string, test example) {
		db := newDB(t, test.tables)
		lines := creates(planOn(t, db, deleteChildren, planLimits()))
		conn := pgtest.Connect(t, db.URL)
		pgtest.Exec(t, conn, "SET lock_timeout = '1ms'")
		held := pgtest.Begin(t, db.Pool(), "LOCK TABLE "+test.fails+" IN ROW EXCLUSIVE MODE")
		for _, line := range lines {
			if _, err := conn.Exec(t.Context(), line); err != nil {
				require.ErrorContains(t, err, "lock timeout")
				break
			}
		}
		require.NoError(t, held.Rollback(t.Context()))
		repair := creates(planOn(t, db, deleteChildren, planLimits()))
		require.Equal(t, test.repair, repair)
		runLines(db, repair)
		require.Empty(t, creates(planOn(t, db, deleteChildren, planLimits())))
		require.Empty(t, db.Rows("SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid"))
	})
}

// missingIndexes returns table, columns and path of the missing indexes of the first
// definition.
func missingIndexes(run *plan.Result) [][]any {
	var all [][]any
	for _, missing := range run.Definitions[0].MissingIndexes {
		path, _, _ := strings.Cut(missing.Why, ": no index begins with ")
		all = append(all, []any{missing.Table, missing.Columns, path})
	}
	return all
}

func TestPlanFollowsForeignKeys(t *testing.T) {
	t.Parallel()
	db := newDB(t, `
		CREATE SCHEMA app;
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (
			id bigint PRIMARY KEY, iid bigint, tenant bigint, parent_id bigint, next_id bigint REFERENCES children ON DELETE CASCADE, UNIQUE (tenant, iid)
		);
		CREATE INDEX ON children (parent_id);
		CREATE TABLE app.notes (id bigint PRIMARY KEY, child_id bigint REFERENCES children ON DELETE CASCADE);
		CREATE TABLE awards (id bigint PRIMARY KEY, note_id bigint REFERENCES app.notes ON DELETE SET NULL);
		CREATE TABLE beyond (id bigint PRIMARY KEY, award_id bigint REFERENCES awards ON DELETE CASCADE);
		CREATE TABLE indexed (id bigint PRIMARY KEY, note_id bigint REFERENCES app.notes ON DELETE CASCADE);
		CREATE INDEX ON indexed USING hash (note_id);
		CREATE TABLE pairs (id bigint PRIMARY KEY, t bigint, i bigint, FOREIGN KEY (t, i) REFERENCES children (tenant, iid) ON DELETE SET DEFAULT);
		CREATE INDEX ON pairs (t);
		CREATE TABLE swapped (id bigint PRIMARY KEY, t bigint, i bigint, FOREIGN KEY (t, i) REFERENCES children (tenant, iid));
		CREATE INDEX ON swapped (i, t);
		CREATE TABLE single (t bigint, i bigint UNIQUE, FOREIGN KEY (t, i) REFERENCES children (tenant, iid));
		CREATE TABLE strict (id bigint PRIMARY KEY, indexed_id bigint REFERENCES indexed ON DELETE RESTRICT, again bigint REFERENCES indexed);
		CREATE TABLE elsewhere (id bigint PRIMARY KEY, parent_id bigint REFERENCES parents ON DELETE CASCADE);
		-- app.notes and indexed form a cycle.
		ALTER TABLE app.notes ADD COLUMN indexed_id bigint REFERENCES indexed ON DELETE CASCADE;
		CREATE INDEX ON app.notes (indexed_id) WHERE indexed_id IS NOT NULL;`)
	planned := planOn(t, db, deleteChildren, planLimits())
	require.Equal(t, [][]any{
		{"app.notes", []string{"child_id"}, "children → app.notes (child_id) ON DELETE CASCADE"},
		{"children", []string{"next_id"}, "children → children (next_id) ON DELETE CASCADE"},
		{"pairs", []string{"t", "i"}, "children → pairs (t, i) ON DELETE SET DEFAULT"},
		{
			"awards",
			[]string{"note_id"},
			"children → app.notes (child_id) ON DELETE CASCADE → awards (note_id) ON DELETE SET NULL",
		},
		{
			"strict",
			[]string{"indexed_id"},
			"children → app.notes (child_id) ON DELETE CASCADE → indexed (note_id) ON DELETE CASCADE → strict (indexed_id) ON DELETE RESTRICT",
		},
		{
			"strict",
			[]string{"again"},
			"children → app.notes (child_id) ON DELETE CASCADE → indexed (note_id) ON DELETE CASCADE → strict (again) ON DELETE NO ACTION",
		},
	}, missingIndexes(planned))
	require.Equal(t, "children → app.notes (child_id) ON DELETE CASCADE → awards (note_id) ON DELETE SET NULL: "+
		"no index begins with note_id, so every deleted row of app.notes reads all of awards",
		planned.Definitions[0].MissingIndexes[3].Why)
	lines := creates(planned)
	require.Contains(t, lines, `CREATE INDEX CONCURRENTLY ON "public"."pairs" ("t", "i");`)
	runLines(db, lines)
	require.Empty(t, creates(planOn(t, db, deleteChildren, planLimits())))
}

func TestPlanOfUpdatesFollowsNoForeignKeys(t *testing.T) {
	t.Parallel()
	db := newDB(t, parentsAndChildren)
	db.Exec("CREATE TABLE notes (child_id bigint REFERENCES children ON DELETE CASCADE)")
	require.Empty(t, creates(planOn(t, db, dbtest.Definitions("async_nullify", "children"), planLimits())),
		"rows that are not deleted delete no other rows")
	require.Len(t, creates(planOn(t, db, deleteChildren, planLimits())), 1)
}

func TestPlanFollowsForeignKeysOfPartitions(t *testing.T) {
	t.Parallel()
	db := newDB(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (id bigint, part int, parent_id bigint, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
		CREATE INDEX ON children (parent_id);
		CREATE TABLE children_1 PARTITION OF children FOR VALUES IN (1);
		CREATE TABLE children_2 PARTITION OF children FOR VALUES IN (2);
		CREATE TABLE notes (id bigint, part int, child_id bigint, FOREIGN KEY (child_id, part) REFERENCES children ON DELETE CASCADE) PARTITION BY LIST (part);
		CREATE TABLE notes_1 PARTITION OF notes FOR VALUES IN (1);
		CREATE TABLE notes_2 PARTITION OF notes FOR VALUES IN (2);
		CREATE INDEX ON notes_2 (part, child_id);
		-- tags refers to one partition.
		CREATE TABLE tags (child_id bigint, part int, FOREIGN KEY (child_id, part) REFERENCES children_2 ON DELETE CASCADE);`)
	wanted := []string{
		`CREATE INDEX CONCURRENTLY ON "public"."notes_1" ("child_id", "part");`,
		`CREATE INDEX CONCURRENTLY ON "public"."tags" ("child_id", "part");`,
	}
	require.ElementsMatch(t, wanted, creates(planOn(t, db, deleteChildren, planLimits())))
	require.ElementsMatch(t, wanted, creates(planOn(t, db, dbtest.Definitions("async_delete", "children_2"), planLimits())),
		"a key to the partitioned table also refers to the partition")
	require.Equal(t, wanted[:1], creates(planOn(t, db, dbtest.Definitions("async_delete", "children_1"), planLimits())))
}

// setupTwoSites returns the databases main and ci. ci has builds of parents and, by a
// native foreign key, steps of builds. main has parents and traces of builds.
func setupTwoSites(t *testing.T, definitions string) (main, ci *dbtest.DB, planned []plan.Site) {
	main = newDB(t, parentsAndChildren+dbtest.Children{Table: "traces", Of: "builds"}.SQL())
	ci = newDB(t, dbtest.Family(10, dbtest.Children{Table: "builds", Each: 10, Bare: true})+
		"CREATE TABLE steps (id bigint PRIMARY KEY, build_id bigint REFERENCES builds ON DELETE CASCADE); DROP TABLE parents; CREATE TABLE logs (step_id bigint)")
	main.Track(t, "parents")
	ci.Track(t, "builds")
	found, problems := pgtest.Must2(loosefk.Resolve(t.Context(), sites(main, ci), parse(t, definitions)))(t)
	require.NoError(t, problems.Err())
	return main, ci, []plan.Site{
		{Name: "main", DB: main.Pool(), Names: dbtest.Names(), Parents: found["main"]},
		{Name: "ci", DB: ci.Pool(), Names: dbtest.Names(), Parents: found["ci"]},
	}
}

const builds = `
builds: [{table: parents, column: parent_id, on_delete: async_delete}]
traces: [{table: builds, column: build_id, on_delete: async_nullify}]
`

func TestPlanReadsTheChildrensDatabase(t *testing.T) {
	t.Parallel()
	main, ci, sites := setupTwoSites(t, deleteChildren+builds)
	main.Exec("DELETE FROM parents WHERE id <= 2")
	ci.Exec("DELETE FROM builds WHERE id = 10")
	runs := pgtest.Must(plan.Plan(t.Context(), sites, planLimits()))(t)
	require.Len(t, runs, 2)

	backlog := plan.Backlog{Pending: 2, Due: 2}
	require.Len(t, runs["main"].Definitions, 2)
	require.Equal(t, plan.Definition{
		Named: plan.Named{
			Child: "builds", ChildDatabase: "ci", Column: "parent_id", Parent: "parents",
			Action: definitions.Delete,
		},
		Conditions: []plan.Condition{}, Backlog: backlog, Rows: 19,
		Access: plan.AccessPath{Node: "Seq Scan", Table: "builds", Pages: 1}, Findings: []string{},
		MissingIndexes: []plan.MissingIndex{
			{
				Table: "builds", Columns: []string{"parent_id"},
				Why:    "no index begins with parent_id, so every statement reads all of builds",
				Create: `CREATE INDEX CONCURRENTLY ON "public"."builds" ("parent_id");`,
			},
			{
				Table: "steps", Columns: []string{"build_id"},
				Why:    "builds → steps (build_id) ON DELETE CASCADE: no index begins with build_id, so every deleted row of builds reads all of steps",
				Create: `CREATE INDEX CONCURRENTLY ON "public"."steps" ("build_id");`,
			},
		},
		Then: []plan.Named{{Child: "traces", Column: "build_id", Parent: "builds", Action: definitions.Nullify}},
	}, runs["main"].Definitions[0])
	require.Empty(t, runs["main"].Definitions[1].ChildDatabase)
	require.EqualValues(t, 20, runs["main"].Definitions[1].Rows)
	require.Equal(t, plan.Totals{Definitions: 2, Backlog: backlog, DeleteRows: 39, MissingIndexes: 2},
		runs["main"].Totals)

	traces := runs["ci"].Definitions
	require.Len(t, traces, 1)
	require.Equal(t, "main", traces[0].ChildDatabase)
	require.EqualValues(t, 1, traces[0].Due)
	require.Equal(t, "traces_build_id_idx", traces[0].Access.Index)
}

// If deletions in another database create tombstones, the plan lists the definitions for
// them. Each has the database of its children if it is not the planned one.
func TestPlanListsFollowingDefinitionsInOtherDatabases(t *testing.T) {
	t.Parallel()
	_, _, sites := setupTwoSites(t, dbtest.Definitions("async_delete", "builds")+
		"logs: [{table: steps, column: step_id, on_delete: async_delete}]")
	runs := pgtest.Must(plan.Plan(t.Context(), sites, planLimits()))(t)
	require.Equal(t, []plan.Named{{
		Child: "logs", ChildDatabase: "ci", Column: "step_id", Parent: "steps",
		Action: definitions.Delete,
	}},
		runs["main"].Definitions[0].Then, "steps are deleted by a native cascade")
	require.Empty(t, runs["ci"].Definitions[0].Then)
}

func TestPlanContinuesWithoutADatabase(t *testing.T) {
	t.Parallel()
	main, _, sites := setupTwoSites(t, deleteChildren+builds)
	main.Exec("DELETE FROM parents WHERE id <= 2")
	type example struct {
		change func(reference *loosefk.Reference, site *plan.Site)
		want   string
	}
	pgtest.Each(t, map[string]example{
		"down": {
			func(r *loosefk.Reference, s *plan.Site) { r.Unreachable, s.DB = true, nil },
			"database ci cannot be reached",
		},
		"broken": {
			func(r *loosefk.Reference, _ *plan.Site) { r.Broken = "no column x" },
			"tombstones of parents are held, because the definition does not match the database: no column x",
		},
		"lost": {func(_ *loosefk.Reference, s *plan.Site) {
			s.DB = &remoteDB{Beginner: s.DB, before: func(n int) error {
				if n > 1 { // The first transaction reads the catalog.
					return errors.New("connection refused")
				}
				return nil
			}}
		}, "database ci: the connection failed"},
	}, func(t *testing.T, _ string, test example) {
		parent := *sites[0].Parents[0]
		builds := *parent.References[1]
		require.True(t, builds.Remote)
		parent.References = []*loosefk.Reference{parent.References[0], &builds}
		two := []plan.Site{sites[0], sites[1]}
		two[0].Parents, two[1].Parents = []*loosefk.Parent{&parent}, nil
		test.change(&builds, &two[1])
		runs := pgtest.Must(plan.Plan(t.Context(), two, planLimits()))(t)
		planned := runs["main"].Definitions
		require.Equal(t, []string{test.want}, planned[0].Findings)
		require.True(t, planned[0].RowsCapped)
		require.Zero(t, planned[0].Rows)
		require.EqualValues(t, 20, planned[1].Rows)
		require.Empty(t, planned[1].Findings)
		require.Equal(t, 1, runs["main"].Totals.Findings)
		require.Equal(t, two[1].DB != nil, runs["ci"] != nil)
	})
}

package loosefk_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/dryrun"
	"sexton/internal/pgtest"
)

// twoSites has builds of parents in ci, with traces of builds in main and steps of builds, by a real foreign key, in ci.
func twoSites(t *testing.T) (main, ci *dbtest.DB, sites []dryrun.Site) {
	t.Helper()
	main, ci = dbtest.New(t), dbtest.New(t)
	main.Exec(parentsAndChildren + "CREATE TABLE traces (id bigint PRIMARY KEY, build_id bigint); CREATE INDEX ON traces (build_id);")
	ci.Exec(`
		CREATE TABLE builds (id bigint PRIMARY KEY, parent_id bigint);
		CREATE TABLE steps (id bigint PRIMARY KEY, build_id bigint REFERENCES builds ON DELETE CASCADE);
		INSERT INTO builds SELECT 10 * p + n, p FROM generate_series(1, 10) AS p, generate_series(0, 9) AS n;`)
	main.Track(t, "parents")
	ci.Track(t, "builds")
	found, problems, err := loosefk.Resolve(t.Context(), []loosefk.Site{
		{Name: "main", Schema: "public", DB: main.Pool()}, {Name: "ci", Schema: "public", DB: ci.Pool()},
	}, parse(t, deleteChildren+`
builds: [{table: parents, column: parent_id, on_delete: async_delete}]
traces: [{table: builds, column: build_id, on_delete: async_nullify}]
`))
	require.NoError(t, err)
	require.NoError(t, problems.Err())
	return main, ci, []dryrun.Site{
		{Name: "main", DB: main.Pool(), Names: dbtest.Names(), Parents: found["main"]},
		{Name: "ci", DB: ci.Pool(), Names: dbtest.Names(), Parents: found["ci"]},
	}
}

func TestPlanAsksTheChildrensDatabase(t *testing.T) {
	t.Parallel()
	main, ci, sites := twoSites(t)
	main.Exec("DELETE FROM parents WHERE id <= 2")
	ci.Exec("DELETE FROM builds WHERE id = 10")
	runs := pgtest.Must(dryrun.Plan(t.Context(), sites, planLimits()))(t)
	require.Len(t, runs, 2)

	backlog := dryrun.Backlog{Pending: 2, Due: 2}
	require.Len(t, runs["main"].Definitions, 2)
	require.Equal(t, dryrun.Definition{
		Child: "builds", ChildDatabase: "ci", Column: "parent_id", Parent: "parents", Action: definitions.Delete,
		Conditions: []dryrun.Condition{}, Backlog: backlog, Rows: 19,
		Access: dryrun.AccessPath{Node: "Seq Scan", Table: "builds", Pages: 1}, Findings: []string{},
		MissingIndexes: []dryrun.MissingIndex{
			{
				Table: "builds", Columns: []string{"parent_id"}, Why: "no index begins with parent_id, so every statement reads all of builds",
				Create: "CREATE INDEX CONCURRENTLY ON public.builds (parent_id);",
			},
			{
				Table: "steps", Columns: []string{"build_id"},
				Why:    "builds → steps (build_id) ON DELETE CASCADE: no index begins with build_id, so every deleted row of builds reads all of steps",
				Create: "CREATE INDEX CONCURRENTLY ON public.steps (build_id);",
			},
		},
		Then: []dryrun.FollowOn{{Child: "traces", Column: "build_id", Parent: "builds", Action: definitions.Nullify}},
	}, runs["main"].Definitions[0])
	require.Empty(t, runs["main"].Definitions[1].ChildDatabase)
	require.EqualValues(t, 20, runs["main"].Definitions[1].Rows)
	require.Equal(t, dryrun.Totals{Definitions: 2, Backlog: backlog, DeleteRows: 39, MissingIndexes: 2}, runs["main"].Totals)

	traces := runs["ci"].Definitions
	require.Len(t, traces, 1)
	require.Equal(t, "main", traces[0].ChildDatabase)
	require.EqualValues(t, 1, traces[0].Due)
	require.Equal(t, "traces_build_id_idx", traces[0].Access.Index)
}

// What leads on from rows that go in another database is said with the databases as seen from the parent's.
func TestPlanFollowsOnAcrossDatabases(t *testing.T) {
	t.Parallel()
	_, ci, sites := twoSites(t)
	ci.Exec("CREATE TABLE logs (step_id bigint)")
	found, problems, err := loosefk.Resolve(t.Context(), []loosefk.Site{
		{Name: "main", Schema: "public", DB: sites[0].DB}, {Name: "ci", Schema: "public", DB: sites[1].DB},
	}, parse(t, `
builds: [{table: parents, column: parent_id, on_delete: async_delete}]
logs: [{table: steps, column: step_id, on_delete: async_delete}]
`))
	require.NoError(t, err)
	require.NoError(t, problems.Err())
	sites[0].Parents, sites[1].Parents = found["main"], found["ci"]
	runs := pgtest.Must(dryrun.Plan(t.Context(), sites, planLimits()))(t)
	require.Equal(t, []dryrun.FollowOn{{Child: "logs", ChildDatabase: "ci", Column: "step_id", Parent: "steps", Action: definitions.Delete}},
		runs["main"].Definitions[0].Then, "steps go by cascade")
	require.Empty(t, runs["ci"].Definitions[0].Then)
}

func TestPlanGoesOnWithoutADatabase(t *testing.T) {
	t.Parallel()
	main, _, sites := twoSites(t)
	main.Exec("DELETE FROM parents WHERE id <= 2")
	for name, test := range map[string]struct {
		change func(reference *loosefk.Reference, site *dryrun.Site)
		want   string
	}{
		"down":   {func(r *loosefk.Reference, s *dryrun.Site) { r.Unreachable, s.DB = true, nil }, "database ci cannot be reached"},
		"broken": {func(r *loosefk.Reference, _ *dryrun.Site) { r.Broken = "no column x" }, "tombstones of parents wait, as the definition does not fit: no column x"},
		"lost": {func(_ *loosefk.Reference, s *dryrun.Site) {
			s.DB = &elsewhere{Beginner: s.DB, before: func(n int) error {
				if n > 1 { // the catalogue has been read
					return errors.New("connection refused")
				}
				return nil
			}}
		}, "database ci: the connection failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parent := *sites[0].Parents[0]
			builds := *parent.References[1]
			require.True(t, builds.Remote)
			parent.References = []*loosefk.Reference{parent.References[0], &builds}
			two := []dryrun.Site{sites[0], sites[1]}
			two[0].Parents, two[1].Parents = []*loosefk.Parent{&parent}, nil
			test.change(&builds, &two[1])
			runs := pgtest.Must(dryrun.Plan(t.Context(), two, planLimits()))(t)
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
}

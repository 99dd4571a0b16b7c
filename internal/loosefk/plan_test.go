package loosefk_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/plan"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

func planLimits() plan.Limits {
	return plan.Limits{Tombstones: 100, Rows: 100, StatementTimeout: 20 * time.Second}
}

// planMain returns the plan of one database, called main.
func planMain(ctx context.Context, db pgcatalog.Beginner, parents []*loosefk.Parent,
	limits plan.Limits,
) (*plan.Result, error) {
	runs, err := plan.Plan(ctx, []plan.Site{{Name: "main", DB: db, Names: dbtest.Names(), Parents: parents}}, limits)
	return runs["main"], err
}

// planOn binds the definitions and returns their plan.
func planOn(t *testing.T, db *dbtest.DB, yaml string, limits plan.Limits) *plan.Result {
	parents := parentsOf(t, db.Pool(), yaml)
	return pgtest.Must(planMain(t.Context(), db.Pool(), parents, limits))(t)
}

// creates returns the statements for missing indexes, in the order of the definitions.
func creates(run *plan.Result) []string {
	lines := []string{}
	for _, d := range run.Definitions {
		for _, missing := range d.MissingIndexes {
			lines = append(lines, strings.Split(missing.Create, "\n")...)
		}
	}
	return lines
}

func TestPlanCountsRows(t *testing.T) {
	t.Parallel()
	db := newDB(t, parentsAndChildren)
	db.Exec(`
		CREATE TABLE nullified (id bigint PRIMARY KEY, parent_id bigint);
		CREATE TABLE updated (id bigint PRIMARY KEY, parent_id bigint, state text, kind text);
		CREATE INDEX ON nullified (parent_id); CREATE INDEX ON updated (parent_id);
		INSERT INTO nullified VALUES (1, 1), (2, 1), (3, 2), (4, 3);
		INSERT INTO updated VALUES (1, 1, 'new', 'A'), (2, 1, 'gone', 'A'), (3, 1, NULL, 'A'), (4, 1, 'new', 'B'), (5, 2, 'new', 'A'), (6, 3, 'new', 'A');`)
	db.Track(t, "parents")
	db.Exec("DELETE FROM parents WHERE id <= 3")
	db.Exec("INSERT INTO parents VALUES (1)")
	// Parent 1 has two tombstones, but its children count once.
	db.Exec("DELETE FROM parents WHERE id = 1")
	db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + interval '1 hour' WHERE primary_key_value = 2")

	run := planOn(t, db, `
children: [{table: parents, column: parent_id, on_delete: async_delete}]
nullified: [{table: parents, column: parent_id, on_delete: async_nullify}]
updated: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: gone, conditions: [{column: kind, value: A}]}]
`, planLimits())
	backlog := plan.Backlog{Pending: 4, Due: 3, Deferred: 1}
	planned := func(child string, action definitions.Action, rows int64, conditions ...plan.Condition) plan.Definition {
		return plan.Definition{
			Named: plan.Named{Child: child, Column: "parent_id", Parent: "parents", Action: action}, Backlog: backlog,
			Rows:       rows,
			Conditions: append([]plan.Condition{}, conditions...),
			Access: plan.AccessPath{
				Node: "Index Scan", Index: child + "_parent_id_idx", UsesIndex: true,
				Table: child, Pages: 1,
			},
			Findings: []string{}, MissingIndexes: []plan.MissingIndex{}, Then: []plan.Named{},
		}
	}
	require.Equal(t, &plan.Result{
		Definitions: []plan.Definition{
			planned("children", definitions.Delete, 20),
			planned("nullified", definitions.Nullify, 3),
			planned("updated", definitions.UpdateColumn, 3, plan.Condition{Column: "kind", Value: "A"}),
		},
		Totals: plan.Totals{Definitions: 3, Backlog: backlog, DeleteRows: 20, UpdateRows: 6},
	}, run)
}

func TestPlanCountsMatchTheNextRun(t *testing.T) {
	t.Parallel()
	const yaml = `
"Kids": [{table: parents, column: "Parent Id", on_delete: async_delete}]
leaves: [{table: codes, column: code, on_delete: async_nullify}]
`
	b := setup(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE codes (id uuid PRIMARY KEY);
		CREATE TABLE "Kids" (id bigint, "Parent Id" int, part int) PARTITION BY LIST (part);
		CREATE TABLE "Kids 1" PARTITION OF "Kids" FOR VALUES IN (1);
		CREATE TABLE "Kids 2" PARTITION OF "Kids" FOR VALUES IN (2);
		CREATE TABLE leaves (id bigint PRIMARY KEY, code uuid);
		INSERT INTO parents SELECT generate_series(1, 3000);
		INSERT INTO codes SELECT md5(n::text)::uuid FROM generate_series(1, 20) AS n;
		INSERT INTO "Kids" SELECT n, n % 3000 + 1, n % 2 + 1 FROM generate_series(1, 6000) AS n;
		INSERT INTO leaves SELECT n, md5(n::text)::uuid FROM generate_series(1, 20) AS n;`, yaml, "parents", "codes")
	b.Exec("DELETE FROM parents WHERE id <= 2500; DELETE FROM codes WHERE id > '80000000-0000-0000-0000-000000000000'")
	limits := plan.Limits{Tombstones: 10_000, Rows: 100_000, StatementTimeout: 20 * time.Second}
	run := planOn(t, b.DB, yaml, limits)
	require.EqualValues(t, 5000, run.Totals.DeleteRows, "there are more keys than one statement counts")
	require.Positive(t, run.Totals.UpdateRows)
	require.False(t, run.Totals.RowsCapped)

	stats := b.run(t)
	require.Equal(t, stats.DeleteCount, run.Totals.DeleteRows)
	require.Equal(t, stats.UpdateCount, run.Totals.UpdateRows)
	require.Zero(t, planOn(t, b.DB, yaml, limits).Totals.Backlog)
}

func TestPlanStopsCountingAtItsCaps(t *testing.T) {
	t.Parallel()
	db := newDB(t, parentsAndChildren)
	db.Track(t, "parents")
	db.Exec("DELETE FROM parents")
	limits := planLimits()
	totals := func() plan.Totals { return planOn(t, db, deleteChildren, limits).Totals }
	require.Equal(t, plan.Totals{Definitions: 1, Backlog: plan.Backlog{Pending: 10, Due: 10}, DeleteRows: 100},
		totals(), "the caps are not exceeded")

	limits.Rows = 99
	require.Equal(t, plan.Totals{
		Definitions: 1, Backlog: plan.Backlog{Pending: 10, Due: 10}, DeleteRows: 99,
		RowsCapped: true,
	}, totals())

	limits = planLimits()
	limits.Tombstones = 9
	require.Equal(t, plan.Totals{
		Definitions: 1, Backlog: plan.Backlog{Pending: 9, PendingCapped: true, Due: 9}, DeleteRows: 90,
		RowsCapped: true,
	}, totals(), "the children of the tenth parent are not counted")

	db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + interval '1 hour'")
	require.Equal(t, plan.Totals{Definitions: 1, Backlog: plan.Backlog{Pending: 9, PendingCapped: true, Deferred: 9}},
		totals(),
		"the rows of deferred tombstones do not count")
}

func TestPlanFindsReadsOfWholeTables(t *testing.T) {
	t.Parallel()
	db := newDB(t, dbtest.Family(10, dbtest.Children{Table: "small", Each: 1, Bare: true},
		dbtest.Children{Table: "big", Columns: "other bigint", Bare: true})+
		"INSERT INTO big SELECT n, n, n FROM generate_series(1, 5000) AS n")
	yaml := dbtest.Definitions("async_delete", "big", "small")
	run := planOn(t, db, yaml, planLimits())
	big, small := run.Definitions[0], run.Definitions[1]
	require.Greater(t, big.Access.Pages, int64(8))
	require.Equal(t, plan.AccessPath{Node: "Seq Scan", Table: "big", Pages: big.Access.Pages}, big.Access)
	require.Len(t, big.Findings, 1)
	require.Regexp(t, `^every statement reads all \d+ pages of big$`, big.Findings[0])
	require.Equal(t, plan.AccessPath{Node: "Seq Scan", Table: "small", Pages: 1}, small.Access)
	require.Empty(t, small.Findings, "a scan of a small table is not a finding")
	require.Len(t, small.MissingIndexes, 1)
	require.Equal(t, 1, run.Totals.Findings)
	require.Equal(t, 2, run.Totals.MissingIndexes)

	db.Exec("CREATE INDEX big_other_parent_id_idx ON big (other, parent_id)")
	big = planOn(t, db, yaml, planLimits()).Definitions[0]
	require.Equal(t, "big_other_parent_id_idx", big.Access.Index)
	require.False(t, big.Access.UsesIndex)
	require.Equal(t,
		[]string{"every statement reads all values of the first column of index big_other_parent_id_idx"},
		big.Findings)
	require.Len(t, big.MissingIndexes, 1)
}

func TestPlanListsFollowingDefinitions(t *testing.T) {
	t.Parallel()
	db := newDB(t, `
		CREATE TABLE a (id bigint PRIMARY KEY, a_id bigint);
		CREATE TABLE b (id bigint PRIMARY KEY, a_id bigint);
		CREATE TABLE c (id bigint PRIMARY KEY, b_id bigint REFERENCES b ON DELETE CASCADE);
		CREATE TABLE d (id bigint PRIMARY KEY, c_id bigint);
		CREATE TABLE e (id bigint PRIMARY KEY, b_id bigint);`)
	run := planOn(t, db, `
a: [{table: a, column: a_id, on_delete: async_delete}]
b: [{table: a, column: a_id, on_delete: async_delete}]
d: [{table: c, column: c_id, on_delete: async_delete}]
e: [{table: b, column: b_id, on_delete: async_nullify}]
`, planLimits())
	then := func(parent, child, column string, action definitions.Action) plan.Named {
		return plan.Named{Child: child, Column: column, Parent: parent, Action: action}
	}
	require.Equal(t, []plan.Named{
		then("a", "a", "a_id", definitions.Delete),
		then("a", "b", "a_id", definitions.Delete),
	}, run.Definitions[0].Then)
	require.Equal(t, []plan.Named{
		then("b", "e", "b_id", definitions.Nullify),
		// The native foreign key of c deletes rows of c, which is the parent of d.
		then("c", "d", "c_id", definitions.Delete),
	}, run.Definitions[1].Then)
	require.Empty(t, run.Definitions[2].Then)
	require.Empty(t, run.Definitions[3].Then, "rows that are only changed leave no tombstone")
}

func TestPlanContinuesAfterAnUnreadableTable(t *testing.T) {
	t.Parallel()
	db := newDB(t, parentsAndChildren)
	db.Exec("CREATE TABLE hidden (id bigint PRIMARY KEY, parent_id bigint)")
	db.Track(t, "parents")
	db.Exec("DELETE FROM parents WHERE id = 1")
	role := db.CreateRole()
	db.Exec("GRANT SELECT, DELETE, UPDATE ON children, loose_foreign_keys_deleted_records TO " + role)
	config := pgtest.Must(pgxpool.ParseConfig(db.AsRole(role)))(t)
	config.MaxConns = 1 // The second plan fails if the first one leaves a prepared statement.
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	defer pool.Close()
	parents := parentsOf(t, pool, dbtest.Definitions("async_delete", "children", "hidden"))
	for range 2 {
		run := pgtest.Must(planMain(t.Context(), pool, parents, planLimits()))(t)
		require.EqualValues(t, 10, run.Definitions[0].Rows)
		require.Equal(t, "Index Scan", run.Definitions[0].Access.Node)
		hidden := run.Definitions[1]
		require.True(t, hidden.RowsCapped, "the number of rows is unknown")
		require.Equal(t, plan.AccessPath{Table: "hidden"}, hidden.Access)
		require.Equal(t, []string{
			"rows could not be counted: permission denied for table hidden (SQLSTATE 42501)",
			"no query plan of hidden: permission denied for table hidden (SQLSTATE 42501)",
		}, hidden.Findings)
		require.Len(t, hidden.MissingIndexes, 1, "every role can read the catalog")
	}
}

// If another session has locked a table, the plan waits for the statement timeout at
// most, and then reports a finding.
func TestPlanDoesNotWaitForLocks(t *testing.T) {
	t.Parallel()
	db := newDB(t, parentsAndChildren)
	db.Track(t, "parents")
	db.Exec("DELETE FROM parents WHERE id = 1")
	parents, _ := resolve(t, db.Pool(), deleteChildren)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := planMain(ctx, db.Pool(), parents, planLimits())
	require.ErrorIs(t, err, context.Canceled)

	db.Begin(t, "LOCK TABLE children")
	limits := planLimits()
	limits.StatementTimeout = time.Second // This is long enough to read the catalog.
	run := pgtest.Must(planMain(t.Context(), db.Pool(), parents, limits))(t)
	require.Len(t, run.Definitions[0].Findings, 2)
	require.Regexp(t, `^rows could not be counted: canceling statement due to (lock|statement) timeout`,
		run.Definitions[0].Findings[0])
	require.Regexp(t, `^no query plan of children: canceling statement due to (lock|statement) timeout`,
		run.Definitions[0].Findings[1])
}

// A plan of a definition with events works through a transaction pooler, where the driver
// prepares nothing.
func TestPlanOfArtifactsThroughAPooler(t *testing.T) {
	t.Parallel()
	db := newDB(t, parentsAndChildren)
	config := pgtest.Must(pgxpool.ParseConfig(db.URL))(t)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	defer pool.Close()
	parents := parentsOf(t, pool, dbtest.Definitions("async_delete, cleaner_class: "+definitions.ArtifactsCleaner,
		"children"))
	db.Track(t, "parents")
	db.Exec("DELETE FROM parents WHERE id <= 2")
	run := pgtest.Must(planMain(t.Context(), pool, parents, planLimits()))(t)
	require.EqualValues(t, 20, run.Definitions[0].Rows)
	require.Empty(t, run.Definitions[0].Findings)
	require.Equal(t, plan.AccessPath{
		Node: "Index Scan", Index: "children_parent_id_idx", UsesIndex: true,
		Table: "children", Pages: 1,
	}, run.Definitions[0].Access)
}

func TestPlanOfCompositeKeys(t *testing.T) {
	t.Parallel()
	b := setupComposite(t, compositeKinds()[1].tables("CASCADE", "CREATE INDEX keyed ON children (b, a);", ""),
		byPair, "parents")
	b.Exec("DELETE FROM parents WHERE number <= 7; ANALYZE children")
	planned := planOn(t, b.DB, byPair, planLimits()).Definitions[0]
	require.Equal(t, "a, b", planned.Column)
	require.EqualValues(t, 21, planned.Rows)
	require.Empty(t, planned.Findings)
	require.Empty(t, planned.MissingIndexes)
	require.Equal(t, plan.AccessPath{
		Node: "Index Scan", Index: "keyed", UsesIndex: true, Table: "children",
		Pages: planned.Access.Pages,
	}, planned.Access)
	require.EqualValues(t, 21, b.run(t).DeleteCount)

	b.Exec("DROP INDEX keyed; DELETE FROM parents WHERE number <= 9")
	planned = planOn(t, b.DB, byPair, planLimits()).Definitions[0]
	require.EqualValues(t, 6, planned.Rows)
	require.Equal(t, "Seq Scan", planned.Access.Node)
	require.Equal(t, []string{`CREATE INDEX CONCURRENTLY ON "public"."children" ("a", "b");`},
		[]string{planned.MissingIndexes[0].Create})
}

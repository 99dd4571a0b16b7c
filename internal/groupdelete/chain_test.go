package groupdelete_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/drain/dml"
	"sexton/internal/groupdelete"
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

// links creates a table whose rows form chains, and a table of marks below it.
const links = `
CREATE TABLE links (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE, before bigint REFERENCES links ON DELETE CASCADE);
CREATE INDEX ON links (project_id); CREATE INDEX ON links (before);
CREATE TABLE marks (id bigint PRIMARY KEY, link_id bigint NOT NULL REFERENCES links ON DELETE CASCADE);
CREATE INDEX ON marks (link_id);`

// insertChain returns SQL that inserts a chain of n links below project 11, with a mark
// on each hundredth link.
func insertChain(n int) string {
	return fmt.Sprintf(`INSERT INTO links SELECT n, CASE n WHEN 1 THEN 11 END, nullif(n - 1, 0) FROM generate_series(1, %d) AS n;
		INSERT INTO marks SELECT id, id FROM links WHERE id %% 100 = 0;`, n)
}

// withLongLimits returns the engine with a long target and runtime, so that the number of
// statements does not depend on their duration.
func withLongLimits(engine *groupdelete.Engine) *groupdelete.Engine {
	engine.Sizes.Target = time.Minute
	engine.Runtime = 5 * time.Minute
	return engine
}

// The rows of a long chain are deleted from its end, level by level, and not by cascades.
func TestLongChain(t *testing.T) {
	t.Parallel()
	length := 300
	if pgtest.Long {
		length = 1000
	}
	b := setup(t, links, insertChain(length))
	b.recordDeletionsOf("links", "marks")
	b.run(t, withLongLimits(b.engine(t, 1)), groupdelete.Destroyed)
	require.Equal(t, [][]string{{"links", "f", fmt.Sprint(length)}, {"marks", "f", fmt.Sprint(length / 100)}},
		b.Rows("SELECT at_table, cascade, sum(n) FROM deletions GROUP BY 1, 2 ORDER BY 1"))
}

// If a row of a chain cannot be deleted, the rows below it are deleted and the rows above
// it are kept.
func TestChainWithAFailingRow(t *testing.T) {
	t.Parallel()
	b := setup(t, links, insertChain(300))
	b.failDeletions("links", "OLD.id = 250")
	stats := b.run(t, withLongLimits(b.engine(t, 1)), groupdelete.Stuck)
	require.Equal(t, "links: SQLSTATE ZZ001: kept", stats.Reason)
	require.Equal(t, [][]string{{"250"}}, b.Rows("SELECT count(*) FROM links"))
	b.Exec("DROP TRIGGER refuse ON links")
	b.run(t, withLongLimits(b.engine(t, 1)), groupdelete.Destroyed)
	require.Empty(t, b.Rows("SELECT FROM links"))
}

// Rows that other sessions insert below rows of a chain are deleted before the rows of
// the chain, and not by cascades.
func TestRowsAddedBelowAChain(t *testing.T) {
	t.Parallel()
	b := setup(t, links, insertChain(300))
	b.recordDeletionsOf("links", "marks")
	engine := withLongLimits(b.engine(t, 1))
	late := 0
	engine.Progress = func(context.Context, *groupdelete.Stats) {
		if late++; late < 20 {
			b.Exec("INSERT INTO links SELECT $1 + n, NULL, id FROM (SELECT max(id) AS id FROM links WHERE id <= 300) AS last, generate_series(1, 50) AS n WHERE id IS NOT NULL", 10_000*late)
		}
	}
	b.run(t, engine, groupdelete.Destroyed)
	require.Empty(t, b.Rows("SELECT FROM links"))
	require.Equal(t, [][]string{{"f"}}, b.Rows("SELECT DISTINCT cascade FROM deletions"))
}

// The run deletes the rows below a locked row of a chain, then waits for the lock and
// deletes the rows above.
func TestChainWithALockedRow(t *testing.T) {
	t.Parallel()
	b := setup(t, links, insertChain(200))
	holder := b.Begin(t, "SELECT FROM links WHERE id = 80 FOR UPDATE")
	wait := runWhile(t, b.engine(t, 1))
	pgtest.Await(t, b.Pool(), "the rows below the locked row to be deleted", "SELECT count(*) = 80 FROM links")
	b.AwaitLock(t)
	require.NoError(t, holder.Commit(t.Context()))
	wait(groupdelete.Destroyed)
	b.requireAsNative(t, links, insertChain(200))
}

func TestCycleInOneTable(t *testing.T) {
	t.Parallel()
	const cycle = "INSERT INTO links SELECT n, CASE n WHEN 1 THEN 11 END, n FROM generate_series(1, 60) AS n; UPDATE links SET before = id % 60 + 1;"
	b := setup(t, links, cycle)
	stats := b.run(t, withLongLimits(b.engine(t, 1)), groupdelete.Destroyed)
	require.Empty(t, b.Rows("SELECT FROM links"))
	require.EqualValues(t, 60, stats.Deleted["links"])
}

// If a trigger on a row of a cycle fails, the run reports its error as the reason, even
// if the error is a division by zero.
func TestCycleWithAFailingTrigger(t *testing.T) {
	t.Parallel()
	const cycle = "INSERT INTO links SELECT n, CASE n WHEN 1 THEN 11 END, n FROM generate_series(1, 9) AS n; UPDATE links SET before = id % 9 + 1;"
	b := setup(t, links, cycle+dbtest.OnRow("DELETE", "links", "old.id = 5", "PERFORM 1 / 0;"))
	stats := b.run(t, withLongLimits(b.engine(t, 1)), groupdelete.Stuck)
	require.Regexp(t, "SQLSTATE 22012: division by zero", stats.Reason)
	require.Len(t, b.Rows("SELECT FROM links"), 9)
}

// Many cycles of two rows are deleted. They are not mistaken for rows that reappear.
func TestManyCyclesWithRowsBelow(t *testing.T) {
	t.Parallel()
	cycles := shapes["cycle of rows"]
	b := setup(t, cycles.tables, `
		INSERT INTO a SELECT n, 11 FROM generate_series(1, 60) AS n;
		INSERT INTO b SELECT n, n FROM generate_series(1, 60) AS n; UPDATE a SET b = id;
		INSERT INTO below SELECT n, n FROM generate_series(1, 60) AS n;`)
	engine := withLongLimits(b.engine(t, 1))
	engine.Sizes.Target = time.Microsecond // With this target each statement reads one row.
	stats := b.run(t, engine, groupdelete.Destroyed)
	require.Empty(t, stats.Errors)
	require.Empty(t, b.Rows("SELECT FROM a"))
}

func TestDutyIsReportedAfterBatches(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	engine := b.engine(t, 1)
	duty := pace.Duty{Percent: 99, Why: "others"}
	engine.Throttle.Share = func(context.Context, bool) (float64, pace.Duty) { return 0.99, duty }
	seen := map[pace.Duty]bool{}
	engine.Progress = func(_ context.Context, stats *groupdelete.Stats) { seen[stats.Duty] = true }
	stats := b.run(t, engine, groupdelete.Destroyed)
	require.True(t, seen[duty], "%v", seen)
	require.Zero(t, stats.Duty, "a run that has ended has no duty")
}

// A run that has used its runtime without deleting a row counts an attempt and reports
// the step.
func TestFutileRunCountsAnAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	b.Exec("INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (1, 1)")
	engine := b.engine(t, 1)
	engine.Runtime = time.Nanosecond
	stats := b.run(t, engine, groupdelete.Stuck)
	require.Contains(t, stats.Reason, "no row was deleted in 0s, at the step projects of group 1")
	require.Equal(t, [][]string{{"1", stats.Reason}},
		b.Rows("SELECT attempts, last_error FROM sexton.group_destructions"))

	engine = b.engine(t, 1)
	engine.Runtime = time.Nanosecond
	engine.Throttle.Hold = func(context.Context) string { return "" }
	b.run(t, engine, groupdelete.Stuck)
	require.Equal(t, [][]string{{"2"}}, b.Rows("SELECT attempts FROM sexton.group_destructions"))
	b.destroy(t, groupdelete.Destroyed)
}

const notices = "CREATE TABLE notices (id bigint PRIMARY KEY, group_id bigint REFERENCES groups ON DELETE SET NULL); CREATE INDEX ON notices (group_id);"

func (b bundle) foresee(t *testing.T, group int64) *dml.Foresight {
	plan, problems := pgtest.Must2(groupdelete.Resolve(t.Context(), b.Pool(), dbtest.Names(), groupdelete.Groups{},
		false))(t)
	require.NoError(t, problems.Err())
	return pgtest.Must(groupdelete.Foresee(t.Context(), b.Pool(), plan, nil, dml.IntegerID(group)))(t)
}

func TestForeseeMatchesTheDestruction(t *testing.T) {
	t.Parallel()
	b := setup(t, issues+notices, someIssues+"INSERT INTO notices VALUES (1, 1), (2, 3), (3, 9)")
	before := readRows(b.Database)
	seen := b.foresee(t, 1)
	require.Equal(t, before, readRows(b.Database))
	require.Empty(t, seen.Forbidden)
	require.False(t, seen.Capped)
	stats := b.destroy(t, groupdelete.Destroyed)
	// The schedule is deleted in the same transaction as the group, and is not counted.
	stats.Deleted["group_deletion_schedules"] = 1
	require.Equal(t, stats.Deleted, seen.Deleted)
	require.Equal(t, map[string]int64{"notices.group_id": 2}, seen.Nullified)
	require.Equal(t, stats.Nullified, seen.Nullified)
	require.Equal(t, stats.Done+1, seen.Rows)
	require.Nil(t, b.foresee(t, 1), "group does not exist")
}

// Foresee counts rows that loose foreign keys delete separately, at any depth. They do
// not forbid the destruction.
func TestForeseeLooseChildren(t *testing.T) {
	t.Parallel()
	b := setup(t, issues+`
		CREATE TABLE builds (id bigint PRIMARY KEY, project_id bigint, kind text);
		CREATE TABLE traces (id bigint PRIMARY KEY, build_id bigint);
		CREATE TABLE stages (id bigint PRIMARY KEY, build_id bigint NOT NULL REFERENCES builds ON DELETE CASCADE);
		CREATE TABLE audits (id bigint PRIMARY KEY, build_id bigint REFERENCES builds);
		CREATE TABLE runners (id bigint PRIMARY KEY, group_id bigint);`, someIssues+`;
		INSERT INTO builds SELECT n, CASE WHEN n <= 5 THEN 31 ELSE 91 END, CASE WHEN n = 5 THEN 'other' ELSE 'it''s' END FROM generate_series(1, 9) AS n;
		INSERT INTO traces SELECT n, n FROM generate_series(1, 9) AS n;
		INSERT INTO stages SELECT n, 1 FROM generate_series(1, 3) AS n;
		INSERT INTO audits VALUES (1, 1);
		INSERT INTO runners VALUES (1, 3), (2, 4), (3, 9)`)
	public := func(table string) [2]string { return [2]string{"public", table} }
	loose := pgtest.Must(groupdelete.ResolveLoose(t.Context(), b.Pool(), dbtest.Names(), groupdelete.Groups{}, false,
		[]dml.Loose{
			{
				Child: public("builds"), Columns: []string{"project_id"}, Parent: public("projects"),
				Action: dml.Remove,
				Only:   [][2]string{{"kind", "it's"}},
			},
			{
				Child: public("traces"), Columns: []string{"build_id"}, Parent: public("builds"),
				Targets: []string{"id"},
				Action:  dml.Remove,
			},
			{Child: public("runners"), Columns: []string{"group_id"}, Parent: public("groups"), Action: dml.Nullify},
			{Child: public("missing"), Columns: []string{"group_id"}, Parent: public("groups"), Action: dml.Nullify},
			{Child: public("notes"), Columns: []string{"missing"}, Parent: public("groups"), Action: dml.Nullify},
		}))(t)
	plan, _ := pgtest.Must2(groupdelete.Resolve(t.Context(), b.Pool(), dbtest.Names(), groupdelete.Groups{}, false))(t)
	seen := pgtest.Must(groupdelete.Foresee(t.Context(), b.Pool(), plan, loose, dml.IntegerID(1)))(t)
	require.Equal(t, map[string]int64{"builds": 4, "traces": 4, "stages": 3, "runners.group_id": 2}, seen.Loose)
	natively := b.foresee(t, 1)
	natively.Loose = seen.Loose
	require.Equal(t, natively, seen, "the other counts are equal")
	require.Empty(t, seen.Forbidden)
}

func TestForeseeReportsBlockingKeys(t *testing.T) {
	t.Parallel()
	b := setup(t,
		issues+"CREATE TABLE audits (id bigint PRIMARY KEY, project_id bigint REFERENCES projects); CREATE INDEX ON audits (project_id);",
		someIssues+"INSERT INTO audits VALUES (5, 31)")
	require.Equal(t,
		[]string{"audits.project_id refers to projects, and foreign key audits_project_id_fkey has no ON DELETE action"},
		b.foresee(t, 1).Blocking)
}

// Foresee estimates the rows if there are too many to count.
func TestForeseeIsCapped(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues+"INSERT INTO notes SELECT n, 111 FROM generate_series(1000001, 1120000) AS n")
	seen := b.foresee(t, 1)
	require.True(t, seen.Capped)
	require.Greater(t, seen.Rows, int64(20_000))
}

// The estimate sends no ids of groups as arguments: 100,000 ids are a megabyte.
func TestEstimateSendsNoGroupIDs(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues+`
		INSERT INTO groups (id, parent_id, name, path) SELECT n, 2, n, n FROM generate_series(1001, 1300) AS n;
		INSERT INTO projects SELECT n, n, n FROM generate_series(1001, 1300) AS n`)
	plan, problems := pgtest.Must2(groupdelete.Resolve(t.Context(), b.Pool(), dbtest.Names(), groupdelete.Groups{},
		false))(t)
	require.NoError(t, problems.Err())
	read := dml.ReadOnly(b.Pool(), dml.ForeseeTime)
	total := pgtest.Must(plan.Estimate(t.Context(), func(ctx context.Context, statements ...batch.Statement) error {
		for _, statement := range statements {
			for _, arg := range statement.Args {
				ids, _ := arg.([]int64)
				require.Less(t, len(ids), 10, statement.SQL)
			}
		}
		return read(ctx, statements...)
	}, dml.IntegerID(1)))(t)
	// The rows below projects are estimated from a few projects.
	require.GreaterOrEqual(t, total, int64(304+308))
	require.Zero(t, pgtest.Must(plan.Estimate(t.Context(), read, dml.IntegerID(77)))(t), "group does not exist")
}

// seedCount returns the number of random schemas that the test creates.
func seedCount() uint64 {
	if pgtest.Long {
		return 6
	}
	return 3
}

// randomShape returns random tables and their rows. The tables refer to groups, projects,
// each other and themselves by foreign keys with all actions.
func randomShape(random *rand.Rand) shape {
	n := 2 + random.IntN(6)
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	var tables, keys, rows strings.Builder
	partitioned := make([]bool, n)
	for i := range n {
		partitioned[i] = random.IntN(5) == 0
		code := ", code bigint UNIQUE"
		if partitioned[i] {
			code = ", code bigint, UNIQUE (id, code)) PARTITION BY HASH (id"
		}
		fmt.Fprintf(&tables, "CREATE TABLE t%d (id bigint PRIMARY KEY%s);\n", i, code)
		if partitioned[i] {
			for part := range 2 {
				fmt.Fprintf(&tables,
					"CREATE TABLE t%d_%d PARTITION OF t%d FOR VALUES WITH (MODULUS 2, REMAINDER %d);\n", i, part, i,
					part)
			}
		}
		fmt.Fprintf(&rows, "INSERT INTO t%d SELECT n, n + 1000 FROM generate_series(1, %d) AS n;\n", i, random.IntN(40))
	}
	for i := range n {
		for c := range 1 + random.IntN(3) {
			column := fmt.Sprintf("c%d", c)
			var target string
			of, composite := "id", false
			switch table := random.IntN(n + 2); {
			case table == n && c == 0:
				target = "groups"
			case table >= n || c == 0 && random.IntN(2) == 0:
				target = "projects"
			default:
				target = fmt.Sprintf("t%d", table)
				if !partitioned[table] && random.IntN(4) == 0 {
					of = "code"
				}
				composite = partitioned[table] && random.IntN(2) == 0
			}
			action := pick("CASCADE", "CASCADE", "CASCADE", "CASCADE", "CASCADE", "CASCADE", "SET NULL", "SET NULL",
				"SET DEFAULT", pick("NO ACTION", "RESTRICT", "SET NULL"))
			fmt.Fprintf(&keys, "ALTER TABLE t%d ADD COLUMN %s bigint;\n", i, column)
			if composite {
				fmt.Fprintf(&keys,
					"ALTER TABLE t%d ADD COLUMN %s_code bigint, ADD FOREIGN KEY (%s, %s_code) REFERENCES %s (id, code) ON DELETE %s;\n",
					i, column, column, column, target, action)
			} else {
				fmt.Fprintf(&keys, "ALTER TABLE t%d ADD FOREIGN KEY (%s) REFERENCES %s (%s) ON DELETE %s;\n", i, column,
					target, of, action)
			}
			if random.IntN(5) > 0 {
				fmt.Fprintf(&keys, "CREATE INDEX ON t%d (%s);\n", i, column)
			}
			// Each row refers to another row or to none. The choice does not depend on
			// the order in which rows are read.
			value := fmt.Sprintf("(SELECT array_agg(%s ORDER BY id) FROM %s)", of, target)
			fmt.Fprintf(&rows, `UPDATE t%[1]d SET %[2]s = (%[3]s)[1 + (id * %[4]d + %[5]d) %% %[6]d] WHERE id %% %[7]d <> 0;
`, i, column, value, 1+random.IntN(50), random.IntN(50), 4+random.IntN(60), 2+random.IntN(4))
			if composite {
				fmt.Fprintf(&rows, "UPDATE t%d SET %[2]s_code = %[2]s + 1000;\n", i, column)
			}
		}
	}
	return shape{tables.String() + keys.String(), rows.String()}
}

// In random schemas the engine keeps the same rows as a native DELETE. If the native
// DELETE fails, the engine fails, too.
func TestRandomSchemas(t *testing.T) {
	t.Parallel()
	for seed := range seedCount() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := randomShape(rand.New(rand.NewPCG(seed, 0)))
			b := setup(t, s.tables, s.rows)
			want, refused := deleteNatively(t, s.tables, s.rows)
			engine := b.engine(t, 1)
			engine.Sizes.Rows = 3
			stats := pgtest.Must(engine.Run(t.Context()))(t)
			if refused != nil {
				require.Equal(t, groupdelete.Stuck, stats.Outcome, "Postgres returns: %v\n%s%s", refused, s.tables, s.rows)
				require.NotEmpty(t, stats.Reason)
				return
			}
			require.Equal(t, groupdelete.Destroyed, stats.Outcome, "%s\n%s%s", stats.Reason, s.tables, s.rows)
			require.Equal(t, want, readRows(b.Database), "%s%s", s.tables, s.rows)
		})
	}
}

// Another session adds a member to a project or group in a cycle while the worker waits
// for the lock on that row. The member is deleted, although no foreign key refers from
// members to the row.
func TestLateMembersInACycleAreDeleted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ lock, source, waits string }{
		"cycle through a project": {
			"SELECT FROM projects WHERE id = 11 FOR KEY SHARE", "'Project', 11",
			"%OF held)%require%",
		},
		"cycle through the group": {
			"SELECT FROM groups WHERE id = 1 FOR KEY SHARE", "'Namespace', 1",
			"SELECT FROM % AS target %FOR UPDATE",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, shapes[name].tables, shapes[name].rows)
			tx := b.Begin(t, row.lock)
			pgtest.Exec(t, tx, "INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (2, "+
				row.source+", 30)")

			engine := b.engine(t, 1)
			// An earlier statement waits for the writer's lock, too, until this timeout.
			engine.Session.Limits.LockTimeout = 500 * time.Millisecond
			wait := runWhile(t, engine)
			pgtest.Await(t, b.Pool(), "the deletion of the cycle to wait for the writer", `SELECT EXISTS (
				SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1)`, row.waits)
			require.NoError(t, tx.Commit(t.Context()))
			wait(groupdelete.Destroyed)
			release(t, engine)
			require.Empty(t, b.Rows("SELECT source_type, source_id FROM members WHERE (source_type, source_id) IN (("+
				row.source+"))"))
		})
	}
}

// If other sessions change a row of a cycle while the worker waits for its lock, the run
// reads the cycle again and deletes it. This is true even if nothing else is left to
// delete.
func TestRowOfACycleChangesBeforeItsDeletion(t *testing.T) {
	t.Parallel()
	cycle := shapes["cycle through a project"]
	b := setup(t, cycle.tables, cycle.rows)
	const change = "UPDATE projects SET path = path || '!' WHERE id = 11"
	awaitLock := func(sessions int) {
		pgtest.Await(t, b.Pool(), "the deletion of the cycle to wait for a writer", `SELECT count(*) = $1 AND coalesce(bool_or(query LIKE '%OF held)%require%'), false)
			FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, sessions)
	}
	first, second := b.Begin(t, change), pgtest.Begin(t, b.Pool())
	engine := b.engine(t, 1)
	// An earlier statement waits for the writer's lock, too, until this timeout.
	engine.Session.Limits.LockTimeout = 500 * time.Millisecond
	wait := runWhile(t, engine)
	awaitLock(1)
	changed := dbtest.InBackground(func() (pgconn.CommandTag, error) { return second.Exec(t.Context(), change) })
	awaitLock(2)
	require.NoError(t, first.Commit(t.Context()))
	pgtest.Must(changed())(t)
	awaitLock(1)
	require.NoError(t, second.Commit(t.Context()))
	wait(groupdelete.Destroyed)
}

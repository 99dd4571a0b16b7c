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

// links form chains through their own table; marks hang below them.
const links = `
CREATE TABLE links (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE, before bigint REFERENCES links ON DELETE CASCADE);
CREATE INDEX ON links (project_id); CREATE INDEX ON links (before);
CREATE TABLE marks (id bigint PRIMARY KEY, link_id bigint NOT NULL REFERENCES links ON DELETE CASCADE);
CREATE INDEX ON marks (link_id);`

// chainOf is one of so many links below project 11, with a mark on each hundredth.
func chainOf(n int) string {
	return fmt.Sprintf(`INSERT INTO links SELECT n, CASE n WHEN 1 THEN 11 END, nullif(n - 1, 0) FROM generate_series(1, %d) AS n;
		INSERT INTO marks SELECT id, id FROM links WHERE id %% 100 = 0;`, n)
}

// unhurried is for tests that count statements: their sizes do not depend on how long
// they take.
func unhurried(engine *groupdelete.Engine) *groupdelete.Engine {
	engine.Sizes.Target = time.Minute
	engine.Runtime = 5 * time.Minute
	return engine
}

// The rows of a long chain are deleted level by level from its end, and none by a key's
// action.
func TestLongChain(t *testing.T) {
	t.Parallel()
	length := 300
	if pgtest.Long {
		length = 1000
	}
	b := setup(t, links, chainOf(length))
	b.noteDeletionsOf("links", "marks")
	b.run(t, unhurried(b.engine(t, 1)), groupdelete.Destroyed)
	require.Equal(t, [][]string{{"links", "f", fmt.Sprint(length)}, {"marks", "f", fmt.Sprint(length / 100)}},
		b.Rows("SELECT at_table, cascade, sum(n) FROM deletions GROUP BY 1, 2 ORDER BY 1"))
}

// A chain with a row that cannot go loses what is below it, once; what is above it is not
// tried again and again.
func TestChainWithAPoisonedRow(t *testing.T) {
	t.Parallel()
	b := setup(t, links, chainOf(300))
	b.poison("links", "OLD.id = 250")
	stats := b.run(t, unhurried(b.engine(t, 1)), groupdelete.Stuck)
	require.Equal(t, "links: SQLSTATE ZZ001: kept", stats.Reason)
	require.Equal(t, [][]string{{"250"}}, b.Rows("SELECT count(*) FROM links"))
	b.Exec("DROP TRIGGER refuse ON links")
	b.run(t, unhurried(b.engine(t, 1)), groupdelete.Destroyed)
	require.Empty(t, b.Rows("SELECT FROM links"))
}

// What comes in below a row of a chain stops the rows above it, and nothing is left to
// the key's action.
func TestRowsThatComeInBelowAChain(t *testing.T) {
	t.Parallel()
	b := setup(t, links, chainOf(300))
	b.noteDeletionsOf("links", "marks")
	engine := unhurried(b.engine(t, 1))
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

// Rows of a chain that others have locked are waited for, with those above them, and
// others of the chain are not.
func TestChainOfWhichARowIsLocked(t *testing.T) {
	t.Parallel()
	b := setup(t, links, chainOf(200))
	holder := b.Begin(t, "SELECT FROM links WHERE id = 80 FOR UPDATE")
	wait := runWhile(t, b.engine(t, 1))
	pgtest.Await(t, b.Pool(), "all that is below the locked row to be gone", "SELECT count(*) = 80 FROM links")
	b.AwaitLock(t)
	require.NoError(t, holder.Commit(t.Context()))
	wait(groupdelete.Destroyed)
	b.requireAsNative(t, links, chainOf(200))
}

// A circle of rows of one table is deleted by one statement.
func TestRingInOneTable(t *testing.T) {
	t.Parallel()
	const ring = "INSERT INTO links SELECT n, CASE n WHEN 1 THEN 11 END, n FROM generate_series(1, 60) AS n; UPDATE links SET before = id % 60 + 1;"
	b := setup(t, links, ring)
	stats := b.run(t, unhurried(b.engine(t, 1)), groupdelete.Destroyed)
	require.Empty(t, b.Rows("SELECT FROM links"))
	require.EqualValues(t, 60, stats.Deleted["links"])
}

// The error of a trigger on a row of a circle is told as it is, also if it divides by
// zero.
func TestPoisonedRing(t *testing.T) {
	t.Parallel()
	const ring = "INSERT INTO links SELECT n, CASE n WHEN 1 THEN 11 END, n FROM generate_series(1, 9) AS n; UPDATE links SET before = id % 9 + 1;"
	b := setup(t, links, ring+dbtest.OnRow("DELETE", "links", "old.id = 5", "PERFORM 1 / 0;"))
	stats := b.run(t, unhurried(b.engine(t, 1)), groupdelete.Stuck)
	require.Regexp(t, "SQLSTATE 22012: division by zero", stats.Reason)
	require.Len(t, b.Rows("SELECT FROM links"), 9)
}

// Each pair stands in the way of itself, which is no row that comes back, however many
// pairs there are.
func TestManyRingsWithRowsBelow(t *testing.T) {
	t.Parallel()
	rings := shapes["ring of rows"]
	b := setup(t, rings.tables, `
		INSERT INTO a SELECT n, 11 FROM generate_series(1, 60) AS n;
		INSERT INTO b SELECT n, n FROM generate_series(1, 60) AS n; UPDATE a SET b = id;
		INSERT INTO below SELECT n, n FROM generate_series(1, 60) AS n;`)
	engine := unhurried(b.engine(t, 1))
	engine.Sizes.Target = time.Microsecond // Each look is at one row.
	stats := b.run(t, engine, groupdelete.Destroyed)
	require.Empty(t, stats.Errors)
	require.Empty(t, b.Rows("SELECT FROM a"))
}

func TestShareIsAskedAfterBatchesAndTold(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	engine := b.engine(t, 1)
	told := pace.Duty{Percent: 99, Why: "others"}
	engine.Throttle.Share = func(context.Context, bool) (float64, pace.Duty) { return 0.99, told }
	seen := map[pace.Duty]bool{}
	engine.Progress = func(_ context.Context, stats *groupdelete.Stats) { seen[stats.Duty] = true }
	stats := b.run(t, engine, groupdelete.Destroyed)
	require.True(t, seen[told], "%v", seen)
	require.Zero(t, stats.Duty, "a run that has ended works at none")
}

// A run that has used all of its time and moved nothing counts an attempt and says how
// far it came.
func TestRunThatGetsNowhere(t *testing.T) {
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

func TestForeseesWhatADestructionDoes(t *testing.T) {
	t.Parallel()
	b := setup(t, issues+notices, someIssues+"INSERT INTO notices VALUES (1, 1), (2, 3), (3, 9)")
	before := content(b.Database)
	seen := b.foresee(t, 1)
	require.Equal(t, before, content(b.Database))
	require.Empty(t, seen.Forbidden)
	require.False(t, seen.Capped)
	stats := b.destroy(t, groupdelete.Destroyed)
	stats.Deleted["group_deletion_schedules"] = 1 // It goes with the group, and is not counted as a row of its own.
	require.Equal(t, stats.Deleted, seen.Deleted)
	require.Equal(t, map[string]int64{"notices.group_id": 2}, seen.Nullified)
	require.Equal(t, stats.Nullified, seen.Nullified)
	require.Equal(t, stats.Done+1, seen.Rows)
	require.Nil(t, b.foresee(t, 1), "there is no such group")
}

// What loose foreign keys take later counts apart, at any depth, and forbids nothing.
func TestForeseesLooseChildren(t *testing.T) {
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
	require.Equal(t, natively, seen, "all else is as without")
	require.Empty(t, seen.Forbidden)
}

func TestForeseesWhichKeysCanForbidADestruction(t *testing.T) {
	t.Parallel()
	b := setup(t,
		issues+"CREATE TABLE audits (id bigint PRIMARY KEY, project_id bigint REFERENCES projects); CREATE INDEX ON audits (project_id);",
		someIssues+"INSERT INTO audits VALUES (5, 31)")
	require.Equal(t,
		[]string{"audits.project_id refers to projects, and foreign key audits_project_id_fkey has no ON DELETE action"},
		b.foresee(t, 1).Blocking)
}

// What is more than a command should read is estimated.
func TestForeseesThatThereIsMuch(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues+"INSERT INTO notes SELECT n, 111 FROM generate_series(1000001, 1120000) AS n")
	seen := b.foresee(t, 1)
	require.True(t, seen.Capped)
	require.Greater(t, seen.Rows, int64(20_000))
}

// Before a destruction begins, the ids of its groups are not sent with each query:
// 100,000 of them are a megabyte.
func TestTheEstimateSendsNoIDsOfGroups(t *testing.T) {
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
	// The rows below a project are a guess.
	require.GreaterOrEqual(t, total, int64(304+308))
	require.Zero(t, pgtest.Must(plan.Estimate(t.Context(), read, dml.IntegerID(77)))(t), "there is no such group")
}

// seeds are how many random schemas are tried.
func seeds() uint64 {
	if pgtest.Long {
		return 6
	}
	return 3
}

// randomShape makes tables that refer to groups, to projects, to each other and to
// themselves by keys of all sorts, and rows.
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
			of, whole := "id", false
			switch at := random.IntN(n + 2); {
			case at == n && c == 0:
				target = "groups"
			case at >= n || c == 0 && random.IntN(2) == 0:
				target = "projects"
			default:
				target = fmt.Sprintf("t%d", at)
				if !partitioned[at] && random.IntN(4) == 0 {
					of = "code"
				}
				whole = partitioned[at] && random.IntN(2) == 0
			}
			action := pick("CASCADE", "CASCADE", "CASCADE", "CASCADE", "CASCADE", "CASCADE", "SET NULL", "SET NULL",
				"SET DEFAULT", pick("NO ACTION", "RESTRICT", "SET NULL"))
			fmt.Fprintf(&keys, "ALTER TABLE t%d ADD COLUMN %s bigint;\n", i, column)
			if whole {
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
			// Each row refers to some other one, or to none; the numbers do not depend on
			// the order in which rows are read.
			value := fmt.Sprintf("(SELECT array_agg(%s ORDER BY id) FROM %s)", of, target)
			fmt.Fprintf(&rows, `UPDATE t%[1]d SET %[2]s = (%[3]s)[1 + (id * %[4]d + %[5]d) %% %[6]d] WHERE id %% %[7]d <> 0;
`, i, column, value, 1+random.IntN(50), random.IntN(50), 4+random.IntN(60), 2+random.IntN(4))
			if whole {
				fmt.Fprintf(&rows, "UPDATE t%d SET %[2]s_code = %[2]s + 1000;\n", i, column)
			}
		}
	}
	return shape{tables.String() + keys.String(), rows.String()}
}

// Random schemas: what is left must be what Postgres's own keys leave, and what they
// refuse must be refused.
func TestRandomSchemas(t *testing.T) {
	t.Parallel()
	for seed := range seeds() {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			s := randomShape(rand.New(rand.NewPCG(seed, 0)))
			b := setup(t, s.tables, s.rows)
			want, refused := native(t, s.tables, s.rows)
			engine := b.engine(t, 1)
			engine.Sizes.Rows = 3
			stats := pgtest.Must(engine.Run(t.Context()))(t)
			if refused != nil {
				require.Equal(t, groupdelete.Stuck, stats.Outcome, "Postgres says: %v\n%s%s", refused, s.tables, s.rows)
				require.NotEmpty(t, stats.Reason)
				return
			}
			require.Equal(t, groupdelete.Destroyed, stats.Outcome, "%s\n%s%s", stats.Reason, s.tables, s.rows)
			require.Equal(t, want, content(b.Database), "%s%s", s.tables, s.rows)
		})
	}
}

// A writer adds a member while the worker waits for its lock on the circle. No foreign
// key reaches the member.
func TestMembersThatComeLateInACircleAreDeleted(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ lock, source, waits string }{
		"ring through a project": {
			"SELECT FROM projects WHERE id = 11 FOR KEY SHARE", "'Project', 11",
			"%OF held)%require%",
		},
		"ring through the group": {
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
			// Another statement waits in vain before the one on the circle.
			engine.Session.Limits.LockTimeout = 500 * time.Millisecond
			wait := runWhile(t, engine)
			pgtest.Await(t, b.Pool(), "the deletion of the circle waits for the writer", `SELECT EXISTS (
				SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1)`, row.waits)
			require.NoError(t, tx.Commit(t.Context()))
			wait(groupdelete.Destroyed)
			end(t, engine)
			require.Empty(t, b.Rows("SELECT source_type, source_id FROM members WHERE (source_type, source_id) IN (("+
				row.source+"))"))
		})
	}
}

// Writers change a row of the circle while the worker waits for its lock on the row, also
// when nothing else is left to delete. The run reads the circle again.
func TestRowOfACircleChangesBeforeItsDeletion(t *testing.T) {
	t.Parallel()
	ring := shapes["ring through a project"]
	b := setup(t, ring.tables, ring.rows)
	const change = "UPDATE projects SET path = path || '!' WHERE id = 11"
	waits := func(sessions int) {
		pgtest.Await(t, b.Pool(), "the deletion of the circle waits for a writer", `SELECT count(*) = $1 AND coalesce(bool_or(query LIKE '%OF held)%require%'), false)
			FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`, sessions)
	}
	first, second := b.Begin(t, change), pgtest.Begin(t, b.Pool())
	engine := b.engine(t, 1)
	engine.Session.Limits.LockTimeout = 500 * time.Millisecond // Another statement waits in vain before the one on the circle.
	wait := runWhile(t, engine)
	waits(1)
	changed := dbtest.InBackground(func() (pgconn.CommandTag, error) { return second.Exec(t.Context(), change) })
	waits(2)
	require.NoError(t, first.Commit(t.Context()))
	pgtest.Must(changed())(t)
	waits(1)
	require.NoError(t, second.Commit(t.Context()))
	wait(groupdelete.Destroyed)
}

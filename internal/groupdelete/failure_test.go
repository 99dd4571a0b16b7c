package groupdelete_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/drain/dml"
	"sexton/internal/groupdelete"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// forest adds a group, 50 projects, and issues and notes to the tree.
const forest = `
INSERT INTO groups (id, parent_id, name, path) VALUES (5, 3, 'five', 'five');
INSERT INTO projects SELECT 1000 + n, (ARRAY[1, 2, 3, 4, 5])[1 + n % 5], 'more-' || n FROM generate_series(1, 50) AS n;` + someIssues

// Runs whose session is killed after a few batches delete the group in the end, and write
// each event once. In long test runs each batch is followed by a kill.
func TestRunsKilledAfterBatches(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, forest)
	kills, most := 0, 5
	if pgtest.Long {
		most = 1
	}
	for done := false; !done; {
		b.Exec("UPDATE sexton.leases SET expires_at = now()")
		engine := b.engine(t, 1)
		engine.Sizes.Rows = 5
		kill := b.KillOnce(engine.Session.Conn)
		engine.Progress = func(_ context.Context, stats *groupdelete.Stats) {
			if stats.Batches > int64(kills%most) {
				kill()
			}
		}
		_, err := engine.Run(t.Context())
		if done = len(b.Rows("SELECT FROM groups WHERE id = 1")) == 0; !done {
			require.Error(t, err)
			require.NotErrorIs(t, err, lease.ErrLost)
			kills++
		}
	}
	b.requireAsNative(t, issues, forest)
	// There are about 30 kills. On a busy machine there are fewer, because batches end
	// before the kill arrives.
	require.Greater(t, kills, 20)
	require.Empty(t, b.Rows("SELECT payload FROM sexton.events GROUP BY payload HAVING count(*) > 1"))
	require.Len(t, b.events(), 5+58)
	b.requireChildrenFirst(t)
}

// requireChildrenFirst requires that the event of each group follows the events of
// everything below it.
func (b bundle) requireChildrenFirst(t *testing.T) {
	require.Empty(t, b.Rows(`SELECT below.payload, above.payload FROM sexton.events AS above
		JOIN sexton.events AS below ON above.kind = 'group_destroyed' AND above.id < below.id AND above.payload -> 'group_id' IN
			(below.payload -> 'parent_id', CASE WHEN below.kind = 'project_destroyed' THEN below.payload -> 'group_id' END)`))
}

// A second worker cannot take the lease of a group that is being destroyed. A run waits
// for a sub-group that another worker is destroying.
func TestParentAndChildInParallel(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, forest)
	b.mark(2, 9)
	one, two := &lease.Manager{Jobs: b.Connected, Holder: "one"}, &lease.Manager{Jobs: b.Connected, Holder: "two"}
	parent, child := b.engineOf(t, 1, one, false), b.engineOf(t, 2, two, false)
	_, err := two.Acquire(t.Context(), groupdelete.LeaseKey(dml.IntegerID(1)), groupdelete.LeaseTTL, b.Connected)
	held := &lease.HeldError{}
	require.ErrorAs(t, err, &held)

	waits := firstWait(parent)
	wait := runWhile(t, parent)
	require.Contains(t, <-waits, "sub-group: lease groups/2 is held by two")
	require.Equal(t, [][]string{{"2"}}, b.Rows("SELECT id FROM groups WHERE id IN (2, 4)"),
		"the parent has deleted everything else")
	b.run(t, child, groupdelete.Destroyed)
	wait(groupdelete.Destroyed)
	b.requireAsNative(t, issues, forest)
	require.Len(t, b.events(), 5+58)
	b.requireChildrenFirst(t)
	b.run(t, b.engine(t, 2), groupdelete.Gone)
}

// firstWait returns a channel that receives the reason for which the run waits first.
func firstWait(engine *groupdelete.Engine) chan string {
	waits := make(chan string, 1)
	engine.Progress = func(_ context.Context, stats *groupdelete.Stats) {
		if stats.WaitingFor != "" {
			select {
			case waits <- stats.WaitingFor:
			default:
			}
		}
	}
	return waits
}

// failDeletions makes every deletion of a row that meets the condition fail.
func (b bundle) failDeletions(table, condition string) {
	b.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept' USING ERRCODE = 'ZZ001'; END $$`)
	b.Exec("CREATE TRIGGER refuse BEFORE DELETE ON " + table + " FOR EACH ROW WHEN (" + condition +
		") EXECUTE FUNCTION refuse()")
}

func TestFailingProjectStopsNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, forest)
	b.failDeletions("projects", "OLD.id = 21")
	require.Equal(t, "projects: SQLSTATE ZZ001: kept", b.destroy(t, groupdelete.Stuck).Reason)
	require.Equal(t, [][]string{{"21"}, {"91"}, {"92"}}, b.Rows("SELECT id FROM projects ORDER BY id"))
	require.Equal(t, [][]string{{"1"}, {"2"}, {"9"}}, b.Rows("SELECT id FROM groups ORDER BY id"))
	require.Empty(t, b.Rows("SELECT FROM issues WHERE project_id < 90"))
	b.destroy(t, groupdelete.Stuck)
	require.Equal(t, [][]string{{"2", "projects: SQLSTATE ZZ001: kept"}},
		b.Rows("SELECT attempts, last_error FROM sexton.group_destructions"))
	b.Exec("DROP TRIGGER refuse ON projects")
	b.destroy(t, groupdelete.Destroyed)
	b.requireAsNative(t, issues, forest)
	require.Len(t, b.events(), 5+58)
}

// Rows that other sessions have locked are skipped at first. Then the run waits for these
// rows and reports the lock holder.
func TestLockedRowsAreWaitedFor(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"notes": "SELECT FROM notes WHERE id = 1111 FOR UPDATE",
		// The foreign key of the inserted row holds a lock on the project.
		"projects": "INSERT INTO issues VALUES (1, 11)",
		"groups":   "INSERT INTO projects VALUES (1, 3, 'late')",
	}, func(t *testing.T, table string, lock string) {
		b := setup(t, issues, forest)
		engine := b.engine(t, 1)
		engine.Throttle.Blocker = func(ctx context.Context, _ string) string {
			blocker, _ := engine.Session.Blocker(ctx, b.Pool())
			return blocker
		}
		waits, holder, wait := firstWait(engine), b.Begin(t, lock), runWhile(t, engine)
		pgtest.Await(t, b.Pool(), "the rows without locks to be deleted",
			"SELECT count(*) < 3 FROM issues WHERE project_id < 90")
		// A run waits only briefly for the lock on the row of a sub-group.
		if table != "groups" {
			require.Contains(t, <-waits, fmt.Sprint("by pid ", holder.Conn().PgConn().PID()))
		}
		require.NoError(t, holder.Commit(t.Context()))
		wait(groupdelete.Destroyed)
		b.requireAsNative(t, issues, forest)
	})
}

// If a lock is held until the end of the run, the run reports the lock timeout as the
// reason and counts no attempt.
func TestLockHeldForLong(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	engine := b.engine(t, 1)
	holder := b.Begin(t, "SELECT FROM notes WHERE id = 1111 FOR UPDATE")
	engine.Session.Limits.LockTimeout = 20 * time.Millisecond
	engine.Runtime = 2 * time.Second
	stats := b.run(t, engine, groupdelete.Unfinished)
	require.Contains(t, stats.Reason, "SQLSTATE 55P03")
	require.Empty(t, stats.Errors)
	require.Equal(t, [][]string{{"0"}}, b.Rows("SELECT attempts FROM sexton.group_destructions"))
	require.NoError(t, holder.Rollback(t.Context()))
	require.Equal(t, [][]string{{"1111"}}, b.Rows("SELECT id FROM notes WHERE id < 9000"))
}

// After a run has continued, its statistics do not name a lock that was released.
func TestReleasedLockIsNotReported(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	engine := b.engine(t, 1)
	holder := b.Begin(t, "SELECT FROM notes WHERE id = 1111 FOR UPDATE")
	engine.Session.Limits.LockTimeout = 20 * time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	batches := int64(-1)
	engine.Progress = func(ctx context.Context, stats *groupdelete.Stats) {
		switch {
		case batches < 0 && stats.WaitingFor != "":
			require.NoError(t, holder.Rollback(ctx))
			batches = stats.Batches
		case batches >= 0 && stats.Batches > batches:
			stop()
		}
	}
	stats := pgtest.Must(engine.Run(ctx))(t)
	release(t, engine)
	require.Equal(t, groupdelete.Unfinished, stats.Outcome)
	require.Empty(t, stats.Reason)
	require.Empty(t, b.Rows("SELECT FROM notes WHERE id = 1111"))
	b.destroy(t, groupdelete.Destroyed)
}

// The integration tests cover the lease of the run's own group.
func TestLostLeaseOfASubgroupEndsTheRun(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	engine := b.engine(t, 1)
	doOnce(engine, isAtStep("projects of group 2"), func() {
		b.Exec("UPDATE sexton.fences SET token = token + 1 WHERE key = $1", groupdelete.LeaseKey(dml.IntegerID(2)))
	})
	_, err := engine.Run(t.Context())
	require.ErrorIs(t, err, lease.ErrLost)
	require.Len(t, b.Rows("SELECT FROM notes"), 32)
}

// Runs that are stopped after their first batch delete the group in the end.
func TestStoppedRunsContinue(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	runs := 0
	for outcome := groupdelete.Unfinished; outcome != groupdelete.Destroyed; runs++ {
		engine := b.engine(t, 1)
		engine.Sizes.Rows = 5
		ctx, stop := context.WithCancel(t.Context())
		engine.Progress = func(_ context.Context, stats *groupdelete.Stats) {
			if stats.Batches > 0 {
				stop()
			}
		}
		stats, err := engine.Run(ctx)
		stop()
		require.NoError(t, err)
		release(t, engine)
		outcome = stats.Outcome
		require.Equal(t, outcome == groupdelete.Unfinished, stats.Interrupted)
	}
	require.Greater(t, runs, 10)
	b.requireAsNative(t, issues, someIssues)
	require.Len(t, b.events(), 4+8)
}

// An error of the permission rule, before the destruction begins, is recorded for the
// group.
func TestFailingPermissionRule(t *testing.T) {
	t.Parallel()
	b := setup(t, "", "")
	const rule = "CREATE OR REPLACE FUNCTION sexton.may_remove_group(user_id bigint, group_id bigint) RETURNS boolean LANGUAGE plpgsql AS "
	b.Exec(rule + "$$ BEGIN RAISE EXCEPTION 'the rule is broken'; END $$")
	stats := b.destroy(t, groupdelete.Stuck)
	require.Contains(t, stats.Reason, "the rule is broken")
	b.destroy(t, groupdelete.Stuck)
	require.Equal(t, [][]string{{"1", "2", stats.Reason}},
		b.Rows("SELECT group_id, attempts, last_error FROM sexton.group_deletion_failures"))
	b.Exec(rule + "$$ BEGIN RETURN true; END $$")
	b.destroy(t, groupdelete.Destroyed)
	require.Empty(t, b.Rows("SELECT FROM sexton.group_deletion_failures"))
}

// A run stops at a table after 100 failed rows. It also fails if a rule or a trigger
// keeps all rows without an error.
func TestEveryRowOfATableFails(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues+"INSERT INTO notes SELECT 100000 + n, 111 FROM generate_series(1, 2000) AS n;")
	b.failDeletions("notes", "true")
	stats := b.destroy(t, groupdelete.Stuck)
	require.Equal(t, "notes: SQLSTATE ZZ001: kept", stats.Reason)
	require.EqualValues(t, 100, stats.Errors[0].Count)
	b.Exec("DROP TRIGGER refuse ON notes; CREATE RULE keep AS ON DELETE TO notes DO INSTEAD NOTHING")
	require.Contains(t, b.destroy(t, groupdelete.Stuck).Reason, "notes: SQLSTATE")
	b.Exec(`DROP RULE keep ON notes; CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
		CREATE TRIGGER stay BEFORE DELETE ON notes FOR EACH ROW EXECUTE FUNCTION stay()`)
	require.Contains(t, b.destroy(t, groupdelete.Stuck).Reason,
		"notes: rows are left although no session has locked them")
	require.Equal(t, [][]string{{"3"}}, b.Rows("SELECT attempts FROM sexton.group_destructions"))
}

func TestGroupIsItsOwnAncestor(t *testing.T) {
	t.Parallel()
	b := setup(t, issues, someIssues)
	b.Exec("UPDATE groups SET parent_id = 3 WHERE id = 1")
	require.Equal(t, "groups: group 1 is its own ancestor", b.destroy(t, groupdelete.Stuck).Reason)
	require.Equal(t, [][]string{{"1"}, {"2"}, {"3"}, {"9"}}, b.Rows("SELECT id FROM groups ORDER BY id"))
}

// If a default or a trigger keeps rows, or inserts them again, the run fails and the
// error names the table. Everything else is deleted.
func TestRowsRemainOrReappear(t *testing.T) {
	t.Parallel()
	const boards = `
		CREATE TABLE boards (id bigint PRIMARY KEY, group_id bigint DEFAULT 1 REFERENCES groups ON DELETE {action});
		CREATE INDEX ON boards (group_id); INSERT INTO boards VALUES (1, 1), (2, 9);`
	const kept, reappear = "rows keep their group_id although no session has locked them",
		"rows reappear as fast as they are deleted"
	type example struct{ action, trigger, want string }
	const putBack = `
			CREATE FUNCTION hook() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.boards VALUES (old.id + 1000000, old.group_id); RETURN NULL; END';
			CREATE TRIGGER hook AFTER DELETE ON boards FOR EACH ROW EXECUTE FUNCTION hook();`
	pgtest.Each(t, map[string]example{
		"default": {"SET DEFAULT", "", "boards: " + kept},
		"trigger undoes the change": {"SET NULL", `
			CREATE FUNCTION hook() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN new.group_id := old.group_id; RETURN new; END';
			CREATE TRIGGER hook BEFORE UPDATE ON boards FOR EACH ROW EXECUTE FUNCTION hook();`, "boards: " + kept},
		"trigger changes the rows back": {"SET NULL", `
			CREATE FUNCTION hook() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN UPDATE public.boards SET group_id = old.group_id WHERE id = old.id; RETURN NULL; END';
			CREATE TRIGGER hook AFTER UPDATE ON boards FOR EACH ROW WHEN (new.group_id IS NULL) EXECUTE FUNCTION hook();`, "boards: " + reappear},
		"trigger inserts the rows again": {"CASCADE", putBack, "boards: " + reappear},
		"more rows than one statement": {
			"CASCADE", "INSERT INTO boards SELECT n, 1 FROM generate_series(1001, 3000) AS n;" + putBack,
			"boards: " + reappear,
		},
		"below a project": {"CASCADE", `
			CREATE FUNCTION hook() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.notes VALUES (old.id + 1000000, old.issue_id); RETURN NULL; END';
			CREATE TRIGGER hook AFTER DELETE ON notes FOR EACH ROW WHEN (old.issue_id = 112) EXECUTE FUNCTION hook();`, "notes: " + reappear},
	}, func(t *testing.T, name string, c example) {
		b := setup(t, issues+strings.ReplaceAll(boards, "{action}", c.action)+c.trigger, someIssues)
		engine := b.engine(t, 1)
		engine.Sizes.Target = 5 * time.Millisecond
		// A busy machine may need more than the default runtime for thousands of rows.
		engine.Runtime = 3 * time.Minute
		stats := b.run(t, engine, groupdelete.Stuck)
		require.Contains(t, stats.Reason, c.want)
		require.Equal(t, [][]string{{"1", stats.Reason}},
			b.Rows("SELECT attempts, last_error FROM sexton.group_destructions"))
		require.Equal(t, [][]string{{"1"}, {"9"}}, b.Rows("SELECT id FROM groups ORDER BY id"))
		if name == "below a project" {
			require.Equal(t, [][]string{{"112"}}, b.Rows("SELECT id FROM issues WHERE project_id < 90"))
			require.Len(t, b.Rows("SELECT FROM members WHERE source_id = 1"), 1, "the group keeps its owners")
		}
		b.Exec("DROP TRIGGER IF EXISTS hook ON boards; DROP TRIGGER IF EXISTS hook ON notes; ALTER TABLE boards ALTER group_id DROP DEFAULT")
		b.destroy(t, groupdelete.Destroyed)
	})
}

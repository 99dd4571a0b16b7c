package loosefk

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/drain"
	"sexton/internal/pace"
)

const target = 20 * time.Millisecond

func TestSizeBeginsSmallAndKeepsToDeleteLimit(t *testing.T) {
	t.Parallel()
	free := &Reference{Edge: drain.Edge{Action: drain.Remove}}
	limited := &Reference{Edge: drain.Edge{Action: drain.Remove}, Definition: definitions.Definition{DeleteLimit: 300}}
	updated := &Reference{Edge: drain.Edge{Action: drain.Nullify}, Definition: definitions.Definition{DeleteLimit: 300}}
	for _, reference := range []*Reference{free, limited, updated} {
		require.Equal(t, firstBatch, reference.rows(direct))
		reference.limitedSize.Rows(1000)
	}
	require.Equal(t, 1000, free.rows(skipping))
	require.Equal(t, 300, limited.rows(skipping))
	require.Equal(t, 1000, updated.rows(skipping), "a limit of deletes is none of updates")
	require.Equal(t, 1000, limited.limitedSize.Rows(1), "asking changes nothing")
}

// What is learned of one way to take rows says nothing about the other one.
func TestFormsHaveSizesOfTheirOwn(t *testing.T) {
	t.Parallel()
	var r Reference
	for _, how := range []pass{skipping, waiting, piecewise} {
		require.NotSame(t, r.size(direct), r.size(how))
		require.Same(t, r.size(skipping), r.size(how))
	}
}

// steered is a run of the pace adaptive that has no database.
func steered(ctx context.Context, duty float64) *run {
	return &run{
		engine: &Engine{
			Adaptive: Adaptive{Target: target, Duty: duty},
			Session:  &batch.Session{Limits: batch.Limits{StatementTimeout: time.Minute, LockTimeout: 2 * time.Minute, Durable: true}},
		},
		stop: ctx, breaker: newBreaker(), budget: budget{until: time.Now().Add(time.Hour), stats: &Stats{}}, pace: &pace.Run{},
	}
}

func TestLimitsOfAStatement(t *testing.T) {
	t.Parallel()
	r := steered(t.Context(), 1)
	sound, slow := task{reference: &Reference{}}, task{reference: &Reference{}}
	slow.slowed(fewestRows)
	full := r.engine.Session.Limits
	for _, how := range []pass{direct, piecewise, skipping} {
		short := r.limits(sound, how)
		require.Equal(t, pace.Leash*target, short.StatementTimeout)
		statement, wait := short.Timeouts()
		require.Less(t, wait, statement, "a statement timeout of the same length comes first and hides what it waited for")
		require.GreaterOrEqual(t, wait, target.Milliseconds())
		require.True(t, short.Durable)
	}
	require.Equal(t, full, r.limits(sound, waiting))
	require.Equal(t, full, r.limits(slow, waiting))
	require.Equal(t, full, r.limits(slow, piecewise), "it cannot be made any smaller")
	require.Equal(t, full, r.limits(slow, skipping), "it cannot be made any smaller")
	require.Equal(t, pace.Leash*target, r.limits(slow, direct).StatementTimeout, "pieces of it are smaller")

	r.engine.Session.Limits = batch.Limits{StatementTimeout: time.Millisecond, LockTimeout: time.Millisecond}
	require.Equal(t, r.engine.Session.Limits, r.limits(sound, direct), "the settings bind as well")
	r.engine.Session.Limits, r.engine.Adaptive = full, Adaptive{}
	require.Equal(t, full, r.limits(sound, skipping), "other paces have no leash")
}

func TestSteeringLeavesOutWhatWaited(t *testing.T) {
	t.Parallel()
	r := steered(t.Context(), 1)
	task := task{reference: &Reference{}}
	limited, exact := &task.reference.limitedSize, &task.reference.directSize
	require.Equal(t, []int{1000, 1000}, []int{limited.Rows(1000), exact.Rows(1000)})
	r.steer(t.Context(), task, waiting, 1000, time.Hour, false)
	require.Equal(t, 1000, limited.Rows(0))
	r.steer(t.Context(), task, piecewise, 1000, 2*target, false)
	require.Equal(t, 500, limited.Rows(0))
	require.Equal(t, 1000, exact.Rows(0))
	r.engine.Adaptive = Adaptive{}
	r.steer(t.Context(), task, direct, 1000, 2*target, false)
	require.Equal(t, 1000, exact.Rows(0), "other paces steer nothing")
}

// The time of a statement that was planned first says little, unless it was too long.
func TestPlanningKeepsNoStatementSmall(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]int{target: 4000, target / 16: 8000, 2 * target: 500} {
		r := steered(t.Context(), 1)
		task := task{reference: &Reference{}}
		task.reference.limitedSize.Rows(1000)
		r.steer(t.Context(), task, piecewise, 1000, took, true)
		require.Equal(t, want, task.reference.limitedSize.Rows(0))
	}
}

// activity has one session in a table in place of pg_stat_activity, with a transaction, and returns what a query on it answers.
func activity(t *testing.T, began string) (db *dbtest.DB, seen func(sql string) [][]string) {
	db = dbtest.New(t)
	db.Exec(`CREATE TABLE activity AS SELECT * FROM pg_catalog.pg_stat_activity LIMIT 0;
		INSERT INTO activity (datname, pid, usesysid, xact_start, state)
		SELECT current_database(), 1, usesysid, ` + began + `, 'active' FROM pg_catalog.pg_user WHERE usename = current_user`)
	return db, func(sql string) [][]string {
		return db.Rows(strings.ReplaceAll(sql, "pg_catalog.pg_stat_activity", "activity"), 1.0)
	}
}

// A transaction that was open when the server's clock was set back began, by that clock, in the future, and later than
// everything that is removed now.
func TestTransactionsFromTheFutureKeepTheGateShut(t *testing.T) {
	t.Parallel()
	db, seen := activity(t, "clock_timestamp() + interval '1 hour'")
	require.Equal(t, [][]string{{"-infinity", "f"}}, seen(statement("horizon")))
	require.Equal(t, [][]string{{"1000000000", "f"}}, seen(statement("age")), "elsewhere it counts as older than everything")
	db.Exec("UPDATE activity SET xact_start = NULL")
	require.Equal(t, [][]string{{"infinity", "f"}}, seen(statement("horizon")))
}

// An idle session catches up on what others have defined in a transaction that seems to have begun with its last statement.
func TestAnIdleSessionThatCatchesUpHoldsNothing(t *testing.T) {
	t.Parallel()
	db, seen := activity(t, "'-infinity'")
	for changed, horizon := range map[string]string{
		"state = 'idle'":                        "infinity",
		"state = 'idle', backend_xmin = '1000'": "-infinity",
		"state = 'idle', backend_xid = '1000'":  "-infinity",
		"state = 'idle in transaction'":         "-infinity",
		"state = 'active'":                      "-infinity",
		"state = NULL":                          "-infinity",
	} {
		db.Exec("UPDATE activity SET backend_xmin = NULL, backend_xid = NULL")
		db.Exec("UPDATE activity SET " + changed)
		require.Equal(t, [][]string{{horizon, "f"}}, seen(statement("horizon")), changed)
	}
}

// A chunk whose statements are all short is divided where they are many, and the second look at it takes fewer keys.
func TestManyTablesAreMuchWork(t *testing.T) {
	t.Parallel()
	for tables, want := range map[int]struct{ divisor, keys int }{1: {1, 1000}, 2: {2, 1000}, 20: {2, 250}} {
		r := steered(t.Context(), 1)
		r.sessions = pace.Sessions{Most: 2, More: func(context.Context) *batch.Session { return &batch.Session{} }, Pace: r.pace}
		parent := &Parent{Recorded: "parents"}
		r.engine.Parents = []*Parent{parent}
		live := make([]bool, tables)
		for i := range live {
			live[i] = true
			one := &Reference{Edge: drain.Edge{Action: drain.Remove, Index: true}}
			one.rowsPerParent = 50
			one.directSize.Rows(40_000)
			parent.References = append(parent.References, one)
		}
		require.Equal(t, want.divisor, r.divisor(t.Context(), parent, live, 500), "%d statements of 25,000 rows", tables)
		require.Equal(t, want.keys, r.mostKeys(recheck{parent: "parents"}))
		parent.References[0].rowsPerParent = 0
		require.Equal(t, 1, r.divisor(t.Context(), parent, live, 500), "of an unknown number of rows")
	}
}

package groupschedule_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/groupschedule"
	"sexton/internal/lease"
	"sexton/internal/pgtest"
)

// A pass that is killed before or after any statement leaves a state that the next pass
// completes.
func TestPassKilledAnywhere(t *testing.T) {
	t.Parallel()
	s := setup(t,
		`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept'; END $$`,
		"CREATE TRIGGER refuse BEFORE UPDATE ON groups FOR EACH ROW WHEN (NEW.id = 12 AND NEW.marked_for_deletion_on IS NULL) EXECUTE FUNCTION refuse()")
	s.schedule(t, 1, 31, 10, 11, 12, 20)
	// Groups 10 and 20 are enqueued, 11 is restored, and 12 fails.
	s.Exec(`UPDATE group_deletion_schedules SET user_id = 3 WHERE group_id IN (11, 12);
		CREATE TABLE before AS SELECT * FROM groups; CREATE TABLE schedules_before AS SELECT * FROM group_deletion_schedules`)
	reset := func() {
		s.Exec(`TRUNCATE sexton.river_job, sexton.group_deletion_failures, sexton.events, group_deletion_schedules;
			SET session_replication_role = replica; UPDATE groups SET marked_for_deletion_on = before.marked_for_deletion_on, name = before.name, path = before.path
				FROM before WHERE before.id = groups.id;
			RESET session_replication_role; INSERT INTO group_deletion_schedules SELECT * FROM schedules_before`)
	}
	kills := s.KillAnywhere(t, 3, func(v *dbtest.Victim) {
		reset()
		session, end := s.Session(t, leaseKey)
		session.Conn = v.Connect(t)
		_, err := (&groupschedule.Engine{Spacing: spacing, Session: session}).Run(t.Context())
		if !v.Killed() {
			require.NoError(t, err)
		}
		end()
		s.Exec("UPDATE sexton.group_deletion_failures SET retry_at = clock_timestamp()")
		s.pass(t)
		jobs := s.jobs()
		require.Len(t, jobs, 2)
		require.Equal(t, []string{"10", "1", "0"}, jobs[0][:3])
		require.Equal(t, []string{"20", "1", "20"}, jobs[1][:3])
		require.Equal(t, [][]string{{"group_restored", "11", "", "not_permitted"}}, s.events())
		require.Equal(t, [][]string{{"12"}}, s.Rows("SELECT group_id FROM sexton.group_deletion_failures"))
		require.Equal(t, [][]string{{"10"}, {"12"}, {"20"}},
			s.Rows("SELECT group_id FROM group_deletion_schedules ORDER BY 1"))
		require.False(t, s.due(t).Now)
	})
	require.Greater(t, kills, 10, "the pass has more statements")
}

// cascades adds a foreign key that deletes schedules with their user. GitLab's tables
// have the same foreign key.
const cascades = `ALTER TABLE group_deletion_schedules ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE`

func TestScheduleIsDeletedWithItsUser(t *testing.T) {
	t.Parallel()
	const ada = "DELETE FROM members WHERE user_id = 2; "
	restored := [][]string{{"group_restored", "11", "", "user_missing"}}
	type example struct {
		// delete deletes user 2 (ada), who has scheduled group 11.
		delete string
		marked [][]string
		events [][]string
	}
	pgtest.Each(t, map[string]example{
		"not queued": {ada + "DELETE FROM users WHERE id = 2", [][]string{}, restored},
		"queued by a user who may remove the group": {
			ada + "SELECT sexton.delete_user(2, 1); DELETE FROM group_deletion_schedules WHERE user_id = 2; DELETE FROM users WHERE id = 2",
			[][]string{{"11", "child-deletion_scheduled-11", "5", "1"}},
			[][]string{{"group_deletion_handed_over", "11", "1", ""}},
		},
		"queued by a user who may not remove it": {
			ada + "SELECT sexton.delete_user(2, 3); DELETE FROM group_deletion_schedules WHERE user_id = 2",
			[][]string{},
			restored,
		},
		"queued by itself": {
			ada + "SELECT sexton.delete_user(2, 2); DELETE FROM group_deletion_schedules WHERE user_id = 2",
			[][]string{},
			restored,
		},
		"user exists, and the application deletes the schedule": {
			"DELETE FROM group_deletion_schedules WHERE user_id = 2",
			[][]string{{"11", "child-deletion_scheduled-11", "5", "NULL"}},
			[][]string{},
		},
		"mark is removed first": {
			ada + "UPDATE groups SET marked_for_deletion_on = NULL; DELETE FROM users WHERE id = 2",
			[][]string{},
			[][]string{},
		},
		"group is being destroyed": {
			ada + "INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (10, 1); DELETE FROM users WHERE id = 2",
			[][]string{{"11", "child-deletion_scheduled-11", "5", "NULL"}},
			[][]string{},
		},
		"group is deleted first": {
			ada + "DELETE FROM groups WHERE id IN (11, 12); DELETE FROM users WHERE id = 2", [][]string{}, [][]string{},
		},
	}, func(t *testing.T, _ string, c example) {
		s := setup(t, cascades)
		s.schedule(t, 2, 5, 11)
		s.Exec("DELETE FROM sexton.events")
		s.Exec(c.delete)
		require.Equal(t, c.marked, s.marked())
		require.Equal(t, c.events, s.events())
	})
}

// invariant is a query for violations of rules that apply between any two transactions. A
// group has a mark if and only if it has a schedule and a suffix. No group has two jobs.
// The events of scheduling a group and of restoring it alternate.
const invariant = `
SELECT 'mark, schedule or suffix is missing: ' || groups.id
FROM groups LEFT JOIN group_deletion_schedules AS schedule ON group_id = groups.id
WHERE (groups.marked_for_deletion_on IS NULL) <> (group_id IS NULL)
   OR (groups.marked_for_deletion_on IS NULL) = (path LIKE '%-deletion\_scheduled-%')
   OR groups.marked_for_deletion_on <> schedule.marked_for_deletion_on
UNION ALL
SELECT 'two jobs: ' || (args ->> 'group_id') FROM sexton.river_job WHERE state IN ('available', 'scheduled') GROUP BY args ->> 'group_id', args ->> 'user_id' HAVING count(*) > 1
UNION ALL
SELECT 'events do not alternate: ' || group_id FROM (
	SELECT payload ->> 'group_id' AS group_id, kind, lag(kind, 1, 'group_restored') OVER (PARTITION BY payload ->> 'group_id' ORDER BY id) AS before
	FROM sexton.events WHERE kind IN ('group_deletion_scheduled', 'group_restored')
) AS ordered WHERE kind = before
UNION ALL
SELECT 'last event does not match the mark: ' || id FROM groups
WHERE (marked_for_deletion_on IS NULL) <> coalesce((
	SELECT kind = 'group_restored' FROM sexton.events WHERE kind IN ('group_deletion_scheduled', 'group_restored') AND payload ->> 'group_id' = groups.id::text ORDER BY events.id DESC LIMIT 1), true)`

// Several sessions schedule, cancel and hasten the deletion of the same groups in random
// order. Meanwhile two workers run passes, and the user who scheduled groups loses and
// regains the permission. In the end there are no violations of the invariant.
func TestRandomInterleavings(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := setup(t)
	const sessions, steps = 5, 60
	var running sync.WaitGroup
	errs := make(chan error, sessions+2)
	working, stop := context.WithCancel(t.Context())
	for range 2 {
		running.Go(func() { errs <- s.runPasses(working) })
	}
	var sessionsRunning sync.WaitGroup
	for n := range sessions {
		sessionsRunning.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			errs <- runRandomStatements(t.Context(), s.Pool(), random, steps)
		})
	}
	sessionsRunning.Wait()
	stop()
	running.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Empty(t, s.Rows(invariant))
	// One more pass decides about all remaining groups.
	s.Exec("UPDATE sexton.group_deletion_failures SET retry_at = clock_timestamp(); UPDATE users SET admin = true WHERE id = 1")
	s.pass(t)
	require.False(t, s.due(t).Now)
	require.Empty(t, s.Rows(invariant))
	require.Empty(t, s.Rows("SELECT * FROM sexton.group_deletion_failures WHERE retry_at > clock_timestamp()"))
}

func runRandomStatements(ctx context.Context, pool *pgxpool.Pool, random *rand.Rand, steps int) error {
	groups := []int64{10, 11, 12, 20}
	for range steps {
		group := groups[random.IntN(len(groups))]
		statement := strings.ReplaceAll([]string{
			"SELECT sexton.schedule_group_deletion($1, 1)", "SELECT sexton.schedule_group_deletion($1, 2)",
			"SELECT sexton.cancel_group_deletion($1, 1)", "SELECT sexton.cancel_group_deletion($1, 2)",
			"SELECT sexton.delete_group_now($1, 1)",
			// These statements move the marks back in time. They are one transaction,
			// because they are sent as one query.
			`SELECT FROM groups WHERE id = $1 FOR UPDATE;
				UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - 31 WHERE id = $1;
				UPDATE group_deletion_schedules SET marked_for_deletion_on = marked_for_deletion_on - 31 WHERE group_id = $1`,
			"UPDATE users SET admin = NOT admin WHERE id = 1",
			"DELETE FROM sexton.river_job WHERE args ->> 'group_id' = '$1'",
		}[random.IntN(8)], "$1", fmt.Sprint(group))
		var pgErr *pgconn.PgError
		_, err := pool.Exec(ctx, statement)
		switch {
		case err == nil:
		case !errors.As(err, &pgErr):
			return fmt.Errorf("%s: %w", statement, err)
		case pgErr.Code != "SX021" && pgErr.Code != "40P01":
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// runPasses runs one pass after the other, like a worker that is woken all the time. If
// another worker holds the lease, it tries again.
func (s site) runPasses(ctx context.Context) error {
	conn, err := s.Pool().Acquire(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer conn.Release()
	manager := lease.Manager{Jobs: s.Connected, Holder: fmt.Sprint(conn.Conn().PgConn().PID())}
	for ctx.Err() == nil {
		granted, err := manager.Acquire(context.WithoutCancel(ctx), leaseKey, time.Minute, s.Connected)
		if _, held := errors.AsType[*lease.HeldError](err); held {
			continue
		}
		if err != nil {
			return err
		}
		e := groupschedule.Engine{Session: &batch.Session{
			Conn: conn.Conn(), Names: dbtest.Names(), Fence: granted,
			Limits: batch.Limits{StatementTimeout: 20 * time.Second, LockTimeout: 20 * time.Second},
		}}
		if _, err := e.Run(ctx); err != nil {
			return err
		}
		if err := granted.Release(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

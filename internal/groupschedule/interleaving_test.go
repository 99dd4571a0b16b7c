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
)

// invariant is what holds between any two transactions, whoever runs: a mark and a schedule come and go together, with the
// suffix; no group has two jobs; and the events tell of every change, in turn.
const invariant = `
SELECT 'mark without schedule, or the other way, or a name that does not fit: ' || groups.id
FROM groups LEFT JOIN group_deletion_schedules AS schedule ON group_id = groups.id
WHERE (groups.marked_for_deletion_on IS NULL) <> (group_id IS NULL)
   OR (groups.marked_for_deletion_on IS NULL) = (path LIKE '%-deletion\_scheduled-%')
   OR groups.marked_for_deletion_on <> schedule.marked_for_deletion_on
UNION ALL
SELECT 'two jobs: ' || (args ->> 'group_id') FROM sexton.river_job WHERE state IN ('available', 'scheduled') GROUP BY args ->> 'group_id', args ->> 'user_id' HAVING count(*) > 1
UNION ALL
SELECT 'events out of turn: ' || group_id FROM (
	SELECT payload ->> 'group_id' AS group_id, kind, lag(kind, 1, 'group_restored') OVER (PARTITION BY payload ->> 'group_id' ORDER BY id) AS before
	FROM sexton.events WHERE kind IN ('group_deletion_scheduled', 'group_restored')
) AS turn WHERE kind = before
UNION ALL
SELECT 'the last event does not fit: ' || id FROM groups
WHERE (marked_for_deletion_on IS NULL) <> coalesce((
	SELECT kind = 'group_restored' FROM sexton.events WHERE kind IN ('group_deletion_scheduled', 'group_restored') AND payload ->> 'group_id' = groups.id::text ORDER BY events.id DESC LIMIT 1), true)`

// Several sessions schedule, cancel, hasten and begin destructions of the same groups in any order, beside passes of two
// workers, some of whose schedulers lose their rights.
func TestRandomInterleavings(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := setup(t)
	const sessions, steps = 5, 60
	var running sync.WaitGroup
	errs := make(chan error, sessions+2)
	working, done := context.WithCancel(t.Context())
	for range 2 {
		running.Go(func() { errs <- s.keepPassing(working) })
	}
	var acting sync.WaitGroup
	for n := range sessions {
		acting.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(n)))
			errs <- act(t.Context(), s.Pool(), random, steps)
		})
	}
	acting.Wait()
	done()
	running.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
	require.Empty(t, s.Rows(invariant))
	// Whatever is left is decided in the end, and stays so.
	s.Exec("UPDATE sexton.group_deletion_failures SET retry_at = clock_timestamp(); UPDATE users SET admin = true WHERE id = 1")
	s.pass(t)
	require.False(t, s.due(t).Now)
	require.Empty(t, s.Rows(invariant))
	require.Empty(t, s.Rows("SELECT * FROM sexton.group_deletion_failures WHERE retry_at > clock_timestamp()"))
}

func act(ctx context.Context, pool *pgxpool.Pool, random *rand.Rand, steps int) error {
	groups := []int64{10, 11, 12, 20}
	for range steps {
		group := groups[random.IntN(len(groups))]
		statement := strings.ReplaceAll([]string{
			"SELECT sexton.schedule_group_deletion($1, 1)", "SELECT sexton.schedule_group_deletion($1, 2)",
			"SELECT sexton.cancel_group_deletion($1, 1)", "SELECT sexton.cancel_group_deletion($1, 2)", "SELECT sexton.delete_group_now($1, 1)",
			// Time goes by. Sent as one, they are one transaction.
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

// keepPassing runs one pass after the other, as a worker that is woken again and again. Another one may hold the lease.
func (s site) keepPassing(ctx context.Context) error {
	conn, err := s.Pool().Acquire(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	defer conn.Release()
	manager := lease.Manager{Jobs: s.Connected, Holder: fmt.Sprint(conn.Conn().PgConn().PID())}
	for ctx.Err() == nil {
		granted, err := manager.Acquire(context.WithoutCancel(ctx), leaseKey, time.Minute, s.Connected)
		if _, taken := errors.AsType[*lease.HeldError](err); taken {
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

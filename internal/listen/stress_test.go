package listen_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// TestStress lets writers of all sorts commit in random interleavings while the
// subscriptions go to sleep as often as they can and nothing but the protocol wakes them.
// SEXTON_STRESS_SECONDS (3, with the tag long 5) is how long it takes, SEXTON_STRESS_SEED
// repeats the writers' steps, though not the subscription's.
func TestStress(t *testing.T) {
	t.Parallel()
	for _, copies := range []int{1, 2} {
		if copies == 1 && !pgtest.Long {
			continue // Two do what one does, and meet each other.
		}
		t.Run(fmt.Sprintf("subscriptions=%d", copies), func(t *testing.T) {
			t.Parallel()
			stress(t, copies)
		})
	}
}

func stress(t *testing.T, copies int) {
	t.Helper()
	seed := fromEnvironment(t, "SEXTON_STRESS_SEED", rand.Uint64())
	var seconds uint64 = 3
	if pgtest.Long {
		seconds = 5
	}
	length := time.Duration(fromEnvironment(t, "SEXTON_STRESS_SECONDS", seconds)) * time.Second
	t.Logf("SEXTON_STRESS_SEED=%d", seed)
	b := setup(t)
	var probes []*probe
	for range copies {
		p := newProbe(b)
		p.start()
		probes = append(probes, p)
	}
	var parents atomic.Int64
	crews := make([]*crew, 2)
	for i := range crews {
		crews[i] = &crew{b: b, random: rand.New(rand.NewPCG(seed, uint64(i))), parents: &parents, foreign: b.connect()}
		for range 3 {
			crews[i].sessions = append(crews[i].sessions, b.connect())
		}
	}
	rounds := 0
	for began := time.Now(); time.Since(began) < length; rounds++ {
		var atWork sync.WaitGroup
		errs := make([]error, len(crews))
		for i, crew := range crews {
			atWork.Go(func() { errs[i] = crew.round(t.Context(), fmt.Sprintf("%s_%d_%d", b.Name, i, rounds)) })
		}
		atWork.Wait()
		require.NoError(t, errors.Join(errs...))
		b.requireDrained()
	}
	var committed, prepared, works int64
	for _, crew := range crews {
		committed, prepared = committed+crew.committed, prepared+crew.prepared
	}
	for _, p := range probes {
		works += p.works.Load()
	}
	t.Logf("%d rounds, %d commits, %d of them prepared, work done %d times", rounds, committed, prepared, works)
	require.Positive(t, committed)
	require.Positive(t, prepared)
}

func fromEnvironment(t *testing.T, name string, otherwise uint64) uint64 {
	text, ok := os.LookupEnv(name)
	if !ok {
		return otherwise
	}
	value, err := strconv.ParseUint(text, 10, 64)
	require.NoError(t, err, name)
	return value
}

// crew are writers whose transactions are interleaved step by step, and a foreign session
// that gets in the way of the subscriptions.
type crew struct {
	b        *bundle
	random   *rand.Rand
	parents  *atomic.Int64
	sessions []*pgx.Conn
	foreign  *pgx.Conn

	committed, prepared int64
}

// round runs one transaction per session to its end. Prepared ones are called by the name
// and a number.
func (c *crew) round(ctx context.Context, name string) error {
	scripts := make([][]string, len(c.sessions))
	var left []int
	for i := range c.sessions {
		scripts[i] = c.script(fmt.Sprintf("%s_%d", name, i))
		left = append(left, i)
	}
	for len(left) > 0 {
		if err := c.interfere(ctx); err != nil {
			return err
		}
		place := c.random.IntN(len(left))
		i := left[place]
		ended, err := c.step(ctx, c.sessions[i], scripts[i][0])
		if err != nil {
			return err
		}
		scripts[i] = scripts[i][1:]
		if ended || len(scripts[i]) == 0 {
			left = append(left[:place], left[place+1:]...)
		}
	}
	return c.release(ctx)
}

// script is one transaction.
func (c *crew) script(gid string) []string {
	levels := []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"}
	steps := []string{"BEGIN ISOLATION LEVEL " + levels[c.random.IntN(len(levels))]}
	for range 1 + c.random.IntN(3) {
		switch c.random.IntN(6) {
		case 0:
			steps = append(steps, "SELECT")
		case 1:
			steps = append(steps, fmt.Sprintf("DELETE FROM parents WHERE id = %d", c.parents.Add(1)))
		case 2:
			steps = append(steps, "SAVEPOINT s; "+insert, "RELEASE s")
		case 3:
			steps = append(steps, "SAVEPOINT s; "+insert, "ROLLBACK TO s")
		default:
			steps = append(steps, insert)
		}
	}
	switch c.random.IntN(8) {
	case 0:
		return append(steps, "ROLLBACK")
	case 1, 2, 3:
		return append(steps, "PREPARE TRANSACTION '"+gid+"'", "SELECT", "COMMIT PREPARED '"+gid+"'")
	case 4:
		return append(steps, "PREPARE TRANSACTION '"+gid+"'", "SELECT", "ROLLBACK PREPARED '"+gid+"'")
	default:
		return append(steps, "COMMIT")
	}
}

// step reports whether the transaction ended with an error of the kind that applications
// live with.
func (c *crew) step(ctx context.Context, conn *pgx.Conn, sql string) (ended bool, err error) {
	tag, err := conn.Exec(ctx, sql)
	var pgErr *pgconn.PgError
	switch {
	// Refused: PREPARE after a notification, and a conflict of serializable transactions.
	case errors.As(err, &pgErr) && (pgErr.Code == "0A000" || pgErr.Code == "40001"):
		_, err = conn.Exec(ctx, "ROLLBACK")
		return true, err
	case err != nil:
		return false, fmt.Errorf("%s: %w", sql, err)
	case tag.String() == "COMMIT":
		c.committed++
	case tag.String() == "COMMIT PREPARED":
		c.committed, c.prepared = c.committed+1, c.prepared+1
	}
	return false, nil
}

// interfere makes the subscriptions do without the awake lock at times, or without their
// connections.
func (c *crew) interfere(ctx context.Context) error {
	var err error
	switch c.random.IntN(100) {
	case 0, 1, 2:
		_, err = c.foreign.Exec(ctx, "SELECT pg_try_advisory_lock_shared($1::int, $2::int)", c.b.key1, c.b.key2)
	case 3, 4:
		err = c.release(ctx)
	case 5:
		_, err = c.foreign.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE application_name IN ($1, $3) AND datname = current_database() AND pid % 2 = $2`, listeners, c.random.IntN(2), subscriptions)
	}
	return err
}

func (c *crew) release(ctx context.Context) error {
	_, err := c.foreign.Exec(ctx, "SELECT pg_advisory_unlock_all()")
	return err
}

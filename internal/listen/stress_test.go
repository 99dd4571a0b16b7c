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

// TestStress verifies that no wake-up is lost while different kinds of writers commit in
// random order and the subscriptions fall asleep as often as possible. Only the wake-up
// protocol starts the work. SEXTON_STRESS_SECONDS sets the duration (3, or 5 with the tag
// long). SEXTON_STRESS_SEED repeats the order of the writers' steps, but not that of the
// subscriptions.
func TestStress(t *testing.T) {
	t.Parallel()
	for _, copies := range []int{1, 2} {
		if copies == 1 && !pgtest.Long {
			continue // The test with two subscriptions covers the test with one.
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
		var running sync.WaitGroup
		errs := make([]error, len(crews))
		for i, crew := range crews {
			running.Go(func() { errs[i] = crew.runRound(t.Context(), fmt.Sprintf("%s_%d_%d", b.Name, i, rounds)) })
		}
		running.Wait()
		require.NoError(t, errors.Join(errs...))
		b.requireDrained()
	}
	var committed, prepared, workCalls int64
	for _, crew := range crews {
		committed, prepared = committed+crew.committed, prepared+crew.prepared
	}
	for _, p := range probes {
		workCalls += p.workCalls.Load()
	}
	t.Logf("%d rounds, %d commits, %d of them prepared, %d calls of Work", rounds, committed, prepared, workCalls)
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

// crew is a group of writers whose transactions are interleaved statement by statement,
// and a foreign session that disturbs the subscriptions.
type crew struct {
	b        *bundle
	random   *rand.Rand
	parents  *atomic.Int64
	sessions []*pgx.Conn
	foreign  *pgx.Conn

	committed, prepared int64
}

// runRound runs one transaction per session to its end. Prepared transactions are named
// by name and a number.
func (c *crew) runRound(ctx context.Context, name string) error {
	scripts := make([][]string, len(c.sessions))
	var unfinished []int
	for i := range c.sessions {
		scripts[i] = c.newScript(fmt.Sprintf("%s_%d", name, i))
		unfinished = append(unfinished, i)
	}
	for len(unfinished) > 0 {
		if err := c.interfere(ctx); err != nil {
			return err
		}
		place := c.random.IntN(len(unfinished))
		i := unfinished[place]
		ended, err := c.runStatement(ctx, c.sessions[i], scripts[i][0])
		if err != nil {
			return err
		}
		scripts[i] = scripts[i][1:]
		if ended || len(scripts[i]) == 0 {
			unfinished = append(unfinished[:place], unfinished[place+1:]...)
		}
	}
	return c.release(ctx)
}

// newScript returns the statements of one random transaction.
func (c *crew) newScript(gid string) []string {
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

// runStatement runs one statement. It returns ended if the statement failed with an error
// that applications must expect, and then rolls the transaction back.
func (c *crew) runStatement(ctx context.Context, conn *pgx.Conn, sql string) (ended bool, err error) {
	tag, err := conn.Exec(ctx, sql)
	var pgErr *pgconn.PgError
	switch {
	// Postgres refuses PREPARE TRANSACTION after NOTIFY (0A000), and reports conflicts of
	// serializable transactions (40001).
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

// interfere takes the awake lock in shared mode, releases it, or terminates connections,
// each with a low probability.
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

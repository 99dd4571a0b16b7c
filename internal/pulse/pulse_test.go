package pulse_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgtest"
	"sexton/internal/pulse"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// asked are the answers of a question, one for each time that its transaction has ended well.
type asked []string

// question asks one value.
func (a *asked) question(sql string) pulse.Question {
	return pulse.Question{Ask: func(ctx context.Context, on dbsqlc.DBTX) (pulse.Then, error) {
		var answer string
		err := on.QueryRow(ctx, sql).Scan(&answer)
		return func(context.Context) error { *a = append(*a, answer); return nil }, err
	}}
}

func guest(q pulse.Question) pulse.Question { q.Guest = true; return q }

const transaction = "SELECT pg_current_xact_id()::text"

func TestAPulseIsOneTransaction(t *testing.T) {
	t.Parallel()
	var one, another, third asked
	p := &pulse.Pulse{On: pgtest.New(t).Pool()}
	p.Add(guest(one.question(transaction)), another.question(transaction), third.question(transaction),
		pulse.Question{Ask: func(context.Context, dbsqlc.DBTX) (pulse.Then, error) { return nil, nil }},
		guest(pulse.Question{Ask: func(context.Context, dbsqlc.DBTX) (pulse.Then, error) { return nil, errors.New("nothing to ask with") }}))
	require.NoError(t, p.Next(t.Context()))
	require.NoError(t, p.Next(t.Context()))
	require.Len(t, one, 2)
	require.NotEqual(t, one[0], one[1])
	require.Equal(t, one, another)
	require.Equal(t, one, third)
}

func TestQuestionsComeAtTheirIntervals(t *testing.T) {
	t.Parallel()
	p := &pulse.Pulse{On: pgtest.New(t).Pool()}
	var answers [4]asked
	for i, every := range []time.Duration{0, 5 * time.Second, 10 * time.Second, 30 * time.Second} {
		q := answers[i].question(transaction)
		q.Every = every
		p.Add(q)
	}
	for range 30 { // A minute.
		require.NoError(t, p.Next(t.Context()))
	}
	for i, times := range []int{30, 15, 6, 2} {
		require.Len(t, answers[i], times)
	}
}

// The application changes a table that a guest asks: what holds the worker up is not the heartbeat.
func TestALockedTableKeepsNoOtherQuestionFromItsAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec("CREATE TABLE application (); CREATE TABLE own (seen xid8)")
	var guests, own asked
	p := &pulse.Pulse{On: db.Pool()}
	p.Add(guest(guests.question("SELECT count(*)::text FROM application")), own.question("INSERT INTO own VALUES (pg_current_xact_id()) RETURNING seen::text"))
	require.NoError(t, p.Next(t.Context()))
	tx := pgtest.Begin(t, db.Pool(), "LOCK TABLE application")
	require.NoError(t, p.Next(t.Context()))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Len(t, guests, 1)
	require.Equal(t, [][]string{{own[0]}, {own[1]}}, db.Rows("SELECT seen FROM own ORDER BY seen"), "what was asked together has left nothing")
	require.NoError(t, p.Next(t.Context()))
	require.Len(t, own, 3)
	require.Len(t, guests, 2)
}

// A busy server takes longer for the guests than all questions together may: they get a time of their own.
func TestASlowGuestIsAnsweredBehindTheOthers(t *testing.T) {
	t.Parallel()
	var slow, own asked
	p := &pulse.Pulse{On: pgtest.New(t).Pool(), Answer: 4 * time.Second}
	p.Add(guest(slow.question("SELECT pg_sleep(2.2)::text")), own.question(transaction))
	require.NoError(t, p.Next(t.Context()))
	require.Len(t, own, 1)
	require.Len(t, slow, 1)
}

func TestAQuestionFailsAlone(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var well, broken, rare asked
	p := &pulse.Pulse{On: db.Pool()}
	seldom := rare.question(transaction)
	seldom.Every = time.Hour
	p.Add(broken.question("SELECT missing"), well.question(transaction), seldom)
	for range 2 {
		require.ErrorContains(t, p.Next(t.Context()), `column "missing" does not exist`)
	}
	require.Len(t, well, 2)
	require.Len(t, rare, 2, "a pulse behind one that failed asks everything")

	var told error
	q := broken.question("SELECT missing")
	q.Failed = func(_ context.Context, err error) { told = err }
	p = &pulse.Pulse{On: db.Pool()}
	p.Add(q)
	require.NoError(t, p.Next(t.Context()))
	require.ErrorContains(t, told, "missing")
	require.Empty(t, broken)
}

// An operator has a table of the worker's own locked, and the connection is a new one: to prepare a statement waits whatever the lock timeout is.
func TestALockedTableOfTheWorkerKeepsNoOtherQuestionFromItsAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec("CREATE TABLE jobs ()")
	tx := pgtest.Begin(t, db.Pool(), "LOCK TABLE jobs")
	var well, locked, behind asked
	p := &pulse.Pulse{On: db.Pool(), Answer: 2 * time.Second}
	p.Add(well.question(transaction), locked.question("SELECT count(*)::text FROM jobs"), behind.question(transaction))
	require.Error(t, p.Next(t.Context()), "no answer: not even which question waits")
	require.ErrorContains(t, p.Next(t.Context()), "lock timeout")
	require.Len(t, well, 1)
	require.Len(t, behind, 1)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, p.Next(t.Context()))
	require.Len(t, locked, 1)
}

// What follows from an answer may be that something is missing for the second time, so it must not come twice in one pulse.
func TestWhatFollowsFromAnAnswerComesOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	var well, behind asked
	failing := behind.question(transaction)
	ask := failing.Ask
	failing.Ask = func(ctx context.Context, on dbsqlc.DBTX) (pulse.Then, error) {
		then, err := ask(ctx, on)
		return func(ctx context.Context) error {
			return errors.Join(then(ctx), &pgconn.PgError{Code: "55P03", Message: "it follows badly"})
		}, err
	}
	p := &pulse.Pulse{On: db.Pool()}
	p.Add(well.question(transaction), failing, guest(new(asked).question(transaction)))
	for n := range 2 {
		require.ErrorContains(t, p.Next(t.Context()), "it follows badly")
		require.Len(t, well, n+1)
		require.Len(t, behind, n+1)
	}
}

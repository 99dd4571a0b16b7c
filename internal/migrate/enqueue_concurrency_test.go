package migrate_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/pgtest"
)

// begin starts a transaction. If the transaction is still open at the end of the test, it
// is rolled back.
func begin(t *testing.T, d *pgtest.Database, level pgx.TxIsoLevel) pgx.Tx {
	tx := pgtest.Must(d.Pool().BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level}))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func execute(t *testing.T, tx pgx.Tx, statements ...string) {
	for _, statement := range statements {
		_, err := tx.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
}

// enqueueIn enqueues a job in an open transaction and returns the job's id.
func enqueueIn(t *testing.T, tx pgx.Tx, call string) int64 {
	return pgtest.Scalar[int64](t, tx, "SELECT sexton.enqueue("+call+")")
}

// result is the result of a call of enqueue.
type result struct {
	id  int64
	err error
}

// enqueueBlocked calls enqueue in tx, and returns when the call waits for another
// transaction. The channel gets the result of the call.
func enqueueBlocked(t *testing.T, d *pgtest.Database, tx pgx.Tx, call string) <-chan result {
	results := make(chan result, 1)
	go func() {
		var r result
		r.err = tx.QueryRow(t.Context(), "SELECT sexton.enqueue("+call+")").Scan(&r.id)
		results <- r
	}()
	pid := tx.Conn().PgConn().PID()
	pgtest.WaitFor(t, "enqueue to wait for the other transaction", func(ctx context.Context) (waits bool, err error) {
		select {
		case r := <-results:
			return false, errors.Join(errors.New("enqueue did not wait"), r.err)
		default:
		}
		err = d.Pool().QueryRow(ctx, "SELECT cardinality(pg_blocking_pids($1)) > 0", pid).Scan(&waits)
		return waits, err
	})
	return results
}

// requireUnlocked requires that no transaction has locked the job's row.
func requireUnlocked(t *testing.T, d *pgtest.Database, id int64) {
	_, err := d.Pool().Exec(t.Context(), "SELECT FROM sexton.river_job WHERE id = $1 FOR UPDATE NOWAIT", id)
	require.NoError(t, err, "the job's row is locked")
}

// If another transaction has inserted, changed, begun or ended an equal job, enqueue
// returns when that transaction ends. River may fetch a job after enqueue has read it as
// waiting. The UPDATE then detects the change only after it has locked the row, and
// enqueue must not keep that lock.
func TestEnqueueWaitsForAnotherTransaction(t *testing.T) {
	t.Parallel()
	const later, lock = "'tidy', run_at => now() + interval '9 hours'", "SELECT FROM sexton.river_job FOR UPDATE"
	const begins = "UPDATE sexton.river_job SET state = 'running', attempt = 1, attempted_at = now()"
	type example struct {
		// before has the arguments of an earlier call that has committed. changed is a
		// statement that then changes the job of that call. call has the arguments of the
		// call that must wait, by default 'tidy'.
		before, changed, call string
		// first is the other transaction's statement before the call begins. then is the
		// other transaction's statement while the call waits.
		first, then string
		rollsBack   bool
		// same reports that the waiting call must return the job of the other
		// transaction. state is the expected state of the job afterwards. hour is the
		// expected number of hours until the job is due.
		same        bool
		state, hour string
	}
	pgtest.Each(t, map[string]example{
		"the first commits":    {first: "SELECT sexton.enqueue('tidy')", same: true, state: "available"},
		"the first rolls back": {first: "SELECT sexton.enqueue('tidy')", rollsBack: true, state: "available"},
		"about to complete": {
			before: "'tidy'", changed: begins,
			first: "UPDATE sexton.river_job SET state = 'completed', finalized_at = now()",
		},
		"the job has just begun": {before: later, first: lock, then: begins, same: true, state: "running"},
		"the job has just ended": {
			before: later, first: lock,
			then: "UPDATE sexton.river_job SET state = 'cancelled', finalized_at = now()",
		},
		"both pull the job forward": {
			before: later, first: "SELECT sexton.enqueue('tidy', run_at => now() + interval '5 hours')",
			call: "'tidy', run_at => now() + interval '1 hour'", same: true, hour: "1",
		},
	}, func(t *testing.T, _ string, test example) {
		d := jobsDatabase(t)
		if test.before != "" {
			enqueue(t, d, test.before)
			d.Exec(test.changed)
		}
		first, second := begin(t, d, pgx.ReadCommitted), begin(t, d, pgx.ReadCommitted)
		execute(t, first, test.first)
		id := pgtest.Scalar[int64](t, first, "SELECT id FROM sexton.river_job")
		results := enqueueBlocked(t, d, second, cmp.Or(test.call, "'tidy'"))
		execute(t, first, test.then)
		if test.rollsBack {
			require.NoError(t, first.Rollback(t.Context()))
		} else {
			require.NoError(t, first.Commit(t.Context()))
		}
		got := <-results
		require.NoError(t, got.err)
		require.Equal(t, test.same, got.id == id)
		if test.same && test.hour == "" {
			requireUnlocked(t, d, id)
		}
		require.NoError(t, second.Commit(t.Context()))
		require.Equal(t, got.id, enqueue(t, d, "'tidy', run_at => now() + interval '1 day'"))
		if found := jobs(d); test.state+test.hour != "" {
			require.Len(t, found, 1)
			require.Equal(t, cmp.Or(test.state, found[0][1]), found[0][1])
			require.Equal(t, cmp.Or(test.hour, found[0][2]), found[0][2], "the earliest time counts")
		}
	})
}

func TestEnqueueDoesNotWaitForOtherJobs(t *testing.T) {
	t.Parallel()
	d := jobsDatabase(t)
	first, second := begin(t, d, pgx.ReadCommitted), begin(t, d, pgx.ReadCommitted)
	id := enqueueIn(t, first, `'sweep', '{"database": "main"}'`)
	require.NotEqual(t, id, enqueueIn(t, second, `'sweep', '{"database": "ci"}'`))
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		tx := begin(t, jobsDatabase(t), level)
		require.Equal(t, enqueueIn(t, tx, "'tidy', run_at => now() + interval '1 day'"), enqueueIn(t, tx, "'tidy'"),
			level)
	}

	// enqueue does not wait for an equal running job either, although its row is locked.
	running := jobsDatabase(t)
	id = enqueue(t, running, "'tidy'")
	running.Exec("UPDATE sexton.river_job SET state = 'running', attempt = 1, attempted_at = now()")
	worker, caller := begin(t, running, pgx.ReadCommitted), begin(t, running, pgx.ReadCommitted)
	execute(t, worker, "SELECT FROM sexton.river_job FOR UPDATE")
	execute(t, caller, "SET LOCAL lock_timeout = '1ms'")
	require.Equal(t, id, enqueueIn(t, caller, "'tidy'"), "the call did not wait")
	execute(t, worker, "UPDATE sexton.river_job SET state = 'completed', finalized_at = now()")
	require.NoError(t, worker.Commit(t.Context()), "the worker does not wait for the caller")
}

// At REPEATABLE READ and above, enqueue raises 40001 if another session has changed an
// equal job since the snapshot. A retry succeeds.
func TestEnqueueAtRepeatableRead(t *testing.T) {
	t.Parallel()
	changes := map[string]string{
		"a job was inserted":       "SELECT sexton.enqueue('tidy')",
		"a job was pulled forward": "UPDATE sexton.river_job SET scheduled_at = now() + interval '1 hour'",
		"a job has begun":          "UPDATE sexton.river_job SET state = 'running', attempt = 1, attempted_at = now()",
	}
	for name, change := range changes {
		for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
			t.Run(name+", "+string(level), func(t *testing.T) {
				t.Parallel()
				d := jobsDatabase(t)
				if name != "a job was inserted" {
					enqueue(t, d, "'tidy', run_at => now() + interval '9 hours'")
				}
				tx := begin(t, d, level)
				execute(t, tx, "SELECT FROM sexton.river_job")
				d.Exec(change)
				_, err := tx.Exec(t.Context(), "SELECT sexton.enqueue('tidy')")
				requireState(t, err, "40001")
				require.NoError(t, tx.Rollback(t.Context()))

				again := begin(t, d, level)
				id := enqueueIn(t, again, "'tidy'")
				require.NoError(t, again.Commit(t.Context()))
				require.Len(t, jobs(d), 1, "there is still one job")
				require.Equal(t, id, enqueue(t, d, "'tidy'"))
			})
		}
	}

	t.Run("a job has ended", func(t *testing.T) {
		t.Parallel()
		d := jobsDatabase(t)
		id := enqueue(t, d, "'tidy'")
		tx := begin(t, d, pgx.RepeatableRead)
		execute(t, tx, "SELECT FROM sexton.river_job")
		d.Exec("UPDATE sexton.river_job SET state = 'completed', finalized_at = now()")
		require.NotEqual(t, id, enqueueIn(t, tx, "'tidy'"), "a job that has ended is not returned, although the snapshot shows it as waiting")
	})
}

func TestEnqueueConcurrently(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			d := jobsDatabase(t)
			pool := d.Pool()
			const callers, calls = 4, 10
			results := make(chan result, callers*calls)
			for range callers {
				go func() {
					for range calls {
						var r result
						for {
							r.err = pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level},
								func(tx pgx.Tx) error {
									return tx.QueryRow(t.Context(), "SELECT sexton.enqueue('tidy')").Scan(&r.id)
								})
							if pgErr, ok := errors.AsType[*pgconn.PgError](r.err); !ok || pgErr.Code != "40001" {
								break
							}
						}
						results <- r
					}
				}()
			}
			ids := map[int64]bool{}
			for range callers * calls {
				r := <-results
				require.NoError(t, r.err)
				ids[r.id] = true
			}
			require.Len(t, ids, 1, "all calls return the same job")
			require.Len(t, jobs(d), 1)
		})
	}
}

var unfinished = []rivertype.JobState{
	rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRunning, rivertype.JobStateRetryable,
	rivertype.JobStateScheduled,
}

// anyArgs holds the arguments of a kind that this program does not define.
type anyArgs struct {
	kind   string
	values map[string]any
}

func (a anyArgs) Kind() string                 { return a.kind }
func (a anyArgs) MarshalJSON() ([]byte, error) { return json.Marshal(a.values) }

// River's client and enqueue detect each other's equal jobs for any kind and arguments.
func TestEnqueueComputesTheUniqueKeyOfRiver(t *testing.T) {
	t.Parallel()
	d := jobsDatabase(t)
	client := pgtest.Must(river.NewClient(riverpgxv5.New(d.Pool()),
		&river.Config{Schema: "sexton", Logger: pgtest.Logger(t)}))(t)

	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.Custom(textOf(1, 100)).Draw(t, "kind")
		names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z_][a-z0-9_]{0,8}`), 0, 6, rapid.ID[string]).Draw(t,
			"names")
		args := anyArgs{kind: kind, values: map[string]any{}}
		types := map[string]string{}
		for _, name := range names {
			types[name], args.values[name] = argument(t, name)
		}
		requireSameJob(t, d, client, args, types, args.values)
	})
}

// requireSameJob inserts the same job by River's client and by enqueue, in both orders.
// It requires that both write equal rows and that the second insertion finds the first
// job.
func requireSameJob(t *rapid.T, d *pgtest.Database, client *river.Client[pgx.Tx], args river.JobArgs,
	types map[string]string, values map[string]any,
) {
	d.Exec("DELETE FROM sexton.river_job")
	d.Exec("DELETE FROM sexton.job_kinds")
	encodedTypes := pgtest.Must(json.Marshal(types))(t)
	d.Exec("INSERT INTO sexton.job_kinds VALUES ($1, 'q', $2, '{}', false, 7)", args.Kind(), encodedTypes)
	insert := func() *rivertype.JobInsertResult {
		result := pgtest.Must(client.Insert(t.Context(), args, &river.InsertOpts{
			Queue: "q", MaxAttempts: 7, UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: unfinished},
		}))(t)
		return result
	}
	given := writeJSON(t, values)
	bySQL := func() (id int64) {
		err := d.Pool().QueryRow(t.Context(), "SELECT sexton.enqueue($1, $2::text::jsonb)", args.Kind(),
			given).Scan(&id)
		require.NoError(t, err, given)
		return id
	}
	row := func() [][]string {
		return d.Rows(`SELECT to_jsonb(j) - '{id,created_at,scheduled_at}'::text[] FROM sexton.river_job AS j`)
	}

	inserted := insert()
	byRiver := row()
	require.Equal(t, inserted.Job.ID, bySQL(), "enqueue returns River's job; arguments %s", given)
	require.Equal(t, byRiver, row(), "enqueue does not change River's job")

	d.Exec("DELETE FROM sexton.river_job")
	id := bySQL()
	require.Equal(t, byRiver, row(), "enqueue writes the same row as River; arguments %s", given)
	second := insert()
	require.True(t, second.UniqueSkippedAsDuplicate, "River detects the job of enqueue")
	require.Equal(t, id, second.Job.ID)
}

// argument draws a type of an argument and a Go value of that type.
func argument(t *rapid.T, name string) (string, any) {
	switch kind := rapid.SampledFrom([]string{"text", "bigint", "boolean"}).Draw(t, name+" type"); kind {
	case "text":
		return kind, rapid.Custom(textOf(0, 30)).Draw(t, name)
	case "bigint":
		return kind, rapid.OneOf(rapid.Int64(), rapid.SampledFrom([]int64{
			0, -1, math.MinInt64, math.MaxInt64, 1 << 53,
			1<<53 + 1,
		})).Draw(t, name)
	default:
		return kind, rapid.Bool().Draw(t, name)
	}
}

// textOf returns a generator of texts with many characters that JSON encoders treat
// specially. It does not draw the character zero, which Postgres cannot store.
func textOf(minRunes, maxRunes int) func(*rapid.T) string {
	special := []rune("<>&\"'\\/\b\f\n\r\t\x01\x1f\x7f {}[]:,=%$ü表\u00a0\u0085\u2028\u2029\ufeff\ufffd\uffff\U0001f600\U0010ffff")
	anyRune := rapid.OneOf(rapid.SampledFrom(special), rapid.Rune().Filter(func(r rune) bool { return r != 0 }))
	return func(t *rapid.T) string {
		return string(rapid.SliceOfN(anyRune, minRunes, maxRunes).Draw(t, "runes"))
	}
}

// writeJSON returns a JSON object with variations that clients may use: members in any
// order, with more or less escaping, and numbers in several notations.
func writeJSON(t *rapid.T, values map[string]any) string {
	var members []string
	for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(values))).Draw(t, "order") {
		var encoded bytes.Buffer
		encoder := json.NewEncoder(&encoded)
		encoder.SetEscapeHTML(rapid.Bool().Draw(t, "escape"))
		require.NoError(t, encoder.Encode(values[name]))
		value := strings.TrimSpace(encoded.String())
		if number, ok := values[name].(int64); ok && number != 0 {
			value = fmt.Sprintf(rapid.SampledFrom([]string{"%d", "%d.0", "%de0", "%d0e-1"}).Draw(t, "notation"), number)
		}
		members = append(members, fmt.Sprintf(" %q :\n%s", name, value))
	}
	return "{" + strings.Join(members, ",") + "}"
}

package riverjobs

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// term simulates one term of River's leader with a clock that only advance changes. It
// calls Start, then each constructor, and then each constructor when it is due.
type term struct {
	*testing.T

	b      bundle
	ticker *ticker
	ticks  []*Tick
	clock  time.Time
	next   map[*Tick]time.Time
}

// startTerm starts a term at a time in UTC, such as "2026-03-01 23:59:00".
func startTerm(t *testing.T, b bundle, moment string, ticks ...*Tick) *term {
	k, jobs := newTicker(b.deps, ticks)
	require.Len(t, jobs, len(ticks))
	m := &term{T: t, b: b, ticker: k, ticks: ticks, clock: parseTime(t, moment), next: map[*Tick]time.Time{}}
	k.now = func() time.Time { return m.clock }
	m.begin()
	return m
}

func (m *term) begin() {
	require.NoError(m, m.ticker.Start(m.Context(), nil))
	for _, tick := range m.ticks {
		m.next[tick] = tick.Next(m.clock)
		m.construct(tick)
	}
}

// construct calls the constructor of a tick and inserts the returned job.
func (m *term) construct(tick *Tick) {
	args, _ := tick.construct()
	if args == nil {
		return
	}
	tx := pgtest.Must(riverpgxv5.New(m.b.db.Connected.Pool).GetExecutor().Begin(m.Context()))(m)
	defer func() { _ = tx.Rollback(context.WithoutCancel(m.Context())) }()
	require.NoError(m, tx.Exec(m.Context(), "INSERT INTO public.ticked VALUES ($1, $2, $3)", tick.Kind, tick.Database,
		tick.offered))
	metadata := []byte(`{"river:periodic_job_id": "` + tick.id() + `", "periodic": true}`)
	require.NoError(m, m.ticker.record(m.Context(), tx, []*riverdriver.JobInsertFastParams{{Metadata: metadata}}))
	require.NoError(m, tx.Commit(m.Context()))
}

// advance moves the clock forward by d and calls the constructors that fall due.
func (m *term) advance(d time.Duration) {
	const step = 500 * time.Millisecond
	for ; d > 0; d -= step {
		m.clock = m.clock.Add(min(step, d))
		for _, tick := range m.ticks {
			if due := m.next[tick]; due.Before(m.clock.Add(lookahead)) {
				m.construct(tick)
				m.next[tick] = tick.Next(due)
				require.True(m, m.next[tick].After(m.clock), "the next time is never in the past")
				require.LessOrEqual(m, m.next[tick].Sub(m.clock), longestWait+time.Second)
			}
		}
	}
}

func (b bundle) recordedTicks() [][]string {
	return b.db.Rows("SELECT kind, to_char(at AT TIME ZONE 'UTC', 'MM-DD HH24:MI:SS') FROM ticked ORDER BY at, kind, database")
}

func (b bundle) lastTick() string {
	return b.db.Rows("SELECT to_char(last_tick AT TIME ZONE 'UTC', 'MM-DD HH24:MI:SS') FROM sexton.schedules WHERE kind = 'k'")[0][0]
}

func parseTime(t *testing.T, moment string) time.Time {
	return pgtest.Must(time.Parse(time.DateTime, moment))(t)
}

func parseCron(t *testing.T, spec string) cron.Schedule {
	return pgtest.Must(cron.ParseStandard(spec))(t)
}

func tickOf(t *testing.T, spec string) *Tick {
	return &Tick{
		Kind: "k", Database: "main", Schedule: parseCron(t, spec),
		Args: LooseForeignKeysCleanupArgs{Database: "main"},
	}
}

func setupTicks(t *testing.T) bundle {
	b := setup(t)
	b.db.Exec("CREATE TABLE ticked (kind text, database text, at timestamptz)")
	return b
}

// setLastTick stores a time as the last tick of the schedule k.
func (b bundle) setLastTick(moment string) {
	b.db.Exec("INSERT INTO sexton.schedules VALUES ('k', 'main', $1::timestamp AT TIME ZONE 'UTC')", moment)
}

func TestNewScheduleWaitsForTheNextTick(t *testing.T) {
	t.Parallel()
	b := setupTicks(t)
	m := startTerm(t, b, "2026-03-01 12:00:30", tickOf(t, "* * * * *"))
	require.Equal(t, "03-01 12:00:30", b.lastTick())
	require.Equal(t, [][]string{{"f"}}, b.db.Rows("SELECT ticked FROM sexton.schedules"), "the insertion of the row does not count as a tick")
	m.advance(29 * time.Second)
	require.Empty(t, b.recordedTicks())
	m.advance(60 * time.Second)
	require.Equal(t, [][]string{{"k", "03-01 12:01:00"}}, b.recordedTicks())
	require.Equal(t, [][]string{{"t"}}, b.db.Rows("SELECT ticked FROM sexton.schedules"))
	m.advance(2 * time.Second)
	require.Equal(t, [][]string{{"k", "03-01 12:01:00"}, {"k", "03-01 12:02:00"}}, b.recordedTicks())
	require.Equal(t, "03-01 12:02:00", b.lastTick())
}

func TestTickDuringAStopIsMadeUpOnce(t *testing.T) {
	t.Parallel()
	b := setupTicks(t)
	startTerm(t, b, "2026-03-01 23:50:00", tickOf(t, "0 0 * * *")).advance(9 * time.Minute)
	require.Empty(t, b.recordedTicks())
	for _, restart := range []string{"2026-03-02 00:01:00", "2026-03-02 00:02:00", "2026-03-02 23:59:58"} {
		startTerm(t, b, restart, tickOf(t, "0 0 * * *"))
		require.Equal(t, [][]string{{"k", "03-02 00:00:00"}}, b.recordedTicks(), "runs after the start at %s", restart)
	}
}

func TestMissedTicksAreMadeUpByOneRun(t *testing.T) {
	t.Parallel()
	b := setupTicks(t)
	b.setLastTick("2023-03-01 12:00:00")
	startTerm(t, b, "2026-03-01 12:00:30", tickOf(t, "*/5 * * * *"))
	require.Equal(t, [][]string{{"k", "03-01 12:00:00"}}, b.recordedTicks())
	require.Equal(t, "03-01 12:00:00", b.lastTick())
}

func TestSchedulesAreInUTC(t *testing.T) {
	t.Parallel()
	b := setupTicks(t)
	m := startTerm(t, b, "2026-03-01 23:59:50", tickOf(t, "0 0 * * *"))
	m.clock = m.clock.In(time.FixedZone("east", 5*3600+1800))
	m.begin()
	m.advance(20 * time.Second)
	require.Equal(t, [][]string{{"k", "03-02 00:00:00"}}, b.recordedTicks())
}

func TestClockSetBackRepeatsNoTick(t *testing.T) {
	t.Parallel()
	b := setupTicks(t)
	b.setLastTick("2026-03-01 11:59:00")
	m := startTerm(t, b, "2026-03-01 12:00:30", tickOf(t, "* * * * *"))
	want := [][]string{{"k", "03-01 12:00:00"}}
	require.Equal(t, want, b.recordedTicks())
	for range 2 {
		m.clock = parseTime(t, "2026-03-01 11:30:00")
		m.advance(30 * time.Minute)
		require.Equal(t, want, b.recordedTicks(), "at %s", m.clock)
		require.Equal(t, "03-01 12:00:00", b.lastTick())
		m.clock = parseTime(t, "2026-03-01 11:30:00")
		m.begin() // A new term simulates another leader.
	}
	require.Contains(t, b.log.String(), "last_tick_in_future")
	m.advance(31*time.Minute + time.Second)
	require.Equal(t, append(want, []string{"k", "03-01 12:01:00"}), b.recordedTicks())
}

// River does not detect a change of the clock, so it checks each schedule every minute.
func TestClockSetForwardCausesOneRun(t *testing.T) {
	t.Parallel()
	b := setupTicks(t)
	m := startTerm(t, b, "2026-03-01 12:00:30", tickOf(t, "0 * * * *"))
	m.clock = parseTime(t, "2026-03-02 09:30:00")
	m.advance(3 * time.Minute)
	require.Equal(t, [][]string{{"k", "03-02 09:00:00"}}, b.recordedTicks())
}

// Intervals count from the recorded tick, even if leaders change and their clocks differ.
func TestLeadersShareOneInterval(t *testing.T) {
	t.Parallel()
	b := setupTicks(t)
	m := startTerm(t, b, "2026-03-01 12:00:00", tickOf(t, "@every 90s"))
	for range 8 {
		m.advance(30 * time.Second)
		m = startTerm(t, b, m.clock.Format(time.DateTime), tickOf(t, "@every 90s"))
	}
	m.advance(3 * time.Minute)
	require.Equal(t, [][]string{
		{"k", "03-01 12:01:30"}, {"k", "03-01 12:03:00"}, {"k", "03-01 12:04:30"}, {"k", "03-01 12:06:00"},
	}, b.recordedTicks())
}

func TestSchedulesAreIndependent(t *testing.T) {
	t.Parallel()
	b := setupTicks(t)
	args := LooseForeignKeysCleanupArgs{}
	m := startTerm(t, b, "2026-03-01 12:00:00", tickOf(t, "* * * * *"),
		&Tick{Kind: "k", Database: "ci", Schedule: parseCron(t, "*/2 * * * *"), Args: args},
		&Tick{Kind: "other", Schedule: parseCron(t, "2 * * * *"), Args: args},
		&Tick{Kind: "never", Schedule: parseCron(t, "0 0 31 2 *"), Args: args})
	m.advance(2*time.Minute + time.Second)
	require.Equal(t, [][]string{{"k", "ci", "2"}, {"k", "main", "1"}, {"k", "main", "2"}, {"other", "", "2"}},
		b.db.Rows("SELECT kind, database, extract(minute FROM at) FROM ticked ORDER BY 1, 2, 3"))
}

func TestMissingScheduleTableDelaysTicks(t *testing.T) {
	t.Parallel()
	b := setupTicks(t)
	b.setLastTick("2026-03-01 11:59:00")
	m := startTerm(t, b, "2026-03-01 11:59:30", tickOf(t, "* * * * *"))
	b.db.Exec("ALTER TABLE sexton.schedules RENAME TO hidden")
	require.Error(t, m.ticker.Start(t.Context(), nil), "Start returns the error")
	m.advance(5 * time.Minute)
	require.Empty(t, b.recordedTicks())
	require.Contains(t, b.log.String(), "schedule_failed")
	b.db.Exec("ALTER TABLE sexton.hidden RENAME TO schedules")
	m.advance(time.Minute)
	require.Equal(t, [][]string{{"k", "03-01 12:05:00"}}, b.recordedTicks(), "one run for the ticks since 12:00")
}

// If another leader has inserted the job of a tick while this leader was suspended, this
// leader does not insert the job again.
func TestSuspendedLeaderRepeatsNoTick(t *testing.T) {
	t.Parallel()
	b := setupTicks(t)
	suspended := startTerm(t, b, "2026-03-01 11:59:30", tickOf(t, "* * * * *"))
	startTerm(t, b, "2026-03-01 11:59:30", tickOf(t, "* * * * *")).advance(2 * time.Minute)
	want := [][]string{{"k", "03-01 12:00:00"}, {"k", "03-01 12:01:00"}}
	require.Equal(t, want, b.recordedTicks())
	suspended.clock = parseTime(t, "2026-03-01 12:01:40")
	suspended.advance(time.Second)
	require.Equal(t, want, b.recordedTicks())
	require.Equal(t, "03-01 12:01:00", b.lastTick())
}

// startClient starts a River client with the periodic jobs of a worker.
func startClient(t *testing.T, b bundle, id string) *river.Client[pgx.Tx] {
	client := b.newClient(t, id)
	require.NoError(t, client.Start(context.WithoutCancel(t.Context())))
	t.Cleanup(func() { require.NoError(t, client.StopAndCancel(context.WithoutCancel(t.Context()))) })
	return client
}

const periodicJobs = "SELECT count(*) FROM sexton.river_job WHERE metadata ->> 'river:periodic_job_id' = 'loose_foreign_keys_cleanup:main'"

// Of several clients, only the leader inserts a job, and one job makes up for all missed
// ticks. After a clean stop another client becomes the leader.
func TestOnlyTheLeaderInsertsMissedTicks(t *testing.T) {
	t.Parallel()
	b := setup(t, "SEXTON_LOOSE_FOREIGN_KEYS__SCHEDULE=0 0 1 1 *")
	b.db.Exec("INSERT INTO sexton.schedules VALUES ($1, 'main', now() - interval '3 years')", LooseForeignKeys)
	clients := map[string]*river.Client[pgx.Tx]{}
	for _, id := range []string{"a", "b", "c"} {
		clients[id] = startClient(t, b, id)
	}
	completed := periodicJobs + " AND state = 'completed'"
	pgtest.WaitFor(t, "the job of the missed tick", func(context.Context) (bool, error) {
		return pgtest.Scalar[int64](t, b.db.Database, completed) == 1, nil
	})
	leader := pgtest.Scalar[string](t, b.db.Database, "SELECT leader_id FROM sexton.river_leader")
	require.NoError(t, clients[leader].Stop(t.Context()))
	pgtest.WaitFor(t, "another leader", func(context.Context) (bool, error) {
		rows := b.db.Rows("SELECT leader_id FROM sexton.river_leader")
		return len(rows) == 1 && rows[0][0] != leader, nil
	})
	pgtest.WaitFor(t, "the first check of the schedule", func(context.Context) (bool,
		error,
	) {
		return strings.Contains(b.log.String(), Skipped), nil
	})
	require.EqualValues(t, 1, pgtest.Scalar[int64](t, b.db.Database, periodicJobs))
	require.Equal(t, [][]string{{"t"}},
		b.db.Rows("SELECT last_tick = date_trunc('year', now(), 'UTC') FROM sexton.schedules"))
}

// If the commit of River's insertion fails, as in a crash of the server, neither the tick
// nor the job is stored. The next leader inserts the job of the same tick.
func TestFailedCommitKeepsTheTickDue(t *testing.T) {
	t.Parallel()
	b := setup(t, "SEXTON_LOOSE_FOREIGN_KEYS__SCHEDULE=0 0 1 1 *")
	b.db.Exec("INSERT INTO sexton.schedules VALUES ($1, 'main', now() - interval '3 years')", LooseForeignKeys)
	b.db.Exec(`
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no commit'; END $$;
		CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON sexton.river_job DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
			WHEN (NEW.metadata ? 'periodic') EXECUTE FUNCTION refuse();`)
	leader := startClient(t, b, "a")
	pgtest.WaitFor(t, "the commit to fail", func(context.Context) (bool, error) {
		return strings.Contains(b.log.String(), "Error committing transaction"), nil
	})
	require.Zero(t, pgtest.Scalar[int64](t, b.db.Database, periodicJobs))
	require.Equal(t, [][]string{{"t"}},
		b.db.Rows("SELECT last_tick < now() - interval '2 years' FROM sexton.schedules"), "the tick is kept")
	b.db.Exec("DROP FUNCTION refuse CASCADE")
	require.NoError(t, leader.Stop(t.Context()))
	startClient(t, b, "b")
	pgtest.WaitFor(t, "the tick's job", func(context.Context) (bool, error) {
		return pgtest.Scalar[int64](t, b.db.Database, periodicJobs) == 1, nil
	})
	require.Equal(t, [][]string{{"t"}},
		b.db.Rows("SELECT last_tick = date_trunc('year', now(), 'UTC') FROM sexton.schedules"))
}

// If an application has enqueued the job of a schedule in an open transaction, the tick
// inserts a second job, which does the work.
func TestOpenEnqueueDoesNotBlockTheTick(t *testing.T) {
	t.Parallel()
	b := setup(t, "SEXTON_LOOSE_FOREIGN_KEYS__SCHEDULE=0 0 1 1 *")
	b.db.Exec("INSERT INTO sexton.schedules VALUES ($1, 'main', now() - interval '3 years')", LooseForeignKeys)
	tx := pgtest.Begin(t, b.db.Pool())
	application := pgtest.Must(NewClient(b.deps, "application"))(t)
	pgtest.Must(application.InsertTx(t.Context(), tx, LooseForeignKeysCleanupArgs{Database: "main"}, nil))(t)
	startClient(t, b, "a")
	pgtest.WaitFor(t, "the run of the tick", func(context.Context) (bool, error) {
		return len(b.db.Rows("SELECT FROM sexton.runs WHERE outcome = 'done'")) == 1, nil
	})
	require.Equal(t, [][]string{{"t"}},
		b.db.Rows("SELECT last_tick > now() - interval '2 years' FROM sexton.schedules"))
}

// Two ticks fall due together. The job of one tick already exists and is not inserted
// twice. An open transaction blocks the job of the other tick, which is inserted as a
// second job.
func TestBlockedTickInsertsASecondJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	on := &driver{Driver: riverpgxv5.New(b.db.Connected.Pool), jobs: b.db.Connected, ticker: &ticker{}}
	insert := func(kinds ...string) {
		params := &riverdriver.JobInsertFastManyParams{Schema: "sexton"}
		for _, kind := range kinds {
			params.Jobs = append(params.Jobs, &riverdriver.JobInsertFastParams{
				EncodedArgs: []byte(`{}`), Kind: kind, MaxAttempts: 1, Priority: 1, Queue: kind,
				State: rivertype.JobStateAvailable, Tags: []string{},
				UniqueKey: uniqueKey(kind, []byte(`{}`)), UniqueStates: 0b11110001,
			})
		}
		tx := pgtest.Must(on.GetExecutor().Begin(t.Context()))(t)
		require.Len(t, pgtest.Must(tx.JobInsertFastMany(t.Context(), params))(t), len(kinds))
		require.NoError(t, tx.Commit(t.Context()))
	}
	insert("existing")
	open := pgtest.Must(b.db.Pool().Begin(t.Context()))(t)
	pgtest.Exec(t, open, `INSERT INTO sexton.river_job (kind, args, queue, max_attempts, unique_key, unique_states)
		VALUES ('blocked', '{}', 'blocked', 1, $1, B'11110001')`, uniqueKey("blocked", []byte(`{}`)))
	insert("blocked", "existing")
	require.NoError(t, open.Rollback(t.Context()))
	require.Equal(t, [][]string{{"blocked", "1"}, {"existing", "1"}},
		b.db.Rows("SELECT kind, count(*) FROM sexton.river_job GROUP BY kind ORDER BY kind"))
}

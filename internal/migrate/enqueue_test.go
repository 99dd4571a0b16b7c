package migrate_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// jobsDatabase returns a database with River, enqueue and three kinds.
func jobsDatabase(t *testing.T) *pgtest.Database {
	return pgtest.FromTemplate(t, "jobs", func(ctx context.Context, url string) error {
		conn, err := pgx.ParseConfig(url)
		if err != nil {
			return err
		}
		_, err = migrate.Up(ctx, slog.New(slog.DiscardHandler), migrate.Database{
			Name: "main", Conn: conn, TrackedSchema: "public", Jobs: true,
			Kinds: []migrate.Kind{
				{
					Kind: "sweep", Queue: "sweeps", MaxAttempts: 1, Cron: true,
					Args: map[string]string{"database": migrate.Text}, Defaults: map[string]any{"database": "main"},
					Databases: []string{"main", "ci"},
				},
				{
					Kind: "remove", Queue: "removals", MaxAttempts: 25, Defaults: map[string]any{"force": false},
					Args: map[string]string{
						"user_id": migrate.Bigint, "reason": migrate.Text,
						"force": migrate.Boolean,
					},
				},
				{Kind: "tidy", Queue: "tidy", MaxAttempts: 3},
			},
		})
		return err
	})
}

// jobs returns the id, the state and the scheduled time of all jobs. The time is in hours
// from now.
func jobs(d *pgtest.Database) [][]string {
	return d.Rows(`
		SELECT id, state, round(extract(epoch FROM scheduled_at - now()) / 3600)
		FROM sexton.river_job ORDER BY id`)
}

func enqueue(t *testing.T, d *pgtest.Database, call string, args ...any) int64 {
	return pgtest.Scalar[int64](t, d, "SELECT sexton.enqueue("+call+")", args...)
}

func TestEnqueueInsertsTheRowsOfRiver(t *testing.T) {
	t.Parallel()
	d := jobsDatabase(t)
	enqueue(t, d, "'tidy'")
	enqueue(t, d, "'sweep'")
	enqueue(t, d, `'remove', '{"reason": "left", "user_id": 7}', now() + interval '2 hours'`)
	require.Equal(t, [][]string{
		{"tidy", "tidy", "{}", "available", "0", "3", "1", "{}", "{}", "11110001", "t"},
		{"sweep", "sweeps", `{"database": "main"}`, "available", "0", "1", "1", "{}", "{}", "11110001", "t"},
		{
			"remove", "removals", `{"force": false, "reason": "left", "user_id": 7}`, "scheduled", "0", "25", "1", "{}",
			"{}", "11110001", "f",
		},
	}, d.Rows(`
		SELECT kind, queue, args, state, attempt, max_attempts, priority, metadata, tags, unique_states, scheduled_at <= now()
		FROM sexton.river_job ORDER BY id`))
}

func TestEnqueueRefusesInvalidArguments(t *testing.T) {
	t.Parallel()
	d := jobsDatabase(t)
	removal := `Arguments: force boolean (default false), reason text, user_id bigint.`
	tests := map[string]struct{ call, message, hint string }{
		"unknown kind": {`'sweeep'`, `enqueue: there is no kind 'sweeep'`, `Kinds: remove, sweep, tidy.`},
		"no kind":      {`NULL`, `enqueue: there is no kind NULL`, `Kinds: remove, sweep, tidy.`},
		"surplus": {
			`'sweep', '{"datenbank": "main"}'`, `enqueue sweep: there is no argument "datenbank"`,
			`Arguments: database text (default "main").`,
		},
		"argument for a kind without arguments": {
			`'tidy', '{"a": null}'`, `enqueue tidy: there is no argument "a"`,
			`This kind has no arguments.`,
		},
		"missing": {`'remove', '{"reason": "x"}'`, `enqueue remove: argument "user_id" is missing`, removal},
		"several": {
			`'remove', '{"User": 1, "force": "yes"}'`,
			`enqueue remove: there is no argument "User"; argument "force" must be boolean, not string; argument "reason" is missing; argument "user_id" is missing`, removal,
		},
		"number for text": {
			`'remove', '{"reason": 5, "user_id": 1}'`,
			`enqueue remove: argument "reason" must be text, not 5`, removal,
		},
		"text for number": {
			`'remove', '{"reason": "x", "user_id": "1"}'`,
			`enqueue remove: argument "user_id" must be bigint, not string`, removal,
		},
		"fraction": {
			`'remove', '{"reason": "x", "user_id": 1.5}'`,
			`enqueue remove: argument "user_id" must be bigint, not 1.5`, removal,
		},
		"too big": {
			`'remove', '{"reason": "x", "user_id": 9223372036854775808}'`,
			`enqueue remove: argument "user_id" must be bigint, not 9223372036854775808`, removal,
		},
		"far too big": {
			`'remove', '{"reason": "x", "user_id": 1e1000}'`,
			`enqueue remove: argument "user_id" must be bigint, not 1000000000000000000000000000000000000000`, removal,
		},
		"null": {
			`'remove', '{"reason": null, "user_id": 1}'`,
			`enqueue remove: argument "reason" must be text, not null`, removal,
		},
		"null for a default": {
			`'remove', '{"reason": "x", "user_id": 1, "force": null}'`,
			`enqueue remove: argument "force" must be boolean, not null`, removal,
		},
		"object": {
			`'remove', '{"reason": {}, "user_id": 1}'`,
			`enqueue remove: argument "reason" must be text, not object`, removal,
		},
		"an array": {
			`'sweep', '[]'`, `enqueue sweep: the arguments must be a JSON object, not array`,
			`Arguments: database text (default "main").`,
		},
		"a string": {
			`'tidy', '"x"'`, `enqueue tidy: the arguments must be a JSON object, not string`,
			`This kind has no arguments.`,
		},
		"no arguments": {
			`'tidy', NULL`, `enqueue tidy: the arguments must be a JSON object, not NULL`,
			`This kind has no arguments.`,
		},
		"a time for cron": {
			`'sweep', run_at => now()`,
			`enqueue sweep: this kind runs on a schedule and accepts no run_at`, `Omit run_at to run it now.`,
		},
		"unknown database": {
			`'sweep', '{"database": "c\u0069\""}'`, `enqueue sweep: there is no database "ci""`,
			`Databases: main, ci. After a change of the configuration run "sexton migrate up".`,
		},
		"no database": {
			`'sweep', '{"database": ""}'`, `enqueue sweep: there is no database ""`,
			`Databases: main, ci. After a change of the configuration run "sexton migrate up".`,
		},
		"never": {
			`'tidy', run_at => 'infinity'`,
			`enqueue tidy: run_at must be before the year 10000, but is infinity`,
			`Omit run_at to run it now.`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := d.Pool().Exec(t.Context(), "SELECT sexton.enqueue("+test.call+")")
			refusal := requireState(t, err, "22023")
			require.Equal(t, test.message, refusal.Message)
			require.Equal(t, test.hint, refusal.Hint)
		})
	}
	require.Empty(t, jobs(d))

	d.Exec("DELETE FROM sexton.job_kinds")
	_, err := d.Pool().Exec(t.Context(), "SELECT sexton.enqueue('tidy')")
	require.Equal(t, `There are no kinds; run "sexton migrate up".`, requireState(t, err, "22023").Hint)
}

func requireState(t *testing.T, err error, state string) *pgconn.PgError {
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, state, pgErr.Code, pgErr.Message)
	return pgErr
}

func TestEnqueueKeepsTheEarliestTime(t *testing.T) {
	t.Parallel()
	const hours = "'tidy', run_at => now() + interval '1 hour' * $1::int"
	tests := map[string]struct {
		// given is the SET clause of an UPDATE that changes the job, which is scheduled
		// in 5 hours.
		given string
		call  string
		args  []any
		// want has the job's state, and the hours from now until its scheduled time.
		want []string
	}{
		"later":       {"", hours, []any{9}, []string{"scheduled", "5"}},
		"earlier":     {"", hours, []any{2}, []string{"scheduled", "2"}},
		"in the past": {"", hours, []any{-2}, []string{"available", "0"}},
		"long ago":    {"", "'tidy', run_at => '-infinity'", nil, []string{"available", "0"}},
		"now":         {"", "'tidy'", nil, []string{"available", "0"}},
		"due, not yet fetchable": {
			"scheduled_at = now() - interval '3 hours'", "'tidy'", nil,
			[]string{"available", "-3"},
		},
		"retried, later":   {"state = 'retryable', attempt = 1", hours, []any{9}, []string{"retryable", "5"}},
		"retried, earlier": {"state = 'retryable', attempt = 1", hours, []any{2}, []string{"retryable", "2"}},
		"retried, now":     {"state = 'retryable', attempt = 1", "'tidy'", nil, []string{"available", "0"}},
		"available, later": {
			"state = 'available', scheduled_at = now()", hours,
			[]any{2},
			[]string{"available", "0"},
		},
		"running, now": {
			"state = 'running', scheduled_at = now() - interval '3 hours'", "'tidy'", nil,
			[]string{"running", "-3"},
		},
		"pending, now": {"state = 'pending'", "'tidy'", nil, []string{"pending", "5"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := jobsDatabase(t)
			id := enqueue(t, d, hours, 5)
			if test.given != "" {
				d.Exec("UPDATE sexton.river_job SET " + test.given)
			}
			require.Equal(t, id, enqueue(t, d, test.call, test.args...), "the call returns the same job")
			got := jobs(d)
			require.Len(t, got, 1)
			require.Equal(t, test.want, got[0][1:])
		})
	}
	for _, state := range []string{"completed", "cancelled", "discarded"} {
		t.Run(state, func(t *testing.T) {
			t.Parallel()
			d := jobsDatabase(t)
			id := enqueue(t, d, "'tidy'")
			d.Exec("UPDATE sexton.river_job SET finalized_at = now(), state = '" + state + "'")
			require.NotEqual(t, id, enqueue(t, d, "'tidy'"), "an ended job does not prevent a new job")
			require.Len(t, jobs(d), 2)
		})
	}
}

// notifications returns the payloads of notifications on a channel since the last call.
func notifications(t *testing.T, listener *pgx.Conn, channel string) []string {
	// A connection receives its own notification after all notifications that were
	// committed before.
	const mark = "end of notifications"
	pgtest.Exec(t, listener, "SELECT pg_notify($1, $2)", channel, mark)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	payloads := []string{}
	for {
		n := pgtest.Must(listener.WaitForNotification(ctx))(t)
		if n.Payload == mark {
			return payloads
		}
		payloads = append(payloads, n.Payload)
	}
}

func TestEnqueueNotifiesRiver(t *testing.T) {
	t.Parallel()
	d := jobsDatabase(t)
	listener := pgtest.Connect(t, d.URL)
	pgtest.Exec(t, listener, `LISTEN "sexton.river_insert"`)
	sent := func(statement string) []string {
		d.Exec(statement)
		return notifications(t, listener, "sexton.river_insert")
	}
	removals := []string{`{"queue": "removals"}`}

	require.Equal(t, removals, sent(`SELECT sexton.enqueue('remove', '{"user_id": 1, "reason": ""}')`))
	require.Empty(t, sent(`SELECT sexton.enqueue('remove', '{"user_id": 1, "reason": ""}')`),
		"the job exists already")
	require.Empty(t,
		sent(`SELECT sexton.enqueue('remove', '{"user_id": 2, "reason": ""}', now() + interval '9 hours')`),
		"the job is not due yet")
	require.Empty(t,
		sent(`SELECT sexton.enqueue('remove', '{"user_id": 2, "reason": ""}', now() + interval '8 hours')`))
	require.Equal(t, removals, sent(`SELECT sexton.enqueue('remove', '{"user_id": 2, "reason": ""}')`),
		"the job becomes due")
	require.Equal(t, removals,
		sent(`SELECT sexton.enqueue('remove', jsonb_build_object('user_id', n, 'reason', '')) FROM generate_series(3, 9) AS n`), "Postgres drops duplicate notifications")
	require.Empty(t, sent(`BEGIN; SET LOCAL sexton.notify = off; SELECT sexton.enqueue('tidy'); COMMIT`))
	require.Empty(t, sent(`BEGIN; SELECT sexton.enqueue('sweep'); ROLLBACK`))
	require.Len(t, jobs(d), 10)
}

func TestEnqueueNeedsNoMoreThanExecute(t *testing.T) {
	t.Parallel()
	d := jobsDatabase(t)
	role := d.CreateRole()
	conn := pgtest.Connect(t, d.AsRole(role))
	d.Exec("GRANT USAGE ON SCHEMA sexton TO " + role)
	_, err := conn.Exec(t.Context(), "SELECT sexton.enqueue('tidy')")
	requireState(t, err, "42501")

	d.Exec("GRANT EXECUTE ON FUNCTION sexton.enqueue TO " + role)
	// Objects and settings of the session do not change the result.
	pgtest.Exec(t, conn, `
		CREATE TEMP TABLE river_job (id int);
		CREATE TEMP TABLE job_kinds (kind text);
		CREATE FUNCTION pg_temp.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT NULL::bytea';
		SET search_path = pg_temp, public;
		SET standard_conforming_strings = off;
		SET quote_all_identifiers = on;
		SET DateStyle = 'SQL, DMY';
		SELECT sexton.enqueue('remove', '{"user_id": 1, "reason": "<ü>"}', now() + interval '1 hour');
		SELECT sexton.enqueue('remove', '{"user_id": 1, "reason": "<ü>"}')`)
	enqueue(t, d, `'remove', '{"reason": "<ü>", "user_id": 1}'`)
	require.Equal(t, [][]string{{"available", "0"}}, [][]string{jobs(d)[0][1:]})
	require.Len(t, jobs(d), 1)
}

// childDatabase returns a database with one kind, whose jobs are inserted by enqueue_new.
func childDatabase(t *testing.T) *pgtest.Database {
	d := pgtest.New(t)
	db := everything(t, d)
	db.Kinds = []migrate.Kind{{
		Kind: "child", Queue: "child", Args: map[string]string{"user_id": migrate.Bigint},
		MaxAttempts: 25,
	}}
	up(t, db)
	return d
}

const (
	newJob   = `SELECT sexton.enqueue_new('child', '{"user_id": 7}')`
	jobWaits = `SELECT sexton.job_waits('child', '{"user_id":7}')`
)

func TestEnqueueNewReportsWhetherTheJobIsNew(t *testing.T) {
	t.Parallel()
	d := childDatabase(t)
	require.False(t, pgtest.Scalar[bool](t, d, jobWaits))
	first := pgtest.Scalar[*int64](t, d, newJob)
	require.NotNil(t, first)
	require.True(t, pgtest.Scalar[bool](t, d, jobWaits))
	require.Nil(t, pgtest.Scalar[*int64](t, d, newJob), "an equal job waits")
	require.Equal(t, *first, pgtest.Scalar[int64](t, d, `SELECT sexton.enqueue('child', '{"user_id": 7}')`),
		"enqueue and enqueue_new detect each other's jobs")
	require.NotNil(t, pgtest.Scalar[*int64](t, d, `SELECT sexton.enqueue_new('child', '{"user_id": 8}')`))

	for _, state := range []string{"running", "retryable", "scheduled", "pending"} {
		d.Exec("UPDATE sexton.river_job SET state = $1::text::sexton.river_job_state, scheduled_at = now() WHERE id = $2", state, *first)
		require.Nil(t, pgtest.Scalar[*int64](t, d, newJob), state)
		require.True(t, pgtest.Scalar[bool](t, d, jobWaits), state)
	}
	for _, state := range []string{"completed", "cancelled", "discarded"} {
		d.Exec("UPDATE sexton.river_job SET state = $1::text::sexton.river_job_state, finalized_at = now() WHERE args @> '{\"user_id\": 7}'", state)
		require.False(t, pgtest.Scalar[bool](t, d, jobWaits), state)
		require.NotNil(t, pgtest.Scalar[*int64](t, d, newJob), state)
	}
}

func TestEnqueueNewKeepsTheTimeOfAnEqualJob(t *testing.T) {
	t.Parallel()
	d := childDatabase(t)
	require.NotNil(t,
		pgtest.Scalar[*int64](t, d, `SELECT sexton.enqueue_new('child', '{"user_id": 7}', '2099-01-01Z')`))
	require.Nil(t, pgtest.Scalar[*int64](t, d, newJob))
	require.Equal(t, [][]string{{"scheduled", "t", "25", "child"}},
		d.Rows("SELECT state, scheduled_at = '2099-01-01Z', max_attempts, queue FROM sexton.river_job"),
		"unlike enqueue, enqueue_new does not change the time")
	d.Exec(`SELECT sexton.enqueue_new('child', '{"user_id": 9}', now() - interval '1 hour')`)
	require.Equal(t, [][]string{{"available"}},
		d.Rows(`SELECT state FROM sexton.river_job WHERE args @> '{"user_id": 9}'`))
}

// enqueue_new waits for a transaction that has inserted an equal job. It inserts a new
// job only if that transaction is rolled back.
func TestEnqueueNewWaitsForAnEqualJob(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"COMMIT", "ROLLBACK"} {
		d := childDatabase(t)
		other := pgtest.Connect(t, d.URL)
		pgtest.Exec(t, other, "BEGIN; "+newJob)
		got := make(chan *int64)
		go func() {
			var id *int64
			if err := d.Pool().QueryRow(t.Context(), newJob).Scan(&id); err != nil {
				t.Error(err)
			}
			got <- id
		}()
		pgtest.Await(t, d.Pool(), "the call to wait for the other transaction",
			"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
		pgtest.Exec(t, other, end)
		require.Equal(t, end == "ROLLBACK", <-got != nil, end)
		require.EqualValues(t, 1, pgtest.Scalar[int64](t, d, "SELECT count(*) FROM sexton.river_job"))
	}
}

// limitedDatabase returns a database with a kind whose argument refers to a row of the
// application, and a kind with any arguments. The returned role may call enqueue.
func limitedDatabase(t *testing.T) (d *pgtest.Database, application string) {
	d = pgtest.New(t)
	application = d.CreateRole()
	d.Exec("CREATE TABLE things (id bigint); INSERT INTO things VALUES (7); GRANT SELECT ON things TO PUBLIC")
	db := everything(t, d)
	db.Kinds = []migrate.Kind{
		{
			Kind: "named", Queue: "named", Args: map[string]string{"thing": migrate.Bigint}, MaxAttempts: 1,
			Row: migrate.Row{Table: "things", Column: "id", Argument: "thing"},
		},
		{Kind: "free", Queue: "free", Args: map[string]string{"text": migrate.Text}, MaxAttempts: 1},
	}
	up(t, db)
	allowCalls(d, application)
	return d, application
}

func TestEnqueueRequiresAnExistingRow(t *testing.T) {
	t.Parallel()
	d, application := limitedDatabase(t)
	require.NoError(t, as(t, d, application, `SELECT sexton.enqueue('named', '{"thing": 7}')`))
	var pgErr *pgconn.PgError
	require.ErrorAs(t, as(t, d, application, `SELECT sexton.enqueue('named', '{"thing": 8}')`), &pgErr)
	require.Equal(t, "22023", pgErr.Code)
	require.Equal(t, "enqueue named: there is no row of things with the id of 8", pgErr.Message)
	// A row that the same transaction has inserted counts.
	d.Exec("GRANT INSERT ON things TO PUBLIC")
	require.NoError(t,
		as(t, d, application,
			`BEGIN; INSERT INTO things VALUES (8); SELECT sexton.enqueue('named', '{"thing": 8}'); COMMIT`))
	require.Len(t, d.Rows("SELECT FROM sexton.river_job"), 2)
}

func TestEnqueueLimitsWaitingJobs(t *testing.T) {
	t.Parallel()
	d, application := limitedDatabase(t)
	d.Exec(`INSERT INTO sexton.river_job (args, kind, max_attempts, queue, state) SELECT '{}', 'free', 1, 'free', 'available' FROM generate_series(1, 9999)`)
	require.NoError(t, as(t, d, application, `SELECT sexton.enqueue('free', '{"text": "one"}')`))
	var pgErr *pgconn.PgError
	require.ErrorAs(t, as(t, d, application, `SELECT sexton.enqueue('free', '{"text": "two"}')`), &pgErr)
	require.Equal(t, "53400", pgErr.Code)
	require.NoError(t, as(t, d, application, `SELECT sexton.enqueue('free', '{"text": "one"}')`), "an equal job is waiting already")
	require.NoError(t, as(t, d, application, `SELECT sexton.enqueue('named', '{"thing": 7}')`),
		"another kind has its own limit")
	d.Exec(`SELECT sexton.enqueue('free', '{"text": "two"}')`) // The limit does not apply to roles that may insert into the table.
	require.EqualValues(t, 10001, pgtest.Scalar[int64](t, d,
		"SELECT count(*) FROM sexton.river_job WHERE kind = 'free'"))
}

package triggers_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

const (
	kind     = "loose_foreign_keys_cleanup"
	addRows  = "INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) SELECT 'x', n FROM generate_series(1, 3) AS n"
	addNoRow = addRows + " WHERE false"
)

func tombstonesWake(kind string) []triggers.Wake {
	return []triggers.Wake{{Schema: "public", Table: "loose_foreign_keys_deleted_records", Kind: kind}}
}

// listening is a database whose tombstones wake a kind, and a connection that listens.
type listening struct {
	*bundle
	listener *pgx.Conn
}

func setupWake(t *testing.T, statements ...string) listening {
	t.Helper()
	b := setup(t, statements...)
	b.cfg.Wake = tombstonesWake(kind)
	b.install()
	return listening{bundle: b, listener: listen(t, b.connect(b.URL))}
}

func listen(t *testing.T, conn *pgx.Conn) *pgx.Conn {
	t.Helper()
	_, err := conn.Exec(t.Context(), "LISTEN "+triggers.WakeChannel)
	require.NoError(t, err)
	return conn
}

// heard returns the payloads sent since it was called last.
func (l listening) heard() []string {
	l.t.Helper()
	return heard(l.t, l.listener)
}

func heard(t *testing.T, listener *pgx.Conn) []string {
	t.Helper()
	// A connection hears its own notification after all that were committed before.
	const mark = "that is all"
	_, err := listener.Exec(t.Context(), "SELECT pg_notify($1, $2)", triggers.WakeChannel, mark)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	payloads := []string{}
	for {
		n, err := listener.WaitForNotification(ctx)
		require.NoError(t, err)
		if n.Payload == mark {
			return payloads
		}
		payloads = append(payloads, n.Payload)
	}
}

// hold takes the awake lock in a session of its own, in shared mode or not.
func (l listening) hold(mode string) *pgx.Conn {
	l.t.Helper()
	k1, k2 := triggers.AwakeKey("sexton", kind)
	conn := l.connect(l.URL)
	_, err := conn.Exec(l.t.Context(), "SELECT pg_advisory_lock"+mode+"($1::int, $2::int)", k1, k2)
	require.NoError(l.t, err)
	return conn
}

func TestAwakeKeysAreFrozen(t *testing.T) {
	t.Parallel()
	k1, k2 := triggers.AwakeKey("sexton", kind)
	require.EqualValues(t, 0x73657874, k1)
	require.EqualValues(t, 1390681421, k2)
	_, other := triggers.AwakeKey("sexton", "group_destroy")
	require.NotEqual(t, k2, other)
	_, other = triggers.AwakeKey("sextonloose", "_foreign_keys_cleanup")
	require.NotEqual(t, k2, other)
}

func TestWakeNotifiesAWorkerThatSleeps(t *testing.T) {
	t.Parallel()
	l := setupWake(t, parents)
	l.Exec(addRows)
	require.Equal(t, []string{kind}, l.heard())

	l.install(id("parents"))
	l.Exec("DELETE FROM parents WHERE id = 1")
	require.Equal(t, []string{kind}, l.heard(), "by the trigger that writes the tombstone")

	app := l.application("parents")
	_, err := app.Exec(t.Context(), "DELETE FROM parents WHERE id = 2")
	require.NoError(t, err)
	require.Equal(t, []string{kind}, l.heard(), "by a role without rights")

	_, err = app.Exec(t.Context(), "DELETE FROM parents WHERE id = -1")
	require.NoError(t, err)
	l.Exec(addNoRow)
	l.Exec("UPDATE loose_foreign_keys_deleted_records SET cleanup_attempts = 1")
	l.Exec("DELETE FROM loose_foreign_keys_deleted_records")
	require.Empty(t, l.heard(), "nothing came in")

	_, err = l.connect(l.URL).Exec(t.Context(), "SET session_replication_role = replica; "+addRows)
	require.NoError(t, err)
	require.Equal(t, []string{kind}, l.heard())
}

func TestWakeLeavesAWorkerThatIsAwake(t *testing.T) {
	t.Parallel()
	l := setupWake(t)
	worker := l.hold("")
	l.Exec(addRows)
	require.Empty(t, l.heard())

	_, err := worker.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	l.Exec(addRows)
	require.Equal(t, []string{kind}, l.heard())

	l.hold("_shared")
	l.Exec(addRows)
	require.Equal(t, []string{kind}, l.heard(), "writers do not silence each other")
}

// The lock is tested once the rows are in: a worker that goes to sleep meanwhile is woken.
func TestWakeTestsTheLockAfterTheRows(t *testing.T) {
	t.Parallel()
	l := setupWake(t)
	worker := l.hold("")
	gate := l.connect(l.URL)
	_, err := gate.Exec(t.Context(), "SELECT pg_advisory_lock(1)")
	require.NoError(t, err)
	writer := l.connect(l.URL)
	ended := make(chan error, 1)
	go func() {
		// The second row waits at the gate.
		_, err := writer.Exec(t.Context(), "INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) "+
			"SELECT CASE WHEN n = 2 THEN (SELECT 'x' FROM pg_advisory_xact_lock(1)) ELSE 'x' END, n FROM generate_series(1, 2) AS n")
		ended <- err
	}()
	pgtest.WaitFor(t, "the writer to stand at the gate", func(ctx context.Context) (waits bool, err error) {
		err = l.Pool().QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)", writer.PgConn().PID()).Scan(&waits)
		return waits, err
	})
	_, err = worker.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	_, err = gate.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
	require.NoError(t, err)
	require.NoError(t, <-ended)
	require.Equal(t, []string{kind}, l.heard())
}

// The lock is tested outside all snapshots.
func TestWakeSeesTheLockAtEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	l := setupWake(t)
	for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		worker := l.hold("")
		writer := l.connect(l.URL)
		_, err := writer.Exec(t.Context(), "BEGIN ISOLATION LEVEL "+level+"; SELECT FROM loose_foreign_keys_deleted_records; "+addRows)
		require.NoError(t, err)
		_, err = worker.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
		require.NoError(t, err)
		_, err = writer.Exec(t.Context(), addRows+"; COMMIT")
		require.NoError(t, err)
		require.Equal(t, []string{kind}, l.heard(), level)
	}
}

func TestWakeGoesWithItsTransaction(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		statements string
		want       []string
	}{
		"rolled back":                {"BEGIN; " + addRows + "; ROLLBACK", []string{}},
		"rolled back to a savepoint": {"BEGIN; SAVEPOINT s; " + addRows + "; ROLLBACK TO s; COMMIT", []string{}},
		"kept beside a savepoint":    {"BEGIN; " + addRows + "; SAVEPOINT s; " + addRows + "; ROLLBACK TO s; COMMIT", []string{kind}},
		"within a savepoint":         {"BEGIN; SAVEPOINT s; " + addRows + "; RELEASE s; COMMIT", []string{kind}},
		"several statements":         {"BEGIN; " + addRows + "; " + addRows + "; " + addRows + "; COMMIT", []string{kind}},
		"several transactions":       {addRows + "; COMMIT; " + addRows, []string{kind, kind}},
		"switched off":               {"BEGIN; SET LOCAL sexton.notify = off; " + addRows + "; COMMIT", []string{}},
		"switched on":                {"BEGIN; SET LOCAL sexton.notify = on; " + addRows + "; COMMIT", []string{kind}},
		"empty setting":              {"SET sexton.notify = off; RESET sexton.notify; " + addRows, []string{kind}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := setupWake(t)
			_, err := l.connect(l.URL).Exec(t.Context(), test.statements)
			require.NoError(t, err)
			require.Equal(t, test.want, l.heard())
		})
	}
}

// A session that kept the lock would silence the wake-ups of every writer as soon as a worker waits for it.
func TestWakeLeaksNoLockWhenCancelled(t *testing.T) {
	t.Parallel()
	l := setupWake(t)
	writer := l.connect(l.URL)
	_, err := writer.Exec(t.Context(), `
		CREATE PROCEDURE pg_temp.write() LANGUAGE plpgsql AS $$
		BEGIN
			LOOP
				INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('x', 1);
			END LOOP;
		END $$`)
	require.NoError(t, err)
	// Each statement runs the trigger over and over until its time is up.
	for i := range 200 {
		// The timeout must end this one statement and none of the test's own.
		_, err := writer.Exec(t.Context(), "BEGIN")
		require.NoError(t, err)
		_, err = writer.Exec(t.Context(), fmt.Sprintf("SET LOCAL statement_timeout = %d", 1+i%5))
		require.NoError(t, err)
		_, err = writer.Exec(t.Context(), "CALL pg_temp.write()")
		requireState(t, err, "57014")
		_, err = writer.Exec(t.Context(), "ROLLBACK")
		require.NoError(t, err)
		require.Zero(t, pgtest.Scalar[int](t, l.Database,
			"SELECT count(*)::int FROM pg_locks WHERE pid = $1 AND locktype = 'advisory'", writer.PgConn().PID()))
	}
	require.Empty(t, l.heard(), "all was rolled back")
	l.hold("")
}

// A server of its own, as a prepared transaction outlives its session.
func TestWakeAndPreparedTransactions(t *testing.T) {
	t.Parallel()
	url := pgtest.Server(t).URL("postgres")
	config, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	_, err = migrate.Up(t.Context(), slog.New(slog.DiscardHandler), migrate.Database{
		Name: "main", Conn: config, JobsSchema: "sexton", TrackedSchema: "public", Components: []string{migrate.LooseForeignKeys},
	})
	require.NoError(t, err)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), url)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		return conn
	}
	writer, worker, listener := connect(), connect(), listen(t, connect())
	cfg := triggers.Config{JobsSchema: "sexton", TrackedSchema: "public", Wake: tombstonesWake(kind)}
	_, err = triggers.Install(t.Context(), writer, cfg, nil)
	require.NoError(t, err)

	prepare := func(statements string) error {
		_, err := writer.Exec(t.Context(), "BEGIN; "+statements+addRows+"; PREPARE TRANSACTION 'p'")
		return err
	}
	refusal := requireState(t, prepare(""), "0A000")
	require.Contains(t, refusal.Message, "NOTIFY", "which is why there is a switch")
	_, err = writer.Exec(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	require.Empty(t, heard(t, listener))

	require.NoError(t, prepare("SET LOCAL sexton.notify = off; "))
	_, err = writer.Exec(t.Context(), "COMMIT PREPARED 'p'")
	require.NoError(t, err)
	require.Empty(t, heard(t, listener))

	k1, k2 := triggers.AwakeKey("sexton", kind)
	_, err = worker.Exec(t.Context(), "SELECT pg_advisory_lock($1::int, $2::int)", k1, k2)
	require.NoError(t, err)
	require.NoError(t, prepare(""), "nothing was notified, since the worker is awake")
	_, err = writer.Exec(t.Context(), "COMMIT PREPARED 'p'")
	require.NoError(t, err)
	var count int
	require.NoError(t, writer.QueryRow(t.Context(), "SELECT count(*) FROM loose_foreign_keys_deleted_records").Scan(&count))
	require.Equal(t, 6, count)
}

func TestWakeIsInstalledComparedAndRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.cfg.Wake = tombstonesWake(kind)
	missing := b.status()
	require.Len(t, missing, 2)
	require.Equal(t, triggers.Finding{
		Trigger: "wake_inserted", Kind: triggers.Missing, Detail: "the function does not exist", Fix: "run `sexton triggers install`",
	}, missing[0])
	require.Equal(t, triggers.Finding{
		Table: "public.loose_foreign_keys_deleted_records", Trigger: triggers.WakeTrigger, Kind: triggers.Missing,
		Detail: "work that comes in waits for the next tick", Fix: "run `sexton triggers install`",
	}, missing[1])

	report := b.install(id("parents"))
	require.Contains(t, report.Functions, "wake_inserted")
	require.Contains(t, report.Triggers, triggers.Change{
		Table: "public.loose_foreign_keys_deleted_records", Trigger: triggers.WakeTrigger, Action: triggers.Created,
	})
	before := b.catalogue()
	require.Equal(t, 3, b.install(id("parents")).Unchanged)
	require.Equal(t, before, b.catalogue())
	require.Empty(t, b.status(id("parents")))
	_, err := triggers.EnsurePartitions(t.Context(), b.conn, b.cfg, []triggers.Parent{id("parents")})
	require.NoError(t, err)

	b.cfg.Wake = nil
	surplus := b.status(id("parents"))
	require.Len(t, surplus, 1)
	require.Equal(t, triggers.Finding{
		Table: "public.loose_foreign_keys_deleted_records", Trigger: triggers.WakeTrigger, Kind: triggers.Surplus,
		Detail: "no enabled job works on this table",
		Fix:    `enable the job, or run: DROP TRIGGER "sexton_wake" ON public.loose_foreign_keys_deleted_records`,
	}, surplus[0])

	removed, err := triggers.Uninstall(t.Context(), b.conn, b.cfg)
	require.NoError(t, err)
	require.Len(t, removed.Triggers, 3)
	require.Contains(t, removed.Functions, "wake_inserted")
	require.Zero(t, pgtest.Scalar[int](t, b.Database, "SELECT count(*)::int FROM pg_trigger WHERE tgname ~ '^sexton_'"))
}

func TestStatusFindsAlteredWakeTriggers(t *testing.T) {
	t.Parallel()
	const table = "loose_foreign_keys_deleted_records"
	tests := map[string]struct {
		damage string
		kind   triggers.Kind
		detail string
	}{
		"disabled": {"ALTER TABLE " + table + " DISABLE TRIGGER sexton_wake", triggers.Disabled, "the trigger is disabled"},
		"plain":    {"ALTER TABLE " + table + " ENABLE TRIGGER sexton_wake", triggers.Plain, "the trigger does not fire under session_replication_role = replica"},
		"another kind": {
			"CREATE OR REPLACE TRIGGER sexton_wake AFTER INSERT ON " + table + " REFERENCING NEW TABLE AS sexton_added FOR EACH STATEMENT " +
				"EXECUTE FUNCTION sexton.wake_inserted('other'); ALTER TABLE " + table + " ENABLE ALWAYS TRIGGER sexton_wake",
			triggers.Altered, "the trigger has other arguments",
		},
		"without condition": {
			"CREATE OR REPLACE TRIGGER sexton_wake AFTER INSERT ON " + table + " REFERENCING NEW TABLE AS sexton_added FOR EACH STATEMENT " +
				"EXECUTE FUNCTION sexton.wake_inserted('" + kind + "'); ALTER TABLE " + table + " ENABLE ALWAYS TRIGGER sexton_wake",
			triggers.Altered, "the trigger has other arguments",
		},
		"another lock": {
			"CREATE OR REPLACE TRIGGER sexton_wake AFTER INSERT ON " + table + " REFERENCING NEW TABLE AS sexton_added FOR EACH STATEMENT " +
				"WHEN (pg_try_advisory_lock_shared(1, 2) AND pg_advisory_unlock_shared(1, 2)) " +
				"EXECUTE FUNCTION sexton.wake_inserted('" + kind + "'); ALTER TABLE " + table + " ENABLE ALWAYS TRIGGER sexton_wake",
			triggers.Altered, "the trigger has other arguments",
		},
		"another event": {
			"DROP TRIGGER sexton_wake ON " + table + "; CREATE TRIGGER sexton_wake AFTER DELETE ON " + table +
				" FOR EACH STATEMENT EXECUTE FUNCTION sexton.wake_inserted()",
			triggers.Altered, "the trigger has another event, other arguments",
		},
		"somebody else's": {
			"CREATE FUNCTION wake_inserted() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; CREATE OR REPLACE TRIGGER sexton_wake AFTER INSERT ON " +
				table + " FOR EACH STATEMENT EXECUTE FUNCTION wake_inserted()",
			triggers.Altered, `a trigger of this name runs "public"."wake_inserted", which is not ours`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := setupWake(t)
			l.Exec(test.damage)
			findings := l.status()
			require.Len(t, findings, 1)
			require.Equal(t, triggers.WakeTrigger, findings[0].Trigger)
			require.Equal(t, test.kind, findings[0].Kind)
			require.Equal(t, test.detail, findings[0].Detail)

			report, err := triggers.Install(t.Context(), l.conn, l.cfg, nil)
			if name == "somebody else's" {
				require.ErrorContains(t, err, "which is not ours")
				return
			}
			require.NoError(t, err)
			require.Len(t, report.Triggers, 1)
			require.Empty(t, l.status())
			l.Exec(addRows)
			require.Equal(t, []string{kind}, l.heard())
		})
	}
}

func TestWakeRefusesWhatItCannotBeOn(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned, "CREATE VIEW a_view AS SELECT 1 AS id")
	before := b.catalogue()
	for _, table := range []string{"missing", "a_view", "events", "events_low"} {
		b.cfg.Wake = append(b.cfg.Wake, triggers.Wake{Schema: "public", Table: table, Kind: kind})
	}
	_, err := triggers.Install(t.Context(), b.conn, b.cfg, nil)
	for _, message := range []string{
		"wake on table public.missing: it does not exist", "wake on table public.a_view: it is no plain table",
		"wake on table public.events: it is no plain table", "wake on table public.events_low: it is no plain table",
	} {
		require.ErrorContains(t, err, message)
	}
	b.cfg.Wake = append(tombstonesWake("a"), tombstonesWake("b")...)
	_, err = triggers.Install(t.Context(), b.conn, b.cfg, nil)
	require.EqualError(t, err, "configure triggers: table public.loose_foreign_keys_deleted_records wakes two kinds")
	b.cfg.Wake = tombstonesWake("")
	_, err = triggers.Install(t.Context(), b.conn, b.cfg, nil)
	require.ErrorContains(t, err, "a name is empty")
	require.Equal(t, before, b.catalogue(), "nothing changed")
}

func TestWakeWithAnyName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	listener := listen(t, b.connect(b.URL))
	names := hostileNames()
	for i, name := range names {
		table := pgx.Identifier{name, names[(i+1)%len(names)]}
		b.Exec("CREATE SCHEMA " + pgx.Identifier{name}.Sanitize())
		b.Exec("CREATE TABLE " + table.Sanitize() + " (id int)")
		b.cfg.Wake = append(b.cfg.Wake, triggers.Wake{Schema: table[0], Table: table[1], Kind: name})
	}
	b.install()
	require.Empty(t, b.status(), "nothing is taken for altered")
	for _, wake := range b.cfg.Wake {
		b.Exec("INSERT INTO " + pgx.Identifier{wake.Schema, wake.Table}.Sanitize() + " VALUES (1)")
		require.Equal(t, []string{wake.Kind}, heard(t, listener))
	}
	_, err := triggers.Uninstall(t.Context(), b.conn, b.cfg)
	require.NoError(t, err)
}

// The application's session may put anything in the way of names that are not qualified.
func TestWakeUnderAttack(t *testing.T) {
	t.Parallel()
	l := setupWake(t, parents)
	l.install(id("parents"))
	app := l.application("parents")
	_, err := app.Exec(t.Context(), `
		CREATE TEMP TABLE sexton_added (id int);
		CREATE FUNCTION pg_temp.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT';
		CREATE FUNCTION pg_temp.pg_try_advisory_lock_shared(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
		SET search_path = pg_temp, public;
		DELETE FROM parents WHERE id = 1`)
	require.NoError(t, err)
	require.Equal(t, []string{kind}, l.heard())
	var refusal *pgconn.PgError
	_, err = app.Exec(t.Context(), "CREATE TRIGGER mine AFTER INSERT ON sexton_added FOR EACH STATEMENT EXECUTE FUNCTION sexton.wake_inserted('x')")
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, "42501", refusal.Code, "nor may it forge wake-ups")
}

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

// listening is a database with wake triggers on the tombstones, and a connection that
// receives the notifications.
type listening struct {
	*bundle
	listener *pgx.Conn
}

func setupWake(t *testing.T, statements ...string) listening {
	b := setup(t, statements...)
	b.cfg.Wake = tombstonesWake(kind)
	b.install()
	return listening{bundle: b, listener: listen(t, b.connect(b.URL))}
}

func listen(t *testing.T, conn *pgx.Conn) *pgx.Conn {
	pgtest.Exec(t, conn, "LISTEN "+triggers.WakeChannel)
	return conn
}

// receive returns the payloads of the notifications since the last call.
func (l listening) receive() []string {
	l.t.Helper()
	return receive(l.t, l.listener)
}

func receive(t *testing.T, listener *pgx.Conn) []string {
	// A connection receives its own notification after all notifications that were
	// committed before.
	const mark = "end of notifications"
	pgtest.Exec(t, listener, "SELECT pg_notify($1, $2)", triggers.WakeChannel, mark)
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

// holdAwakeLock takes the awake lock in a new session. mode is "" for the exclusive lock
// and "_shared" for the shared lock.
func (l listening) holdAwakeLock(mode string) *pgx.Conn {
	l.t.Helper()
	k1, k2 := triggers.AwakeKey(kind)
	conn := l.connect(l.URL)
	pgtest.Exec(l.t, conn, "SELECT pg_advisory_lock"+mode+"($1::int, $2::int)", k1, k2)
	return conn
}

func TestAwakeKeysAreFrozen(t *testing.T) {
	t.Parallel()
	k1, k2 := triggers.AwakeKey(kind)
	require.EqualValues(t, 0x73657874, k1)
	require.EqualValues(t, 1390681421, k2)
	_, other := triggers.AwakeKey("group_destroy")
	require.NotEqual(t, k2, other)
}

func TestWakeNotifiesIdleWorkers(t *testing.T) {
	t.Parallel()
	l := setupWake(t, parents)
	l.Exec(addRows)
	require.Equal(t, []string{kind}, l.receive())

	l.install(id("parents"))
	l.Exec("DELETE FROM parents WHERE id = 1")
	require.Equal(t, []string{kind}, l.receive(), "by the trigger that inserts the tombstone")

	app := l.application("parents")
	pgtest.Exec(t, app, "DELETE FROM parents WHERE id = 2")
	require.Equal(t, []string{kind}, l.receive(), "by a role without privileges")

	pgtest.Exec(t, app, "DELETE FROM parents WHERE id = -1")
	l.Exec(addNoRow)
	l.Exec("UPDATE loose_foreign_keys_deleted_records SET cleanup_attempts = 1")
	l.Exec("DELETE FROM loose_foreign_keys_deleted_records")
	require.Empty(t, l.receive(), "no row was inserted")

	pgtest.Exec(t, l.connect(l.URL), "SET session_replication_role = replica; "+addRows)
	require.Equal(t, []string{kind}, l.receive())
}

func TestWakeDoesNotNotifyAwakeWorkers(t *testing.T) {
	t.Parallel()
	l := setupWake(t)
	worker := l.holdAwakeLock("")
	l.Exec(addRows)
	require.Empty(t, l.receive())

	pgtest.Exec(t, worker, "SELECT pg_advisory_unlock_all()")
	l.Exec(addRows)
	require.Equal(t, []string{kind}, l.receive())

	l.holdAwakeLock("_shared")
	l.Exec(addRows)
	require.Equal(t, []string{kind}, l.receive(), "a writer's shared lock does not suppress notifications")
}

// The trigger tests the awake lock after the rows are inserted. So a worker that releases
// the lock during the INSERT is notified.
func TestWakeTestsTheLockAfterTheRows(t *testing.T) {
	t.Parallel()
	l := setupWake(t)
	worker := l.holdAwakeLock("")
	gate := l.connect(l.URL)
	pgtest.Exec(t, gate, "SELECT pg_advisory_lock(1)")
	writer := l.connect(l.URL)
	ended := make(chan error, 1)
	go func() {
		// The second row waits for the advisory lock of gate.
		_, err := writer.Exec(t.Context(),
			"INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) "+
				"SELECT CASE WHEN n = 2 THEN (SELECT 'x' FROM pg_advisory_xact_lock(1)) ELSE 'x' END, n FROM generate_series(1, 2) AS n")
		ended <- err
	}()
	pgtest.Await(t, l.Pool(), "the writer to wait for the lock of gate",
		"SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND NOT granted)", writer.PgConn().PID())
	pgtest.Exec(t, worker, "SELECT pg_advisory_unlock_all()")
	pgtest.Exec(t, gate, "SELECT pg_advisory_unlock_all()")
	require.NoError(t, <-ended)
	require.Equal(t, []string{kind}, l.receive())
}

// The test of the awake lock does not depend on the snapshot of the transaction.
func TestWakeTestsTheLockAtEveryIsolationLevel(t *testing.T) {
	t.Parallel()
	l := setupWake(t)
	for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		worker := l.holdAwakeLock("")
		writer := l.connect(l.URL)
		pgtest.Exec(t, writer, "BEGIN ISOLATION LEVEL "+level+"; SELECT FROM loose_foreign_keys_deleted_records; "+
			addRows)
		pgtest.Exec(t, worker, "SELECT pg_advisory_unlock_all()")
		pgtest.Exec(t, writer, addRows+"; COMMIT")
		require.Equal(t, []string{kind}, l.receive(), level)
	}
}

func TestWakeIsTransactional(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		statements string
		want       []string
	}{
		"rolled back":                {"BEGIN; " + addRows + "; ROLLBACK", []string{}},
		"rolled back to a savepoint": {"BEGIN; SAVEPOINT s; " + addRows + "; ROLLBACK TO s; COMMIT", []string{}},
		"partly rolled back": {
			"BEGIN; " + addRows + "; SAVEPOINT s; " + addRows + "; ROLLBACK TO s; COMMIT",
			[]string{kind},
		},
		"within a savepoint": {"BEGIN; SAVEPOINT s; " + addRows + "; RELEASE s; COMMIT", []string{kind}},
		"several statements": {
			"BEGIN; " + addRows + "; " + addRows + "; " + addRows + "; COMMIT",
			[]string{kind},
		},
		"several transactions": {addRows + "; COMMIT; " + addRows, []string{kind, kind}},
		"switched off":         {"BEGIN; SET LOCAL sexton.notify = off; " + addRows + "; COMMIT", []string{}},
		"switched on":          {"BEGIN; SET LOCAL sexton.notify = on; " + addRows + "; COMMIT", []string{kind}},
		"empty setting":        {"SET sexton.notify = off; RESET sexton.notify; " + addRows, []string{kind}},
	}
	l := setupWake(t)
	for name, test := range tests {
		t.Log(name)
		pgtest.Exec(t, l.connect(l.URL), test.statements)
		require.Equal(t, test.want, l.receive())
	}
}

// After a statement is canceled, its session does not hold the awake lock. Otherwise no
// writer would notify while a worker waits for that lock.
func TestWakeLeaksNoLockWhenCanceled(t *testing.T) {
	t.Parallel()
	l := setupWake(t)
	writer := l.connect(l.URL)
	pgtest.Exec(t, writer, `
		CREATE PROCEDURE pg_temp.write() LANGUAGE plpgsql AS $$
		BEGIN
			LOOP
				INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('x', 1);
			END LOOP;
		END $$`)
	// Each statement runs the trigger in a loop until its timeout.
	for i := range 200 {
		// The timeout applies only to this statement, and not to other statements of the
		// test.
		pgtest.Exec(t, writer, "BEGIN")
		pgtest.Exec(t, writer, fmt.Sprintf("SET LOCAL statement_timeout = %d", 1+i%5))
		_, err := writer.Exec(t.Context(), "CALL pg_temp.write()")
		requireState(t, err, "57014")
		pgtest.Exec(t, writer, "ROLLBACK")
		require.Zero(t, pgtest.Scalar[int](t, l.Database,
			"SELECT count(*)::int FROM pg_locks WHERE pid = $1 AND locktype = 'advisory'", writer.PgConn().PID()))
	}
	require.Empty(t, l.receive(), "all rows were rolled back")
	l.holdAwakeLock("")
}

// The test uses a server of its own, because a prepared transaction outlives its session.
func TestWakeAndPreparedTransactions(t *testing.T) {
	t.Parallel()
	url := pgtest.Server(t).URL("postgres")
	config := pgtest.Must(pgx.ParseConfig(url))(t)
	pgtest.Must(migrate.Up(t.Context(), slog.New(slog.DiscardHandler), migrate.Database{
		Name: "main", Conn: config, TrackedSchema: "public", Components: []string{migrate.LooseForeignKeys},
	}))(t)
	connect := func() *pgx.Conn {
		return pgtest.Connect(t, url)
	}
	writer, worker, listener := connect(), connect(), listen(t, connect())
	cfg := triggers.Config{TrackedSchema: "public", Wake: tombstonesWake(kind)}
	pgtest.Must(triggers.Install(t.Context(), writer, cfg, nil))(t)

	prepare := func(statements string) error {
		_, err := writer.Exec(t.Context(), "BEGIN; "+statements+addRows+"; PREPARE TRANSACTION 'p'")
		return err
	}
	require.Contains(t, requireState(t, prepare(""), "0A000").Message, "NOTIFY", "a transaction that has notified cannot be prepared")
	pgtest.Exec(t, writer, "ROLLBACK")
	require.Empty(t, receive(t, listener))

	require.NoError(t, prepare("SET LOCAL sexton.notify = off; "))
	pgtest.Exec(t, writer, "COMMIT PREPARED 'p'")
	require.Empty(t, receive(t, listener))

	k1, k2 := triggers.AwakeKey(kind)
	pgtest.Exec(t, worker, "SELECT pg_advisory_lock($1::int, $2::int)", k1, k2)
	require.NoError(t, prepare(""), "no notification, because the worker is awake")
	pgtest.Exec(t, writer, "COMMIT PREPARED 'p'")
	require.Equal(t, 6, pgtest.Scalar[int](t, writer, "SELECT count(*) FROM loose_foreign_keys_deleted_records"))
}

// Temporary objects of the application's session do not affect the wake trigger, and the
// application cannot run its function.
func TestWakeIgnoresShadowedNames(t *testing.T) {
	t.Parallel()
	l := setupWake(t, parents)
	l.install(id("parents"))
	app := l.application("parents")
	pgtest.Exec(t, app, `
		CREATE TEMP TABLE sexton_added (id int);
		CREATE FUNCTION pg_temp.pg_notify(text, text) RETURNS void LANGUAGE sql AS 'SELECT';
		CREATE FUNCTION pg_temp.pg_try_advisory_lock_shared(int, int) RETURNS boolean LANGUAGE sql AS 'SELECT false';
		SET search_path = pg_temp, public;
		DELETE FROM parents WHERE id = 1`)
	require.Equal(t, []string{kind}, l.receive())
	var refusal *pgconn.PgError
	_, err := app.Exec(t.Context(),
		"CREATE TRIGGER mine AFTER INSERT ON sexton_added FOR EACH STATEMENT EXECUTE FUNCTION sexton.wake_worker('x')")
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, "42501", refusal.Code, "the role may not create a trigger with the function")
}

const orphansKind = "import_placeholder_user_cleanup"

// setupOrphans creates a table with a condition: its rows are work if they have no owner.
func setupOrphans(t *testing.T) listening {
	b := setup(t, `CREATE TABLE owners (id bigint PRIMARY KEY);
		CREATE TABLE "De""tails" (id bigint PRIMARY KEY, owner_id bigint REFERENCES owners ON DELETE SET NULL, note text);
		INSERT INTO owners SELECT generate_series(1, 9);
		INSERT INTO "De""tails" SELECT id, id FROM owners`)
	b.cfg.Wake = []triggers.Wake{{
		Schema: "public", Table: `De"tails`, Kind: orphansKind,
		Due: "NEW.owner_id IS NULL AND coalesce(NEW.note, '') <> 'it''s kept'",
	}}
	b.install()
	return listening{bundle: b, listener: listen(t, b.connect(b.URL))}
}

func TestRowsWakeWhenTheyBecomeWork(t *testing.T) {
	t.Parallel()
	l := setupOrphans(t)
	for statement, want := range map[string][]string{
		`DELETE FROM owners WHERE id = 1`:                                              {orphansKind},
		`UPDATE "De""tails" SET owner_id = NULL WHERE id = 2`:                          {orphansKind},
		`UPDATE "De""tails" SET owner_id = NULL WHERE id IN (3, 4)`:                    {orphansKind},
		`INSERT INTO "De""tails" VALUES (10, NULL), (11, NULL)`:                        {orphansKind},
		`UPDATE "De""tails" SET owner_id = NULL, note = 'it''s kept' WHERE id = 5`:     {},
		`UPDATE "De""tails" SET owner_id = 6 WHERE id = 6`:                             {},
		`UPDATE "De""tails" SET note = 'x' WHERE id = 7`:                               {},
		`INSERT INTO "De""tails" VALUES (12, 8)`:                                       {},
		`INSERT INTO "De""tails" SELECT 13, NULL WHERE false`:                          {},
		`SET sexton.notify = off; UPDATE "De""tails" SET owner_id = NULL WHERE id = 9`: {},
	} {
		_, err := l.connect(l.URL).Exec(t.Context(), statement)
		require.NoError(t, err, statement)
		require.Equal(t, want, l.receive(), statement)
	}
	l.Exec(`UPDATE "De""tails" SET note = 'y' WHERE id IN (2, 3)`)
	require.Empty(t, l.receive(), "a row that is work already does not notify again")
	l.Exec(`UPDATE "De""tails" SET note = NULL WHERE id = 5`)
	require.Equal(t, []string{orphansKind}, l.receive(), "every column of the condition counts")

	k1, k2 := triggers.AwakeKey(orphansKind)
	pgtest.Exec(t, l.connect(l.URL), "SELECT pg_advisory_lock($1::int, $2::int)", k1, k2)
	l.Exec(`INSERT INTO "De""tails" VALUES (14, NULL); UPDATE "De""tails" SET owner_id = NULL WHERE id = 12`)
	require.Empty(t, l.receive(), "a worker is awake")
	require.Zero(t,
		pgtest.Scalar[int](t, l.Database,
			`SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`))
}

func TestRowWakeTriggersAreComparedAndRemoved(t *testing.T) {
	t.Parallel()
	l := setupOrphans(t)
	require.Empty(t, l.status())
	before := l.catalog()
	require.Equal(t, 2, l.install().Unchanged)
	require.Equal(t, before, l.catalog())

	l.Exec(`DROP TRIGGER sexton_wake_update ON "De""tails"; ALTER TABLE "De""tails" DISABLE TRIGGER sexton_wake`)
	findings := l.status()
	require.Len(t, findings, 2)
	require.Equal(t, triggers.Disabled, findings[0].Kind)
	require.Equal(t, triggers.Finding{
		Table: `public."De""tails"`, Trigger: triggers.WakeUpdateTrigger, Kind: triggers.Missing,
		Detail: "new work waits for the next tick", Fix: "run `sexton triggers install`",
	}, findings[1])
	require.Len(t, l.install().Triggers, 2)
	require.Empty(t, l.status())

	l.cfg.Wake[0].Due = "NEW.owner_id IS NULL"
	findings = l.status()
	require.Len(t, findings, 2)
	require.Equal(t, "the trigger has other arguments", findings[0].Detail)
	require.Len(t, l.install().Triggers, 2)
	l.Exec(`INSERT INTO "De""tails" VALUES (20, NULL, 'it''s kept')`)
	require.Equal(t, []string{orphansKind}, l.receive(), "by the new condition")

	l.cfg.Wake[0].Due = ""
	require.Equal(t, []triggers.Change{{Table: `public."De""tails"`, Trigger: triggers.WakeTrigger, Action: triggers.Replaced}},
		l.install().Triggers)
	require.Len(t, l.status(), 1, "the trigger for updates is surplus")
	require.Len(t, pgtest.Must(triggers.Uninstall(t.Context(), l.conn, l.cfg))(t).Triggers, 2)
	require.Zero(t, pgtest.Scalar[int](t, l.Database, "SELECT count(*)::int FROM pg_trigger WHERE tgname ~ '^sexton_'"))
}

func TestRowWakesRequireAnOrdinaryTable(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE VIEW seen AS SELECT 1 AS id")
	b.cfg.Wake = []triggers.Wake{
		{Schema: "public", Table: "seen", Kind: "a", Due: "NEW.id = 1"},
		{Schema: "public", Table: "gone", Kind: "b", Due: "NEW.id = 1"},
	}
	_, err := triggers.Install(t.Context(), b.conn, b.cfg, nil)
	require.EqualError(t, err,
		"install triggers: wake on table public.seen: it is not an ordinary table\nwake on table public.gone: it does not exist")
}

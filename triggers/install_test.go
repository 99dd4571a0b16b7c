package triggers_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

func TestInstallChangesNothingTheSecondTime(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	report := b.install(id("parents"), id("parents"))
	require.Len(t, report.Functions, 2)
	require.Equal(t, []triggers.Change{
		{Table: "public.parents", Trigger: triggers.TrackTrigger, Action: triggers.Created},
		{Table: "public.parents", Trigger: triggers.TruncateTrigger, Action: triggers.Created},
	}, report.Triggers)

	// CREATE TRIGGER would wait for this lock, so the second run must not execute it.
	pgtest.Begin(t, b.Pool(), "LOCK TABLE parents IN ROW EXCLUSIVE MODE")
	before := b.catalog()
	b.cfg = withShortLockWaits(b.cfg)
	report = b.install(id("parents"))
	require.Equal(t, 2, report.Unchanged)
	require.Empty(t, report.Functions)
	require.Empty(t, report.Triggers)
	require.Equal(t, before, b.catalog())
}

func TestInstallConcurrently(t *testing.T) {
	t.Parallel()
	b := setup(t, parents, partitioned)
	const installers = 4
	type result struct {
		report triggers.Report
		err    error
	}
	results := make(chan result, installers)
	for range installers {
		conn := b.connect(b.URL)
		go func() {
			report, err := triggers.Install(t.Context(), conn, b.cfg, []triggers.Parent{id("parents"), id("events")})
			results <- result{report, err}
		}()
	}
	var created, unchanged int
	for range installers {
		r := <-results
		require.NoError(t, r.err)
		created += len(r.report.Triggers)
		unchanged += r.report.Unchanged
	}
	require.Equal(t, 12, created)
	require.Equal(t, 12*(installers-1), unchanged)
	require.Empty(t, b.status(id("parents"), id("events")))
}

func TestInstallNamesLockHolders(t *testing.T) {
	t.Parallel()
	b := setup(t, parents, "CREATE TABLE others (id int)")
	holder := b.connect(b.URL)
	pgtest.Exec(t, holder, "SET application_name = 'importer'; BEGIN; LOCK TABLE parents IN ROW EXCLUSIVE MODE")
	held := fmt.Sprintf("pid %d (importer, role %s)", holder.PgConn().PID(),
		pgtest.Scalar[string](t, b.Database, "SELECT current_user::text"))

	b.cfg = withShortLockWaits(b.cfg)
	var reported []string
	b.cfg.Waits = func(lock, holders string) { reported = append(reported, lock+" "+holders) }
	report, err := triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{id("parents"), id("others")})
	require.Equal(t, []string{"table public.parents " + held, "table public.parents " + held}, reported, "after each wait")
	var locked *triggers.LockError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, "public.parents", locked.Table)
	require.Equal(t, held, locked.Holders)
	require.Equal(t, 2, locked.Attempts)
	require.Len(t, report.Triggers, 2, "the other table has its triggers")

	pgtest.Exec(t, holder, "ROLLBACK")
	require.Len(t, b.install(id("parents"), id("others")).Triggers, 2, "the next run finishes the work")
}

// Every statement that locks a table of the application waits for at most 2 s, because
// later writes of the application wait, too.
func TestInstallWaitsTwoSecondsForLocks(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.LogLockTimeouts()
	b.Exec("ALTER DATABASE " + pgx.Identifier{b.Name}.Sanitize() + " SET lock_timeout = '10s'")
	b.conn = b.connect(b.URL)
	b.install(id("parents"))
	require.Equal(t, [][]string{{"ALTER TABLE", "2s"}, {"CREATE TRIGGER", "2s"}},
		b.Rows("SELECT DISTINCT command, value FROM lock_timeouts ORDER BY 1"))
	b.Exec("TRUNCATE lock_timeouts")
	pgtest.Must(triggers.Uninstall(t.Context(), b.conn, b.cfg))(t)
	require.Equal(t, [][]string{{"DROP TRIGGER", "2s"}}, b.Rows("SELECT DISTINCT command, value FROM lock_timeouts"))
}

func TestInstallRetriesUntilTheTableIsUnlocked(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	holder := b.connect(b.URL)
	pgtest.Exec(t, holder, "BEGIN; LOCK TABLE parents IN ROW EXCLUSIVE MODE")
	b.cfg = withShortLockWaits(b.cfg)
	b.cfg.LockAttempts = 100

	failed := make(chan error, 1)
	go func() {
		_, err := triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{id("parents")})
		failed <- err
	}()
	pgtest.Await(t, b.Pool(), "the installer to wait for the table", "SELECT EXISTS (SELECT FROM pg_locks "+
		"WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND relation = 'parents'::regclass AND NOT granted)")
	pgtest.Exec(t, holder, "ROLLBACK")
	require.NoError(t, <-failed)
	require.Empty(t, b.status(id("parents")))
}

func TestInstallAppliesChangesOfTheConfiguration(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE parents (id int, iid int); INSERT INTO parents VALUES (1, 100), (2, 200)")
	b.install(id("parents"))

	b.cfg.Truncate = triggers.Ignore
	require.Equal(t, []triggers.Change{{
		Table: "public.parents", Trigger: triggers.TruncateTrigger,
		Action: triggers.Replaced,
	}}, b.install(id("parents")).Triggers)

	key := triggers.Parent{Schema: "public", Table: "parents", KeyColumns: []string{"iid"}}
	require.Equal(t, []triggers.Change{{
		Table: "public.parents", Trigger: triggers.TrackTrigger,
		Action: triggers.Replaced,
	}}, b.install(key).Triggers)
	b.Exec("DELETE FROM parents WHERE id = 1")
	require.Equal(t, []string{"public.parents 100"}, b.tombstones())

	// After the next installation, deletions are recorded under the new name only.
	b.Exec("ALTER TABLE parents RENAME TO ancestors")
	key.Table = "ancestors"
	require.Equal(t, triggers.Altered, b.status(key)[0].Kind)
	b.install(key)
	b.Exec("DELETE FROM ancestors WHERE id = 2")
	require.Equal(t, []string{"public.ancestors 200", "public.parents 100"}, b.tombstones())

	b.Exec("ALTER TABLE ancestors ALTER iid TYPE text")
	b.install(key)
	b.Exec("INSERT INTO ancestors VALUES (3, 'x'); DELETE FROM ancestors")
	require.Contains(t, b.tombstones(), "public.ancestors x")
}

func TestInstallRefusesParentsThatCannotBeTracked(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned, `
		CREATE TABLE parents (id int, iid int);
		CREATE VIEW a_view AS SELECT 1 AS id;
		CREATE MATERIALIZED VIEW a_matview AS SELECT 1 AS id;
		CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE remote (id int) SERVER s;
		CREATE TABLE mixed (id int) PARTITION BY LIST (id); CREATE FOREIGN TABLE mixed_remote PARTITION OF mixed DEFAULT SERVER s`)
	all := []triggers.Parent{
		id("missing"),
		{Schema: "nowhere", Table: "parents", KeyColumns: []string{"id"}},
		{Schema: "public", Table: "parents", KeyColumns: []string{"nothing"}},
		id("a_view"), id("a_matview"), id("remote"), id("events_low"), id("events_high_11"),
		id("parents"),
		{Schema: "public", Table: "parents", KeyColumns: []string{"iid"}},
		id("mixed"),
	}
	messages := []string{
		`track table "public"."missing": it does not exist`,
		`track table "nowhere"."parents": it does not exist`,
		`track table "public"."parents": it has no column "nothing"`,
		`track table "public"."a_view": it is a view; use a table`,
		`track table "public"."a_matview": it is a view; use a table`,
		`track table "public"."remote": it is a foreign table; track it in the database that owns it`,
		`track table "public"."events_low": it is a partition of public.events; name that table instead`,
		`track table "public"."events_high_11": it is a partition of public.events; name that table instead`,
		`track table public.parents: definitions name two different keys, "id" and "iid"; a tombstone has only one key`,
	}
	before := b.catalog()
	_, err := triggers.Install(t.Context(), b.conn, b.cfg, all)
	for _, message := range messages {
		require.ErrorContains(t, err, message, "all problems are reported together")
	}
	_, err = triggers.Status(t.Context(), b.conn, b.cfg, all)
	require.ErrorContains(t, err, messages[0])
	_, err = triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{id("mixed"), id("events")})
	require.ErrorContains(t, err, "track table public.mixed: its partition public.mixed_remote is a foreign table")
	require.Equal(t, before, b.catalog(), "nothing changed")

	b.cfg.Truncate = "sometimes"
	_, err = triggers.Install(t.Context(), b.conn, b.cfg, nil)
	require.EqualError(t, err, `configure triggers: truncate policy "sometimes" is neither reject nor ignore`)
}

func TestInstallLeavesForeignTriggersAndFunctions(t *testing.T) {
	t.Parallel()

	t.Run("a trigger of another installation", func(t *testing.T) {
		t.Parallel()
		b := setup(t, parents, `
			CREATE SCHEMA other;
			CREATE FUNCTION other.track_a() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			CREATE TRIGGER sexton_track AFTER DELETE ON parents FOR EACH STATEMENT EXECUTE FUNCTION other.track_a()`)
		before := b.catalog()
		_, err := triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{id("parents")})
		require.ErrorContains(t, err,
			`create trigger sexton_track on public.parents: a trigger of this name runs "other"."track_a", which is not a function of Sexton`)
		require.Equal(t, before, b.catalog())
		require.Equal(t, triggers.Altered, b.status(id("parents"))[2].Kind)
		pgtest.Must(triggers.Uninstall(t.Context(), b.conn, b.cfg))(t)
		require.Equal(t, before, b.catalog(), "Uninstall does not drop it")
	})
}

func TestInstallNeedsMigrationsFirst(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	d.Exec(parents)
	conn := pgtest.Connect(t, d.URL)
	cfg := triggers.Config{TrackedSchema: "public"}
	var missing *triggers.NotMigratedError
	_, err := triggers.Install(t.Context(), conn, cfg, []triggers.Parent{id("parents")})
	require.ErrorAs(t, err, &missing)
	_, err = triggers.Status(t.Context(), conn, cfg, []triggers.Parent{id("parents")})
	require.ErrorAs(t, err, &missing)
	require.ErrorContains(t, err, "run `sexton migrate up` first")
	require.Empty(t, pgtest.Must(triggers.Uninstall(t.Context(), conn, cfg))(t).Triggers)
	pgtest.Must(triggers.EnsurePartitions(t.Context(), conn, cfg, []triggers.Parent{id("parents")}))(t)

	b := setup(t, parents, "DROP FUNCTION sexton.is_as_installed")
	_, err = triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{id("parents")})
	require.EqualError(t, err,
		"install triggers: function \"sexton\".is_as_installed does not exist; run `sexton migrate up` first")
}

func TestWakeTriggerIsInstalledComparedAndRemoved(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.cfg.Wake = tombstonesWake(kind)
	missing := b.status()
	require.Len(t, missing, 2)
	require.Equal(t, triggers.Finding{
		Trigger: "wake_worker", Kind: triggers.Missing, Detail: "the function does not exist",
		Fix: "run `sexton triggers install`",
	}, missing[0])
	require.Equal(t, triggers.Finding{
		Table: "public.loose_foreign_keys_deleted_records", Trigger: triggers.WakeTrigger, Kind: triggers.Missing,
		Detail: "new work waits for the next tick", Fix: "run `sexton triggers install`",
	}, missing[1])

	report := b.install(id("parents"))
	require.Contains(t, report.Functions, "wake_worker")
	require.Contains(t, report.Triggers, triggers.Change{
		Table: "public.loose_foreign_keys_deleted_records", Trigger: triggers.WakeTrigger, Action: triggers.Created,
	})
	before := b.catalog()
	require.Equal(t, 3, b.install(id("parents")).Unchanged)
	require.Equal(t, before, b.catalog())
	require.Empty(t, b.status(id("parents")))
	pgtest.Must(triggers.EnsurePartitions(t.Context(), b.conn, b.cfg, []triggers.Parent{id("parents")}))(t)

	b.cfg.Wake = nil
	surplus := b.status(id("parents"))
	require.Len(t, surplus, 1)
	require.Equal(t, triggers.Finding{
		Table: "public.loose_foreign_keys_deleted_records", Trigger: triggers.WakeTrigger, Kind: triggers.Surplus,
		Detail: "no enabled job processes this table",
		Fix:    `enable the job, or run: DROP TRIGGER "sexton_wake" ON public.loose_foreign_keys_deleted_records`,
	}, surplus[0])

	removed := pgtest.Must(triggers.Uninstall(t.Context(), b.conn, b.cfg))(t)
	require.Len(t, removed.Triggers, 3)
	require.Contains(t, removed.Functions, "wake_worker")
	require.Zero(t, pgtest.Scalar[int](t, b.Database, "SELECT count(*)::int FROM pg_trigger WHERE tgname ~ '^sexton_'"))
}

func TestWakeRefusesUnsuitableTables(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned, "CREATE VIEW a_view AS SELECT 1 AS id")
	before := b.catalog()
	for _, table := range []string{"missing", "a_view", "events", "events_low"} {
		b.cfg.Wake = append(b.cfg.Wake, triggers.Wake{Schema: "public", Table: table, Kind: kind})
	}
	_, err := triggers.Install(t.Context(), b.conn, b.cfg, nil)
	for _, message := range []string{
		"wake on table public.missing: it does not exist", "wake on table public.a_view: it is not an ordinary table",
		"wake on table public.events: it is not an ordinary table", "wake on table public.events_low: it is not an ordinary table",
	} {
		require.ErrorContains(t, err, message)
	}
	b.cfg.Wake = append(tombstonesWake("a"), tombstonesWake("b")...)
	_, err = triggers.Install(t.Context(), b.conn, b.cfg, nil)
	require.EqualError(t, err, "configure triggers: table public.loose_foreign_keys_deleted_records wakes two kinds")
	b.cfg.Wake = tombstonesWake("")
	_, err = triggers.Install(t.Context(), b.conn, b.cfg, nil)
	require.ErrorContains(t, err, "a name is empty")
	require.Equal(t, before, b.catalog(), "nothing changed")
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
	require.Empty(t, b.status(), "no finding")
	for _, wake := range b.cfg.Wake {
		b.Exec("INSERT INTO " + pgx.Identifier{wake.Schema, wake.Table}.Sanitize() + " VALUES (1)")
		require.Equal(t, []string{wake.Kind}, receive(t, listener))
	}
	pgtest.Must(triggers.Uninstall(t.Context(), b.conn, b.cfg))(t)
}

// Install drops the functions of dropped tables.
func TestFunctionsOfDroppedTablesAreDropped(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.install(id("parents"))
	for range 2 {
		b.Exec("DROP TABLE parents; CREATE TABLE parents (id bigint PRIMARY KEY)")
		b.install(id("parents"))
	}
	of := "SELECT 'parents'::regclass::oid::text = split_part(name, '_', 3) FROM (%s) AS f (name) WHERE name ~ '^track_[0-9a-f]{12}_'"
	functions := "SELECT proname::text FROM pg_proc WHERE pronamespace = 'sexton'::regnamespace"
	require.Equal(t, [][]string{{"true"}}, b.Rows("SELECT t::text FROM ("+fmt.Sprintf(of, functions)+") AS r (t)"))
	require.Empty(t, b.status(id("parents")))
}

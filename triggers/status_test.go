package triggers_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

func TestStatusFindsDifferencesAndInstallRepairsThem(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		damage string
		want   triggers.Kind
		detail string
	}{
		"dropped":  {"DROP TRIGGER sexton_track ON parents", triggers.Missing, "deletions are not recorded"},
		"disabled": {"ALTER TABLE parents DISABLE TRIGGER sexton_track", triggers.Disabled, "the trigger is disabled"},
		"all disabled, as pg_restore may leave it": {
			"ALTER TABLE parents DISABLE TRIGGER ALL; ALTER TABLE parents ENABLE ALWAYS TRIGGER sexton_truncate",
			triggers.Disabled, "the trigger is disabled",
		},
		"replica only": {
			"ALTER TABLE parents ENABLE REPLICA TRIGGER sexton_track", triggers.Disabled,
			"the trigger fires only under session_replication_role = replica",
		},
		"plain": {
			"ALTER TABLE parents ENABLE TRIGGER sexton_track", triggers.Plain,
			"the trigger does not fire under session_replication_role = replica",
		},
		"other arguments": {
			`DO $$ BEGIN EXECUTE format('CREATE OR REPLACE TRIGGER sexton_track AFTER DELETE ON parents REFERENCING OLD TABLE AS sexton_deleted ` +
				`FOR EACH STATEMENT EXECUTE FUNCTION sexton.%I(''x'')', (SELECT proname FROM pg_proc WHERE proname ~ '^track_[0-9a-f]{12}_')); END $$; ` +
				`ALTER TABLE parents ENABLE ALWAYS TRIGGER sexton_track`,
			triggers.Altered, "the trigger has other arguments",
		},
		"another function": {
			`CREATE OR REPLACE TRIGGER sexton_track AFTER DELETE ON parents REFERENCING OLD TABLE AS sexton_deleted
				FOR EACH STATEMENT EXECUTE FUNCTION sexton.track_truncate('public.parents')`,
			triggers.Altered, "the trigger has another function, other arguments",
		},
		"another event": {
			`DO $$ BEGIN EXECUTE format('CREATE OR REPLACE TRIGGER sexton_track AFTER UPDATE ON parents REFERENCING OLD TABLE AS sexton_deleted ` +
				`FOR EACH STATEMENT EXECUTE FUNCTION sexton.%I(''public.parents'')', (SELECT proname FROM pg_proc WHERE proname ~ '^track_[0-9a-f]{12}_')); END $$`,
			triggers.Altered, "the trigger has another event, other arguments",
		},
	}
	b := setup(t, parents)
	b.install(id("parents"))
	for name, test := range tests {
		t.Log(name)
		b.Exec(test.damage)
		before := b.catalog()
		findings := b.status(id("parents"))
		require.Equal(t, []triggers.Finding{{
			Table: "public.parents", Trigger: triggers.TrackTrigger, Kind: test.want, Detail: test.detail,
			Fix: "run `sexton triggers install`",
		}}, findings)
		require.Equal(t, test.want != triggers.Plain, findings[0].Drift())
		require.Equal(t, before, b.catalog(), "status changes nothing")

		require.Len(t, b.install(id("parents")).Triggers, 1)
		require.Empty(t, b.status(id("parents")))
	}
}

func TestStatusFindsAlteredFunctions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		damage string
		detail string
	}{
		"body": {
			"CREATE OR REPLACE FUNCTION sexton.track_truncate() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN RETURN NULL; END'",
			"the function differs: its body differs",
		},
		"settings": {
			"ALTER FUNCTION sexton.track_truncate() RESET search_path",
			`the function differs: its settings are`,
		},
		"security invoker": {
			"ALTER FUNCTION sexton.track_truncate() SECURITY INVOKER",
			"the function differs: it is not a SECURITY DEFINER trigger function in plpgsql",
		},
		"public": {
			"GRANT EXECUTE ON FUNCTION sexton.track_truncate() TO PUBLIC",
			"the function differs: PUBLIC may execute it",
		},
	}
	b := setup(t, parents)
	b.install(id("parents"))
	for name, test := range tests {
		t.Log(name)
		b.Exec(test.damage)
		findings := b.status(id("parents"))
		require.Len(t, findings, 1)
		require.Equal(t, "track_truncate", findings[0].Trigger)
		require.Equal(t, triggers.Altered, findings[0].Kind)
		require.Contains(t, findings[0].Detail, test.detail)

		report := b.install(id("parents"))
		require.Equal(t, []string{"track_truncate"}, report.Functions)
		require.Empty(t, report.Triggers, "the triggers are unchanged")
		require.Empty(t, b.status(id("parents")))
	}
}

func TestSurplusTriggersAreReportedAndKept(t *testing.T) {
	t.Parallel()
	b := setup(t, parents, partitioned)
	b.install(id("parents"), id("events"))
	b.Exec("ALTER TABLE events DETACH PARTITION events_low")

	surplus := b.install(id("events")).Surplus
	require.Equal(t, surplus, b.status(id("events")))
	places := [][2]string{}
	for _, finding := range surplus {
		if finding.Table == "public.parents" {
			require.Equal(t, triggers.Surplus, finding.Kind)
		} else {
			require.Equal(t, triggers.Swapped, finding.Kind)
		}
		places = append(places, [2]string{finding.Table, finding.Trigger})
	}
	require.Equal(t, [][2]string{
		{"public.events_low", "sexton_track"},
		{"public.events_low", "sexton_truncate"},
		{"public.parents", "sexton_track"},
		{"public.parents", "sexton_truncate"},
	}, places)
	b.Exec("DELETE FROM parents WHERE id = 1")
	require.Equal(t, []string{"public.parents 1"}, b.tombstones(), "the surplus trigger still records")

	// The finding recommends this statement.
	b.Exec("DROP TRIGGER sexton_track ON events_low")
	require.Len(t, b.status(id("events")), 3)
}

func TestUninstallRemovesEverything(t *testing.T) {
	t.Parallel()
	b := setup(t, parents, partitioned, "CREATE TABLE tags (id uuid)", "CREATE SCHEMA far",
		"CREATE TABLE far.away (id int)")
	names := func() [][]string {
		return b.Rows(`
			SELECT 'trigger', tgrelid::regclass || '.' || tgname FROM pg_trigger
			UNION ALL SELECT 'function', oid::regprocedure::text FROM pg_proc WHERE pronamespace <> 'pg_catalog'::regnamespace
			UNION ALL SELECT 'relation', oid::regclass::text FROM pg_class
			ORDER BY 1, 2`)
	}
	before := names()
	b.install(id("parents"), id("events"), id("tags"), triggers.Parent{
		Schema: "far", Table: "away",
		KeyColumns: []string{"id"},
	})
	b.Exec("ALTER TABLE events DETACH PARTITION events_high; DELETE FROM parents WHERE id = 1")
	report := pgtest.Must(triggers.Uninstall(t.Context(), b.conn, b.cfg))(t)
	require.Len(t, report.Triggers, 16, "including the detached partition")
	require.Len(t, report.Functions, 5)
	require.Equal(t, before, names())
	require.Equal(t, []string{"public.parents 1"}, b.tombstones(), "existing tombstones are kept")

	report = pgtest.Must(triggers.Uninstall(t.Context(), b.conn, b.cfg))(t)
	require.Empty(t, report.Triggers)
	require.Empty(t, report.Functions)
}

func TestUninstallKeepsTheFunctionsOfALockedTable(t *testing.T) {
	t.Parallel()
	b := setup(t, parents, "CREATE TABLE others (id int)")
	b.install(id("parents"), id("others"))
	reader := b.connect(b.URL)
	pgtest.Exec(t, reader, "BEGIN; SELECT FROM parents")

	report, err := triggers.Uninstall(t.Context(), b.conn, withShortLockWaits(b.cfg))
	var locked *triggers.LockError
	require.ErrorAs(t, err, &locked)
	require.Contains(t, locked.Holders, fmt.Sprintf("pid %d (", reader.PgConn().PID()),
		"DROP TRIGGER waits for readers")
	require.Len(t, report.Triggers, 2)
	pgtest.Exec(t, reader, "COMMIT; DELETE FROM parents WHERE id = 1")
	require.Equal(t, []string{"public.parents 1"}, b.tombstones(), "a locked table keeps its triggers and functions")
	require.Equal(t, 2, pgtest.Scalar[int](t, b.Database,
		"SELECT count(*)::int FROM pg_trigger WHERE tgname ~ '^sexton_'"))
}

func TestStatusNamesTablesThatWereSwapped(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ given, table, when, old string }{
		"swapped": {
			parents, "parents",
			"ALTER TABLE parents RENAME TO old; CREATE TABLE parents (id bigint PRIMARY KEY)", "public.old",
		},
		"detached": {partitioned, "events", "ALTER TABLE events DETACH PARTITION events_low", "public.events_low"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, test.given)
			b.install(id(test.table))
			b.Exec(test.when)
			b.install(id(test.table))
			found := b.status(id(test.table))
			require.Len(t, found, 2)
			for i, trigger := range []string{triggers.TrackTrigger, triggers.TruncateTrigger} {
				require.Equal(t, triggers.Finding{
					Table: test.old, Trigger: trigger, Kind: triggers.Swapped,
					Detail: "the trigger was created when this table was public." + test.table +
						" or a partition of it; it records deletions for that parent",
					Fix: "run `sexton triggers install` for public." + test.table +
						", and on this table: DROP TRIGGER " + `"` + trigger + `" ON ` + test.old,
				}, found[i])
				require.True(t, found[i].Drift())
			}
		})
	}
}

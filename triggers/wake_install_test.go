package triggers_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

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
	pgtest.Must(triggers.EnsurePartitions(t.Context(), b.conn, b.cfg, []triggers.Parent{id("parents")}))(t)

	b.cfg.Wake = nil
	surplus := b.status(id("parents"))
	require.Len(t, surplus, 1)
	require.Equal(t, triggers.Finding{
		Table: "public.loose_foreign_keys_deleted_records", Trigger: triggers.WakeTrigger, Kind: triggers.Surplus,
		Detail: "no enabled job works on this table",
		Fix:    `enable the job, or run: DROP TRIGGER "sexton_wake" ON public.loose_foreign_keys_deleted_records`,
	}, surplus[0])

	removed := pgtest.Must(triggers.Uninstall(t.Context(), b.conn, b.cfg))(t)
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
	pgtest.Must(triggers.Uninstall(t.Context(), b.conn, b.cfg))(t)
}

package triggers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

const orphansKind = "import_placeholder_user_cleanup"

// setupOrphans is a table whose rows are work once they have lost their owner.
func setupOrphans(t *testing.T) listening {
	t.Helper()
	b := setup(t, `CREATE TABLE owners (id bigint PRIMARY KEY);
		CREATE TABLE "De""tails" (id bigint PRIMARY KEY, owner_id bigint REFERENCES owners ON DELETE SET NULL, note text);
		INSERT INTO owners SELECT generate_series(1, 9);
		INSERT INTO "De""tails" SELECT id, id FROM owners`)
	b.cfg.Wake = []triggers.Wake{{Schema: "public", Table: `De"tails`, Kind: orphansKind, Due: "NEW.owner_id IS NULL AND coalesce(NEW.note, '') <> 'it''s kept'"}}
	b.install()
	return listening{bundle: b, listener: listen(t, b.connect(b.URL))}
}

func TestRowsWakeOnceTheyBecomeWork(t *testing.T) {
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
		require.Equal(t, want, l.heard(), statement)
	}
	l.Exec(`UPDATE "De""tails" SET note = 'y' WHERE id IN (2, 3)`)
	require.Empty(t, l.heard(), "what is work already makes no noise: no worker would sleep over it")
	l.Exec(`UPDATE "De""tails" SET note = NULL WHERE id = 5`)
	require.Equal(t, []string{orphansKind}, l.heard(), "every column of the condition counts")

	k1, k2 := triggers.AwakeKey("sexton", orphansKind)
	pgtest.Exec(t, l.connect(l.URL), "SELECT pg_advisory_lock($1::int, $2::int)", k1, k2)
	l.Exec(`INSERT INTO "De""tails" VALUES (14, NULL); UPDATE "De""tails" SET owner_id = NULL WHERE id = 12`)
	require.Empty(t, l.heard(), "a worker is awake")
	require.Zero(t, pgtest.Scalar[int](t, l.Database, "SELECT count(*)::int FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"))
}

func TestRowWakesAreComparedAndRemoved(t *testing.T) {
	t.Parallel()
	l := setupOrphans(t)
	require.Empty(t, l.status())
	before := l.catalogue()
	require.Equal(t, 2, l.install().Unchanged)
	require.Equal(t, before, l.catalogue())

	l.Exec(`DROP TRIGGER sexton_wake_update ON "De""tails"; ALTER TABLE "De""tails" DISABLE TRIGGER sexton_wake`)
	findings := l.status()
	require.Len(t, findings, 2)
	require.Equal(t, triggers.Disabled, findings[0].Kind)
	require.Equal(t, triggers.Finding{
		Table: `public."De""tails"`, Trigger: triggers.WakeUpdateTrigger, Kind: triggers.Missing,
		Detail: "work that comes in waits for the next tick", Fix: "run `sexton triggers install`",
	}, findings[1])
	require.Len(t, l.install().Triggers, 2)
	require.Empty(t, l.status())

	l.cfg.Wake[0].Due = "NEW.owner_id IS NULL"
	findings = l.status()
	require.Len(t, findings, 2)
	require.Equal(t, "the trigger has other arguments", findings[0].Detail)
	require.Len(t, l.install().Triggers, 2)
	l.Exec(`INSERT INTO "De""tails" VALUES (20, NULL, 'it''s kept')`)
	require.Equal(t, []string{orphansKind}, l.heard(), "by the new condition")

	l.cfg.Wake[0].Due = ""
	require.Contains(t, l.install().Functions, "wake_inserted")
	require.Len(t, l.status(), 1, "what wakes by a change is left over")
	require.Len(t, pgtest.Must(triggers.Uninstall(t.Context(), l.conn, l.cfg))(t).Triggers, 2)
	require.Zero(t, pgtest.Scalar[int](t, l.Database, "SELECT count(*)::int FROM pg_trigger WHERE tgname ~ '^sexton_'"))
}

func TestRowWakesNeedAPlainTable(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE VIEW seen AS SELECT 1 AS id")
	b.cfg.Wake = []triggers.Wake{{Schema: "public", Table: "seen", Kind: "a", Due: "NEW.id = 1"}, {Schema: "public", Table: "gone", Kind: "b", Due: "NEW.id = 1"}}
	_, err := triggers.Install(t.Context(), b.conn, b.cfg, nil)
	require.EqualError(t, err, "install triggers: wake on table public.seen: it is no plain table\nwake on table public.gone: it does not exist")
}

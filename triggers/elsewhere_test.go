package triggers_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

// simulateRestore changes triggers and functions as if a dump had been restored in a
// database in which the tables have other OIDs.
func (b *bundle) simulateRestore() {
	b.t.Helper()
	b.Exec(`DO $$
		DECLARE
			f record;
			number text;
		BEGIN
			FOR f IN SELECT oid, proname::text AS name FROM pg_proc WHERE pronamespace = 'sexton'::regnamespace AND proname ~ '^track_[0-9a-f]{12}_' LOOP
				number := split_part(f.name, '_', 3);
				EXECUTE format('ALTER FUNCTION sexton.%I() RENAME TO %I', f.name, replace(f.name, '_' || number, '_' || number::bigint + 1000000));
				EXECUTE replace(pg_get_functiondef(f.oid), quote_literal(number), quote_literal(number::bigint + 1000000));
			END LOOP;
			FOR f IN SELECT tgrelid::bigint AS relid, pg_get_triggerdef(oid) AS definition FROM pg_trigger WHERE tgname ~ '^sexton_t' LOOP
				EXECUTE replace(replace(f.definition, 'CREATE TRIGGER', 'CREATE OR REPLACE TRIGGER'), '/' || f.relid || '''', '/1''');
			END LOOP;
		END $$`)
}

// functions returns the names of the tracking functions, each with true if a trigger runs
// it.
func (b *bundle) functions() [][]string {
	b.t.Helper()
	return b.Rows(`SELECT p.proname::text, EXISTS (SELECT FROM pg_trigger WHERE tgfoid = p.oid)::text
		FROM pg_proc AS p WHERE p.pronamespace = 'sexton'::regnamespace AND p.proname ~ '^track_[0-9a-f]{12}' ORDER BY 1`)
}

// After a restore and before the next installation, EnsurePartitions adds triggers to new
// partitions and deletions are recorded, although triggers run functions with other names
// than expected.
func TestPartitionsAreTrackedBeforeTheNextInstallation(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned,
		"CREATE TABLE others (key bigint PRIMARY KEY); INSERT INTO others SELECT generate_series(1, 5)")
	b.install(id("events"), pair("others", "key"))
	before := b.functions()
	b.simulateRestore()
	b.Exec("CREATE TABLE events_new PARTITION OF events FOR VALUES FROM (20) TO (40); INSERT INTO events (id) VALUES (21), (22)")
	installed := pgtest.Must(triggers.EnsurePartitions(t.Context(), b.conn, b.cfg,
		[]triggers.Parent{id("events"), pair("others", "key")}))(t)
	require.Equal(t, []string{"public.events_new"}, installed)
	require.Empty(t, pgtest.Must(triggers.OtherKeys(t.Context(), b.conn, b.cfg, []triggers.Parent{id("events")}))(t))
	b.Exec("DELETE FROM events_new WHERE id = 21; DELETE FROM events WHERE id = 22; DELETE FROM events_low WHERE id = 1; DELETE FROM others WHERE key = 1")
	require.Equal(t, []string{"public.events 1", "public.events 21", "public.events 22", "public.others 1"},
		b.tombstones())

	// No definition names the table others any more, but a trigger still runs its
	// function. So Install keeps the function.
	b.install(id("events"))
	require.Len(t, b.functions(), 2)
	require.Empty(t, slices.DeleteFunc(b.functions(), func(f []string) bool { return f[1] == "true" }))
	b.Exec("DELETE FROM others WHERE key = 2")
	require.Contains(t, b.tombstones(), "public.others 2")

	b.install(id("events"), pair("others", "key"))
	require.Equal(t, before, b.functions())
	require.Empty(t, b.status(id("events"), pair("others", "key")))
}

// If a partition is created after a change of its root's key, and before the next
// installation, its deletions do not fail and record the same key as the root.
func TestNewPartitionsOfAChangedKey(t *testing.T) {
	t.Parallel()
	const (
		table = "CREATE TABLE events (id int, code int, part int) PARTITION BY LIST (part)"
		more  = "CREATE TABLE events_new PARTITION OF events DEFAULT; INSERT INTO events VALUES ('1', 2, 3), ('4', 5, 6)"
	)
	t.Run("type", func(t *testing.T) {
		t.Parallel()
		b := setup(t, table)
		b.install(id("events"))
		b.Exec("ALTER TABLE events ALTER id TYPE text")
		b.Exec(more)
		pgtest.Must(triggers.EnsurePartitions(t.Context(), b.conn, b.cfg, []triggers.Parent{id("events")}))(t)
		b.Exec("DELETE FROM events_new WHERE id = '1'; DELETE FROM events")
		require.Equal(t, []string{"public.events 1", "public.events 4"}, b.tombstones())
		b.install(id("events"))
		require.Empty(t, b.status(id("events")))
	})
	t.Run("column", func(t *testing.T) {
		t.Parallel()
		b := setup(t, table)
		b.install(id("events"))
		b.Exec(more)
		_, err := triggers.EnsurePartitions(t.Context(), b.conn, b.cfg, []triggers.Parent{pair("events", "code")})
		require.ErrorContains(t, err,
			"track partition public.events_new: the trigger on public.events records another key")
		require.Zero(t, pgtest.Scalar[int](t, b.Database,
			"SELECT count(*)::int FROM pg_trigger WHERE tgrelid = 'events_new'::regclass"))
	})
}

// A key column with a domain type is recorded by the fast path, before the code that
// reads the catalog.
func TestKeysOfDomainsUseTheFastPath(t *testing.T) {
	t.Parallel()
	b := setup(t, `CREATE DOMAIN number AS bigint; CREATE TABLE numbers (id number PRIMARY KEY); INSERT INTO numbers VALUES (1);
		CREATE DOMAIN word AS text; CREATE TABLE words (id word PRIMARY KEY); INSERT INTO words VALUES ('a')`)
	b.install(id("numbers"), id("words"))
	const afterFastPath = "IF NOT EXISTS (SELECT FROM sexton_deleted)"
	for _, f := range b.Rows("SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname ~ '^track_[0-9a-f]{12}_'") {
		require.Contains(t, f[0], afterFastPath)
		b.Exec(strings.Replace(f[0], afterFastPath, "RAISE EXCEPTION 'the fast path was not used'; "+afterFastPath, 1))
	}
	b.Exec("DELETE FROM numbers; DELETE FROM words")
	require.Equal(t, []string{"public.numbers 1", "public.words a"}, b.tombstones())
}

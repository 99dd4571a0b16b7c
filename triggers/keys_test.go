package triggers_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

func TestOtherKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, `CREATE TABLE plain (id int PRIMARY KEY, code text UNIQUE); CREATE TABLE two (a int, b int, PRIMARY KEY (a, b));
		CREATE TABLE bare (id int PRIMARY KEY);`+partitioned)
	b.install(id("plain"), pair("two", "a", "b"), id("events"))
	parents := []triggers.Parent{id("bare"), id("plain"), pair("two", "a", "b"), id("events"), id("absent")}
	other := func(parents ...triggers.Parent) map[int]triggers.OtherKey {
		return pgtest.Must(triggers.OtherKeys(t.Context(), b.conn, b.cfg, parents))(t)
	}
	require.Empty(t, other(parents...))

	parents[1].KeyColumns, parents[2].KeyColumns = []string{"code"}, []string{"b", "a"}
	require.Equal(t, map[int]triggers.OtherKey{1: {Table: "public.plain"}, 2: {Table: "public.two"}}, other(parents...),
		"another column, and another order")

	// The trigger of one partition records another key.
	function := b.Rows("SELECT tgfoid::regproc FROM pg_trigger WHERE tgrelid = 'two'::regclass AND tgname = 'sexton_track'")[0][0]
	b.Exec("CREATE OR REPLACE TRIGGER sexton_track AFTER DELETE ON events_low REFERENCING OLD TABLE AS sexton_deleted " +
		"FOR EACH STATEMENT EXECUTE FUNCTION " + function + "('public.events')")
	require.Equal(t, map[int]triggers.OtherKey{0: {Table: "public.events_low"}}, other(id("events")))
}

// Install refuses another key while tombstones with the old key are pending, because a
// worker would read the old key as the new key.
func TestKeyDoesNotChangeWhileTombstonesArePending(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE plain (id int PRIMARY KEY, code int UNIQUE); INSERT INTO plain VALUES (1, 2), (2, 1)")
	b.install(id("plain"))
	b.Exec("DELETE FROM plain WHERE id = 1")
	other := id("plain")
	other.KeyColumns = []string{"code"}
	_, err := triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{other})
	require.ErrorContains(t, err,
		"create trigger sexton_track on public.plain: there are pending tombstones with another key than \"code\"")
	b.install(id("plain"))
	b.Exec("DELETE FROM loose_foreign_keys_deleted_records")
	b.install(other)
	b.Exec("DELETE FROM plain")
	require.Equal(t, []string{"public.plain 1"}, b.tombstones(), "the code of the second row")
}

func pair(table string, columns ...string) triggers.Parent {
	return triggers.Parent{Schema: "public", Table: table, KeyColumns: columns}
}

// A composite key is recorded as the text form of an array. The elements of the array are
// the text forms of the values.
func TestCompositeKeysOfEveryType(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, test := range map[string]struct {
		given string
		want  [][]string
	}{
		"integers": {
			"CREATE TABLE p (a int, b bigint); INSERT INTO p VALUES (1, -2)",
			[][]string{{"{1,-2}", "1", "-2"}},
		},
		"nulls": {
			"CREATE TABLE p (a int, b int); INSERT INTO p VALUES (1, NULL), (NULL, 1), (NULL, NULL), (1, 1)",
			[][]string{{"{1,1}", "1", "1"}},
		},
		"uuid and text": {
			"CREATE TABLE p (a uuid, b text); INSERT INTO p VALUES ('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'x y')",
			[][]string{{`{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,"x y"}`, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "x y"}},
		},
		"timestamps and bytes, deleted under other settings": {
			`CREATE TABLE p (a timestamptz, b bytea); INSERT INTO p VALUES ('2026-02-01 00:00+00', '\x5c00');
			SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'German'; SET bytea_output = 'escape'`,
			[][]string{{`{"2026-02-01 00:00:00+00","\\x5c00"}`, "2026-02-01 00:00:00+00", `\x5c00`}},
		},
		"hostile texts": {
			`CREATE TABLE p (a text, b varchar(20)); INSERT INTO p VALUES ('a,b', 'c'), ('a', 'b,c'), ('"', '\'), ('{}', 'NULL'), ('', ' ')`,
			[][]string{
				{`{""," "}`, "", " "},
				{`{"\"","\\"}`, `"`, `\`},
				{`{"a,b",c}`, "a,b", "c"},
				{`{"{}","NULL"}`, "{}", "NULL"},
				{`{a,"b,c"}`, "a", "b,c"},
			},
		},
	} {
		t.Log(name)
		conn := b.connect(b.URL)
		pgtest.Exec(t, conn, test.given)
		b.install(pair("p", "a", "b"))
		require.Empty(t, b.status(pair("p", "a", "b")))
		pgtest.Exec(t, conn, "DELETE FROM p")
		require.Equal(t, test.want, b.Rows(`
			SELECT primary_key_text, (primary_key_text::text[])[1], (primary_key_text::text[])[2]
			FROM loose_foreign_keys_deleted_records
			WHERE fully_qualified_table_name = 'public.p' AND primary_key_value IS NULL
			ORDER BY primary_key_text COLLATE "C"`))
		pgtest.Exec(t, conn, "DROP TABLE p; DELETE FROM loose_foreign_keys_deleted_records")
	}
}

func TestCompositeKeysOfPartitions(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned+"; ALTER TABLE events ADD kind text DEFAULT 'k'")
	events := pair("events", "kind", "id")
	b.install(events)
	b.Exec("CREATE TABLE events_more PARTITION OF events FOR VALUES FROM (100) TO (200); INSERT INTO events VALUES (100)")
	installed := pgtest.Must(triggers.EnsurePartitions(t.Context(), b.conn, b.cfg, []triggers.Parent{events}))(t)
	require.Equal(t, []string{"public.events_more"}, installed)
	b.Exec("DELETE FROM events_low WHERE id = 1; DELETE FROM events_more")
	require.Equal(t, []string{"public.events {k,100}", "public.events {k,1}"}, b.tombstones())
}

func TestStatusDistinguishesKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE p (a int, b int, id int); CREATE TABLE q (a int, b int)")
	require.Len(t, b.install(pair("p", "a", "b"), pair("q", "a", "b")).Functions, 3, "two for keys, one for TRUNCATE")
	require.Contains(t, column(b.Rows("SELECT obj_description(oid, 'pg_proc') FROM pg_proc WHERE proname ~ '^track_'")),
		`Sexton: records deletions by key columns "a", "b" (composite)`)
	require.Empty(t, b.status(pair("p", "a", "b"), pair("q", "a", "b")))
	for _, other := range []triggers.Parent{pair("p", "b", "a"), pair("p", "a"), pair("p", "a", "b", "id")} {
		findings := b.status(other, pair("q", "a", "b"))
		require.Len(t, findings, 2, "the function is missing, the trigger is altered: %+v", findings)
	}
	b.install(pair("p", "b", "a"))
	b.Exec("INSERT INTO p VALUES (1, 2, 3); DELETE FROM p")
	require.Equal(t, []string{"public.p {2,1}"}, b.tombstones())

	_, err := triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{
		pair("p", "a", "b"), pair("p", "a", "b"), pair("p", "b", "a"), pair("q", "a", "c", "d"), pair("q"),
		pair("missing", "a", "b"),
	})
	require.ErrorContains(t, err,
		`track table public.p: definitions name two different keys, ["a" "b"] and ["b" "a"]; a tombstone has only one key`)
	require.ErrorContains(t, err, `track table "public"."q": it has no column "c"`)
	require.ErrorContains(t, err, `track table "public"."q": no key column is given`)
	require.ErrorContains(t, err, `track table "public"."missing": it does not exist`)
}

func TestCompositeKeysWithAnyNames(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE x (id int)")
	names := hostileNames()
	for i, name := range names {
		parent := pair(name, names[(i+1)%len(names)], names[(i+2)%len(names)])
		table, first := pgx.Identifier{"public", name}.Sanitize(), pgx.Identifier{parent.KeyColumns[0]}.Sanitize()
		if name == "x" || strings.EqualFold(name, "loose_foreign_keys_deleted_records") {
			continue
		}
		b.Exec("CREATE TABLE " + table + " (" + first + " int, " + pgx.Identifier{parent.KeyColumns[1]}.Sanitize() +
			" int)")
		b.Exec("INSERT INTO "+table+" VALUES (1, $1), (2, $1)", i)
		b.install(parent)
		b.Exec("DELETE FROM " + table)
		require.Equal(t, 2, pgtest.Scalar[int](t, b.Database, `SELECT count(*)::int FROM loose_foreign_keys_deleted_records
			WHERE fully_qualified_table_name = format('public.%I', $1::text) AND (primary_key_text::text[])[2] = $2::int::text`, name, i), "%+v", parent)
	}
	require.Zero(t, pgtest.Scalar[int](t, b.Database, "SELECT count(*)::int FROM x"), "table x is still there")
}

func hostileNames() []string {
	return []string{
		"MixedCase", "with space", "select", "order", `quo"te`, "apo'strophe", `"; DROP TABLE x; --`,
		"'); DROP TABLE x; --",
		"dots.in.it", `back\slash`, `\000`, "%I %s %1$I %", "$sexton$", "$$", "$sexton_$ $sexton$", "új tábla", "表",
		"new\nline", "-- comment", "/* open",
		"tg_argv", "gone", "sexton_deleted", "key_column", strings.Repeat("x", 63), strings.Repeat("ü", 31),
		strings.Repeat(`"`, 63),
		`"public"`, `"track_function"`, "recorded_name",
	}
}

func TestParentsWithAnyNames(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE x (id int)")
	names := hostileNames()
	var all []triggers.Parent
	for i, name := range names {
		// Schema, table and column get three consecutive names from the list.
		parent := triggers.Parent{
			Schema: names[(i+1)%len(names)], Table: name,
			KeyColumns: []string{names[(i+2)%len(names)]},
		}
		all = append(all, parent)
		b.Exec("CREATE SCHEMA " + pgx.Identifier{parent.Schema}.Sanitize())
		table, key := pgx.Identifier{parent.Schema, parent.Table}.Sanitize(),
			pgx.Identifier{parent.KeyColumns[0]}.Sanitize()
		b.Exec("CREATE TABLE " + table + " (" + key + " bigint)")
		b.Exec("INSERT INTO "+table+" VALUES ($1), ($2)", i, -i-1)
	}
	b.install(all...)
	require.Empty(t, b.status(all...), "no finding")
	require.Empty(t, b.install(all...).Triggers)

	for i, parent := range all {
		table := pgx.Identifier{parent.Schema, parent.Table}.Sanitize()
		b.Exec("DELETE FROM "+table+" WHERE "+pgx.Identifier{parent.KeyColumns[0]}.Sanitize()+" = $1", i)
		b.Exec("DELETE FROM " + table)
		want := pgtest.Scalar[string](t, b.Database, "SELECT format('%I.%I', $1::text, $2::text)", parent.Schema,
			parent.Table)
		got := b.Rows("SELECT fully_qualified_table_name, primary_key_value FROM loose_foreign_keys_deleted_records ORDER BY id DESC LIMIT 2")
		require.Equal(t, want, got[0][0], "%+v", parent)
		require.Equal(t, want, got[1][0], "%+v", parent)
	}
	require.Len(t, b.tombstones(), len(all)*2)
	require.Zero(t, pgtest.Scalar[int](t, b.Database, "SELECT count(*)::int FROM x"), "table x is still there")

	pgtest.Must(triggers.Uninstall(t.Context(), b.conn, b.cfg))(t)
}

func TestTombstonesInSchemasWithAnyNames(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE p (id int); CREATE TABLE q (id text)")
	track := slices.DeleteFunc(b.install(id("p"), id("q")).Functions,
		func(name string) bool { return name == "track_truncate" })
	for i, name := range hostileNames() {
		schema := pgx.Identifier{name}.Sanitize()
		b.Exec("CREATE SCHEMA " + schema + "; GRANT USAGE ON SCHEMA " + schema + " TO PUBLIC")
		b.Exec("ALTER TABLE " + pgx.Identifier{b.cfg.TrackedSchema}.Sanitize() +
			".loose_foreign_keys_deleted_records SET SCHEMA " + schema)
		b.cfg.TrackedSchema = name
		require.Subset(t, b.install(id("p"), id("q")).Functions, track, "every function follows into schema %q", name)
		require.Empty(t, b.status(id("p"), id("q")), name)
		b.Exec("INSERT INTO p VALUES (1), (2); INSERT INTO q VALUES ('a'); DELETE FROM p WHERE id = 1; DELETE FROM q; DELETE FROM p")
		require.Equal(t, 3*(i+1), pgtest.Scalar[int](t, b.Database,
			"SELECT count(*)::int FROM "+schema+".loose_foreign_keys_deleted_records"), name)
	}
}

// Settings of the installer's session do not change the installed functions.
func TestHostileSettingsOfTheInstaller(t *testing.T) {
	t.Parallel()
	b := setup(t, `CREATE TABLE "a\b'c" (id int); INSERT INTO "a\b'c" VALUES (1)`)
	pgtest.Exec(t, b.conn,
		"SET standard_conforming_strings = off; SET quote_all_identifiers = on; SET search_path = ''; "+
			"SET default_transaction_isolation = serializable")
	b.install(id(`a\b'c`))
	b.Exec(`DELETE FROM "a\b'c"`)
	require.Equal(t, []string{`public."a\b'c" 1`}, b.tombstones())
	require.Empty(t, b.status(id(`a\b'c`)))
}

// Install is not limited by the session's statement_timeout. A lock makes a statement of
// Install wait longer than that timeout.
func TestInstallOutlastsTheStatementTimeoutOfTheSession(t *testing.T) {
	t.Parallel()
	const timeout = 200 * time.Millisecond
	b := setup(t, "CREATE TABLE parents (id int)")
	pgtest.Exec(t, b.conn, fmt.Sprintf("SET statement_timeout = %d", timeout.Milliseconds()))
	blocker := pgtest.Begin(t, b.Pool(), "LOCK TABLE parents IN ROW EXCLUSIVE MODE")
	ended := make(chan error, 1)
	go func() {
		_, err := triggers.Install(t.Context(), b.conn, triggers.Config{TrackedSchema: "public"},
			[]triggers.Parent{id("parents")})
		ended <- err
	}()
	pgtest.AwaitLockWait(t, b.Database, blocker.Conn().PgConn().PID(), 2*timeout)
	require.NoError(t, blocker.Rollback(t.Context()))
	require.NoError(t, <-ended)
}

// shifted is SQL that creates tables whose key columns have unusual attribute numbers,
// because of dropped columns and a partition with another order of columns.
const shifted = `
CREATE TABLE plain (gone int, id int PRIMARY KEY, note text); ALTER TABLE plain DROP COLUMN gone;
CREATE TABLE pairs (a int, b text, PRIMARY KEY (a, b));
CREATE TABLE events (id bigint, note text) PARTITION BY RANGE (id);
CREATE TABLE events_low (gone int, note text, id bigint);
ALTER TABLE events_low DROP COLUMN gone;
ALTER TABLE events ATTACH PARTITION events_low FOR VALUES FROM (0) TO (100);
INSERT INTO plain SELECT i, 'x' FROM generate_series(1, 6) AS i;
INSERT INTO pairs SELECT i, 'x' FROM generate_series(1, 6) AS i;
INSERT INTO events SELECT i, 'x' FROM generate_series(1, 6) AS i`

func TestRenamedKeyIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, shifted)
	b.install(id("plain"), pair("pairs", "a", "b"), id("events"))
	b.Exec(`DELETE FROM plain WHERE id = 1; DELETE FROM pairs WHERE a = 1; DELETE FROM events WHERE id = 1`)
	// A new column gets the old name of the key column.
	b.Exec(`ALTER TABLE plain RENAME id TO "Key, 'x'"; ALTER TABLE plain ADD id text DEFAULT 'wrong';
		ALTER TABLE pairs RENAME b TO c; ALTER TABLE events RENAME id TO key`)
	b.Exec(`DELETE FROM plain WHERE "Key, 'x'" = 2; DELETE FROM pairs WHERE a = 2; DELETE FROM events WHERE key = 2; DELETE FROM events_low WHERE key = 3`)

	renamed := []triggers.Parent{pair("plain", "Key, 'x'"), pair("pairs", "a", "c"), pair("events", "key")}
	other := pgtest.Must(triggers.OtherKeys(t.Context(), b.conn, b.cfg, renamed))(t)
	require.Empty(t, other, "renamed columns count as the same columns")
	require.NotEmpty(t, b.status(renamed...), "the functions must be replaced")
	b.install(renamed...)
	require.Empty(t, b.status(renamed...))
	b.Exec(`DELETE FROM plain WHERE "Key, 'x'" = 3; DELETE FROM pairs WHERE a = 3; DELETE FROM events WHERE key = 4`)
	b.Exec(`ALTER TABLE pairs RENAME a TO d; ALTER TABLE events RENAME key TO id; ALTER TABLE plain RENAME "Key, 'x'" TO other;
		DELETE FROM plain WHERE other < 6; DELETE FROM pairs WHERE d < 6; DELETE FROM events WHERE id < 6`)
	b.Exec("DELETE FROM plain; DELETE FROM pairs; DELETE FROM events")
	want := []string{}
	for _, table := range []string{"events ", "pairs {", "plain "} {
		for _, key := range []string{"1", "2", "3", "4", "5", "6"} {
			if table == "pairs {" {
				key += ",x}"
			}
			want = append(want, "public."+table+key)
		}
	}
	require.Equal(t, want, b.tombstones())
}

func TestChangedTypeOfKeyIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE plain (id int PRIMARY KEY); INSERT INTO plain SELECT generate_series(1, 4)")
	forms := func() (integers, texts int) {
		return pgtest.Scalar[int](t, b.Database,
				"SELECT count(primary_key_value)::int FROM loose_foreign_keys_deleted_records"),
			pgtest.Scalar[int](t, b.Database,
				"SELECT count(primary_key_text)::int FROM loose_foreign_keys_deleted_records")
	}
	requireForms := func(integers, texts int) {
		i, s := forms()
		require.Equal(t, [2]int{integers, texts}, [2]int{i, s})
	}
	b.install(id("plain"))
	b.Exec("DELETE FROM plain WHERE id = 1; ALTER TABLE plain ALTER id TYPE numeric; INSERT INTO plain VALUES (5.5); DELETE FROM plain WHERE id IN (2, 5.5)")
	requireForms(1, 2)
	other := pgtest.Must(triggers.OtherKeys(t.Context(), b.conn, b.cfg, []triggers.Parent{id("plain")}))(t)
	require.Equal(t, map[int]triggers.OtherKey{0: {Table: "public.plain", TypeOnly: true}}, other)
	b.install(id("plain"))
	requireForms(1, 2)
	require.Empty(t, b.status(id("plain")))
	b.Exec("ALTER TABLE plain ALTER id TYPE bigint; DELETE FROM plain WHERE id = 3; ALTER TABLE plain ALTER id TYPE text; DELETE FROM plain")
	require.ElementsMatch(t, []string{
		"public.plain 1", "public.plain 2", "public.plain 3", "public.plain 4",
		"public.plain 5.5",
	}, b.tombstones())
}

// If another column gets the name of the key column, Install refuses it as another key,
// unless SameKey states that both have the same values.
func TestSwappedKeyColumns(t *testing.T) {
	t.Parallel()
	b := setup(t,
		"CREATE TABLE plain (id int PRIMARY KEY, big bigint NOT NULL UNIQUE); INSERT INTO plain VALUES (1, 1), (2, 2), (3, 3), (4, 4)")
	b.install(id("plain"))
	b.Exec("ALTER TABLE plain RENAME id TO small; ALTER TABLE plain RENAME big TO id; UPDATE plain SET small = -id; DELETE FROM plain WHERE id = 2")
	other := pgtest.Must(triggers.OtherKeys(t.Context(), b.conn, b.cfg, []triggers.Parent{id("plain")}))(t)
	require.Equal(t, map[int]triggers.OtherKey{0: {Table: "public.plain"}}, other)
	_, err := triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{id("plain")})
	require.ErrorContains(t, err, "--same-key")
	b.cfg.SameKey = true
	b.install(id("plain"))
	b.Exec("DELETE FROM plain WHERE id = 3")
	// The recorded column is dropped, and a new column has its name.
	b.Exec("ALTER TABLE plain RENAME id TO last; ALTER TABLE plain ADD id int; UPDATE plain SET id = 7; ALTER TABLE plain DROP last; DELETE FROM plain WHERE id = 7")
	require.Equal(t, []string{"public.plain -2", "public.plain 3", "public.plain 7", "public.plain 7"}, b.tombstones())
}

// The attribute numbers in a trigger's arguments are ignored if they belong to another
// table. A restored dump has no dropped columns, so the numbers belong to other columns
// there.
func TestAttributeNumbersOfAnotherTableAreIgnored(t *testing.T) {
	t.Parallel()
	b := setup(t, shifted)
	b.install(id("plain"))
	b.Exec(`ALTER TABLE plain RENAME TO before; CREATE TABLE plain (id int PRIMARY KEY, note int); INSERT INTO plain VALUES (1, 9);
		DO $$ BEGIN EXECUTE (SELECT replace(pg_get_triggerdef(oid), 'public.before', 'public.plain') FROM pg_trigger
			WHERE tgrelid = 'before'::regclass AND tgname = 'sexton_track'); END $$;
		DELETE FROM plain`)
	require.Equal(t, []string{"public.plain 1"}, b.tombstones())
	require.Empty(t, pgtest.Must(triggers.OtherKeys(t.Context(), b.conn, b.cfg, []triggers.Parent{id("plain")}))(t))
}

package triggers_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

func pair(table string, columns ...string) triggers.Parent {
	return triggers.Parent{Schema: "public", Table: table, KeyColumns: columns}
}

// The recorded text is read back as an array, whose elements are the values' text forms.
func TestCompositeKeysOfEveryType(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		given string
		want  [][]string
	}{
		"integers": {"CREATE TABLE p (a int, b bigint); INSERT INTO p VALUES (1, -2)", [][]string{{"{1,-2}", "1", "-2"}}},
		"nulls":    {"CREATE TABLE p (a int, b int); INSERT INTO p VALUES (1, NULL), (NULL, 1), (NULL, NULL), (1, 1)", [][]string{{"{1,1}", "1", "1"}}},
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
		for _, how := range []string{"DELETE FROM p", "TRUNCATE p"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.cfg.Truncate = triggers.Capture
				conn := b.connect(b.URL)
				pgtest.Exec(t, conn, test.given)
				b.install(pair("p", "a", "b"))
				require.Empty(t, b.status(pair("p", "a", "b")))
				pgtest.Exec(t, conn, how)
				require.Equal(t, test.want, b.Rows(`
					SELECT primary_key_text, (primary_key_text::text[])[1], (primary_key_text::text[])[2]
					FROM loose_foreign_keys_deleted_records
					WHERE fully_qualified_table_name = 'public.p' AND primary_key_value IS NULL
					ORDER BY primary_key_text COLLATE "C"`))
			})
		}
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

func TestStatusTellsKeysApart(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE p (a int, b int, id int); CREATE TABLE q (a int, b int)")
	require.Len(t, b.install(pair("p", "a", "b"), pair("q", "a", "b")).Functions, 2, "one for keys, one for TRUNCATE")
	require.Contains(t, column(b.Rows("SELECT obj_description(oid, 'pg_proc') FROM pg_proc WHERE proname ~ '^track_'")),
		`Sexton: records deletions by key columns "a", "b" (composite)`)
	require.Empty(t, b.status(pair("p", "a", "b"), pair("q", "a", "b")))
	for _, other := range []triggers.Parent{pair("p", "b", "a"), pair("p", "a"), pair("p", "a", "b", "id")} {
		findings := b.status(other, pair("q", "a", "b"))
		require.Len(t, findings, 3, "the function is missing, both triggers are altered: %+v", findings)
	}
	b.install(pair("p", "b", "a"))
	b.Exec("INSERT INTO p VALUES (1, 2, 3); DELETE FROM p")
	require.Equal(t, []string{"public.p {2,1}"}, b.tombstones())

	_, err := triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{
		pair("p", "a", "b"), pair("p", "a", "b"), pair("p", "b", "a"), pair("q", "a", "c", "d"), pair("q"), pair("missing", "a", "b"),
	})
	require.ErrorContains(t, err, `track table public.p: it has the two key columns ["a" "b"] and ["b" "a"]; a tombstone carries one key`)
	require.ErrorContains(t, err, `track table "public"."q": it has no column "c"`)
	require.ErrorContains(t, err, `track table "public"."q": no key column is given`)
	require.ErrorContains(t, err, `track table "public"."missing": it does not exist`)
}

func TestAnyIdentifiersMakeACompositeKey(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE x (id int)")
	b.cfg.Truncate = triggers.Capture
	names := hostileNames()
	for i, name := range names {
		parent := pair(name, names[(i+1)%len(names)], names[(i+2)%len(names)])
		table, first := pgx.Identifier{"public", name}.Sanitize(), pgx.Identifier{parent.KeyColumns[0]}.Sanitize()
		if name == "x" || strings.EqualFold(name, "loose_foreign_keys_deleted_records") {
			continue
		}
		b.Exec("CREATE TABLE " + table + " (" + first + " int, " + pgx.Identifier{parent.KeyColumns[1]}.Sanitize() + " int)")
		b.Exec("INSERT INTO "+table+" VALUES (1, $1), (2, $1)", i)
		b.install(parent)
		b.Exec("DELETE FROM " + table + " WHERE " + first + " = 1")
		b.Exec("TRUNCATE " + table)
		require.Equal(t, 2, pgtest.Scalar[int](t, b.Database, `SELECT count(*)::int FROM loose_foreign_keys_deleted_records
			WHERE fully_qualified_table_name = format('public.%I', $1::text) AND (primary_key_text::text[])[2] = $2::int::text`, name, i), "%+v", parent)
	}
	require.Zero(t, pgtest.Scalar[int](t, b.Database, "SELECT count(*)::int FROM x"), "table x is still there")
}

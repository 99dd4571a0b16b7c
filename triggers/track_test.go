package triggers_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

const parents = "CREATE TABLE parents (id bigint PRIMARY KEY, name text); INSERT INTO parents SELECT generate_series(1, 5)"

func TestDeletesAreRecorded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		when string
		want []string
	}{
		"delete": {
			"DELETE FROM parents WHERE id < 3",
			[]string{"public.parents 1", "public.parents 2"},
		},
		"delete without rows":     {"DELETE FROM parents WHERE id < 0", []string{}},
		"delete in a CTE":         {"WITH gone AS (DELETE FROM parents WHERE id = 4 RETURNING id) SELECT count(*) FROM gone", []string{"public.parents 4"}},
		"delete rolled back":      {"BEGIN; DELETE FROM parents; ROLLBACK", []string{}},
		"delete to a savepoint":   {"BEGIN; SAVEPOINT s; DELETE FROM parents; ROLLBACK TO s; DELETE FROM parents WHERE id = 1; COMMIT", []string{"public.parents 1"}},
		"update of another value": {"UPDATE parents SET name = 'x'", []string{}},
		"cascade of a native foreign key": {
			"CREATE TABLE owners (id int PRIMARY KEY); INSERT INTO owners VALUES (1), (3); " +
				"ALTER TABLE parents ADD owner int REFERENCES owners ON DELETE CASCADE; " +
				"UPDATE parents SET owner = id WHERE id IN (1, 3); DELETE FROM owners",
			[]string{"public.parents 1", "public.parents 3"},
		},
		"replica role": {
			"SET session_replication_role = replica; DELETE FROM parents WHERE id = 5; RESET session_replication_role",
			[]string{"public.parents 5"},
		},
		"empty search path": {
			"SET search_path = ''; DELETE FROM public.parents WHERE id = 1; RESET search_path",
			[]string{"public.parents 1"},
		},
		"SECURITY DEFINER function": {
			"CREATE FUNCTION wipe() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'DELETE FROM parents WHERE id = 2'; SELECT wipe()",
			[]string{"public.parents 2"},
		},
		"column added later": {
			"ALTER TABLE parents ADD extra int; DELETE FROM parents WHERE id = 1",
			[]string{"public.parents 1"},
		},
	}
	b := setup(t)
	for name, test := range tests {
		t.Log(name)
		b.recreate(parents, id("parents"))
		b.Exec(test.when)
		require.Equal(t, test.want, b.tombstones())
	}
}

func TestMergeIsRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.install(id("parents"))
	merge := "MERGE INTO parents AS p USING (VALUES (1)) AS gone (id) ON p.id = gone.id WHEN MATCHED THEN DELETE"
	switch version := pgtest.Version(t); {
	case version < 15:
		merge = "DELETE FROM parents WHERE id = 1" // Postgres has MERGE since version 15.
	case version >= 17:
		merge += " RETURNING merge_action(), p.id"
	}
	b.Exec(merge)
	require.Equal(t, []string{"public.parents 1"}, b.tombstones())
}

func TestTombstonesAreComplete(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.install(id("parents"))
	b.Exec("DELETE FROM parents WHERE id = 1")
	require.Equal(t, [][]string{{"1", "1", "0", "t", "NULL", "NULL"}}, b.Rows(`
		SELECT partition, status, cleanup_attempts, consume_after <= now(), primary_key_text, last_error
		FROM loose_foreign_keys_deleted_records`))
}

func TestKeysOfEveryType(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		given string
		key   string
		want  []string
		text  bool
	}{
		"smallint": {
			"CREATE TABLE p (id smallint); INSERT INTO p VALUES (-1)", "id",
			[]string{"public.p -1"},
			false,
		},
		"integer": {
			"CREATE TABLE p (id int); INSERT INTO p VALUES (2)", "id",
			[]string{"public.p 2"},
			false,
		},
		"bigint": {
			"CREATE TABLE p (id bigint); INSERT INTO p VALUES (9223372036854775807)", "id",
			[]string{"public.p 9223372036854775807"},
			false,
		},
		"domain over bigint": {"CREATE DOMAIN key1 AS bigint; CREATE DOMAIN key2 AS key1; CREATE TABLE p (id key2); INSERT INTO p VALUES (3)", "id", []string{"public.p 3"}, false},
		"null": {
			"CREATE TABLE p (id int, k int); INSERT INTO p VALUES (1, NULL), (2, 7)", "k",
			[]string{"public.p 7"},
			false,
		},
		"other column": {
			"CREATE TABLE p (id int, project_id int); INSERT INTO p VALUES (1, 70)", "project_id",
			[]string{"public.p 70"},
			false,
		},
		"uuid": {
			"CREATE TABLE p (id uuid); INSERT INTO p VALUES ('A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11')", "id",
			[]string{"public.p a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
			true,
		},
		"text": {
			"CREATE TABLE p (id text); INSERT INTO p VALUES ('1'), (''), (' x')", "id",
			[]string{"public.p ", "public.p  x", "public.p 1"},
			true,
		},
		"enum": {
			"CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE p (id mood); INSERT INTO p VALUES ('sad')", "id",
			[]string{"public.p sad"},
			true,
		},
		"date, deleted under another style": {
			"CREATE TABLE p (id date); INSERT INTO p VALUES ('2026-02-01'); SET DateStyle = 'German'", "id",
			[]string{"public.p 2026-02-01"},
			true,
		},
		"timestamptz, deleted under another zone": {
			"CREATE TABLE p (id timestamptz); INSERT INTO p VALUES ('2026-02-01 00:00+00'); SET TimeZone = 'Asia/Tokyo'", "id",
			[]string{"public.p 2026-02-01 00:00:00+00"},
			true,
		},
		"bytea, deleted under another output": {
			`CREATE TABLE p (id bytea); INSERT INTO p VALUES ('\x5c00'); SET bytea_output = 'escape'`, "id",
			[]string{`public.p \x5c00`},
			true,
		},
	}
	b := setup(t)
	for name, test := range tests {
		t.Log(name)
		b.recreate("")
		conn := b.connect(b.URL)
		pgtest.Exec(t, conn, test.given)
		b.install(triggers.Parent{Schema: "public", Table: "p", KeyColumns: []string{test.key}})
		pgtest.Exec(t, conn, "DELETE FROM p")
		require.Equal(t, test.want, b.tombstones())
		require.Equal(t, test.text, pgtest.Scalar[bool](t, b.Database,
			"SELECT bool_and(primary_key_text IS NOT NULL) FROM loose_foreign_keys_deleted_records"))
	}
}

func TestOneFunctionPerParent(t *testing.T) {
	t.Parallel()
	b := setup(t,
		"CREATE TABLE a (id int); CREATE TABLE b (id bigint); CREATE TABLE c (id uuid); CREATE TABLE d (other int)")
	report := b.install(id("a"), id("b"), id("c"), triggers.Parent{
		Schema: "public", Table: "d",
		KeyColumns: []string{"other"},
	})
	require.Len(t, report.Functions, 5, "four for keys, one for TRUNCATE: %v", report.Functions)
	require.Equal(t, []string{
		`Sexton: records deletions by key column "id" (bigint)`,
		`Sexton: records deletions by key column "id" (bigint)`,
		`Sexton: records deletions by key column "id" (text)`,
		`Sexton: records deletions by key column "other" (bigint)`,
		`Sexton: refuses or ignores TRUNCATE of tracked tables`,
	}, column(b.Rows(`SELECT obj_description(oid, 'pg_proc') FROM pg_proc
		WHERE pronamespace = 'sexton'::regnamespace AND proname ~ '^track_' ORDER BY 1`)))
}

func column(rows [][]string) []string {
	values := make([]string, len(rows))
	for i, row := range rows {
		values[i] = row[0]
	}
	return values
}

// A tombstone has the current name of the table. If the trigger was installed under
// another name, the tombstone has that name, too. That is also true for a session that
// has cached the old name in an earlier DELETE.
func TestTombstonesHaveTheCurrentNameOfTheTable(t *testing.T) {
	t.Parallel()
	const swapped = "ALTER TABLE parents RENAME TO old; CREATE TABLE parents (id bigint)"
	for name, test := range map[string]struct{ given, change, when, want string }{
		"renamed": {
			parents, `ALTER TABLE parents RENAME TO "Old ones"`, `DELETE FROM "Old ones" WHERE id = 1`,
			`public."Old ones" was public.parents`,
		},
		"renamed, and back": {
			parents, "ALTER TABLE parents RENAME TO old; ALTER TABLE old RENAME TO parents",
			"DELETE FROM parents WHERE id = 1", "public.parents was the same",
		},
		"renamed in a transaction that is rolled back": {
			parents, "SELECT 1",
			"BEGIN; ALTER TABLE parents RENAME TO old; DELETE FROM old; ROLLBACK; DELETE FROM parents WHERE id = 1",
			"public.parents was the same",
		},
		"moved": {
			parents, "CREATE SCHEMA attic; ALTER TABLE parents SET SCHEMA attic",
			"DELETE FROM attic.parents WHERE id = 1",
			"attic.parents was public.parents",
		},
		"schema renamed": {
			parents, "ALTER SCHEMA public RENAME TO attic; CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC; " +
				"ALTER TABLE attic.loose_foreign_keys_deleted_records SET SCHEMA public",
			"DELETE FROM attic.parents WHERE id = 1", "attic.parents was public.parents",
		},
		"swapped": {parents, swapped, "DELETE FROM old WHERE id = 1", "public.old was public.parents"},
		"detached": {
			partitioned, "ALTER TABLE events DETACH PARTITION events_low",
			"DELETE FROM events_low WHERE id = 1", "public.events_low was public.events",
		},
		"attached": {
			"CREATE TABLE events (id bigint); INSERT INTO events VALUES (1)",
			"CREATE TABLE whole (id bigint) PARTITION BY RANGE (id); ALTER TABLE whole ATTACH PARTITION events FOR VALUES FROM (0) TO (10)",
			"DELETE FROM events WHERE id = 1", "public.whole was public.events",
		},
		"a renamed root's leaf": {
			partitioned, "ALTER TABLE events RENAME TO log", "DELETE FROM events_high_11",
			"public.log was public.events",
		},
		"swapped, and names quoted": {
			parents, swapped,
			"SET quote_all_identifiers = on; DELETE FROM old WHERE id = 1; RESET quote_all_identifiers",
			"public.old was public.parents",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, test.given)
			table := "parents"
			if test.given != parents {
				table = "events"
			}
			b.install(id(table))
			session := b.connect(b.URL)
			pgtest.Exec(t, session, "BEGIN; DELETE FROM "+table+"; ROLLBACK")
			b.Exec(test.change)
			pgtest.Exec(t, session, test.when)
			require.Equal(t, [][]string{{test.want, "t"}}, b.Rows(`
				SELECT fully_qualified_table_name || ' was ' || coalesce(tracked_as, 'the same'), parent_oid = fully_qualified_table_name::regclass
				FROM loose_foreign_keys_deleted_records`))
		})
	}
}

// If the table has not changed, only the first DELETE of a session calls is_as_installed.
func TestDeletesCheckTheTablesNameOncePerSession(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.install(id("parents"))
	tx := pgtest.Must(b.connect(b.URL).Begin(t.Context()))(t)
	pgtest.Exec(t, tx, "SET track_functions = 'all'")
	for key := range 5 {
		pgtest.Exec(t, tx, "DELETE FROM parents WHERE id = $1", key+1)
	}
	var computed, recorded int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT (SELECT calls FROM pg_stat_xact_user_functions WHERE funcname = 'is_as_installed'),
		(SELECT count(*) FROM loose_foreign_keys_deleted_records)`).Scan(&computed, &recorded))
	require.Equal(t, [2]int{1, 5}, [2]int{computed, recorded})
}

// partitioned creates a table with two levels of partitions. The rows 1 and 2 are in a
// leaf, and the rows 11 and 12 in leaves of a partition.
const partitioned = `
CREATE TABLE events (id bigint, note text) PARTITION BY RANGE (id);
CREATE TABLE events_low PARTITION OF events FOR VALUES FROM (0) TO (10);
CREATE TABLE events_high (note text, id bigint) PARTITION BY RANGE (id);
ALTER TABLE events ATTACH PARTITION events_high FOR VALUES FROM (10) TO (20);
CREATE TABLE events_high_11 PARTITION OF events_high FOR VALUES FROM (10) TO (12);
CREATE TABLE events_high_12 PARTITION OF events_high FOR VALUES FROM (12) TO (20);
INSERT INTO events (id) VALUES (1), (2), (11), (12)`

func TestPartitionsRecordTheirRootOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for statement, want := range map[string][]string{
		"DELETE FROM events": {
			"public.events 1", "public.events 2", "public.events 11",
			"public.events 12",
		},
		"DELETE FROM events_low WHERE id = 1":            {"public.events 1"},
		"DELETE FROM events_high":                        {"public.events 11", "public.events 12"},
		"DELETE FROM events_high_12":                     {"public.events 12"},
		"UPDATE events SET id = 12 WHERE id = 1":         {},
		"ALTER TABLE events DETACH PARTITION events_low": {},
		"SET session_replication_role = replica; DELETE FROM events_high_11; RESET session_replication_role": {"public.events 11"},
	} {
		t.Log(statement)
		require.Len(t, b.recreate(partitioned, id("events")).Triggers, 10, "two on each of the five tables")
		require.Empty(t, b.status(id("events")))
		b.Exec(statement)
		require.Equal(t, want, b.tombstones())
	}
}

func TestEnsurePartitions(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned, parents)
	ensure := func() []string {
		return pgtest.Must(triggers.EnsurePartitions(t.Context(), b.conn, b.cfg,
			[]triggers.Parent{id("events"), id("parents"), id("nowhere")}))(t)
	}
	require.Empty(t, ensure(), "a parent without triggers gets none")
	b.install(id("events"))
	before := b.catalog()
	require.Empty(t, ensure())
	require.Equal(t, before, b.catalog(), "nothing changed")

	b.Exec(`CREATE TABLE events_new (id bigint, note text) PARTITION BY RANGE (id);
		CREATE TABLE events_new_leaf PARTITION OF events_new DEFAULT;
		ALTER TABLE events ATTACH PARTITION events_new FOR VALUES FROM (20) TO (40);
		INSERT INTO events (id) VALUES (21), (22), (23)`)
	require.Len(t, b.status(id("events")), 4)
	require.Equal(t, []string{"public.events_new", "public.events_new_leaf"}, ensure())
	require.Empty(t, b.status(id("events")))
	b.Exec("DELETE FROM events_new_leaf WHERE id = 21; DELETE FROM events_new WHERE id = 22; DELETE FROM events WHERE id = 23")
	require.Equal(t, []string{"public.events 21", "public.events 22", "public.events 23"}, b.tombstones())
}

func TestEnsurePartitionsDoesNotWaitForAnotherInstaller(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	b.install(id("events"))
	b.Exec("CREATE TABLE events_new PARTITION OF events DEFAULT")
	holder := b.connect(b.URL)
	pgtest.Exec(t, holder, "SELECT pg_advisory_lock(x'73657874726967'::bigint)")
	installed, err := triggers.EnsurePartitions(t.Context(), b.conn, b.cfg, []triggers.Parent{id("events")})
	require.ErrorContains(t, err, fmt.Sprintf("held by pid %d (", holder.PgConn().PID()))
	require.Empty(t, installed)
}

// If another session holds the advisory lock, Install reports the holder, and continues
// when the lock is released. Any role may take the lock.
func TestInstallReportsLockHolders(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	holder := b.connect(b.URL)
	pgtest.Exec(t, holder, "SET application_name = 'holder'; SELECT pg_advisory_lock(x'73657874726967'::bigint)")
	other := *b
	// Install uses b.conn at the same time, so the status needs another connection.
	other.conn = b.connect(b.URL)
	reported := make(chan string, 1)
	b.cfg.Waits = func(lock, holders string) { reported <- lock + " " + holders }
	installed := make(chan error, 1)
	go func() {
		_, err := triggers.Install(t.Context(), b.conn, b.cfg, []triggers.Parent{id("events")})
		installed <- err
	}()
	require.Equal(t, fmt.Sprintf("another trigger installation pid %d (holder, role %s)",
		holder.PgConn().PID(), pgtest.Scalar[string](t, b.Database, "SELECT current_user::text")), <-reported)
	require.NotEmpty(t, other.status(id("events")))
	pgtest.Exec(t, holder, "SELECT pg_advisory_unlock_all()")
	require.NoError(t, <-installed)
	require.Empty(t, b.status(id("events")))
}

func TestEnsurePartitionsContinuesAfterALockedPartition(t *testing.T) {
	t.Parallel()
	b := setup(t, partitioned)
	b.install(id("events"))
	b.Exec("CREATE TABLE events_30 PARTITION OF events FOR VALUES FROM (30) TO (31); CREATE TABLE events_40 PARTITION OF events FOR VALUES FROM (40) TO (41)")
	pgtest.Begin(t, b.Pool(), "LOCK TABLE events_30 IN ROW EXCLUSIVE MODE")

	installed, err := triggers.EnsurePartitions(t.Context(), b.conn, withShortLockWaits(b.cfg), []triggers.Parent{id("events")})
	var locked *triggers.LockError
	require.ErrorAs(t, err, &locked)
	require.Equal(t, "public.events_30", locked.Table)
	require.Equal(t, []string{"public.events_40"}, installed)
}

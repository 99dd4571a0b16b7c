package loosefk_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// session is another client of the database, such as an application.
type session struct {
	t    *testing.T
	conn *pgx.Conn
}

func (b bundle) session(t *testing.T, url string) session {
	return session{t, pgtest.Connect(t, url)}
}

// beginSession returns a session with an open transaction that may have read all parents.
func (b bundle) beginSession(t *testing.T) session {
	s := b.session(t, b.URL)
	s.exec("BEGIN")
	s.exec("SELECT count(*) FROM pg_class")
	return s
}

// setupWithOlderTransaction returns an engine that has cleaned up after the deleted
// parents, and a session with an open transaction that began before they were deleted.
func setupWithOlderTransaction(t *testing.T, deleted string) (b bundle, older session) {
	b = setup(t, parentsAndChildren, deleteChildren, "parents")
	older = b.beginSession(t)
	b.Exec("DELETE FROM parents WHERE " + deleted)
	b.run(t)
	return b, older
}

func (s session) exec(sql string) {
	s.t.Helper()
	pgtest.Exec(s.t, s.conn, sql)
}

// uncheckedKeys returns the keys of removed tombstones that have not been rechecked.
func (b bundle) uncheckedKeys() []string {
	return b.ids("SELECT unnest(coalesce(integer_keys::text[], text_keys)) AS key FROM sexton.swept ORDER BY key")
}

// runRechecks runs the engine, and requires that no key is left to recheck.
func (b bundle) runRechecks(t *testing.T) *loosefk.Stats {
	stats := b.run(t)
	require.Empty(t, b.uncheckedKeys(), "keys that have not been rechecked")
	require.Zero(t, b.Pending(t))
	return stats
}

func TestLateChildOfAnOlderTransaction(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"plain":     "INSERT INTO children VALUES (1000, 1)",
		"savepoint": "SAVEPOINT a; INSERT INTO children VALUES (999, 2); ROLLBACK TO a; SAVEPOINT b; INSERT INTO children VALUES (1000, 1); RELEASE b",
	}, func(t *testing.T, _, insert string) {
		b := setup(t, parentsAndChildren, deleteChildren, "parents")
		older := b.beginSession(t)
		b.Exec("DELETE FROM parents WHERE id <= 2")
		stats := b.run(t)
		require.EqualValues(t, 2, stats.Processed)
		require.Zero(t, stats.Confirmed)
		require.Zero(t, b.Pending(t), "rechecks do not count as backlog")
		require.Equal(t, []string{"1", "2"}, b.uncheckedKeys())
		older.exec(insert)
		require.False(t, b.run(t).Changed(), "the older transaction is open")
		require.Equal(t, []string{"1", "2"}, b.uncheckedKeys())
		older.exec("COMMIT")

		stats = b.runRechecks(t)
		require.EqualValues(t, 1, stats.LateChildren)
		require.EqualValues(t, 4, stats.Confirmed, "both keys, and both again after the late child")
		require.EqualValues(t, 1, stats.DeleteCount)
		require.True(t, stats.Changed())
		require.Empty(t, b.ids("SELECT id FROM children WHERE parent_id <= 2"))
		require.False(t, b.run(t).Changed())
	})
}

// A recheck waits for transactions that are older than the removal, but not for newer
// ones. The older transaction has no transaction ID when the parent is deleted, so a
// comparison of IDs would not find it.
func TestNewerTransactionsDoNotDelayRechecks(t *testing.T) {
	t.Parallel()
	b, older := setupWithOlderTransaction(t, "id = 1")
	require.Equal(t, []string{"1"}, b.uncheckedKeys())
	b.beginSession(t).exec("INSERT INTO children VALUES (1000, 5)")
	older.exec("ROLLBACK")
	require.EqualValues(t, 1, b.runRechecks(t).Confirmed)
}

// A recheck keeps the children of a parent that exists again. The parent was inserted by
// the transaction that inserted the children, or by another one.
func TestRecreatedParentKeepsItsChildren(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string][2]string{
		"with its child":         {"INSERT INTO parents VALUES (1);", "SELECT"},
		"by another transaction": {"", "INSERT INTO parents VALUES (1)"},
	}, func(t *testing.T, _ string, inserts [2]string) {
		b, older := setupWithOlderTransaction(t, "id <= 2")
		older.exec(inserts[0] + "INSERT INTO children VALUES (1000, 1), (1001, 2); COMMIT")
		b.Exec(inserts[1])
		require.EqualValues(t, 1, b.runRechecks(t).LateChildren)
		require.Equal(t, []string{"1000"}, b.ids("SELECT id FROM children WHERE parent_id <= 2"))
	})
}

func TestLateChildrenOfAllKinds(t *testing.T) {
	t.Parallel()
	type example struct{ of, first, second string }
	pgtest.Each(t, map[string]example{
		"smallint":    {"smallint", "7", "8"},
		"bigint":      {"bigint", "7", "8"},
		"uuid":        {"uuid", "00000000-0000-0000-0000-000000000007", "00000000-0000-0000-0000-000000000008"},
		"text":        {"text", `a "b", {c}\ NULL`, "8"},
		"timestamptz": {"timestamptz", "2026-01-02 03:04:05.000007+00", "2026-01-02 03:04:05.000008+00"},
	}, func(t *testing.T, _ string, key example) {
		b := setup(t, `
			CREATE TABLE parents (id `+key.of+` PRIMARY KEY);
			CREATE TABLE plain (id int PRIMARY KEY, parent_id `+key.of+`);
			CREATE TABLE changed (id int PRIMARY KEY, parent_id `+key.of+`, state text);
			CREATE TABLE parted (id int, parent_id `+key.of+`, kind text) PARTITION BY LIST (kind);
			CREATE TABLE parted_a PARTITION OF parted FOR VALUES IN ('A');
			CREATE TABLE parted_b PARTITION OF parted FOR VALUES IN ('B');
			CREATE INDEX ON plain (parent_id); CREATE INDEX ON changed (parent_id); CREATE INDEX ON parted (parent_id);
			INSERT INTO parents VALUES ('`+key.first+`'), ('`+key.second+`');`, `
plain: [{table: parents, column: parent_id, on_delete: async_nullify}]
changed: [{table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: gone}]
parted: [{table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: kind, value: B}]}]
`, "parents")
		late := map[string]string{
			"plain":   "INSERT INTO plain VALUES (1, '" + key.first + "')",
			"changed": "INSERT INTO changed VALUES (1, '" + key.first + "', 'new')",
			"parted":  "INSERT INTO parted VALUES (1, '" + key.first + "', 'A'), (2, '" + key.first + "', 'B')",
		}
		for table, insert := range late {
			older := b.beginSession(t)
			b.Exec("DELETE FROM parents")
			b.run(t)
			require.Contains(t, b.uncheckedKeys(), key.second)
			older.exec(insert)
			older.exec("COMMIT")
			require.EqualValues(t, 1, b.runRechecks(t).LateChildren, table)
			b.Exec("INSERT INTO parents VALUES ('" + key.first + "'), ('" + key.second + "')")
		}
		require.Equal(t, [][]string{{"changed", "1 gone"}, {"parted", "1 A"}, {"plain", "1 -"}}, b.Rows(`
			SELECT 'plain' AS name, id || ' ' || coalesce(parent_id::text, '-') FROM plain
			UNION ALL SELECT 'changed', id || ' ' || state FROM changed
			UNION ALL SELECT 'parted', id || ' ' || kind FROM parted ORDER BY 1`))
	})
}

// The next lease holder rechecks the keys of tombstones that a killed worker has removed.
// A worker that has lost its lease rechecks no keys.
func TestTheNextLeaseHolderRechecks(t *testing.T) {
	t.Parallel()
	b, older := setupWithOlderTransaction(t, "id = 1")
	older.exec("INSERT INTO children VALUES (1000, 1); COMMIT")
	former := *b.engine
	b.Exec("UPDATE sexton.leases SET expires_at = now() - interval '1 second'")
	manager := lease.Manager{Jobs: b.Connected, Holder: "next"}
	granted := pgtest.Must(manager.Acquire(t.Context(), "loose_foreign_keys/cleanup_worker:main", time.Minute,
		b.Connected))(t)
	_, err := former.Run(t.Context())
	require.ErrorIs(t, err, lease.ErrLost)
	require.Equal(t, []string{"1"}, b.uncheckedKeys())
	require.Zero(t, b.Pending(t))

	held := b.engine.Session
	b.engine.Session = &batch.Session{
		Conn: b.session(t, b.URL).conn, Names: held.Names, Fence: granted,
		Limits: held.Limits,
	}
	require.EqualValues(t, 1, b.runRechecks(t).LateChildren)
	require.Empty(t, b.ids("SELECT id FROM children WHERE parent_id = 1"))
}

// A tombstone is removed in the same transaction that stores its key. If the key cannot
// be stored, the tombstone is kept.
func TestRemovalStoresItsKeyInOneTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec("ALTER TABLE sexton.swept ADD CHECK (NOT 2 = ANY (integer_keys))")
	b.Exec("DELETE FROM parents WHERE id <= 2")
	b.run(t)
	require.Equal(t, []string{"2"}, b.ids("SELECT primary_key_value FROM loose_foreign_keys_deleted_records"))
}

// A prepared transaction delays the recheck of a key that was removed before PREPARE,
// because only the time of PREPARE is known.
func TestPreparedTransactionDelaysTheRecheck(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	older := b.beginSession(t)
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.run(t)
	gid := "late_" + older.conn.Config().Database
	older.exec("INSERT INTO children VALUES (1000, 1)")
	older.exec("PREPARE TRANSACTION '" + gid + "'")
	t.Cleanup(func() { _, _ = b.Pool().Exec(context.WithoutCancel(t.Context()), "ROLLBACK PREPARED '"+gid+"'") })
	b.run(t)
	require.Equal(t, []string{"1"}, b.uncheckedKeys())
	older.exec("COMMIT PREPARED '" + gid + "'")
	require.EqualValues(t, 1, b.run(t).LateChildren)
	require.Empty(t, b.ids("SELECT id FROM children WHERE parent_id = 1"))
}

func TestOpenTransactionsDelayRechecksByADayAtMost(t *testing.T) {
	t.Parallel()
	b, _ := setupWithOlderTransaction(t, "id <= 2")
	b.Exec("INSERT INTO children VALUES (1000, 1)")
	b.run(t)
	require.Equal(t, []string{"1", "2"}, b.uncheckedKeys())
	b.Exec("UPDATE sexton.swept SET swept_at = now() - interval '25 hours'")
	require.EqualValues(t, 1, b.run(t).LateChildren)
	require.Equal(t, []string{"1", "2"}, b.uncheckedKeys(), "the chunk with a late child is rechecked once more")
}

// Keys of removed tombstones are kept for a week if no definition names their parent.
func TestKeysOfUndefinedParentsAreDeletedAfterAWeek(t *testing.T) {
	t.Parallel()
	b, older := setupWithOlderTransaction(t, "id = 1")
	b.Exec("INSERT INTO sexton.swept (database, parent, integer_keys) VALUES ('other', 'public.parents', '{1}')")
	older.exec("ROLLBACK")
	defined := b.engine.Parents
	b.engine.Parents = nil
	require.Zero(t, b.run(t).Confirmed)
	require.Equal(t, []string{"main", "other"}, b.ids("SELECT database FROM sexton.swept ORDER BY 1"),
		"the definition may be added again")
	b.engine.Parents = defined
	b.Exec("INSERT INTO children VALUES (1000, 1)")
	require.EqualValues(t, 1, b.run(t).LateChildren)
	b.Exec("INSERT INTO sexton.swept (database, parent, integer_keys, swept_at) VALUES ('main', 'public.gone', '{1}', now() - interval '8 days')")
	b.run(t)
	require.Equal(t, []string{"other"}, b.ids("SELECT DISTINCT database FROM sexton.swept"),
		"keys of another database are kept")
}

// After the rechecks the queue is empty, and the next run changes nothing.
func TestRechecksEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren+"INSERT INTO parents SELECT generate_series(11, 12000);", deleteChildren,
		"parents")
	older := b.beginSession(t)
	b.Exec("DELETE FROM parents WHERE id > 10")
	require.EqualValues(t, 11_990, b.run(t).Processed)
	require.Len(t, b.uncheckedKeys(), 11_990)
	older.exec("INSERT INTO children SELECT id, id FROM generate_series(2001, 2010) AS id; COMMIT")
	stats := b.runRechecks(t)
	require.EqualValues(t, 10, stats.LateChildren)
	require.GreaterOrEqual(t, stats.Confirmed, int64(11_990))
	require.Empty(t, b.ids("SELECT id FROM children WHERE parent_id > 10"))
	require.False(t, b.run(t).Changed())
	require.Zero(t, b.count(t, "loose_foreign_keys_deleted_records"))
}

// Marked tombstones do not count as backlog and are processed after all others.
func TestRechecksAreNoBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, status, consume_after, primary_key_value)
		SELECT 'public.parents', 2, 'infinity', n FROM generate_series(100, 199) AS n`)
	require.Equal(t, [][]string{{"0", "0"}},
		b.Rows("SELECT pending, deferred FROM sexton.backlog_of_loose_foreign_keys()"))
	b.Exec("DELETE FROM parents WHERE id = 1")
	stats := b.run(t)
	require.EqualValues(t, 1, stats.Processed)
	require.EqualValues(t, 101, stats.Confirmed, "100 marked tombstones, and the removed one")
	require.Zero(t, b.count(t, "loose_foreign_keys_deleted_records"))
}

// A marked tombstone whose recheck fails becomes an ordinary tombstone with one attempt.
func TestFailedRecheckBecomesAnOrdinaryTombstone(t *testing.T) {
	t.Parallel()
	b, older := setupWithOlderTransaction(t, "id <= 2")
	older.exec("INSERT INTO children VALUES (1000, 1), (1001, 2); COMMIT")
	b.Exec(dbtest.OnRow("DELETE", "children", "old.id = 1000", "RAISE 'kept';"))
	b.run(t)
	tombstones := b.tombstones()
	require.Len(t, tombstones, 1)
	require.Equal(t, []string{"1", "1"}, tombstones[0][:2])
	require.Equal(t, []string{"1000"}, b.ids("SELECT id FROM children WHERE parent_id <= 2"))
	b.Exec("ALTER TABLE children DISABLE TRIGGER USER")
	b.run(t)
	require.Empty(t, b.ids("SELECT id FROM children WHERE parent_id <= 2"))
}

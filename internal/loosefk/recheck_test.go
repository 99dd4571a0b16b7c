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
	"sexton/internal/pace"
	"sexton/internal/pgtest"
)

// session is another client of the database, as an application's.
type session struct {
	t    *testing.T
	conn *pgx.Conn
}

func (b bundle) session(t *testing.T, url string) session {
	return session{t, pgtest.Connect(t, url)}
}

// begun has a transaction open that may have seen all parents.
func (b bundle) begun(t *testing.T) session {
	s := b.session(t, b.URL)
	s.exec("BEGIN")
	s.exec("SELECT count(*) FROM pg_class")
	return s
}

// behind has an older transaction open, and rows of parents deleted and swept behind it.
func behind(t *testing.T, deleted string) (b bundle, older session) {
	b = setup(t, parentsAndChildren, deleteChildren, "parents")
	older = b.begun(t)
	b.Exec("DELETE FROM parents WHERE " + deleted)
	b.run(t)
	return b, older
}

func (s session) exec(sql string) {
	s.t.Helper()
	pgtest.Exec(s.t, s.conn, sql)
}

// unchecked returns the keys of parents that wait for their second look.
func (b bundle) unchecked() []string {
	return b.ids("SELECT unnest(coalesce(integer_keys::text[], text_keys)) AS key FROM sexton.swept ORDER BY key")
}

// rechecked runs the engine once, after which nothing waits any more. Sessions that the test itself has used a moment ago
// may still be about to end.
func (b bundle) rechecked(t *testing.T) *loosefk.Stats {
	stats := b.run(t)
	require.Empty(t, b.unchecked(), "parents that still wait for their second look")
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
		older := b.begun(t)
		b.Exec("DELETE FROM parents WHERE id <= 2")
		stats := b.run(t)
		require.EqualValues(t, 2, stats.Processed)
		require.Zero(t, stats.Confirmed)
		require.Zero(t, b.Pending(t), "it is no backlog")
		require.Equal(t, []string{"1", "2"}, b.unchecked())
		older.exec(insert)
		require.False(t, b.run(t).Changed(), "the older transaction is open")
		require.Equal(t, []string{"1", "2"}, b.unchecked())
		older.exec("COMMIT")

		stats = b.rechecked(t)
		require.EqualValues(t, 1, stats.LateChildren)
		require.EqualValues(t, 2, stats.Confirmed, "one that stayed without children, and the other after its second clean-up")
		require.EqualValues(t, 1, stats.DeleteCount)
		require.True(t, stats.Changed())
		require.Empty(t, b.ids("SELECT id FROM children WHERE parent_id <= 2"))
		require.False(t, b.run(t).Changed())
	})
}

// The statement that brings tombstones back looks for children and parents in one snapshot. A look before it would be a second one at the children.
func TestLateChildrenAreLookedAtWhereTombstonesComeBack(t *testing.T) {
	t.Parallel()
	b, older := behind(t, "id = 1")
	older.exec("INSERT INTO children VALUES (1000, 1); COMMIT")
	require.EqualValues(t, 1, b.rechecked(t).LateChildren)
	prepared := func(like string) (n int) {
		const sql = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE $1"
		require.NoError(t, b.engine.Session.Conn.QueryRow(t.Context(), sql, like).Scan(&n))
		return n
	}
	require.Equal(t, 1, prepared("WITH confirmed AS%"))
	require.Zero(t, prepared("SELECT candidate.key FROM%"))
}

// It has no transaction id when the parent goes, which a horizon of ids would take for harmless.
func TestYoungerTransactionHoldsNothing(t *testing.T) {
	t.Parallel()
	b, older := behind(t, "id = 1")
	require.Equal(t, []string{"1"}, b.unchecked())
	b.begun(t).exec("INSERT INTO children VALUES (1000, 5)")
	older.exec("ROLLBACK")
	require.EqualValues(t, 1, b.rechecked(t).Confirmed)
}

func TestLateChildOfATransactionThatIsPreparedMeanwhile(t *testing.T) {
	t.Parallel()
	b, older := behind(t, "id = 1")
	gid := "late_" + older.conn.Config().Database
	older.exec("INSERT INTO children VALUES (1000, 1)")
	older.exec("PREPARE TRANSACTION '" + gid + "'")
	t.Cleanup(func() { _, _ = b.Pool().Exec(context.WithoutCancel(t.Context()), "ROLLBACK PREPARED '"+gid+"'") })

	b.run(t)
	require.Equal(t, [][]string{{"t"}}, b.Rows(`SELECT prepared = ARRAY(SELECT transaction FROM pg_prepared_xacts WHERE database = current_database()) FROM sexton.swept`))
	younger := b.begun(t)
	younger.exec("INSERT INTO children VALUES (1001, 5)")
	younger.exec("PREPARE TRANSACTION '" + gid + "_younger'")
	defer b.session(t, b.URL).exec("ROLLBACK PREPARED '" + gid + "_younger'")
	b.run(t)
	require.Equal(t, []string{"1"}, b.unchecked(), "the prepared transaction is there")
	older.exec("COMMIT PREPARED '" + gid + "'")
	require.EqualValues(t, 1, b.run(t).LateChildren)
	require.Equal(t, []string{"1"}, b.unchecked(), "the clean-up of the late child waits for a prepared transaction in its turn")
	require.Empty(t, b.ids("SELECT id FROM children WHERE parent_id = 1"))
	b.Exec("COMMIT PREPARED '" + gid + "_younger'")
	b.begun(t).exec("PREPARE TRANSACTION '" + gid + "_younger'")
	require.EqualValues(t, 1, b.rechecked(t).Confirmed, "prepared transactions that came later hold nothing")
}

// A role that may not see other roles' transactions waits for a fixed time.
func TestBlindRoleWaitsForTheGraceTime(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	role := b.asRole(t)
	older := b.begun(t)
	b.Exec("DELETE FROM parents WHERE id = 1")
	stats := b.run(t)
	require.True(t, stats.ConfirmBlind)
	older.exec("INSERT INTO children VALUES (1000, 1); COMMIT")
	b.run(t)
	require.Equal(t, []string{"1"}, b.unchecked(), "the other role has idle sessions, which look no different")
	b.engine.Confirming.Grace = time.Nanosecond
	stats = b.run(t)
	require.EqualValues(t, 1, stats.LateChildren)
	require.Empty(t, b.ids("SELECT id FROM children WHERE parent_id = 1"))

	b.Exec("GRANT pg_read_all_stats TO " + role)
	b.engine.Confirming.Grace = time.Hour
	b.Exec("DELETE FROM parents WHERE id = 2")
	stats = b.rechecked(t)
	require.False(t, stats.ConfirmBlind)
	require.EqualValues(t, 1, stats.Confirmed)
}

func TestConfirmedAfterTheCap(t *testing.T) {
	t.Parallel()
	b, older := behind(t, "id <= 2")
	b.Exec("INSERT INTO children VALUES (1000, 1)")
	b.run(t)
	require.Equal(t, []string{"1", "2"}, b.unchecked(), "younger than an hour")
	b.engine.Confirming.Within = time.Nanosecond
	stats := b.run(t)
	require.EqualValues(t, 3, stats.ConfirmedEarly, "two, and one once more after its second clean-up")
	require.EqualValues(t, 1, stats.LateChildren, "it is looked at all the same")
	require.True(t, stats.Changed())
	require.Empty(t, b.unchecked())
	older.exec("ROLLBACK")
	b.Exec("DELETE FROM parents WHERE id = 3")
	b.engine.Confirming.Within = 0
	require.Zero(t, b.rechecked(t).ConfirmedEarly)
}

// The second look looks for the parent as well, by whichever transaction it came back.
func TestParentCreatedAnewOwnsItsChildren(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string][2]string{
		"with its child":         {"INSERT INTO parents VALUES (1);", "SELECT"},
		"by another transaction": {"", "INSERT INTO parents VALUES (1)"},
	}, func(t *testing.T, _ string, comes [2]string) {
		b, older := behind(t, "id <= 2")
		older.exec(comes[0] + "INSERT INTO children VALUES (1000, 1), (1001, 2); COMMIT")
		b.Exec(comes[1])
		require.EqualValues(t, 1, b.rechecked(t).LateChildren)
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
			older := b.begun(t)
			b.Exec("DELETE FROM parents")
			b.run(t)
			require.Contains(t, b.unchecked(), key.second)
			older.exec(insert)
			older.exec("COMMIT")
			require.EqualValues(t, 1, b.rechecked(t).LateChildren, table)
			b.Exec("INSERT INTO parents VALUES ('" + key.first + "'), ('" + key.second + "')")
		}
		require.Equal(t, [][]string{{"changed", "1 gone"}, {"parted", "1 A"}, {"plain", "1 -"}}, b.Rows(`
			SELECT 'plain' AS name, id || ' ' || coalesce(parent_id::text, '-') FROM plain
			UNION ALL SELECT 'changed', id || ' ' || state FROM changed
			UNION ALL SELECT 'parted', id || ' ' || kind FROM parted ORDER BY 1`))
	})
}

// What a dead worker has swept is confirmed by the next one; a worker whose lease has passed confirms nothing.
func TestConfirmingPassesOnWithTheLease(t *testing.T) {
	t.Parallel()
	b, older := behind(t, "id = 1")
	older.exec("INSERT INTO children VALUES (1000, 1); COMMIT")
	former := *b.engine
	b.Exec("UPDATE sexton.leases SET expires_at = now() - interval '1 second'")
	manager := lease.Manager{Jobs: b.Connected, Holder: "next"}
	granted := pgtest.Must(manager.Acquire(t.Context(), "loose_foreign_keys/cleanup_worker:main", time.Minute, b.Connected))(t)
	_, err := former.Run(t.Context())
	require.ErrorIs(t, err, lease.ErrLost)
	require.Equal(t, []string{"1"}, b.unchecked())
	require.Zero(t, b.Pending(t))

	held := b.engine.Session
	b.engine.Session = &batch.Session{Conn: b.session(t, b.URL).conn, Names: held.Names, Fence: granted, Limits: held.Limits}
	require.EqualValues(t, 1, b.rechecked(t).LateChildren)
	require.Empty(t, b.ids("SELECT id FROM children WHERE parent_id = 1"))
}

// A crash takes removal and memory of a tombstone along, or neither.
func TestRemovalRemembersInItsTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec("ALTER TABLE sexton.swept ADD CHECK (NOT 2 = ANY (integer_keys))")
	b.Exec("DELETE FROM parents WHERE id <= 2")
	b.run(t)
	require.Equal(t, []string{"2"}, b.ids("SELECT primary_key_value FROM loose_foreign_keys_deleted_records"))
}

// Which may come back, or fit again.
func TestUndefinedParentsAreForgottenAfterAWeek(t *testing.T) {
	t.Parallel()
	b, older := behind(t, "id = 1")
	b.Exec("INSERT INTO sexton.swept (database, parent, integer_keys) VALUES ('other', 'public.parents', '{1}')")
	older.exec("ROLLBACK")
	defined := b.engine.Parents
	b.engine.Parents = nil
	require.Zero(t, b.run(t).Confirmed)
	require.Equal(t, []string{"main", "other"}, b.ids("SELECT database FROM sexton.swept ORDER BY 1"), "the definition may come back")
	b.engine.Parents = defined
	b.Exec("UPDATE sexton.swept SET not_before = NULL; INSERT INTO children VALUES (1000, 1)")
	require.EqualValues(t, 1, b.run(t).LateChildren)

	b.Exec("INSERT INTO sexton.swept (database, parent, integer_keys, swept_at) VALUES ('main', 'public.gone', '{1}', now() - interval '8 days')")
	require.Zero(t, b.run(t).ConfirmedEarly)
	require.Equal(t, []string{"other"}, b.ids("SELECT database FROM sexton.swept"), "those of another configured database are its own")
}

// Without the right to read parents nobody can tell whether a child has one.
func TestParentThatBecomesUnreadableIsPutOffAndGivenUpLongAfterTheCap(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	role := b.asRole(t)
	b.Exec("GRANT pg_read_all_stats TO " + role)
	older := b.begun(t)
	b.Exec("DELETE FROM parents WHERE id = 1")
	b.run(t)
	b.Exec("REVOKE ALL ON parents FROM " + role)
	older.exec("INSERT INTO children VALUES (1000, 1); COMMIT")
	stats := b.run(t)
	require.Len(t, stats.Errors, 1)
	require.Equal(t, "parents", stats.Errors[0].Table)
	require.Equal(t, "42501", stats.Errors[0].SQLState)
	require.Zero(t, stats.Confirmed)
	require.Equal(t, [][]string{{"t"}}, b.Rows("SELECT not_before > now() FROM sexton.swept"))
	require.Empty(t, b.run(t).Errors, "it is put off")
	b.Exec("UPDATE sexton.swept SET not_before = NULL, swept_at = now() - interval '3 hours'")
	stats = b.run(t)
	require.Len(t, stats.Errors, 1)
	require.EqualValues(t, 1, stats.ConfirmedEarly)
	require.Empty(t, b.unchecked())
}

// Hundreds of batches wait behind one transaction, and go in a few statements afterwards.
func TestManyBatchesAreConfirmed(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren+`INSERT INTO parents SELECT generate_series(11, 3000);`, deleteChildren, "parents")
	older := b.begun(t)
	b.Exec("INSERT INTO sexton.swept (database, parent, integer_keys) SELECT 'main', 'public.parents', ARRAY[id] FROM parents WHERE id > 10 AND id % 2 = 0")
	b.Exec("DELETE FROM parents WHERE id > 10")
	b.Exec("TRUNCATE loose_foreign_keys_deleted_records")
	b.run(t)
	require.Len(t, b.unchecked(), 1495)
	older.exec("INSERT INTO children SELECT id, id FROM generate_series(2001, 2010) AS id; COMMIT")
	stats := b.rechecked(t)
	require.EqualValues(t, 5, stats.LateChildren)
	require.EqualValues(t, 1495, stats.Confirmed)
	require.Len(t, b.ids("SELECT id FROM children WHERE parent_id > 10"), 5)
}

// Beside others looks are shorter, as statements are.
func TestLooksAreSmallerBesideOthers(t *testing.T) {
	t.Parallel()
	type example struct {
		share float64
		most  string
	}
	pgtest.Each(t, map[string]example{"alone": {1, "1000"}, "beside others": {0.5, "260"}}, func(t *testing.T, _ string, test example) {
		b := setupAdaptive(t, parentsAndChildren, deleteChildren, "parents")
		b.engine.Throttle.Share = func(context.Context, float64, bool) (float64, pace.Duty) { return test.share, pace.Duty{} }
		b.Exec(`INSERT INTO sexton.swept (database, parent, integer_keys)
				SELECT 'main', 'public.parents', array_agg(id) FROM generate_series(100000, 101999) AS id GROUP BY id / 20;
			CREATE TABLE looks (keys bigint);` +
			dbtest.OnStatement("DELETE", "sexton.swept", "INSERT INTO public.looks SELECT sum(cardinality(integer_keys)) FROM gone;"))
		require.EqualValues(t, 2000, b.rechecked(t).Confirmed)
		require.Equal(t, [][]string{{test.most, "2000"}}, b.Rows("SELECT max(keys), sum(keys) FROM looks"))
	})
}

// Runs that are always cut short confirm as well.
func TestConfirmingGoesOnUnderABacklog(t *testing.T) {
	t.Parallel()
	b, older := behind(t, "id = 1")
	older.exec("INSERT INTO children VALUES (1000, 1); COMMIT")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	require.Zero(t, pgtest.Must(b.engine.Run(stopped))(t).LateChildren, "a run that is stopped confirms nothing")
	require.Equal(t, []string{"1"}, b.unchecked())
	b.Exec("DELETE FROM parents WHERE id BETWEEN 2 AND 9")
	b.engine.Limits.Deletes = 5
	stats := b.run(t)
	require.True(t, stats.OverLimit)
	require.EqualValues(t, 1, stats.LateChildren)
}

// A key that cannot be read back is put off alone, and given up in the end.
func TestUnreadableKeyIsPutOffAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE parents (id uuid PRIMARY KEY); CREATE TABLE children (id int PRIMARY KEY, parent_id uuid); CREATE INDEX ON children (parent_id);",
		deleteChildren, "parents")
	b.Exec(`INSERT INTO sexton.swept (database, parent, text_keys) VALUES
		('main', 'public.parents', '{00000000-0000-0000-0000-000000000001}'),
		('main', 'public.parents', '{none}'),
		('main', 'public.parents', '{00000000-0000-0000-0000-000000000002}')`)
	b.Exec("INSERT INTO children VALUES (1, '00000000-0000-0000-0000-000000000002')")
	stats := b.run(t)
	require.Len(t, stats.Errors, 1)
	require.Equal(t, "22P02", stats.Errors[0].SQLState)
	require.EqualValues(t, 1, stats.LateChildren)
	require.EqualValues(t, 2, stats.Confirmed)
	require.Equal(t, []string{"none"}, b.unchecked())
	require.Empty(t, b.run(t).Errors, "it is put off")
	b.Exec("UPDATE sexton.swept SET not_before = NULL, swept_at = now() - interval '1 hour'")
	b.run(t)
	require.Equal(t, []string{"none"}, b.unchecked())
	b.Exec("UPDATE sexton.swept SET not_before = NULL, swept_at = now() - interval '2 hours'")
	require.EqualValues(t, 1, b.run(t).ConfirmedEarly)
	require.Empty(t, b.unchecked())
}

// A locked child table costs one lock timeout per run, and the other parents are confirmed.
func TestLockedTablePutsOffItsParentAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, twoLeaves+"CREATE INDEX ON children (parent_id); CREATE INDEX ON theirs (other_id);", ofTwoLeaves, "parents", "others")
	older := b.begun(t)
	for _, deletion := range []string{"DELETE FROM parents WHERE id = 1", "DELETE FROM parents WHERE id = 2", "DELETE FROM others WHERE id = 1"} {
		b.Exec(deletion)
		b.run(t)
	}
	older.exec("ROLLBACK")
	b.begun(t).exec("LOCK TABLE children")
	b.engine.Session.Limits.LockTimeout = 50 * time.Millisecond
	stats := b.run(t)
	require.Equal(t, []batch.FaultCounts{{Table: "parents", SQLState: "55P03", Message: stats.Errors[0].Message, Count: 1}}, stats.Errors)
	require.EqualValues(t, 1, stats.Confirmed)
	require.Equal(t, []string{"1", "2"}, b.unchecked())
	require.Equal(t, [][]string{{"2"}}, b.Rows("SELECT count(*) FROM sexton.swept WHERE not_before > now()"))
}

package loosefk_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/orphans"
	"sexton/internal/pgtest"
)

// wake is the notification channel on which waker sends.
const wake = "sexton_wake_test"

func waker(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "NOTIFY "+wake)
	return err
}

func bounds() loosefk.Bounds {
	return loosefk.Bounds{StatementTimeout: 20 * time.Second, LockTimeout: 20 * time.Second}
}

func (b bundle) auditor(batch int, repair bool) orphans.Auditor {
	return orphans.Auditor{
		DB: b.Pool(), Names: dbtest.Names(), Bounds: bounds(), Batch: batch, Repair: repair,
		Wake: waker,
	}
}

// audit audits all definitions and returns the reports by definition.
func (b bundle) audit(t *testing.T, auditor orphans.Auditor) map[string]orphans.Report {
	reports := map[string]orphans.Report{}
	for _, parent := range b.engine.Parents {
		for _, reference := range parent.References {
			report := pgtest.Must(auditor.Audit(t.Context(), parent, reference))(t)
			require.Empty(t, report.Error)
			require.Empty(t, report.Skipped)
			require.NotContains(t, reports, report.Definition)
			reports[report.Definition] = report
		}
	}
	return reports
}

// auditFirst audits the first definition of the first parent.
func (b bundle) auditFirst(t *testing.T, auditor orphans.Auditor) orphans.Report {
	return pgtest.Must(auditor.Audit(t.Context(), b.engine.Parents[0], b.engine.Parents[0].References[0]))(t)
}

// setupOrphans returns a database in which the parents that meet the condition were
// deleted without tombstones.
func setupOrphans(t *testing.T, condition string) bundle {
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.execUntracked("DELETE FROM parents WHERE " + condition)
	return b
}

// execUntracked runs a statement that deletes parents without tombstones, like TRUNCATE
// with the setting truncate: ignore, or a deletion in a detached partition.
func (b bundle) execUntracked(sql string) {
	b.Exec("SET session_replication_role = replica; ALTER TABLE parents DISABLE TRIGGER sexton_track; " + sql +
		"; ALTER TABLE parents ENABLE ALWAYS TRIGGER sexton_track; RESET session_replication_role")
}

// repairAndRun runs an audit with repair and then the engine, and requires that no orphan
// is left. It returns the number of repaired keys.
func (b bundle) repairAndRun(t *testing.T, batch int) int64 {
	var keys int64
	for _, report := range b.audit(t, b.auditor(batch, true)) {
		keys += report.RepairedKeys
	}
	for _, report := range b.audit(t, b.auditor(batch, true)) {
		require.Zero(t, report.OrphanedKeys, "a key with a tombstone does not count as an orphan")
		require.Zero(t, report.RepairedKeys)
	}
	require.Equal(t, keys, b.Pending(t), "one tombstone per key")
	b.runToEnd(t)
	for _, report := range b.audit(t, b.auditor(batch, false)) {
		require.Zero(t, report.OrphanedKeys, "%+v", report)
		require.Zero(t, report.OrphanedRows, "%+v", report)
	}
	return keys
}

func TestAuditFindsOrphansWithAnyBatchSize(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren+"INSERT INTO children VALUES (1, NULL), (2, -5)", deleteChildren, "parents")
	b.execUntracked("DELETE FROM parents WHERE id IN (1, 3, 4, 10)")
	b.Exec("DELETE FROM parents WHERE id = 7")
	all := func() [][]string {
		return b.Rows(`SELECT 'children', xmin::text, t::text FROM children AS t
			UNION ALL SELECT 'tombstones', xmin::text, t::text FROM loose_foreign_keys_deleted_records AS t ORDER BY 1, 3`)
	}
	before := all()
	for _, batch := range []int{1, 3, 9, 10, 11, 1000} {
		want := orphans.Report{
			Definition: "children[0]", Child: "children", Column: "parent_id", Parent: "parents",
			CheckedKeys: 11, OrphanedKeys: 5, OrphanedRows: 41, Samples: []string{"-5", "1", "3", "4", "10"},
		}
		require.Equal(t, want, b.auditFirst(t, b.auditor(batch, false)), batch)
		require.Equal(t, before, all(), "an audit without repair changes nothing")

		want.RepairedKeys = 5
		require.Equal(t, want, b.auditFirst(t, b.auditor(batch, true)), batch)
		require.Equal(t, [][]string{{"-5"}, {"1"}, {"3"}, {"4"}, {"7"}, {"10"}},
			b.Rows("SELECT primary_key_value FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.parents' ORDER BY 1"))
		require.Zero(t, b.auditFirst(t, b.auditor(batch, true)).RepairedKeys, "a second repair changes nothing")
		b.Exec("DELETE FROM loose_foreign_keys_deleted_records WHERE primary_key_value <> 7")
	}
	b.auditFirst(t, b.auditor(3, true))
	require.EqualValues(t, 6, b.runToEnd(t).Processed)
	require.Equal(t, []string{"NULL", "2", "5", "6", "8", "9"},
		b.ids("SELECT DISTINCT parent_id FROM children ORDER BY parent_id NULLS FIRST"))
}

// Each definition has the orphans that meet its conditions. A key with orphans of several
// definitions gets one tombstone.
func TestAuditAppliesConditionsAndTargets(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE parents (id integer PRIMARY KEY);
CREATE TABLE notes (id bigint PRIMARY KEY, thing_id bigint, thing text, state smallint, other_id smallint);
CREATE INDEX ON notes (thing_id);
CREATE INDEX ON notes (other_id);
INSERT INTO notes VALUES
	(1, 1, 'A', 0, NULL), (2, 1, 'B', 0, NULL), (3, 2, 'B', 7, NULL), (4, 3, 'B', NULL, NULL),
	(5, 4, 'C', 0, NULL), (6, 4, 'C', 0, NULL), (7, 5, 'D', 0, NULL), (8, NULL, NULL, 0, 1), (9, NULL, NULL, 0, 6);
`, `
notes:
  - {table: parents, column: thing_id, on_delete: async_delete, conditions: [{column: thing, value: A}]}
  - {table: parents, column: thing_id, on_delete: update_column_to, target_column: state, target_value: 7, conditions: [{column: thing, value: B}]}
  - {table: parents, column: thing_id, on_delete: async_nullify, conditions: [{column: thing, value: C}]}
  - {table: parents, column: other_id, on_delete: async_nullify}
`, "parents")
	reports := b.audit(t, b.auditor(2, false))
	for key, want := range map[string][]string{
		"notes[0]": {"1"}, "notes[1]": {"1", "3"}, "notes[2]": {"4"},
		"notes[3]": {"1", "6"},
	} {
		require.Equal(t, want, reports[key].Samples, key)
		require.EqualValues(t, len(want), reports[key].OrphanedKeys, key)
	}
	require.EqualValues(t, 5, reports["notes[0]"].CheckedKeys)
	require.EqualValues(t, 1, reports["notes[0]"].OrphanedRows, "the other row of key 1 does not meet the condition")
	require.EqualValues(t, 2, reports["notes[2]"].OrphanedRows)

	require.EqualValues(t, 4, b.repairAndRun(t, 2),
		"1, 3, 4 and 6: one tombstone for a key of which three definitions have orphans")
	require.Equal(t, [][]string{
		{"2", "1", "7", "NULL"},
		{"3", "2", "7", "NULL"},
		{"4", "3", "7", "NULL"},
		{"5", "NULL", "0", "NULL"},
		{"6", "NULL", "0", "NULL"},
		{"7", "5", "0", "NULL"},
		{"8", "NULL", "0", "NULL"},
		{"9", "NULL", "0", "NULL"},
	}, b.Rows("SELECT id, thing_id, state, other_id FROM notes ORDER BY id"))
}

func TestAuditOfKeysOfAnyType(t *testing.T) {
	t.Parallel()
	type example struct{ column, value string }
	kinds := map[string]example{
		"smallint":  {"smallint", "n"},
		"uuid":      {"uuid", "md5(n::text)::uuid"},
		"text":      {"text", `'it''s "' || n || E' \\ \t, {ä}'`},
		"varchar":   {"varchar(12)", "'key ' || n"},
		"numeric":   {"numeric", "n + 0.50"},
		"timestamp": {"timestamptz", "'2026-01-01'::timestamptz + n * interval '1 day 1 microsecond'"},
		"bytea":     {"bytea", "decode(lpad(to_hex(n), 4, '0'), 'hex')"},
		"float":     {"double precision", "n / 7.0::double precision"},
	}
	var tables, yaml, rows strings.Builder
	var parents []string
	for name, test := range kinds {
		of := strings.NewReplacer("COLUMN", test.column, "VALUE", test.value, "parents", name+"_parents", "children",
			name+"_children")
		tables.WriteString(of.Replace(`
CREATE TABLE parents (id COLUMN PRIMARY KEY);
CREATE TABLE children (parent_id COLUMN, n integer);
CREATE INDEX ON children (parent_id);
INSERT INTO children SELECT VALUE, n FROM generate_series(1, 20) AS n, generate_series(1, 2);
INSERT INTO parents SELECT VALUE FROM generate_series(1, 20) AS n WHERE n % 2 = 0;`))
		yaml.WriteString(of.Replace("children: [{table: parents, column: parent_id, on_delete: async_delete}]\n"))
		rows.WriteString(of.Replace("DELETE FROM parents WHERE id = (SELECT parent_id FROM children WHERE n = 4 LIMIT 1);\n"))
		parents = append(parents, of.Replace("parents"))
	}
	b := setup(t, tables.String(), yaml.String(), parents...)
	b.Exec(rows.String())
	found, repaired, again := b.audit(t, b.auditor(3, false)), b.audit(t, b.auditor(3, true)),
		b.audit(t, b.auditor(3, true))
	require.EqualValues(t, 11*len(kinds), b.run(t).Processed)
	for name := range kinds {
		report := found[name+"_children[0]"]
		require.EqualValues(t, 20, report.CheckedKeys, name)
		require.EqualValues(t, 10, report.OrphanedKeys, name)
		require.EqualValues(t, 20, report.OrphanedRows, name)
		require.EqualValues(t, 10, repaired[name+"_children[0]"].RepairedKeys, name)
		require.Zero(t, again[name+"_children[0]"].RepairedKeys, name)
		require.Equal(t, []string{"2", "6", "8", "10", "12", "14", "16", "18", "20"},
			b.ids("SELECT DISTINCT n FROM "+name+"_children ORDER BY n"), name)
	}
}

// An audit compares keys by value: a child with the key 1 refers to the parent 1.0, or to
// its tombstone.
func TestAuditComparesByValue(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE parents (id numeric PRIMARY KEY);
CREATE TABLE children (id bigint, parent_id numeric);
CREATE INDEX ON children (parent_id);
INSERT INTO parents VALUES (1.0), (2.00);
INSERT INTO children VALUES (1, 1), (2, 2.0);`, deleteChildren, "parents")
	for _, statement := range []string{"SELECT", "DELETE FROM parents WHERE id = 1"} {
		b.Exec(statement)
		require.Zero(t, b.audit(t, b.auditor(1, false))["children[0]"].OrphanedKeys)
	}
}

func TestAuditOfQuotedAndPartitionedTables(t *testing.T) {
	t.Parallel()
	db := newDB(t, `
CREATE SCHEMA "Other ""one""";
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE "Other ""one"""."Chil""dren" ("p id" integer, part integer) PARTITION BY LIST (part);
CREATE TABLE first PARTITION OF "Other ""one"""."Chil""dren" FOR VALUES IN (1);
CREATE TABLE others PARTITION OF "Other ""one"""."Chil""dren" DEFAULT PARTITION BY HASH ("p id");
CREATE TABLE others_0 PARTITION OF others FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE others_1 PARTITION OF others FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX ON "Other ""one"""."Chil""dren" ("p id");
INSERT INTO parents SELECT generate_series(2, 40, 2);
INSERT INTO "Other ""one"""."Chil""dren" SELECT n, part FROM generate_series(1, 40) AS n, generate_series(1, 3) AS part;`)
	b := setupOn(t, db, `
'"Other ""one"""."Chil""dren"':
  - {table: parents, column: p id, on_delete: async_delete}
`, "parents")
	for _, report := range b.audit(t, b.auditor(7, false)) {
		require.EqualValues(t, 40, report.CheckedKeys, "a key counts once, however many partitions have it")
		require.EqualValues(t, 20, report.OrphanedKeys)
		require.EqualValues(t, 60, report.OrphanedRows)
	}
	require.EqualValues(t, 20, b.repairAndRun(t, 7))
	require.EqualValues(t, 60, pgtest.Scalar[int64](t, b.Database,
		`SELECT count(*) FROM "Other ""one"""."Chil""dren" WHERE "p id" % 2 = 0`))
}

func TestAuditOfPartitionedAndInheritedParents(t *testing.T) {
	t.Parallel()
	db := newDB(t, `
CREATE TABLE builds (id bigint, part integer, PRIMARY KEY (id, part)) PARTITION BY LIST (part);
CREATE TABLE builds_1 PARTITION OF builds FOR VALUES IN (1);
CREATE TABLE builds_2 PARTITION OF builds FOR VALUES IN (2);
INSERT INTO builds VALUES (1, 1), (2, 2);
CREATE TABLE base (id bigint PRIMARY KEY);
CREATE TABLE derived () INHERITS (base);
INSERT INTO base VALUES (1);
INSERT INTO derived VALUES (2);
CREATE TABLE children (build_id bigint, base_id bigint);
CREATE INDEX ON children (build_id);
CREATE INDEX ON children (base_id);
INSERT INTO children SELECT n, n FROM generate_series(1, 3) AS n;`)
	b := setupOn(t, db, `
children:
  - {table: builds, column: build_id, on_delete: async_nullify}
  - {table: base, column: base_id, on_delete: async_nullify}
`, "builds", "base")
	for key, report := range b.audit(t, b.auditor(2, false)) {
		require.Equal(t, []string{"3"}, report.Samples, key)
	}
	require.EqualValues(t, 2, b.repairAndRun(t, 2), "the key is missing in two parents")
	require.Equal(t, [][]string{{"1", "1"}, {"2", "2"}, {"NULL", "NULL"}}, b.Rows("SELECT * FROM children ORDER BY 1"))
}

func TestAuditWithoutIndex(t *testing.T) {
	t.Parallel()
	b := setupOrphans(t, "id > 7")
	b.Exec("DROP INDEX children_parent_id_idx")
	b.resolve(t, deleteChildren)
	report := b.auditFirst(t, b.auditor(4, false))
	require.EqualValues(t, 10, report.CheckedKeys)
	require.Equal(t, []string{"8", "9", "10"}, report.Samples)
}

// An audit repairs an orphan in a table that refers to itself. The run then deletes all
// rows below the orphan.
func TestAuditOfATableThatRefersToItself(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE parents (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON parents (parent_id);
INSERT INTO parents SELECT n, n - 1 FROM generate_series(1, 5) AS n;
INSERT INTO parents VALUES (100, NULL), (101, 100);`, `
parents:
  - {table: parents, column: parent_id, on_delete: async_delete}
`, "parents")
	require.EqualValues(t, 1, b.repairAndRun(t, 10), "the root refers to parent 0")
	require.Equal(t, []string{"100", "101"}, b.ids("SELECT id FROM parents ORDER BY id"))
}

// A repair checks its keys again under its lock. It inserts no tombstone for a key if the
// parent exists again, if the key already has a tombstone, or if the children were
// deleted.
func TestRepairRechecksKeysUnderItsLock(t *testing.T) {
	t.Parallel()
	b := setupOrphans(t, "id <= 5")

	// This session holds the lock of repairs.
	holder := b.Begin(t, "SELECT pg_advisory_xact_lock(hashtextextended('sexton audit of public', 0))")
	auditor, parent := b.auditor(1000, true), b.engine.Parents[0]
	wait := dbtest.InBackground(func() (orphans.Report, error) {
		return auditor.Audit(t.Context(), parent,
			parent.References[0])
	})
	pgtest.Await(t, b.Pool(), "the audit to wait for its lock",
		"SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))")
	b.Exec(`INSERT INTO parents VALUES (1);
		INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.parents', 2);
		DELETE FROM children WHERE parent_id = 3`)
	require.NoError(t, holder.Commit(t.Context()))

	report := pgtest.Must(wait())(t)
	require.Empty(t, report.Error)
	require.EqualValues(t, 5, report.OrphanedKeys)
	require.EqualValues(t, 2, report.RepairedKeys)
	b.run(t)
	require.Equal(t, []string{"1", "6", "7", "8", "9", "10"},
		b.ids("SELECT DISTINCT parent_id FROM children ORDER BY 1"))
}

// If another session holds the lock of repairs, which any role can take, the audit
// reports that session.
func TestRepairReportsTheLockHolder(t *testing.T) {
	t.Parallel()
	b := setupOrphans(t, "id <= 5")
	holder := pgtest.Acquire(t, b.Pool())
	pgtest.Exec(t, holder,
		"SET application_name = 'psql'; SELECT pg_advisory_lock(hashtextextended('sexton audit of public', 0))")
	pid := holder.Conn().PgConn().PID()
	auditor := b.auditor(1000, true)
	auditor.Bounds.LockTimeout = 10 * time.Millisecond
	report := b.auditFirst(t, auditor)
	pgtest.Exec(t, holder, "SELECT pg_advisory_unlock_all()")
	require.Contains(t, report.Error,
		fmt.Sprintf("canceling statement due to lock timeout (lock held by pid %d (psql))", pid))
	require.Zero(t, report.RepairedKeys)
}

func TestRepairNotifiesWorkers(t *testing.T) {
	t.Parallel()
	b := setupOrphans(t, "id <= 5")
	notified := countNotifications(t, b)
	b.audit(t, b.auditor(2, false))
	b.audit(t, b.auditor(2, true))
	require.Equal(t, 3, notified(), "once per batch with orphans, and never without repair")
}

// Triggers of the application on tombstones run with the default planner settings, in
// audits and in retries.
func TestTriggersSeeNoPlannerSettingsOfCommands(t *testing.T) {
	t.Parallel()
	b := setupOrphans(t, "id <= 5")
	b.RecordPlannerSettings("loose_foreign_keys_deleted_records")
	b.audit(t, b.auditor(2, true))
	b.RequireDefaultPlannerSettings(t, "loose_foreign_keys_deleted_records")
	b.Exec("UPDATE loose_foreign_keys_deleted_records SET cleanup_attempts = 3; TRUNCATE recorder.settings")
	require.Positive(t, retry(t, tombstonesOf(b.DB), 0).Retried)
	b.RequireDefaultPlannerSettings(t, "loose_foreign_keys_deleted_records")
}

// countNotifications listens on the channel wake. The returned function counts the
// notifications since its last call.
func countNotifications(t *testing.T, b bundle) func() int {
	conn := pgtest.Acquire(t, b.Pool()).Conn()
	pgtest.Exec(t, conn, "LISTEN "+wake)
	return func() int {
		b.Exec("SELECT pg_notify('" + wake + "', 'last')")
		for count := 0; ; count++ {
			notification := pgtest.Must(conn.WaitForNotification(t.Context()))(t)
			if notification.Payload == "last" {
				return count
			}
		}
	}
}

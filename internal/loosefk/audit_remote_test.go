package loosefk_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/orphans"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

// remoteDB is a database that calls a function before each transaction, with the number
// of the transaction.
type remoteDB struct {
	pgcatalog.Beginner

	before func(n int) error
	n      int
}

func (e *remoteDB) Begin(ctx context.Context) (pgx.Tx, error) {
	e.n++
	if e.before != nil {
		if err := e.before(e.n); err != nil {
			return nil, err
		}
	}
	return e.Beginner.Begin(ctx)
}

func auditorWithRemote(b bundle, ci *dbtest.DB, repair bool) orphans.Auditor {
	auditor := b.auditor(1000, repair)
	auditor.Remotes = map[string]pgcatalog.Beginner{"ci": ci.Pool()}
	return auditor
}

// auditBuilds audits the definition of builds, which are in the database ci.
func (b bundle) auditBuilds(t *testing.T, auditor orphans.Auditor) orphans.Report {
	return pgtest.Must(auditor.Audit(t.Context(), b.engine.Parents[0], b.remoteReference(t)))(t)
}

func (b bundle) remoteReference(t *testing.T) *loosefk.Reference {
	references := b.engine.Parents[0].References
	at := slices.IndexFunc(references, func(r *loosefk.Reference) bool { return r.Remote })
	require.GreaterOrEqual(t, at, 0, "no definition with remote children")
	return references[at]
}

// hookTransaction returns the database ci. The returned database calls do before its
// transaction with the given number.
func hookTransaction(ci *dbtest.DB, number int, do func() error) *remoteDB {
	return &remoteDB{Beginner: ci.Pool(), before: func(n int) error {
		if n == number {
			return do()
		}
		return nil
	}}
}

func TestAuditOfChildrenInAnotherDatabase(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	ci.Exec("INSERT INTO builds VALUES (1, NULL), (2, -5), (3, -5)")
	b.execUntracked("DELETE FROM parents WHERE id IN (1, 3)")
	b.Exec("DELETE FROM parents WHERE id = 7")
	for _, batch := range []int{1, 3, 12, 1000} {
		auditor := auditorWithRemote(b, ci, false)
		auditor.Batch = batch
		want := orphans.Report{
			Definition: "builds[0]", Child: "builds", ChildDatabase: "ci", Column: "parent_id", Parent: "parents",
			CheckedKeys: 11, OrphanedKeys: 3, OrphanedRows: 22, Samples: []string{"-5", "1", "3"},
		}
		require.Equal(t, want, b.auditBuilds(t, auditor))
		require.EqualValues(t, 1, b.Pending(t), "an audit without repair changes nothing")

		auditor.Repair = true
		want.RepairedKeys = 3
		require.Equal(t, want, b.auditBuilds(t, auditor))
		require.Equal(t, [][]string{{"-5"}, {"1"}, {"3"}, {"7"}},
			b.Rows("SELECT primary_key_value FROM loose_foreign_keys_deleted_records ORDER BY 1"))
		require.Zero(t, ci.Pending(t))
		require.Zero(t, b.auditBuilds(t, auditor).RepairedKeys, "a second repair changes nothing")
		if batch < 1000 {
			b.Exec("DELETE FROM loose_foreign_keys_deleted_records WHERE primary_key_value <> 7")
		}
	}
	require.EqualValues(t, 4, b.runToEnd(t).Processed)
	require.Equal(t, [][]string{{"71"}}, ci.Rows("SELECT count(*) FROM builds"))
	require.Zero(t, b.auditBuilds(t, auditorWithRemote(b, ci, true)).OrphanedKeys)
}

func TestAuditNotifiesTheParentsDatabase(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	b.execUntracked("DELETE FROM parents WHERE id = 1")
	notified := countNotifications(t, b)
	require.EqualValues(t, 1, b.auditBuilds(t, auditorWithRemote(b, ci, true)).RepairedKeys)
	require.Equal(t, 1, notified())
}

// An audit finds and repairs orphans with composite keys in another database. A child
// with NULL in one column does not count as an orphan.
func TestAuditOfCompositeKeysInAnotherDatabase(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	b.Exec("CREATE TABLE parts (id bigint, part text, PRIMARY KEY (id, part)); INSERT INTO parts VALUES (1, 'a'), (2, 'b,\"')")
	ci.Exec(`CREATE TABLE jobs (id bigint, build_id bigint, part text);
		CREATE INDEX ON jobs (build_id, part);
		INSERT INTO jobs VALUES (1, 1, 'a'), (2, 1, 'c,"'), (3, 1, 'c,"'), (4, 2, 'b,"'), (5, 2, NULL), (6, NULL, 'a');`)
	bindBoth(t, b, ci, "jobs: [{table: parts, column: [build_id, part], on_delete: async_delete}]")
	auditor := auditorWithRemote(b, ci, true)
	auditor.Batch = 1
	report := b.auditBuilds(t, auditor)
	require.Empty(t, report.Error)
	require.EqualValues(t, 3, report.CheckedKeys)
	require.EqualValues(t, 2, report.OrphanedRows)
	require.Equal(t, []string{`{1,"c,\""}`}, report.Samples)
	require.EqualValues(t, 1, report.RepairedKeys)
	require.EqualValues(t, 1, b.run(t).Processed)
	require.Equal(t, [][]string{{"1"}, {"4"}, {"5"}, {"6"}}, ci.Rows("SELECT id FROM jobs ORDER BY id"))
}

// A key is not repaired if its parent or its children change between two queries of the
// audit, so that it is no longer orphaned.
func TestAuditWhileParentsChange(t *testing.T) {
	t.Parallel()
	type example struct {
		// transaction is the number of the transaction in the children's database before
		// which change is called: 1 reads keys, 2 queries children again, 3 counts rows.
		transaction int
		change      func(t *testing.T, b bundle, ci *dbtest.DB)
		want        []string
	}
	pgtest.Each(t, map[string]example{
		"parent deleted before the children were read": {1, func(_ *testing.T, b bundle,
			_ *dbtest.DB,
		) {
			b.Exec("DELETE FROM parents WHERE id = 2")
		}, []string{"1"}},
		"children deleted after they were read": {2, func(_ *testing.T, b bundle, ci *dbtest.DB) {
			b.execUntracked("DELETE FROM parents WHERE id = 3")
			ci.Exec("DELETE FROM builds WHERE parent_id = 1")
		}, []string{}},
		"parent inserted after the children were read": {2, func(_ *testing.T, b bundle,
			_ *dbtest.DB,
		) {
			b.Exec("INSERT INTO parents VALUES (1)")
		}, []string{}},
		"tombstone processed by a pass": {2, func(t *testing.T, b bundle, _ *dbtest.DB) {
			b.Exec("INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) VALUES ('public.parents', 1)")
			require.EqualValues(t, 1, b.run(t).Processed)
		}, []string{}},
	}, func(t *testing.T, _ string, test example) {
		b, ci := twoDatabases(t)
		b.execUntracked("DELETE FROM parents WHERE id = 1")
		auditor := auditorWithRemote(b, ci, true)
		auditor.Remotes["ci"] = hookTransaction(ci, test.transaction, func() error { test.change(t, b, ci); return nil })
		report := b.auditBuilds(t, auditor)
		require.Empty(t, report.Error)
		require.Equal(t, test.want, report.Samples)
		require.EqualValues(t, len(test.want), report.RepairedKeys)
	})
}

// If another audit repairs a key after this audit has read it, and a pass removes the
// tombstone, this audit does not insert the tombstone again.
func TestConcurrentRepairs(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	b.execUntracked("DELETE FROM parents WHERE id <= 3")
	auditor := auditorWithRemote(b, ci, true)
	// Before transaction 3, which counts rows, the audit has read the keys, and has not
	// taken the lock of repairs yet.
	auditor.Remotes["ci"] = hookTransaction(ci, 3, func() error {
		require.EqualValues(t, 3, b.auditBuilds(t, auditorWithRemote(b, ci, true)).RepairedKeys)
		b.Exec("DELETE FROM loose_foreign_keys_deleted_records WHERE primary_key_value = 1")
		ci.Exec("DELETE FROM builds WHERE parent_id = 1")
		return nil
	})
	require.Zero(t, b.auditBuilds(t, auditor).RepairedKeys)
	require.EqualValues(t, 2, b.Pending(t))
}

func TestAuditSkipsUnusableDefinitions(t *testing.T) {
	t.Parallel()
	b, _ := twoDatabases(t)
	auditor := b.auditor(1000, true)
	require.Equal(t, "database ci cannot be reached", b.auditBuilds(t, auditor).Skipped)
	for _, reference := range b.engine.Parents[0].References {
		reference.Broken = "table builds has no column parent_id"
	}
	require.Equal(t, "table builds has no column parent_id", b.auditBuilds(t, auditor).Skipped)
}

// If another database is lost, only the audits of children in it fail. A canceled context
// ends every audit.
func TestAuditContinuesAfterALostDatabase(t *testing.T) {
	t.Parallel()
	b, ci := twoDatabases(t)
	b.execUntracked("DELETE FROM parents WHERE id = 1")
	auditor := auditorWithRemote(b, ci, true)
	// Transaction 4 is part of the repair.
	auditor.Remotes["ci"] = hookTransaction(ci, 4, func() error {
		return errors.New("dial tcp 10.0.0.1:5432: connection refused\nand more")
	})
	require.Equal(t, "builds: database ci: the connection failed", b.auditBuilds(t, auditor).Error)
	require.Zero(t, b.Pending(t))

	ctx, cancel := context.WithCancel(t.Context())
	auditor.Remotes["ci"] = hookTransaction(ci, 1, func() error { cancel(); return ctx.Err() })
	for _, reference := range append([]*loosefk.Reference{b.remoteReference(t)}, b.engine.Parents[0].References...) {
		_, err := auditor.Audit(ctx, b.engine.Parents[0], reference)
		require.ErrorIs(t, err, context.Canceled)
	}
}

// After a timeout the audit retries with fewer keys. A single key that times out counts
// as unchecked.
func TestAuditCountsUncheckedKeysAfterTimeouts(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TYPE slow AS (n integer);
CREATE FUNCTION slowly(a slow, b slow) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF a.n = 2 THEN PERFORM pg_sleep(600); END IF;
	RETURN a.n > 0;
END $$;
CREATE OPERATOR = (LEFTARG = slow, RIGHTARG = slow, FUNCTION = slowly);
CREATE OPERATOR CLASS slow_ops DEFAULT FOR TYPE slow USING btree AS OPERATOR 3 =, FUNCTION 1 btrecordcmp (record, record);
`+dbtest.Family(0, dbtest.Children{Columns: "kind slow"})+"INSERT INTO children SELECT n, n, ('(' || n || ')')::slow FROM generate_series(0, 3) AS n;",
		dbtest.Definitions("async_delete, conditions: [{column: kind, value: (1)}]", "children"), "parents")
	auditor := b.auditor(1000, true)
	auditor.Bounds.StatementTimeout = time.Second
	report := b.auditFirst(t, auditor)
	require.EqualValues(t, 4, report.CheckedKeys)
	require.EqualValues(t, 1, report.UncheckedKeys)
	require.Equal(t, []string{"1", "3"}, report.Samples)
	require.EqualValues(t, 2, report.RepairedKeys)
}

// After timeouts a statement reads only as many keys as the timeout allows, whatever the
// configured batch is.
func TestAuditReducesItsBatchAfterTimeouts(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (parent_id bigint);
INSERT INTO parents SELECT n FROM generate_series(1, 150000) AS n WHERE n % 50000 > 0;
INSERT INTO children SELECT generate_series(1, 150000);
CREATE INDEX ON children (parent_id);`, deleteChildren, "parents")
	auditor := b.auditor(1_000_000, false)
	auditor.Bounds.StatementTimeout = 250 * time.Millisecond
	report := b.auditFirst(t, auditor)
	require.EqualValues(t, 150_000, report.CheckedKeys)
	require.Equal(t, []string{"50000", "100000", "150000"}, report.Samples)
}

func TestAuditWithALargeBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec("DELETE FROM parents WHERE id <= 5")
	auditor := b.auditor(1000, true)
	auditor.Backlog = 5
	require.Empty(t, b.auditFirst(t, auditor).Error)
	auditor.Backlog = 4
	require.Equal(t, "more than 4 tombstones of public.parents are pending: audit again when they have been processed",
		b.auditFirst(t, auditor).Error)
}

func TestAuditFailsOnHiddenRows(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	role := b.CreateRole()
	quoted := pgx.Identifier{role}.Sanitize()
	b.Exec("GRANT SELECT ON children TO " + quoted +
		"; GRANT SELECT, INSERT ON loose_foreign_keys_deleted_records TO " + quoted)
	conn := pgtest.Connect(t, b.AsRole(role))
	auditor := b.auditor(1000, true)
	auditor.DB = conn
	require.Equal(t, "children: SQLSTATE 42501: permission denied for table parents", b.auditFirst(t, auditor).Error)

	b.Exec("GRANT SELECT ON parents TO " + quoted + "; ALTER TABLE parents ENABLE ROW LEVEL SECURITY")
	require.Contains(t, b.auditFirst(t, auditor).Error, "row-level security")
	require.Zero(t, b.Pending(t))

	b.Exec("ALTER TABLE parents DISABLE ROW LEVEL SECURITY")
	b.execUntracked("DELETE FROM parents WHERE id = 1")
	report := b.auditFirst(t, auditor)
	require.Empty(t, report.Error)
	require.EqualValues(t, 1, report.RepairedKeys, "the role needs no other privileges")
}

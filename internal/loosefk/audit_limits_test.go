package loosefk_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// What takes too long is done in smaller pieces, and what takes too long by itself is said.
func TestAuditThatTimesOut(t *testing.T) {
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
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (parent_id bigint, kind slow);
CREATE INDEX ON children (parent_id);
INSERT INTO children SELECT n, ('(' || n || ')')::slow FROM generate_series(0, 3) AS n;`, `
children:
  - {table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: kind, value: (1)}]}
`, "parents")
	auditor := b.auditor(1000, true)
	auditor.Bounds.StatementTimeout = time.Second
	report := b.audit(t, auditor)["children[0]"]
	require.EqualValues(t, 4, report.CheckedKeys)
	require.EqualValues(t, 1, report.UncheckedKeys)
	require.Equal(t, []string{"1", "3"}, report.Samples)
	require.EqualValues(t, 2, report.RepairedKeys)
}

// However many keys a statement is asked for, it reads as many as the timeout allows.
func TestAuditFindsItsOwnBatch(t *testing.T) {
	t.Parallel()
	b := setup(t, `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (parent_id bigint);
INSERT INTO parents SELECT n FROM generate_series(1, 150000) AS n WHERE n % 50000 > 0;
INSERT INTO children SELECT generate_series(1, 150000);
CREATE INDEX ON children (parent_id);`, deleteChildren, "parents")
	auditor := b.auditor(1_000_000, false)
	auditor.Bounds.StatementTimeout = 250 * time.Millisecond
	report := b.audit(t, auditor)["children[0]"]
	require.EqualValues(t, 150_000, report.CheckedKeys)
	require.Equal(t, []string{"50000", "100000", "150000"}, report.Samples)
}

func TestAuditBehindALongBacklog(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	b.Exec("DELETE FROM parents WHERE id <= 5")
	auditor, parent := b.auditor(1000, true), b.engine.Parents[0]
	auditor.Backlog = 5
	require.Empty(t, b.audit(t, auditor)["children[0]"].Error)
	auditor.Backlog = 4
	report := pgtest.Must(auditor.Audit(t.Context(), parent, parent.References[0]))(t)
	require.Equal(t, "more than 4 tombstones of public.parents wait: audit again when they are worked off", report.Error)
}

func TestAuditDoesNotTrustHiddenRows(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	role := b.CreateRole()
	quoted := pgx.Identifier{role}.Sanitize()
	b.Exec("GRANT SELECT ON children TO " + quoted + "; GRANT SELECT, INSERT ON loose_foreign_keys_deleted_records TO " + quoted)
	conn := pgtest.Connect(t, b.AsRole(role))
	auditor := b.auditor(1000, true)
	auditor.DB = conn
	parent := b.engine.Parents[0]

	report := pgtest.Must(auditor.Audit(t.Context(), parent, parent.References[0]))(t)
	require.Equal(t, "children: SQLSTATE 42501: permission denied for table parents", report.Error)

	b.Exec("GRANT SELECT ON parents TO " + quoted + "; ALTER TABLE parents ENABLE ROW LEVEL SECURITY")
	report = pgtest.Must(auditor.Audit(t.Context(), parent, parent.References[0]))(t)
	require.Contains(t, report.Error, "row-level security")
	require.Zero(t, b.Pending(t))

	b.Exec("ALTER TABLE parents DISABLE ROW LEVEL SECURITY")
	b.untracked("DELETE FROM parents WHERE id = 1")
	report = pgtest.Must(auditor.Audit(t.Context(), parent, parent.References[0]))(t)
	require.Empty(t, report.Error)
	require.EqualValues(t, 1, report.RepairedKeys, "to read the tables and to leave tombstones is all it needs")
}

func TestAuditEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t, parentsAndChildren, deleteChildren, "parents")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	parent := b.engine.Parents[0]
	_, err := b.auditor(1000, true).Audit(ctx, parent, parent.References[0])
	require.ErrorIs(t, err, context.Canceled)
}

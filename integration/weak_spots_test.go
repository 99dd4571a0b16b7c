package integration

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
)

// These are weaknesses of GitLab's cleanup, with the tests that it would fail. Packages
// are relative to the module.
//
//	 1  a failing first batch is retried forever and         internal/drain   TestFailures
//	    ends the run for all tables                          internal/loosefk TestDroppedChildTable, TestTimingOutTableIsHeld
//	 2  rescheduling re-orders and does not delay            internal/loosefk TestFailingTombstonesAreDeferredLongerEachTime
//	                                                         internal/loosefk TestDeferredTombstonesAreKept
//	 3  one heavy parent counts an attempt for all 500       internal/loosefk TestOverLimitCountsAttemptsOfTheLargeParentOnly
//	 4  a heavy parent is not split                          internal/loosefk TestAdaptiveLargeParentDoesNotDelaySmallOnes
//	                                                         internal/loosefk TestOverLimitCountsAttemptsOfTheLargeParentOnly
//	 5  two statements per definition without children       TestOneGitLabDeletion
//	 6  one lock for all databases                           internal/lease TestTakeOverSparesOtherLeases
//	    a held lock fails the job                            river_jobs TestWorkerSkipsAHeldLease
//	 7  the lock on the queue blocks deletions               TestQueueIsNeverLocked
//	 8  one old pending row keeps all later ones             internal/drain   TestFailures
//	 9  invalid definitions discard tombstones               river_jobs TestWorkerSkipsADefinitionThatNoLongerFits
//	                                                         internal/loosefk TestDroppedChildTable
//	10  the second run deletes a child that has moved        internal/loosefk TestMovedChildIsKept
//	                                                         TestDifferential
//	11  late children are kept                               internal/loosefk TestAuditFindsOrphansWithAnyBatchSize, TestRepairNotifiesWorkers
//	12  tombstones are sorted as text                        TestTombstonesAreReadInOrder
//	    row limits count per partition                       internal/loosefk TestRowLimitsAreExact

// parentsAndChildrenTables creates ten parents with ten children each.
const parentsAndChildrenTables = `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
CREATE INDEX ON children (parent_id);
INSERT INTO parents SELECT generate_series(1, 10);
INSERT INTO children SELECT number, number % 10 + 1 FROM generate_series(0, 99) AS number;
`

const deleteChildren = "children: [{table: parents, column: parent_id, on_delete: async_delete}]\n"

// inProcessSite is a database with a worker inside the test process.
type inProcessSite struct {
	*worker
	db   *pgtest.Database
	defs []definitions.Definition
}

func newInProcessSite(t *testing.T, tables, yaml string, tracer pgx.QueryTracer) inProcessSite {
	s := inProcessSite{db: dbtest.New(t).Database}
	s.db.Exec(tables)
	s.worker = newWorker(t, s.db, "worker", pgtest.Logger(t), tracer)
	s.defs = pgtest.Must(definitions.Parse(definitions.File{Name: "loose_foreign_keys.yml", Data: []byte(yaml)}))(t)
	s.track(t.Context(), t, s.defs)
	return s
}

// runPass runs the loose foreign keys once and returns the statistics of the run.
func (s inProcessSite) runPass(t *testing.T) loosefk.Stats {
	report := pgtest.Must(s.run(t.Context(), s.defs))(t)
	var stats loosefk.Stats
	require.NoError(t, json.Unmarshal(report.Stats, &stats))
	return stats
}

// limitDeletes limits the deletions of one run. Only the pace normal has that limit.
func (s inProcessSite) limitDeletes(deletes int) {
	s.config.Databases[0].Pace = config.Normal
	s.config.Databases[0].Limits.Deletes = deletes
}

// roundTrips counts round trips and the statements in them.
type roundTrips struct{ sent, statements atomic.Int64 }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.sent.Add(1)
	r.statements.Add(1)
	return ctx
}

func (r *roundTrips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	r.sent.Add(1)
	return ctx
}

func (r *roundTrips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	r.sent.Add(1)
	return ctx
}

func (r *roundTrips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
	r.statements.Add(1)
}

func (*roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (*roundTrips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}
func (*roundTrips) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

// TestQueueIsNeverLocked runs the job while a transaction that has deleted a parent is
// open. A lock on the queue that conflicts with deletions would wait for the transaction.
func TestQueueIsNeverLocked(t *testing.T) {
	t.Parallel()
	s := newInProcessSite(t, parentsAndChildrenTables, deleteChildren, nil)
	application := connect(t, s.db.URL)
	exec := func(sql string) {
		_, err := application.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	s.db.Exec("DELETE FROM parents WHERE id <= 8")
	exec("BEGIN; DELETE FROM parents WHERE id = 9")
	require.EqualValues(t, 8, s.runPass(t).Processed)
	exec("DELETE FROM parents WHERE id = 10; COMMIT")
	require.EqualValues(t, 2, s.runPass(t).Processed)
	require.Zero(t, pgtest.Scalar[int64](t, s.db, "SELECT count(*) FROM children"))
}

// TestTombstonesAreReadInOrder runs the job with more tombstones than one load reads. The
// oldest tombstones have the highest keys and ids, and the keys include 9, 99 and 999. A
// run that ends early must have processed the oldest tombstones.
func TestTombstonesAreReadInOrder(t *testing.T) {
	t.Parallel()
	s := newInProcessSite(t, `
		CREATE TABLE parents (id bigint PRIMARY KEY);
		CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint);
		CREATE INDEX ON children (parent_id);
		INSERT INTO parents SELECT generate_series(1, 1100);
		INSERT INTO children SELECT id, id FROM parents;`, deleteChildren, nil)
	s.db.Exec("DELETE FROM parents")
	s.db.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now() - primary_key_value * interval '1 minute'")
	s.limitDeletes(500)
	require.EqualValues(t, 500, s.runPass(t).DeleteCount)
	require.Equal(t, [][]string{{"1", "600", "600"}},
		s.db.Rows("SELECT min(parent_id), max(parent_id), count(*) FROM children"))
}

package loosefk

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/drain"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

// ranNode is what these tests read of EXPLAIN (ANALYZE, FORMAT JSON).
type ranNode struct {
	Node      string    `json:"Node Type"`
	Relation  string    `json:"Relation Name"`
	Index     string    `json:"Index Name"`
	IndexCond string    `json:"Index Cond"`
	Parent    string    `json:"Parent Relationship"`
	Rows      float64   `json:"Actual Rows"`
	Loops     float64   `json:"Actual Loops"`
	Filtered  float64   `json:"Rows Removed by Filter"`
	Rechecked float64   `json:"Rows Removed by Index Recheck"`
	Plans     []ranNode `json:"Plans"`
}

// walk calls visit for the node and all below it.
func (n ranNode) walk(visit func(ranNode)) {
	visit(n)
	for _, below := range n.Plans {
		below.walk(visit)
	}
}

const queueTable = "loose_foreign_keys_deleted_records"

// read is the number of rows that the plan's scans took from tombstones and children.
func (n ranNode) read() (rows float64) {
	n.walk(func(n ranNode) {
		if n.Relation != "" && n.Node != "ModifyTable" {
			rows += n.Loops * (n.Rows + n.Filtered + n.Rechecked)
		}
	})
	return rows
}

// change is the node that deletes or updates tombstones.
func (n ranNode) change(t *testing.T) ranNode {
	var found []ranNode
	n.walk(func(n ranNode) {
		if n.Node == "ModifyTable" && n.Relation == queueTable {
			found = append(found, n)
		}
	})
	require.Len(t, found, 1)
	return found[0]
}

// backlog is a database with so many pending tombstones and one child for each other parent, and the first
// ten of the tombstones. Statistics are never or wrongly taken.
func backlog(t *testing.T, pending int, analysed bool) (*dbtest.DB, []tombstone) {
	db := dbtest.New(t)
	db.Exec(dbtest.Family(0, dbtest.Children{}) + "ALTER TABLE children SET (autovacuum_enabled = off); ALTER TABLE " + queueTable + " SET (autovacuum_enabled = off)")
	if analysed {
		db.Exec("ANALYZE " + queueTable + ", children")
	}
	db.Exec(`INSERT INTO `+queueTable+` (fully_qualified_table_name, primary_key_value, consume_after)
		SELECT 'public.parents', n, timestamptz '2024-01-01' + n / 7 * interval '1 ms' FROM generate_series(1, $1::int) AS n`, pending)
	db.Exec("INSERT INTO children SELECT n, 2 * n FROM generate_series(1, $1::int) AS n", pending)
	return db, firstTen(t, db)
}

// firstTen are tombstones as a run loads them.
func firstTen(t *testing.T, db *dbtest.DB) []tombstone {
	rows, _ := db.Pool().Query(t.Context(), "SELECT id, consume_after, ctid, primary_key_value, primary_key_text FROM "+queueTable+" ORDER BY id LIMIT 10")
	tombstones := pgtest.Must(pgx.CollectRows(rows, func(row pgx.CollectableRow) (found tombstone, err error) {
		err = row.Scan(&found.id, &found.consumeAfter, &found.tuple, &found.integer, &found.text)
		return found, err
	}))(t)
	require.Len(t, tombstones, 10)
	return tombstones
}

// backlogParent is the parent of a backlog's tombstones.
func backlogParent() *Parent {
	reference := &Reference{Edge: drain.Edge{
		Child: Table{Schema: "public", Name: "children"}, Columns: []string{"parent_id"}, Action: drain.Remove, Compare: []pgcatalog.Comparison{plain},
	}}
	reference.Leaves = []Table{reference.Child}
	return &Parent{
		Key: drain.Key{Integer: true, KeyCompare: reference.Compare}, Recorded: "public.parents", References: []*Reference{reference},
	}
}

// explain runs a statement as a batch does, with its settings and its generic plan, and rolls it back.
func explain(t *testing.T, db *dbtest.DB, sql string, args []any) ranNode {
	return explainUnder(t, db, batchSettings(), sql, args)
}

// batchSettings are the statements that a batch begins with.
func batchSettings() []string {
	return []string{
		"INSERT INTO sexton.fences VALUES ('plan', 1)",
		fmt.Sprintf("SELECT sexton.begin_batch('plan', 1, %d, %d, true)", time.Minute.Milliseconds(), time.Minute.Milliseconds()),
	}
}

// explainUnder runs a prepared statement behind others, and rolls it back.
func explainUnder(t *testing.T, db *dbtest.DB, before []string, sql string, args []any) ranNode {
	tx := pgtest.Must(db.Pool().Begin(t.Context()))(t)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	for _, statement := range append(before, "PREPARE statement AS "+sql) {
		_, err := tx.Exec(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	numbers := make([]string, len(args))
	for i := range args {
		numbers[i] = fmt.Sprintf("$%d", i+1)
	}
	execute := "EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE statement(" + strings.Join(numbers, ", ") + ")"
	var raw []byte
	require.NoError(t, tx.QueryRow(t.Context(), execute, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...).Scan(&raw))
	var plans []struct{ Plan ranNode }
	require.NoError(t, json.Unmarshal(raw, &plans))
	pgtest.Exec(t, tx, "DEALLOCATE statement")
	return plans[0].Plan
}

// requireLookups checks that the plan finds each tombstone by the whole key of the index, and then goes to the
// rows by their pointers.
func requireLookups(t *testing.T, plan ranNode, found int) {
	change := plan.change(t)
	require.Equal(t, queueTable, change.Relation)
	top := change.Plans[len(change.Plans)-1]
	for _, below := range change.Plans {
		if below.Parent == "Outer" {
			top = below
		}
	}
	require.Equal(t, "Tid Scan", top.Node)
	require.InDelta(t, found, top.Rows, 0)
	var lookups int
	plan.walk(func(n ranNode) {
		if n.Relation != queueTable || n.Node == "ModifyTable" || n.Node == "Tid Scan" {
			return
		}
		lookups++
		require.Contains(t, []string{"Index Scan", "Index Only Scan"}, n.Node)
		for _, column := range []string{"fully_qualified_table_name", "consume_after", ".id"} {
			require.Contains(t, n.IndexCond, column)
		}
		require.InDelta(t, 10, n.Loops, 0, "one look-up per tombstone")
	})
	require.Equal(t, 1, lookups)
}

// Statistics of a queue are never right. A plan that follows them reads the whole backlog in each batch.
func TestTombstonesAreLookedUpOneByOneWhateverTheStatistics(t *testing.T) {
	t.Parallel()
	parent := backlogParent()
	removal := func(checked, exact bool) func([]tombstone) (string, []any) {
		return func(tombstones []tombstone) (string, []any) {
			return parent.removeStatement(dbtest.Names(), "main", tombstones, false, []bool{checked}, []bool{exact})
		}
	}
	type example struct {
		// changed is the number of the ten tombstones.
		changed int
		build   func([]tombstone) (string, []any)
	}
	statements := map[string]example{
		"removal":                            {5, removal(true, false)},
		"removal without a look at children": {10, removal(false, false)},
		"removal of what an exact statement has cleaned": {10, removal(true, true)},
		"record failure": {10, func(tombstones []tombstone) (string, []any) {
			ids, times := positions(tombstones)
			return dbtest.Names().Render(statement("record_failure")), []any{parent.Recorded, ids, times, "reason", false, nil}
		}},
	}
	pgtest.Each(t, map[string]bool{"never analysed": false, "analysed when empty": true}, func(t *testing.T, _ string, analysed bool) {
		read := map[string][]float64{}
		for _, pending := range []int{100, 5000} {
			db, tombstones := backlog(t, pending, analysed)
			for name, statement := range statements {
				sql, args := statement.build(tombstones)
				plan := explain(t, db, sql, args)
				requireLookups(t, plan, statement.changed)
				read[name] = append(read[name], plan.read())
			}
		}
		for name, rows := range read {
			require.InDelta(t, rows[0], rows[1], 0, "rows read with 100 and with 5000 pending: %s", name)
			require.LessOrEqual(t, rows[1], 40.0, name)
		}
	})
}

// A tombstone that has been put off since it was loaded has another place, and is somebody else's to remove.
func TestRemovalLeavesTombstonesThatMoved(t *testing.T) {
	t.Parallel()
	db, tombstones := backlog(t, 100, false)
	tombstones = tombstones[:3]
	tombstones[1].consumeAfter = pgtype.Timestamptz{Time: tombstones[1].consumeAfter.Time.Add(time.Hour), Valid: true}
	sql, args := backlogParent().removeStatement(dbtest.Names(), "main", tombstones, false, []bool{false}, []bool{false})
	db.Exec(sql, args...)
	require.Equal(t, [][]string{{"2"}, {"4"}}, db.Rows("SELECT primary_key_value FROM "+queueTable+" WHERE primary_key_value < 5 ORDER BY 1"))
}

// The rows that were loaded are read by their pointers alone. A tombstone that was written again since may stand for a new reason.
func TestRemovalOfLoadedTombstonesReadsTheirRowsAlone(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]bool{"never analysed": false, "analysed when empty": true}, func(t *testing.T, _ string, analysed bool) {
		db, tombstones := backlog(t, 5000, analysed)
		sql, args := backlogParent().removeStatement(dbtest.Names(), "main", tombstones, true, []bool{false}, []bool{false})
		plan := explain(t, db, sql, args)
		plan.walk(func(n ranNode) {
			if n.Relation == queueTable && n.Node != "ModifyTable" {
				require.Equal(t, "Tid Scan", n.Node)
			}
		})
		require.LessOrEqual(t, plan.read(), 20.0)
		db.Exec("UPDATE "+queueTable+" SET cleanup_attempts = 1 WHERE id = $1", tombstones[1].id)
		db.Exec(sql, args...)
		require.Equal(t, [][]string{{"2"}}, db.Rows("SELECT primary_key_value FROM "+queueTable+" WHERE primary_key_value <= 10"))
	})
}

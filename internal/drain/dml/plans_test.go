package dml

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

// node is a node of a query plan in JSON.
type node struct {
	Type     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Plans    []node `json:"Plans"`
}

func (n node) scans() (tables []string) {
	if n.Type == "Seq Scan" && n.Relation != "" {
		tables = append(tables, n.Relation)
	}
	for _, below := range n.Plans {
		tables = append(tables, below.scans()...)
	}
	return tables
}

// The plans of statements that change rows have no sequential scan, whatever the
// statistics are and without planner settings.
func TestPlansDoNotDependOnStatistics(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"analyzed":       "ANALYZE",
		"never analyzed": "SELECT",
		"analyzed when empty": `CREATE TABLE kept AS SELECT * FROM below; TRUNCATE below; ANALYZE;
			INSERT INTO below SELECT * FROM kept`,
		"one distinct value": `ANALYZE; UPDATE pg_statistic SET stadistinct = 1, stanullfrac = 0, stakind1 = 0, stakind2 = 0, stakind3 = 0
			WHERE starelid IN ('below'::regclass, 'pairs'::regclass)`,
	}, func(t *testing.T, _, statistics string) {
		db := dbtest.New(t)
		db.Exec(`
			CREATE TABLE above (id bigint PRIMARY KEY) WITH (autovacuum_enabled = off);
			CREATE TABLE rows (id bigint PRIMARY KEY, above_id bigint REFERENCES above ON DELETE CASCADE, a bigint, b bigint, UNIQUE (a, b))
				WITH (autovacuum_enabled = off);
			CREATE TABLE below (id bigint PRIMARY KEY, row_id bigint REFERENCES rows ON DELETE SET NULL, filler text) WITH (autovacuum_enabled = off);
			CREATE TABLE pairs (id bigint PRIMARY KEY, a bigint, b bigint, FOREIGN KEY (a, b) REFERENCES rows (a, b) ON DELETE CASCADE)
				WITH (autovacuum_enabled = off);
			CREATE INDEX ON below (row_id); CREATE INDEX ON pairs (a, b);
			INSERT INTO above SELECT generate_series(1, 1000);
			INSERT INTO rows SELECT n, n % 1000 + 1, n, n FROM generate_series(1, 20000) AS n;
			INSERT INTO below SELECT n, n % 10000 + 1, repeat('x', 100) FROM generate_series(1, 50000) AS n;
			INSERT INTO pairs SELECT n, n, n FROM generate_series(1, 20000) AS n`)
		db.Exec(statistics)
		oid := pgtest.Scalar[uint32](t, db.Pool(), "SELECT 'rows'::regclass::oid")
		table := pgtest.Must(Below(t.Context(), db.Pool(), []uint32{oid}))(t)[oid]
		owner := Owner{
			Deleted: "counted AS (SELECT $3::bigint)", Changed: "counted AS (SELECT $3::bigint)",
			Extra: func(*Table) Extra { return Extra{} },
		}
		for _, n := range []int{1, 100, 2000} {
			wanted := slices.Repeat(Rows{{At: Tuple{BlockNumber: 1, OffsetNumber: 1, Valid: true}, Version: 700}}, n)
			requireNoScan := func(sql string, more ...any) {
				var text []byte
				var plans []struct{ Plan node }
				err := db.Pool().QueryRow(t.Context(), "EXPLAIN (FORMAT JSON) "+sql,
					wanted.Args(more...)...).Scan(&text)
				require.NoError(t, err)
				require.NoError(t, json.Unmarshal(text, &plans))
				require.Empty(t, plans[0].Plan.scans(), "%d rows: %s\n%s", n, sql, text)
			}
			leaf := table.Leaves[0]
			requireNoScan(LockStatement(leaf, true))
			requireNoScan(HoldStatement(leaf, "FOR UPDATE"))
			requireNoScan(owner.RemoveStatement(table, leaf, false), 1)
			requireNoScan(owner.RemoveStatement(table, leaf, true), 1)
			requireNoScan(owner.CascadeStatement(table, leaf), 1, 1)
			for _, f := range table.Refs {
				if f.Action == Nullify {
					requireNoScan(owner.ChangeStatement(f, f.Leaves[0], false), 1)
				}
			}
		}
	})
}

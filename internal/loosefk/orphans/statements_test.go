package orphans

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func bind(t *testing.T, db *dbtest.DB, yaml []byte) []*loosefk.Parent {
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "definitions.yml", Data: yaml}))(t)
	resolved, problems := pgtest.Must2(loosefk.Resolve(t.Context(),
		[]loosefk.Site{{Name: "main", Schema: "public", DB: db.Pool()}}, defs))(t)
	require.NoError(t, problems.Err())
	return resolved["main"]
}

// The statements for all kinds of keys and children match the golden file.
func TestStatementsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	tables := pgtest.Must(os.ReadFile("../testdata/tables.sql"))(t)
	list := pgtest.Must(os.ReadFile("../testdata/definitions.yml"))(t)
	db := dbtest.New(t)
	db.Exec(string(tables))
	var g pgtest.Statements
	after, names := "x", pgcatalog.Names{Tracked: `App "one"`}
	for _, parent := range bind(t, db, list) {
		p := keyed{parent}
		g.Add(p.Recorded + " here without parent")(p.withoutParentStatement(nil))
		g.Add(p.Recorded + " repair")(p.repairStatement(names, nil))
		for _, r := range p.References {
			for _, where := range []string{"here", "remote"} {
				r.Remote = where == "remote"
				of := func(name string) string { return fmt.Sprintf("%s %s %s", r.Definition.Key, where, name) }
				g.Add(of("walk"))(p.walkStatement(r, nil, 10))
				g.Add(of("walk on"))(p.walkStatement(r, &after, 10))
				g.Add(of("with child"))(p.withChildStatement(r, nil))
				g.Add(of("orphans"))(p.orphansStatement(names, r, nil))
				g.Add(of("orphan rows"))(p.orphanRowsStatement(r, nil, 10))
			}
		}
	}
	pgtest.Golden(t, "statements.txt", g.String())
}

// node is a node of a query plan.
type node struct {
	Node     string  `json:"Node Type"`
	Relation string  `json:"Relation Name"`
	Index    string  `json:"Index Name"`
	Rows     float64 `json:"Actual Rows"`
	Loops    float64 `json:"Actual Loops"`
	Filtered float64 `json:"Rows Removed by Filter"`
	Plans    []node  `json:"Plans"`
}

// childrenRead returns the number of children that a plan reads. It fails the test if the
// plan does not find them by the index of their key.
func (n node) childrenRead(t *testing.T, name string) (rows float64) {
	require.NotEqual(t, "Seq Scan", n.Node, "%s: %+v", name, n)
	if n.Relation == "children" && n.Node != "ModifyTable" && n.Node != "Tid Scan" {
		require.Equal(t, "by_key", n.Index, "%s: %+v", name, n)
		rows = n.Loops * (n.Rows + n.Filtered)
	}
	for _, below := range n.Plans {
		rows += below.childrenRead(t, name)
	}
	return rows
}

// Statements read few children, and by the index of their key, even if the statistics are
// from a time when the table was empty or when all rows had one key.
func TestCompositeKeysUseTheIndexWithAnyStatistics(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"never analyzed":         "SELECT",
		"analyzed when empty":    "ANALYZE children, loose_foreign_keys_deleted_records",
		"analyzed with one key":  "INSERT INTO children SELECT n, 1, '1' FROM generate_series(1, 5000) AS n; ANALYZE children",
		"analyzed with one half": "INSERT INTO children SELECT n, n, '1' FROM generate_series(1, 5000) AS n; ANALYZE children",
	}, func(t *testing.T, _, statistics string) {
		db := dbtest.New(t)
		db.Exec(`
			CREATE TABLE parents (a int, b text, PRIMARY KEY (a, b)) WITH (autovacuum_enabled = off);
			CREATE TABLE children (id bigint PRIMARY KEY, a int, b text) WITH (autovacuum_enabled = off);
			CREATE INDEX by_key ON children (b, a);
			ALTER TABLE loose_foreign_keys_deleted_records SET (autovacuum_enabled = off);` + statistics)
		db.Exec("TRUNCATE children; INSERT INTO children SELECT n, n / 2, n % 2 FROM generate_series(1, 5000) AS n")
		db.Exec(`INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_text)
			SELECT 'public.parents', ARRAY[(n / 2)::text, (n % 2)::text]::text FROM generate_series(1, 5000) AS n`)
		p := keyed{bind(t, db, []byte("children: [{table: parents, column: [a, b], on_delete: async_delete}]"))[0]}
		r, keys := p.References[0], []string{
			"{0,1}", "{1,0}", "{1,1}", "{2,0}", "{2,1}", "{3,0}", "{3,1}", "{4,0}",
			"{4,1}", "{5,0}",
		}
		explain := func(name, settings string) func(sql string, args []any) {
			return func(sql string, args []any) {
				var plan []byte
				tx := pgtest.Begin(t, db.Pool())
				pgtest.Exec(t, tx, "SET LOCAL jit = off; "+settings)
				require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+sql, args...).Scan(&plan))
				var decoded [1]struct{ Plan node }
				require.NoError(t, json.Unmarshal(plan, &decoded))
				require.LessOrEqual(t, decoded[0].Plan.childrenRead(t, name), 40.0, name)
			}
		}
		explain("walk", byIndex)(p.walkStatement(r, &keys[0], 10))
		explain("orphans", byHash)(p.orphansStatement(dbtest.Names(), r, keys))
		explain("rows of orphans", byHash)(p.orphanRowsStatement(r, keys, 1000))
	})
}

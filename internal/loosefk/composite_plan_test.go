package loosefk

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
)

// compositeBacklog is a database with so many children of as many gone parents, two of each tenant, and statistics of
// some other time; with the parent and ten of the tombstones.
func compositeBacklog(t *testing.T, children int, statistics string) (*dbtest.DB, *Parent, []tombstone) {
	t.Helper()
	db := dbtest.New(t)
	db.Exec(`
		CREATE TABLE parents (a int, b text, PRIMARY KEY (a, b)) WITH (autovacuum_enabled = off);
		CREATE TABLE children (id bigint PRIMARY KEY, a int, b text) WITH (autovacuum_enabled = off);
		CREATE INDEX by_key ON children (b, a);
		ALTER TABLE ` + queue + ` SET (autovacuum_enabled = off);
		` + statistics)
	db.Exec("TRUNCATE children, " + queue)
	db.Exec("INSERT INTO children SELECT n, n / 2, n % 2 FROM generate_series(1, $1::int) AS n", children)
	db.Exec(`INSERT INTO `+queue+` (fully_qualified_table_name, primary_key_text, consume_after)
		SELECT 'public.parents', ARRAY[(n / 2)::text, (n % 2)::text]::text, timestamptz '2024-01-01' + n / 7 * interval '1 ms' FROM generate_series(1, $1::int) AS n`, children)
	defs, err := definitions.Parse(definitions.File{Name: "f.yml", Data: []byte("children: [{table: parents, column: [a, b], on_delete: async_delete}]")})
	require.NoError(t, err)
	parents, problems, err := Resolve(t.Context(), []Site{{Name: "main", Schema: "public", DB: db.Pool()}}, defs)
	require.NoError(t, err)
	require.Empty(t, problems)
	rows, err := db.Pool().Query(t.Context(), "SELECT id, consume_after, primary_key_text FROM "+queue+" ORDER BY id LIMIT 10")
	require.NoError(t, err)
	tombstones, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (tombstone, error) {
		var found tombstone
		err := row.Scan(&found.id, &found.consumeAfter, &found.text)
		return found, err
	})
	require.NoError(t, err)
	require.Len(t, tombstones, 10)
	return db, parents["main"][0], tombstones
}

// Statistics of children may be of a time when there were none, or when all of them had one key.
func TestCompositeKeysAreLookedUpOneByOneWhateverTheStatistics(t *testing.T) {
	t.Parallel()

	type statement func(p *Parent, tombstones []tombstone) (string, []any)
	keys := func(tombstones []tombstone) []string {
		var texts []string
		for _, t := range tombstones {
			texts = append(texts, *t.text)
		}
		return texts
	}
	batches := map[string]statement{
		"direct": func(p *Parent, tombstones []tombstone) (string, []any) {
			r := p.References[0]
			return r.DirectStatement(dbtest.Names(), r.Leaves[0], p.doomed(r, tombstones, false))
		},
		"clean": func(p *Parent, tombstones []tombstone) (string, []any) {
			r := p.References[0]
			return r.CleanStatement(dbtest.Names(), r.Leaves[0], p.doomed(r, tombstones, false), 1000)
		},
		"wait": func(p *Parent, tombstones []tombstone) (string, []any) {
			r := p.References[0]
			return r.PickStatement(r.Leaves[0], "", r.Lock(), p.doomed(r, tombstones, false), 1000)
		},
		"window": func(p *Parent, tombstones []tombstone) (string, []any) {
			r := p.References[0]
			return r.PickStatement(r.Leaves[0], "picked.ctid", "", p.doomed(r, tombstones, false), 1000)
		},
		"piece": func(p *Parent, tombstones []tombstone) (string, []any) {
			r := p.References[0]
			pointers := []pgtype.TID{{BlockNumber: 0, OffsetNumber: 1, Valid: true}, {BlockNumber: 0, OffsetNumber: 2, Valid: true}}
			return r.PieceStatement(dbtest.Names(), r.Leaves[0], p.doomed(r, tombstones, false), pointers, false)
		},
		"probe": func(p *Parent, tombstones []tombstone) (string, []any) {
			return p.probeStatement("main", keys(tombstones))
		},
		"removal": func(p *Parent, tombstones []tombstone) (string, []any) {
			return p.removeStatement(dbtest.Names(), "main", tombstones, false, []bool{true}, []bool{false})
		},
		"late": func(p *Parent, tombstones []tombstone) (string, []any) {
			return p.lateStatement(dbtest.Names(), "main", []int64{1}, keys(tombstones), []string{}, []bool{true})
		},
	}
	for when, statistics := range map[string]string{
		"never analysed":         "SELECT",
		"analysed when empty":    "ANALYZE children, " + queue,
		"analysed with one key":  "INSERT INTO children SELECT n, 1, '1' FROM generate_series(1, 5000) AS n; ANALYZE children",
		"analysed with one half": "INSERT INTO children SELECT n, n, '1' FROM generate_series(1, 5000) AS n; ANALYZE children",
	} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			db, parent, tombstones := compositeBacklog(t, 5000, statistics)
			for name, build := range batches {
				sql, args := build(parent, tombstones)
				plan := explain(t, db, sql, args)
				requireByKey(t, plan, name)
				require.LessOrEqual(t, plan.read(), 40.0, name)
			}
			for name, settings := range map[string]string{"direct": BitmapOn, "probe": bitmapOnly} {
				sql, args := batches[name](parent, tombstones)
				requireByKey(t, explainUnder(t, db, append(batchSettings(), settings), sql, args), name+" by bitmap")
			}
		})
	}
}

// requireByKey checks that children are found by the whole key of their index, and nothing is read that is not found.
func requireByKey(t *testing.T, plan ranNode, name string) {
	t.Helper()
	var read float64
	plan.walk(func(n ranNode) {
		if n.Relation == "children" {
			read += n.Loops * (n.Rows + n.Filtered + n.Rechecked)
		}
		switch {
		case n.Relation == "children" && n.Node == "Bitmap Heap Scan":
			require.Equal(t, "by_key", n.Plans[0].Index, "%s: %+v", name, n)
		case n.Relation == "children" && n.Node != "ModifyTable" && n.Node != "Tid Scan":
			require.Contains(t, []string{"Index Scan", "Index Only Scan"}, n.Node, name)
			require.Equal(t, "by_key", n.Index, "%s: %+v", name, n)
		case n.Node == "Seq Scan":
			require.Fail(t, "a whole table is read", "%s: %+v", name, n)
		}
	})
	require.LessOrEqual(t, read, 40.0, name)
}

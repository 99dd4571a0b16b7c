package loosefk

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/drain"
	"sexton/internal/each"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

type golden struct{ pgtest.Statements }

// The texts of all statements are pinned, for keys, children and actions of every sort.
func TestStatementsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	tables := pgtest.Must(os.ReadFile("testdata/tables.sql"))(t)
	list := pgtest.Must(os.ReadFile("testdata/definitions.yml"))(t)
	db := dbtest.New(t)
	db.Exec(string(tables))
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "definitions.yml", Data: list}))(t)
	resolved, problems := pgtest.Must2(Resolve(t.Context(), []Site{{Name: "main", Schema: "public", DB: db.Pool()}}, defs))(t)
	require.NoError(t, problems.Err())
	g := &golden{}
	for _, parent := range resolved["main"] {
		g.parent(parent, "here")
		for _, r := range parent.References {
			g.reference(parent, r, "here")
			remote := *r
			remote.Remote, remote.Database = true, "other"
			g.reference(parent, &remote, "remote")
		}
		parent.References[0].Remote = true
		g.parent(parent, "first remote")
	}
	pgtest.Golden(t, "statements.txt", g.String())
}

func (g *golden) parent(p *Parent, where string) {
	title := func(name string) string { return p.Recorded + " " + where + " " + name }
	keys := keysOf(p, nil)
	flags := p.flags(nil)
	g.Add(title("probe"))(p.probeStatement("main", keys))
	g.Add(title("probe but the first"))(p.probeStatement("main", keys, p.References[0]))
	g.Add(title("children"))(p.childrenStatement("main", keys, flags))
	g.Add(title("remove"))(p.removeStatement(schemas, "main", nil, false, flags, flags))
	g.Add(title("remove loaded"))(p.removeStatement(schemas, "main", nil, true, flags, flags))
	g.Add(title("revive"))(p.reviveStatement(schemas, nil))
	g.Add(title("forget"))(p.forgetStatement(schemas, "main", nil, keys))
	g.Add(title("late"))(p.lateStatement(schemas, "main", nil, keys, keys, flags, false))
	g.Add(title("gone"))(p.goneStatement(keys))
}

func (g *golden) reference(p *Parent, r *Reference, where string) {
	names := schemas
	of := func(name string) string { return fmt.Sprintf("%s %s %s", r.Definition.Key, where, name) }
	leaf := r.Leaves[0]
	title := func(name string) string { return of(leaf.Name + " " + name) }
	if r.Remote {
		g.Add(title("versions"))(r.PickStatement(leaf, "picked.ctid, picked.xmin", "", p.targetKeys(r, nil), 10))
		g.Add(title("exact"))(r.ExactStatement(names, leaf, p.targetKeys(r, nil), drain.Rows{}, r.Lock()))
		return
	}
	keys := p.targetKeys(r, nil)
	g.Add(title("direct"))(r.DirectStatement(names, leaf, keys))
	g.Add(title("window"))(r.PickStatement(leaf, "picked.ctid", "", keys, 10))
	g.Add(title("piece"))(r.PieceStatement(names, leaf, keys, nil, false))
	g.Add(title("piece, skipping"))(r.PieceStatement(names, leaf, keys, nil, true))
	g.Add(title("clean"))(r.CleanStatement(names, leaf, keys, 10))
	g.Add(title("wait"))(r.PickStatement(leaf, "", r.Lock(), keys, 10))
	g.Add(title("stretch"))(r.StretchStatement(names, leaf, keys, 5, 3))
	g.Add(title("range"))(r.RangeStatement(leaf, keys, 5, 3))
}

var (
	schemas = pgcatalog.Names{Tracked: `App "one"`}
	plain   = pgcatalog.Comparison{Operator: "OPERATOR(pg_catalog.=)", After: "OPERATOR(pg_catalog.>)"}
)

func TestChunkSizeFollowsTheHeaviestLiveReference(t *testing.T) {
	t.Parallel()
	light := &Reference{Edge: drain.Edge{Action: drain.Remove}}
	heavy := &Reference{Edge: drain.Edge{Action: drain.Remove}, Definition: definitions.Definition{DeleteLimit: 100}}
	parent := &Parent{References: []*Reference{light, heavy}}
	require.Equal(t, 9, parent.chunkSize([]bool{true, false}, (*Reference).limit), "100 rows per parent are assumed at first")
	light.learn(10, 20, false)
	require.Equal(t, 450, parent.chunkSize([]bool{true, false}, (*Reference).limit))
	heavy.learn(1, 1000, true)
	require.Equal(t, 1, parent.chunkSize([]bool{true, true}, (*Reference).limit), "at least one")
	require.Equal(t, 450, parent.chunkSize([]bool{true, false}, (*Reference).limit), "references without children do not count")
	require.Equal(t, mostLoaded, parent.chunkSize([]bool{false, false}, (*Reference).limit))
}

func TestLearnIsNotPulledDownByCutOffSamples(t *testing.T) {
	t.Parallel()
	var r Reference
	r.learn(1, 1000, true)
	r.learn(10, 1000, true)
	require.InDelta(t, 1000, r.rowsPerParent, 0.1, "a full statement says: at least this many")
	r.learn(10, 100, false)
	require.InDelta(t, 703, r.rowsPerParent, 0.1)
}

// compositeBacklog is a database with so many children of as many gone parents, two of each tenant, and statistics of
// some other time; with the parent and ten of the tombstones.
func compositeBacklog(t *testing.T, children int, statistics string) (*dbtest.DB, *Parent, []tombstone) {
	db := dbtest.New(t)
	db.Exec(`
		CREATE TABLE parents (a int, b text, PRIMARY KEY (a, b)) WITH (autovacuum_enabled = off);
		CREATE TABLE children (id bigint PRIMARY KEY, a int, b text) WITH (autovacuum_enabled = off);
		CREATE INDEX by_key ON children (b, a);
		ALTER TABLE ` + queueTable + ` SET (autovacuum_enabled = off);
		` + statistics)
	db.Exec("TRUNCATE children, " + queueTable)
	db.Exec("INSERT INTO children SELECT n, n / 2, n % 2 FROM generate_series(1, $1::int) AS n", children)
	db.Exec(`INSERT INTO `+queueTable+` (fully_qualified_table_name, primary_key_text, consume_after)
		SELECT 'public.parents', ARRAY[(n / 2)::text, (n % 2)::text]::text, timestamptz '2024-01-01' + n / 7 * interval '1 ms' FROM generate_series(1, $1::int) AS n`, children)
	defs, err := definitions.Parse(definitions.File{Name: "f.yml", Data: []byte("children: [{table: parents, column: [a, b], on_delete: async_delete}]")})
	require.NoError(t, err)
	parents, problems := pgtest.Must2(Resolve(t.Context(), []Site{{Name: "main", Schema: "public", DB: db.Pool()}}, defs))(t)
	require.Empty(t, problems)
	return db, parents["main"][0], firstTen(t, db)
}

// Statistics of children may be of a time when there were none, or when all of them had one key.
func TestCompositeKeysAreLookedUpOneByOneWhateverTheStatistics(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"never analysed":         "SELECT",
		"analysed when empty":    "ANALYZE children, " + queueTable,
		"analysed with one key":  "INSERT INTO children SELECT n, 1, '1' FROM generate_series(1, 5000) AS n; ANALYZE children",
		"analysed with one half": "INSERT INTO children SELECT n, n, '1' FROM generate_series(1, 5000) AS n; ANALYZE children",
	}, func(t *testing.T, _, statistics string) {
		db, parent, tombstones := compositeBacklog(t, 5000, statistics)
		type built struct {
			sql  string
			args []any
		}
		statements := map[string]built{}
		as := func(name string) func(string, []any) {
			return func(sql string, args []any) { statements[name] = built{sql, args} }
		}
		names, r, keys := dbtest.Names(), parent.References[0], each.Of(tombstones, func(t tombstone) string { return *t.text })
		leaf, of := r.Leaves[0], parent.targetKeys(r, tombstones)
		pointers := []pgtype.TID{{BlockNumber: 0, OffsetNumber: 1, Valid: true}, {BlockNumber: 0, OffsetNumber: 2, Valid: true}}
		as("direct")(r.DirectStatement(names, leaf, of))
		as("clean")(r.CleanStatement(names, leaf, of, 1000))
		as("wait")(r.PickStatement(leaf, "", r.Lock(), of, 1000))
		as("window")(r.PickStatement(leaf, "picked.ctid", "", of, 1000))
		as("piece")(r.PieceStatement(names, leaf, of, pointers, false))
		as("probe")(parent.probeStatement("main", keys))
		as("removal")(parent.removeStatement(names, "main", tombstones, false, []bool{true}, []bool{false}))
		as("late")(parent.lateStatement(names, "main", []int64{1}, keys, []string{}, []bool{true}, false))
		for name, s := range statements {
			plan := explain(t, db, s.sql, s.args)
			requireByKey(t, plan, name)
			require.LessOrEqual(t, plan.read(), 40.0, name)
		}
		for name, settings := range map[string]string{"direct": BitmapOn, "probe": bitmapOnly} {
			plan := explainUnder(t, db, append(batchSettings(), settings), statements[name].sql, statements[name].args)
			requireByKey(t, plan, name+" by bitmap")
		}
	})
}

// requireByKey checks that children are found by the whole key of their index, and nothing is read that is not found.
func requireByKey(t *testing.T, plan ranNode, name string) {
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

// window are so many pointers, perBlock in each block from the first one on.
func window(size, perBlock int, first uint32) []pgtype.TID {
	pointers := make([]pgtype.TID, size)
	for i := range pointers {
		pointers[i] = pgtype.TID{BlockNumber: first + uint32(i/perBlock), OffsetNumber: uint16(i%perBlock + 1), Valid: true}
	}
	return pointers
}

func TestWalkBeginsWhereManyChildrenStandTogether(t *testing.T) {
	t.Parallel()
	const limit = 1000
	type example struct {
		window []pgtype.TID
		limit  int
		want   bool
	}
	pgtest.Each(t, map[string]example{
		"dense":                            {window(firstWindow, denseBlock, 7), limit, true},
		"sparse":                           {window(drain.LargestBatch, denseBlock-1, 7), limit, false},
		"few":                              {window(firstWindow-1, 60, 7), limit, false},
		"none":                             {nil, limit, false},
		"statements smaller than a block":  {window(drain.LargestBatch, 60, 7), 59, false},
		"statements as large as one block": {window(drain.LargestBatch, 50, 7), 50, true},
	}, func(t *testing.T, _ string, test example) {
		var w stretches
		require.Equal(t, firstWindow, w.looksFor(true))
		require.Equal(t, drain.LargestBatch, w.looksFor(false))
		require.Equal(t, test.want, w.begin(test.window, test.limit))
		require.Equal(t, test.want, w.underWay())
		if test.want {
			require.EqualValues(t, 7, w.next)
			require.Equal(t, 1, w.looksFor(false))
		}
	})
}

func TestWalkGoesOnUntilTheNextLook(t *testing.T) {
	t.Parallel()
	var w stretches
	require.True(t, w.begin(window(drain.LargestBatch, 50, 0), 1000))
	require.EqualValues(t, 20, w.blocks(1000))
	w.advance(20, 800)
	require.EqualValues(t, 20, w.next)
	require.EqualValues(t, 25, w.blocks(1000), "the last stretch had fewer")
	for w.underWay() {
		w.advance(100, 5000)
	}
	require.EqualValues(t, 20+10*100, w.next)

	require.True(t, w.begin(window(1, 1, 3000), 1000), "it goes on where the look has found one")
	require.EqualValues(t, 3000, w.next)
	w.advance(100, 100)
	require.False(t, w.underWay(), "hardly any there")
	require.Equal(t, drain.LargestBatch, w.looksFor(false), "the next look decides anew")
	require.False(t, w.begin(window(100, 1, 0), 1000))
	require.True(t, w.begin(window(drain.LargestBatch, 20, 0), 1000))
	w.advance(10, 200)
	require.Zero(t, w.blocks(19), "fewer rows than one block has")
	w.stop()
	require.False(t, w.underWay())
	require.False(t, w.begin(window(drain.LargestBatch, 20, 0), 1000), "that was for good")
}

// With an old snapshot each look walks over all that was deleted before.
func TestWalkLooksLessOftenWhereLooksAreSlow(t *testing.T) {
	t.Parallel()
	var w stretches
	w.looked(time.Hour, target)
	require.True(t, w.begin(window(drain.LargestBatch, 50, 0), 1000))
	require.EqualValues(t, drain.LargestBatch, w.left, "the look for pointers says nothing")
	for _, want := range []int64{2, 4, 8, 8} {
		w.looked(target+1, target)
		require.True(t, w.begin(window(1, 1, 0), 1000))
		require.Equal(t, want*drain.LargestBatch, w.left)
	}
	w.looked(target, target)
	require.EqualValues(t, 8*drain.LargestBatch, w.every)
	for _, want := range []int64{4, 2, 1, 1} {
		w.looked(target/2-1, target)
		require.Equal(t, want*drain.LargestBatch, w.every)
	}
}

// By the index a stretch would look at all children of its parent.
func TestStretchReadsItsBlocksAlone(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec(dbtest.Children{}.SQL() + "INSERT INTO children SELECT n, n % 10 FROM generate_series(1, 20000) AS n; ANALYZE children")
	parent := backlogParent()
	reference := parent.References[0]
	sql, args := reference.StretchStatement(dbtest.Names(), reference.Leaves[0], drain.Keys{Of: &parent.Key, Values: []int64{1}}, 3, 2)
	var scans []ranNode
	explain(t, db, sql, args).walk(func(n ranNode) {
		if n.Node != "ModifyTable" {
			scans = append(scans, n)
		}
	})
	require.Len(t, scans, 1)
	require.Equal(t, "Tid Range Scan", scans[0].Node)
	require.Greater(t, scans[0].Rows, 20.0)
	require.Less(t, scans[0].Rows+scans[0].Filtered, 2*300.0)
}

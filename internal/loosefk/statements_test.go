package loosefk

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/drain"
	"sexton/internal/drain/dml"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
)

// golden collects the statements for parents and references.
type golden struct{ pgtest.Statements }

// The statements for all kinds of keys, children and actions match the golden file.
func TestStatementsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	tables := pgtest.Must(os.ReadFile("testdata/tables.sql"))(t)
	list := pgtest.Must(os.ReadFile("testdata/definitions.yml"))(t)
	db := dbtest.New(t)
	db.Exec(string(tables))
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "definitions.yml", Data: list}))(t)
	resolved, problems := pgtest.Must2(Resolve(t.Context(), []Site{{Name: "main", Schema: "public", DB: db.Pool()}},
		defs))(t)
	require.NoError(t, problems.Err())
	g := &golden{}
	for _, parent := range resolved["main"] {
		g.parent(parent)
		for _, r := range parent.References {
			g.reference(parent, r)
		}
	}
	pgtest.Golden(t, "statements.txt", g.String())
}

var schemas = pgcatalog.Names{Tracked: `App "one"`}

func (g *golden) parent(p *Parent) {
	s, bound := sourceOf(p, schemas)
	var done drain.Removed
	keys := keysOf(bound, nil)
	g.Add(p.Recorded + " missing")(p.Missing(keys))
	statement := s.Complete(bound, nil, false, &done)
	g.Add(p.Recorded+" complete")(statement.SQL, statement.Args)
	statement = s.Complete(bound, nil, true, &done)
	g.Add(p.Recorded+" complete with check")(statement.SQL, statement.Args)
}

func (g *golden) reference(p *Parent, r *Reference) {
	leaf := r.Leaves[0]
	title := func(name string) string { return fmt.Sprintf("%s %s %s", r.Definition.Key, leaf.Name, name) }
	keys := dml.Keys{Of: &p.Key, Values: []string{}, CheckParent: true}
	if p.Integer {
		keys.Values = []int64{}
	}
	g.Add(title("direct"))(r.Direct(schemas, leaf, keys, false))
	g.Add(title("direct, both bounds"))(r.Direct(schemas, leaf, keys, true))
	g.Add(title("window"))(r.Window(leaf, "picked.ctid", "", keys, 10))
	g.Add(title("piece"))(r.Piece(schemas, leaf, keys, nil, false))
	g.Add(title("piece, skipping"))(r.Piece(schemas, leaf, keys, nil, true))
	g.Add(title("wait"))(r.Window(leaf, "", r.Lock(), keys, 10))
	g.Add(title("locked"))(r.CleanStatement(schemas, leaf, keys, 10))
	keys.CheckParent = false
	g.Add(title("exact"))(r.ExactStatement(schemas, leaf, keys, dml.Rows{}, r.Lock()))
}

// sourceOf returns the source of a parent's tombstones.
func sourceOf(p *Parent, names pgcatalog.Names) (*source, *drain.Parent) {
	r := &run{
		Engine:     &Engine{Database: "main", Parents: []*Parent{p}, Session: &batch.Session{Names: names}},
		references: map[*drain.Edge]*Reference{},
	}
	bound := r.bind()
	return &source{names: names, database: "main", parents: r.Parents, bound: bound, references: r.references}, bound[0]
}

// node is a node of a query plan.
type node struct {
	Type     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Plans    []node `json:"Plans"`
}

func (n node) walk(do func(node)) {
	do(n)
	for _, below := range n.Plans {
		below.walk(do)
	}
}

// No statement reads the whole child table or the whole queue, whatever the statistics
// are.
func TestPlansDoNotDependOnStatistics(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]string{
		"analyzed":            "ANALYZE",
		"never analyzed":      "SELECT",
		"analyzed when empty": "CREATE TABLE kept AS SELECT * FROM children; TRUNCATE children; ANALYZE; INSERT INTO children SELECT * FROM kept",
		"one distinct value": `ANALYZE; UPDATE pg_statistic SET stadistinct = 1, stanullfrac = 0, stakind1 = 0, stakind2 = 0, stakind3 = 0
			WHERE starelid = 'children'::regclass`,
		"four distinct values": `ANALYZE; UPDATE pg_statistic SET stadistinct = 4, stanullfrac = 0, stakind1 = 0, stakind2 = 0, stakind3 = 0
			WHERE starelid = 'children'::regclass`,
	}, func(t *testing.T, _, statistics string) {
		db := dbtest.New(t)
		db.Exec(`CREATE TABLE parents (id bigint PRIMARY KEY) WITH (autovacuum_enabled = off);
			CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint, filler text) WITH (autovacuum_enabled = off);
			CREATE INDEX ON children (parent_id);
			ALTER TABLE loose_foreign_keys_deleted_records SET (autovacuum_enabled = off);
			INSERT INTO parents SELECT generate_series(10001, 20000);
			INSERT INTO children SELECT n, n % 10000, repeat('x', 100) FROM generate_series(1, 100000) AS n;
			INSERT INTO loose_foreign_keys_deleted_records (fully_qualified_table_name, primary_key_value) SELECT 'public.parents', generate_series(1, 5000);`)
		db.Exec(statistics)
		defs := pgtest.Must(definitions.Parse(definitions.File{
			Name: "f.yml",
			Data: []byte("children: [{table: parents, column: parent_id, on_delete: async_delete}]"),
		}))(t)
		resolved, problems := pgtest.Must2(Resolve(t.Context(), []Site{{Name: "main", Schema: "public", DB: db.Pool()}},
			defs))(t)
		require.NoError(t, problems.Err())
		p := resolved["main"][0]
		s, bound := sourceOf(p, dbtest.Names())
		leaf, r := p.References[0].Leaves[0], p.References[0]
		pointers := slices.Repeat([]pgtype.TID{{BlockNumber: 1, OffsetNumber: 1, Valid: true}}, 1000)
		for _, n := range []int{1, 100, 2000} {
			tombstones := make([]drain.Tombstone, n)
			for i := range tombstones {
				tombstones[i] = drain.Tombstone{Position: drain.Position{
					ID:           int64(i),
					ConsumeAfter: pgtype.Timestamptz{Valid: true},
				}, Integer: int64(i + 1)}
			}
			keys := dml.Keys{Of: &p.Key, Values: keysOf(bound, tombstones), CheckParent: true}
			var done drain.Removed
			complete := s.Complete(bound, tombstones, true, &done)
			check := func(name, sql string, args []any, settings ...string) {
				explain(t, db, settings, sql, args).walk(func(n node) {
					require.False(t, n.Type == "Seq Scan" && n.Relation != "", "%s: a scan of %s for %d keys", name,
						n.Relation, len(tombstones))
				})
			}
			sql, args := r.Direct(dbtest.Names(), leaf, keys, true)
			check("direct", sql, args)
			sql, args = r.Window(leaf, "picked.ctid", "", keys, 10_000)
			check("window", sql, args, "SELECT "+batch.IndexScans)
			sql, args = r.Piece(dbtest.Names(), leaf, keys, pointers, false)
			check("piece", sql, args)
			check("complete", complete.SQL, complete.Args)
		}
	})
}

// explain returns the plan of a statement. It first runs the statements in before, in the
// same transaction.
func explain(t *testing.T, db *dbtest.DB, before []string, sql string, args []any) node {
	var text []byte
	err := pgx.BeginFunc(t.Context(), db.Pool(), func(tx pgx.Tx) error {
		for _, one := range before {
			if _, err := tx.Exec(t.Context(), one); err != nil {
				return err
			}
		}
		return tx.QueryRow(context.WithoutCancel(t.Context()), "EXPLAIN (FORMAT JSON) "+sql, args...).Scan(&text)
	})
	require.NoError(t, err)
	var plans []struct{ Plan node }
	require.NoError(t, json.Unmarshal(text, &plans))
	return plans[0].Plan
}

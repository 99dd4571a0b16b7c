package drain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const goldenTables = `
CREATE TABLE tops (id bigint PRIMARY KEY, code text UNIQUE);
CREATE TABLE pairs (a bigint, b bigint, top_id bigint REFERENCES tops ON DELETE CASCADE, PRIMARY KEY (a, b));
CREATE TABLE paired (id bigint PRIMARY KEY, a int, b bigint, FOREIGN KEY (a, b) REFERENCES pairs ON DELETE SET NULL (a));
CREATE TABLE trees (id bigint PRIMARY KEY, top_id bigint REFERENCES tops ON DELETE CASCADE, above bigint REFERENCES trees ON DELETE CASCADE);
CREATE TABLE leaves (tree_id bigint DEFAULT 1 REFERENCES trees ON DELETE SET DEFAULT, kept bigint REFERENCES tops);
CREATE TABLE parted (id bigint, code text REFERENCES tops (code) ON DELETE CASCADE) PARTITION BY LIST (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES IN (0);`

// The texts of all statements are pinned, for keys and actions of every sort.
func TestStatementsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	pgtest.Since(t, 15) // SET NULL of some columns
	db := dbtest.New(t)
	db.Exec(goldenTables)
	top := pgtest.Scalar[uint32](t, db.Pool(), "SELECT 'tops'::regclass::oid")
	below := pgtest.Must(Below(t.Context(), db.Pool(), []uint32{top}))(t)
	tables := map[string]*Table{}
	var visit func(at *Table)
	visit = func(at *Table) {
		if tables[at.Label()] == nil {
			tables[at.Label()] = at
			for _, f := range at.Refs {
				visit(f.Table)
			}
		}
	}
	visit(below[top])
	owner := Owner{
		Deleted: ",\ncounted AS (SELECT)", Changed: ",\nnoted AS (SELECT)", Field: "nullified",
		Beside: func(*Table) Beside {
			return Beside{CTEs: ",\nevent AS (SELECT)", Returning: ", target.id", Selected: "1"}
		},
		Figures: func(t *Table) []batch.Figure {
			return []batch.Figure{{Field: "deleted", Label: t.Label()}, {Field: "all"}}
		},
	}
	var got strings.Builder
	add := func(title, sql string) { fmt.Fprintf(&got, "%s: %s\n", title, strings.ReplaceAll(sql, "\n", "⏎")) }
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		at := tables[name]
		leaf, refs := at.Leaves[0], at.RefsOf(at.Leaves[0])
		add(name+" lock", lockStatement(leaf))
		add(name+" remove", owner.removeStatement(dbtest.Names(), at, leaf, false, false))
		add(name+" remove, skipping", owner.removeStatement(dbtest.Names(), at, leaf, true, false))
		add(name+" remove with all below", owner.removeStatement(dbtest.Names(), at, leaf, false, true))
		add(name+" tell", owner.tellStatement(at, leaf))
		add(name+" gone", goneStatement(leaf))
		add(name+" unchanged", UnchangedStatement(leaf))
		add(name+" hold", HoldStatement(leaf))
		add(name+" swept above", owner.sweepStatement(dbtest.Names(), at, leaf, aboveStatement(leaf), false))
		if len(refs) > 0 {
			add(name+" look", lookStatement(leaf, refs))
		}
		for _, f := range refs {
			add(name+" children by "+f.Label(), childrenStatement(leaf, f, f.leaves[0]))
			add(name+" count by "+f.Label(), countStatement(leaf, f, f.leaves[0]))
			add(name+" swept by "+f.Label(), owner.sweepStatement(dbtest.Names(), f.Table, f.leaves[0], sweptStatement(leaf, f, f.leaves[0]), true))
			add(name+" sample by "+f.Label(), sampleStatement(leaf, f))
			if f.chain {
				add(name+" chain by "+f.Label(), chainStatement(leaf, f))
			}
			if f.Action == Nullify || f.Action == SetDefault {
				add(f.Label()+" change", owner.changeStatement(dbtest.Names(), f, f.leaves[0], false))
				add(f.Label()+" change, skipping", owner.changeStatement(dbtest.Names(), f, f.leaves[0], true))
			}
		}
	}
	pgtest.Golden(t, "statements.txt", got.String())
}

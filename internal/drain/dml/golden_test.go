package dml

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

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

// The statements for all kinds of foreign keys and actions are equal to the golden file.
func TestStatementsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	pgtest.RequireVersion(t, 15) // Postgres before 15 cannot set only some columns of a key to NULL.
	db := dbtest.New(t)
	db.Exec(goldenTables)
	top := pgtest.Scalar[uint32](t, db.Pool(), "SELECT 'tops'::regclass::oid")
	found := pgtest.Must(Below(t.Context(), db.Pool(), []uint32{top}))(t)
	tables := map[string]*Table{}
	var visit func(table *Table)
	visit = func(table *Table) {
		if tables[table.Label()] == nil {
			tables[table.Label()] = table
			for _, f := range table.Refs {
				visit(f.Table)
			}
		}
	}
	visit(found[top])
	owner := Owner{
		Deleted: "counted AS (SELECT)", Changed: "noted AS (SELECT)",
		Extra: func(*Table) Extra {
			return Extra{CTE: "event AS (SELECT)", Returning: []string{"target.id"}, Selected: "1"}
		},
	}
	var got strings.Builder
	add := func(title, sql string) { fmt.Fprintf(&got, "%s: %s\n", title, strings.ReplaceAll(sql, "\n", "⏎")) }
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		table := tables[name]
		leaf, refs := table.Leaves[0], table.RefsOf(table.Leaves[0])
		add(name+" lock", LockStatement(leaf, false))
		add(name+" lock, skipping", LockStatement(leaf, true))
		add(name+" remove", owner.RemoveStatement(table, leaf, false))
		add(name+" remove, skipping", owner.RemoveStatement(table, leaf, true))
		add(name+" cascade", owner.CascadeStatement(table, leaf))
		add(name+" extra", owner.ExtraStatement(table, leaf))
		add(name+" require deleted", RequireDeletedStatement(leaf))
		add(name+" unchanged", UnchangedStatement(leaf))
		add(name+" hold", HoldStatement(leaf, "FOR UPDATE"))
		add(name+" shown", ShownStatement(table, leaf))
		if len(refs) > 0 {
			add(name+" live refs", liveRefsStatement(leaf, refs))
		}
		for _, f := range refs {
			add(name+" children by "+f.Label(), childrenStatement(leaf, f, f.Leaves[0]))
			if f.Action == Nullify || f.Action == SetDefault {
				add(f.Label()+" change", owner.ChangeStatement(f, f.Leaves[0], false))
				add(f.Label()+" change, skipping", owner.ChangeStatement(f, f.Leaves[0], true))
			}
		}
	}
	pgtest.Golden(t, "statements.txt", got.String())
}

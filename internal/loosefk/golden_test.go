package loosefk

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/drain"
	"sexton/internal/pgtest"
)

const goldenTables = `
CREATE SCHEMA extensions; CREATE EXTENSION citext SCHEMA extensions;
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE names (name extensions.citext PRIMARY KEY);
CREATE TABLE codes (code text PRIMARY KEY);
CREATE TABLE numbers (number numeric PRIMARY KEY);
CREATE TABLE pairs (a int, b uuid, PRIMARY KEY (a, b));
CREATE TABLE "pla""in" (id bigint, part int, parent_id int, kind text, state int2, PRIMARY KEY (id, part));
CREATE INDEX ON "pla""in" (parent_id);
CREATE TABLE parted (id bigint, parent_id bigint, state int NOT NULL) PARTITION BY LIST (state);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES IN (0);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE INDEX ON parted (parent_id);
CREATE TABLE named (id bigint PRIMARY KEY, name extensions.citext);
CREATE INDEX ON named (name);
CREATE TABLE coded (id bigint PRIMARY KEY, code extensions.citext);
CREATE TABLE numbered (id bigint PRIMARY KEY, number bigint);
CREATE INDEX ON numbered (number);
CREATE TABLE paired (id bigint PRIMARY KEY, "p a" bigint, b uuid, kind text);
CREATE INDEX ON paired (b, "p a");
CREATE TABLE loosely (id bigint PRIMARY KEY, a bigint, b uuid);`

const goldenDefinitions = `
'pla"in':
  - {table: parents, column: parent_id, on_delete: async_delete, conditions: [{column: kind, value: files}], cleaner_class: "Ci::JobArtifacts::LooseForeignKeyCleanerService"}
  - {table: parents, column: parent_id, on_delete: async_nullify, conditions: [{column: kind, value: A}, {column: state, value: "7"}]}
  - {table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 3, conditions: [{column: kind, value: B}]}
parted:
  - {table: parents, column: parent_id, on_delete: update_column_to, target_column: state, target_value: 1}
named: [{table: names, column: name, on_delete: async_delete}]
coded: [{table: codes, column: code, on_delete: async_nullify}]
numbered: [{table: numbers, column: number, on_delete: async_delete}]
paired:
  - {table: pairs, column: ["p a", b], on_delete: async_delete, conditions: [{column: kind, value: A}]}
  - {table: pairs, column: ["p a", b], on_delete: async_nullify, conditions: [{column: kind, value: B}]}
loosely: [{table: pairs, column: [a, b], on_delete: async_delete}]`

// golden collects the texts of statements under titles, one a line: ⏎ stands for the end of a line in them.
type golden struct{ strings.Builder }

func (g *golden) add(title string) func(sql string, args []any) {
	return func(sql string, args []any) {
		types := make([]string, len(args))
		for i, arg := range args {
			types[i] = fmt.Sprintf("%T", arg)
		}
		fmt.Fprintf(g, "%s: %s -- %s\n", title, strings.ReplaceAll(sql, "\n", "⏎"), strings.Join(types, ", "))
	}
}

// The texts of all statements are pinned, for keys, children and actions of every sort.
func TestStatementsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	db := dbtest.New(t)
	db.Exec(goldenTables)
	defs, err := definitions.Parse(definitions.File{Name: "lfk.yml", Data: []byte(goldenDefinitions)})
	require.NoError(t, err)
	resolved, problems, err := Resolve(t.Context(), []Site{{Name: "main", Schema: "public", DB: db.Pool()}}, defs)
	require.NoError(t, err)
	require.NoError(t, problems.Err())
	g := &golden{}
	for _, parent := range resolved["main"] {
		g.parent(parent, "here")
		for _, r := range parent.References {
			g.reference(parent, r, "here")
			remote := *r
			remote.Remote, remote.Database = true, "other"
			g.reference(parent, &remote, "elsewhere")
		}
		parent.References[0].Remote = true
		g.parent(parent, "first elsewhere")
	}
	pgtest.Golden(t, "statements.txt", g.String())
}

func (g *golden) parent(p *Parent, where string) {
	title := func(name string) string { return p.Recorded + " " + where + " " + name }
	keys := keysOf(p, nil)
	marks := p.marks(nil)
	g.add(title("probe"))(p.probeStatement("main", keys))
	g.add(title("probe but the first"))(p.probeStatement("main", keys, p.References[0]))
	g.add(title("children"))(p.childrenStatement("main", keys, marks))
	g.add(title("remove"))(p.removeStatement(schemas, "main", nil, marks, marks))
	g.add(title("revive"))(p.reviveStatement(schemas, nil, marks))
	g.add(title("forget"))(p.forgetStatement(schemas, "main", nil, keys))
	g.add(title("late"))(p.lateStatement(schemas, "main", nil, keys, keys, marks))
	g.add(title("gone"))(p.goneStatement(keys))
	g.add(title("without parent"))(p.withoutParentStatement(nil))
}

func (g *golden) reference(p *Parent, r *Reference, where string) {
	after, names := "x", schemas
	of := func(name string) string { return fmt.Sprintf("%s %s %s", r.Definition.Key, where, name) }
	g.add(of("walk"))(p.walkStatement(r, nil, 10))
	g.add(of("walk on"))(p.walkStatement(r, &after, 10))
	g.add(of("with child"))(p.withChildStatement(r, nil))
	g.add(of("orphans"))(p.orphansStatement(names, r, nil))
	g.add(of("orphan rows"))(p.orphanRowsStatement(r, nil, 10))
	g.add(of("repair"))(p.repairStatement(names, r, nil))
	leaf := r.Leaves[0]
	title := func(name string) string { return of(leaf.Name + " " + name) }
	if r.Remote {
		g.add(title("versions"))(r.PickStatement(leaf, "picked.ctid, picked.xmin", "", p.doomed(r, nil, false), 10))
		g.add(title("exact"))(r.ExactStatement(names, leaf, p.doomed(r, nil, false), drain.Rows{}, r.Lock()))
		return
	}
	g.add(title("direct anyway"))(r.DirectStatement(names, leaf, p.doomed(r, nil, true)))
	keys := p.doomed(r, nil, false)
	g.add(title("direct"))(r.DirectStatement(names, leaf, keys))
	g.add(title("window"))(r.PickStatement(leaf, "picked.ctid", "", keys, 10))
	g.add(title("piece"))(r.PieceStatement(names, leaf, keys, nil, false))
	g.add(title("piece, skipping"))(r.PieceStatement(names, leaf, keys, nil, true))
	g.add(title("clean"))(r.CleanStatement(names, leaf, keys, 10))
	g.add(title("wait"))(r.PickStatement(leaf, "", r.Lock(), keys, 10))
	g.add(title("stretch"))(r.StretchStatement(names, leaf, keys, 5, 3))
	g.add(title("range"))(r.RangeStatement(leaf, keys, 5, 3))
}

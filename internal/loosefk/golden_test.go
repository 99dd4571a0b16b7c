package loosefk

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/drain"
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
	g.Add(title("probe"))(p.probeStatement("main", keys))
	g.Add(title("probe but the first"))(p.probeStatement("main", keys, p.References[0]))
	g.Add(title("children"))(p.childrenStatement("main", keys, marks))
	g.Add(title("remove"))(p.removeStatement(schemas, "main", nil, false, marks, marks))
	g.Add(title("remove loaded"))(p.removeStatement(schemas, "main", nil, true, marks, marks))
	g.Add(title("revive"))(p.reviveStatement(schemas, nil, marks))
	g.Add(title("forget"))(p.forgetStatement(schemas, "main", nil, keys))
	g.Add(title("late"))(p.lateStatement(schemas, "main", nil, keys, keys, marks))
	g.Add(title("gone"))(p.goneStatement(keys))
}

func (g *golden) reference(p *Parent, r *Reference, where string) {
	names := schemas
	of := func(name string) string { return fmt.Sprintf("%s %s %s", r.Definition.Key, where, name) }
	leaf := r.Leaves[0]
	title := func(name string) string { return of(leaf.Name + " " + name) }
	if r.Remote {
		g.Add(title("versions"))(r.PickStatement(leaf, "picked.ctid, picked.xmin", "", p.doomed(r, nil, false), 10))
		g.Add(title("exact"))(r.ExactStatement(names, leaf, p.doomed(r, nil, false), drain.Rows{}, r.Lock()))
		return
	}
	g.Add(title("direct anyway"))(r.DirectStatement(names, leaf, p.doomed(r, nil, true)))
	keys := p.doomed(r, nil, false)
	g.Add(title("direct"))(r.DirectStatement(names, leaf, keys))
	g.Add(title("window"))(r.PickStatement(leaf, "picked.ctid", "", keys, 10))
	g.Add(title("piece"))(r.PieceStatement(names, leaf, keys, nil, false))
	g.Add(title("piece, skipping"))(r.PieceStatement(names, leaf, keys, nil, true))
	g.Add(title("clean"))(r.CleanStatement(names, leaf, keys, 10))
	g.Add(title("wait"))(r.PickStatement(leaf, "", r.Lock(), keys, 10))
	g.Add(title("stretch"))(r.StretchStatement(names, leaf, keys, 5, 3))
	g.Add(title("range"))(r.RangeStatement(leaf, keys, 5, 3))
}

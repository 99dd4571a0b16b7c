package loosefk_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/loosefk"
	"sexton/internal/pgcatalog"
	"sexton/internal/pgtest"
	"sexton/internal/problem"
	"sexton/internal/render"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bundle is one database with definitions and an engine on them.
type bundle struct {
	*dbtest.DB

	engine *loosefk.Engine
	// others holds further connections that the engine may use.
	others []*pgx.Conn
}

// connections makes the engine use the given number of connections, even for few rows.
func (b *bundle) connections(t *testing.T, number int) {
	b.engine.Connections = number
	for range number - 1 {
		b.others = append(b.others, pgtest.Acquire(t, b.Pool()).Conn())
	}
	given := 0
	b.engine.More = func(context.Context) *batch.Session {
		s := b.engine.Session
		given++ // Each run may use all of these connections.
		return &batch.Session{Conn: b.others[given%len(b.others)], Names: s.Names, Fence: s.Fence, Limits: s.Limits}
	}
}

// newDB returns a migrated database with the tables.
func newDB(t *testing.T, tables string) *dbtest.DB {
	db := dbtest.Trackable(t)
	db.Exec(tables)
	return db
}

// setup creates the tables, tracks the parents by their column id, and binds the
// definitions.
func setup(t *testing.T, tables, definitionsYAML string, tracked ...string) bundle {
	if more, begins := strings.CutPrefix(tables, parentsAndChildren); begins &&
		slices.Equal(tracked, []string{"parents"}) {
		db := dbtest.Tracked(t, parentsAndChildren, "parents")
		db.Exec(more)
		return newBundle(t, db, definitionsYAML)
	}
	return newBundle(t, dbtest.Tracked(t, tables, tracked...), definitionsYAML)
}

// setupOn tracks parents among existing tables, and binds the definitions.
func setupOn(t *testing.T, db *dbtest.DB, definitionsYAML string, tracked ...string) bundle {
	db.Track(t, tracked...)
	return newBundle(t, db, definitionsYAML)
}

// newBundle binds the definitions to existing tables with triggers.
func newBundle(t *testing.T, db *dbtest.DB, definitionsYAML string) bundle {
	session, _ := db.Session(t, "loose_foreign_keys/cleanup_worker:main")
	b := bundle{DB: db, engine: &loosefk.Engine{
		Database: "main", Pace: "normal",
		Limits:  loosefk.Limits{Deletes: 100_000, Updates: 50_000, Runtime: time.Minute},
		Session: session, ConfirmAfter: time.Nanosecond,
	}}
	b.resolve(t, definitionsYAML)
	return b
}

func parse(tb testing.TB, yaml string) []definitions.Definition {
	return pgtest.Must(definitions.Parse(definitions.File{Name: "lfk.yml", Data: []byte(yaml)}))(tb)
}

// resolve binds definitions to one database, called main.
func resolve(tb testing.TB, db pgcatalog.Beginner, yaml string) ([]*loosefk.Parent, problem.List) {
	parents, problems := pgtest.Must2(loosefk.Resolve(tb.Context(),
		[]loosefk.Site{{Name: "main", Schema: "public", DB: db}}, parse(tb, yaml)))(tb)
	return parents["main"], problems
}

// parentsOf calls resolve, and requires that it reports no errors.
func parentsOf(tb testing.TB, db pgcatalog.Beginner, yaml string) []*loosefk.Parent {
	parents, problems := resolve(tb, db, yaml)
	require.NoError(tb, problems.Err())
	return parents
}

// withPace sets the pace of the engine: normal with statements of fixed sizes, or
// adaptive without pauses.
func (b bundle) withPace(pace string) bundle {
	if b.engine.Pace = pace; pace == "adaptive" {
		b.engine.Limits = loosefk.Limits{Runtime: b.engine.Limits.Runtime}
		b.engine.Adaptive = loosefk.Adaptive{Target: target, Duty: 1}
	}
	return b
}

// atPaces runs a test at both paces.
func atPaces(t *testing.T, test func(t *testing.T, pace string)) {
	pgtest.Each(t, map[string]bool{"normal": true, "adaptive": true},
		func(t *testing.T, pace string, _ bool) { test(t, pace) })
}

// eachAtPaces runs all cases at the adaptive pace. At the normal pace it only runs the
// named cases, if any are named and Long is not set.
func eachAtPaces[T any](t *testing.T, cases map[string]T, test func(t *testing.T, name, pace string, one T),
	normal ...string,
) {
	atPaces(t, func(t *testing.T, pace string) {
		tried := cases
		if pace == "normal" && len(normal) > 0 {
			tried = pgtest.Few(t, cases, normal...)
		}
		pgtest.Each(t, tried, func(t *testing.T, name string, one T) { test(t, name, pace, one) })
	})
}

func (b bundle) resolve(t *testing.T, yaml string) {
	b.engine.Parents = parentsOf(t, b.Pool(), yaml)
}

func (b bundle) run(t *testing.T) *loosefk.Stats {
	return pgtest.Must(b.engine.Run(t.Context()))(t)
}

// runWithoutErrors runs the engine, and requires that no error occurred.
func (b bundle) runWithoutErrors(t *testing.T) *loosefk.Stats {
	stats := b.run(t)
	require.Empty(t, stats.Errors)
	return stats
}

// runToEnd runs the engine, and requires that no error occurred and no tombstone is left.
func (b bundle) runToEnd(t *testing.T) *loosefk.Stats { return b.requireClean(t, b.run(t)) }

// requireClean requires that a run had no error and left no tombstone.
func (b bundle) requireClean(t *testing.T, stats *loosefk.Stats) *loosefk.Stats {
	require.Empty(t, stats.Errors)
	require.Empty(t, stats.WaitingFor)
	require.Zero(t, b.Pending(t))
	return stats
}

// runWhile runs the engine in the background. The returned function waits until the run
// has ended.
func (b bundle) runWhile(ctx context.Context, t *testing.T) func() *loosefk.Stats {
	wait := dbtest.InBackground(func() (*loosefk.Stats, error) { return b.engine.Run(ctx) })
	return func() *loosefk.Stats { return pgtest.Must(wait())(t) }
}

// asRole makes the engine work as another role with all privileges on tables. It returns
// the role.
func (b bundle) asRole(t *testing.T) string {
	role := b.CreateRole()
	b.Exec(fmt.Sprintf(`GRANT ALL ON ALL TABLES IN SCHEMA public, sexton TO %[1]s; GRANT USAGE ON SCHEMA sexton TO %[1]s;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA sexton TO %[1]s`, role))
	b.engine.Session.Conn = pgtest.Connect(t, b.AsRole(role))
	return role
}

// tombstones returns the key, the attempts, whether the tombstone is deferred, and the
// last error of each tombstone, by key.
func (b bundle) tombstones() [][]string {
	return b.Rows(`SELECT primary_key_value, cleanup_attempts, consume_after > now(), coalesce(last_error, '')
		FROM loose_foreign_keys_deleted_records ORDER BY primary_key_value`)
}

func (b bundle) ids(sql string) []string {
	return render.Each(b.Rows(sql), func(row []string) string { return row[0] })
}

// parentsAndChildren is SQL that creates ten parents with ten children each. The id of a
// child is 10 × parent + n.
const parentsAndChildren = `
CREATE TABLE parents (id bigint PRIMARY KEY);
CREATE TABLE children (id bigint PRIMARY KEY, parent_id bigint, note text);
CREATE INDEX ON children (parent_id);
INSERT INTO parents SELECT generate_series(1, 10);
INSERT INTO children SELECT 10 * p + n, p FROM generate_series(1, 10) AS p, generate_series(0, 9) AS n;`

// others is SQL that creates a table with one row per parent.
var others = dbtest.Children{Table: "others", Each: 1}.SQL()

const deleteChildren = `
children:
  - table: parents
    column: parent_id
    on_delete: async_delete
`

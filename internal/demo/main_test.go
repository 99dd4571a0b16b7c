package demo

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const testKind = looseForeignKeysKind

// parents are the tables that the application deletes from, all empty, each with one table of children
// that nothing but a definition ties to it. What the application deletes leaves a tombstone only where a
// test asks for one.
const parents = `
CREATE TABLE projects (id bigint PRIMARY KEY);
CREATE TABLE issues (id bigint PRIMARY KEY, project_id bigint REFERENCES projects ON DELETE CASCADE);
CREATE TABLE ci_pipelines (id bigint PRIMARY KEY);
CREATE TABLE merge_requests (id bigint PRIMARY KEY);
CREATE TABLE web_hooks (id bigint PRIMARY KEY);
CREATE TABLE packages_packages (id bigint PRIMARY KEY);
CREATE TABLE notes (id bigint PRIMARY KEY, issue_id bigint);
`

const notesOfIssues = `
notes:
  - table: issues
    column: issue_id
    on_delete: async_delete
`

// parentsIn returns a database with Sexton's tables and those of the application.
func parentsIn(t *testing.T) *dbtest.DB {
	db := dbtest.New(t)
	db.Exec(parents)
	return db
}

func parsed(t *testing.T, yaml string) []definitions.Definition {
	return pgtest.Must(definitions.Parse(definitions.File{Name: "test.yml", Data: []byte(yaml)}))(t)
}

// testSite is a site without a worker whose view is discarded.
func testSite(t *testing.T, db *dbtest.DB) Site {
	return Site{
		Pool: db.Pool(), Names: dbtest.Names(), Definitions: parsed(t, notesOfIssues), Kinds: []string{testKind}, Rows: 17,
		Work: func(ctx context.Context) error { <-ctx.Done(); return nil },
		Activity: func(context.Context, map[string]int64) (map[string]string, error) {
			return map[string]string{looseForeignKeysKind: "sleeps", ghostUsersKind: "snores"}, nil
		},
		View: viewFunc(func(State) {}),
	}
}

// testStage is one without definitions.
func testStage(db *dbtest.DB) stage {
	return stage{pool: db.Pool(), names: dbtest.Names(), ledger: &ledger{}}
}

// newTestStopwatch is that of the loose foreign keys.
func newTestStopwatch(db *dbtest.DB) *stopwatch {
	return newStopwatch(testStage(db), (*looseForeignKeys)(nil).Script())
}

// deletedFrom are the items that rows of a table become.
func deletedFrom(table string, ids ...int64) (items []Item) {
	for _, id := range ids {
		items = append(items, Item{"public." + table, id})
	}
	return items
}

// viewFunc is a view that asks as fast as it can.
type viewFunc func(State)

func (viewFunc) Loaded(int64, int64)     {}
func (viewFunc) Interval() time.Duration { return time.Millisecond }
func (viewFunc) Close()                  {}
func (v viewFunc) Show(state State)      { v(state) }

// background runs a function and hands out its error; the test does not end before it.
func background(t *testing.T, run func(ctx context.Context) error) (cancel context.CancelFunc, ended <-chan error) {
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { result <- run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return cancel, result
}

// patience bounds every wait for another goroutine.
const patience = 2 * time.Minute

// receive waits for a value.
func receive[T any](t *testing.T, from <-chan T, what string) (value T) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case value = <-from:
	case <-timer.C:
		require.Fail(t, "waited in vain", "for %s", what)
	}
	return value
}

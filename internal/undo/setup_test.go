package undo_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/pgtest"
	"sexton/internal/undo"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// bundle is a test database that saves deletions, with its definitions and an undo
// engine.
type bundle struct {
	*dbtest.DB

	definitions string
	engine      *undo.Engine
	// exclude are the columns that workers do not save. maxRow is the size limit for a
	// saved row.
	exclude []string
	maxRow  int
	// waits makes the cleanup defer parents that have a child row larger than maxRow.
	// beforeRun is SQL that runs after loosefk.Keep has read the tables and before the
	// run starts.
	waits     bool
	beforeRun string
	// off makes the worker save no rows, as if its configuration had no undo.
	off bool
	// victim, if set, is the simulated process that is killed in the next run of the
	// worker.
	victim *dbtest.Victim
}

func setup(t *testing.T, tables, yaml string, tracked ...string) *bundle {
	b := &bundle{DB: dbtest.TrackedWithUndo(t, tables, tracked...), definitions: yaml, maxRow: 1 << 20}
	b.engine = &undo.Engine{
		Databases: []database.Database{b.Connected}, Parents: map[string][]*loosefk.Parent{"main": b.parents(t)},
		Keep:   72 * time.Hour,
		Leases: &lease.Manager{Jobs: b.Connected, Holder: undo.Holder + "first"}, Key: key,
		StatementTimeout: 20 * time.Second, LockTimeout: 20 * time.Second,
	}
	return b
}

func key(database string) string { return "loose_foreign_keys/cleanup_worker:" + database }

func (b *bundle) parents(t *testing.T) []*loosefk.Parent {
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "lfk.yml", Data: []byte(b.definitions)}))(t)
	parents, problems := pgtest.Must2(loosefk.Resolve(t.Context(),
		[]loosefk.Site{{Name: "main", Schema: "public", DB: b.Pool()}}, defs))(t)
	require.NoError(t, problems.Err())
	return parents["main"]
}

// drain runs the worker. A positive limit stops the run after about that number of rows.
func (b *bundle) drain(t *testing.T, limit int) *loosefk.Stats {
	stats := pgtest.Must(b.run(t, limit))(t)
	require.Empty(t, stats.Errors)
	return stats
}

func (b *bundle) run(t *testing.T, limit int) (*loosefk.Stats, error) {
	manager := lease.Manager{Jobs: b.Connected, Holder: "worker"}
	granted := pgtest.Must(manager.Acquire(t.Context(), key("main"), 5*time.Minute, b.Connected))(t)
	defer func() { require.NoError(t, granted.Release(context.WithoutCancel(t.Context()))) }()
	parents := b.parents(t)
	how := dml.Keep{Exclude: b.exclude, MaxRow: b.maxRow, Waits: b.waits}
	if !b.off {
		require.NoError(t, loosefk.Keep(t.Context(), b.Pool(), dbtest.Names(), "main", parents, how))
	}
	b.Exec("SELECT; " + b.beforeRun)
	limits := loosefk.Limits{Deletes: 100_000, Updates: 50_000, Runtime: time.Minute}
	if limit > 0 {
		limits.Deletes, limits.Updates = limit, limit
	}
	pooled := pgtest.Must(b.Pool().Acquire(t.Context()))(t)
	defer pooled.Release()
	conn := pooled.Conn()
	if b.victim != nil {
		conn = b.victim.Connect(t)
	}
	engine := loosefk.Engine{
		Database: "main", Pace: "normal", Limits: limits, Parents: parents, Undo: !b.off, ConfirmAfter: time.Nanosecond,
		Session: &batch.Session{
			Conn: conn, Names: dbtest.Names(), Fence: granted,
			Limits: batch.Limits{StatementTimeout: 20 * time.Second, LockTimeout: 20 * time.Second},
		},
	}
	if limit == 0 {
		engine.Adaptive = loosefk.Adaptive{Target: 20 * time.Millisecond, Duty: 1}
		engine.Limits = loosefk.Limits{Runtime: time.Minute}
	}
	return engine.Run(t.Context())
}

// delete deletes rows, runs the worker, and returns the ID of the newest saved deletion,
// or 0 if there is none.
func (b *bundle) delete(t *testing.T, rows string) int64 {
	b.Exec("DELETE FROM " + rows)
	b.drain(t, 0)
	return pgtest.Scalar[int64](t, b.Database,
		"SELECT coalesce(max(id), 0) FROM sexton.undo WHERE origins IS NULL AND via IS NULL")
}

// last returns the newest deletion.
func (b *bundle) last(t *testing.T) *undo.Unit {
	units := pgtest.Must(b.engine.List(t.Context(), 10))(t)
	require.NotEmpty(t, units)
	return units[0]
}

func (b *bundle) restore(t *testing.T, id int64) *undo.Report {
	return pgtest.Must(b.engine.Restore(t.Context(), id, false))(t)
}

// all returns the rows of each table as sorted texts.
func (b *bundle) all(tables ...string) [][][]string {
	var all [][][]string
	for _, table := range tables {
		all = append(all, b.Rows(fmt.Sprintf("SELECT t::text FROM %s AS t ORDER BY 1", table)))
	}
	return all
}

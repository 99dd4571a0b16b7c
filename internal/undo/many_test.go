package undo_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/render"
	"sexton/internal/undo"
)

// statementCounter counts the statements that contain a text, and how many of them are
// sent within a transaction.
type statementCounter struct {
	text          string
	count, within atomic.Int64
}

func (s *statementCounter) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, s.text) {
		s.count.Add(1)
		if conn.PgConn().TxStatus() == 'T' {
			s.within.Add(1)
		}
	}
	return ctx
}

func (*statementCounter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (b *bundle) countStatements(t *testing.T, text string) *statementCounter {
	counted := &statementCounter{text: text}
	config := pgtest.Must(pgxpool.ParseConfig(b.URL))(t)
	config.ConnConfig.Tracer = counted
	pool := pgtest.Must(pgxpool.NewWithConfig(t.Context(), config))(t)
	t.Cleanup(pool.Close)
	b.engine.Databases[0].Pool = pool
	return counted
}

// List reads sets only once if several deletions share them.
func TestListReadsSharedSetsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, tree, treeDefinitions, "projects", "issues")
	for id := range 4 {
		b.Exec("DELETE FROM projects WHERE id = $1", id+1)
	}
	b.drain(t, 0)
	b.Exec("DELETE FROM projects WHERE id = 5")
	for of, most := range map[string]int64{"undo_layouts": 1, "loose_foreign_keys_deleted_records": 1} {
		count := &b.countStatements(t, of).count
		units := pgtest.Must(b.engine.List(t.Context(), 10))(t)
		require.Len(t, units, 5)
		require.Equal(t, most, count.Load(), of)
		require.False(t, units[0].Shared)
		require.Len(t, units[0].Tables, 1)
		require.True(t, units[0].Waiting)
		for _, one := range units[1:] {
			tables := render.Each(one.Tables, func(rows undo.TableRows) string { return rows.Table })
			require.Equal(t, []string{
				"public.projects", "public.issues", "public.notes", "public.pins",
				"public.states",
			}, tables)
			require.True(t, one.Shared)
			require.False(t, one.Waiting)
		}
	}
}

func TestOperatorsAreReadOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, tree, treeDefinitions, "projects", "issues")
	b.delete(t, "projects WHERE id = 1")
	unit, sent := b.last(t).ID, b.countStatements(t, "pg_catalog.pg_amop ")
	require.Empty(t, b.restore(t, unit).Left)
	require.EqualValues(t, 1, sent.count.Load())
}

// A restore reads later deletions on the connection of its transaction. If it used
// another connection, the transaction would be idle in the meantime, and
// idle_in_transaction_session_timeout could end it.
func TestLaterDeletionsAreReadInTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t, threeParents, fmt.Sprintf("c: [%s, %s]", setsTo("p", "state", 4), setsTo("q", "state", 4)), "p", "q")
	unit := b.delete(t, "p WHERE id = 1")
	b.delete(t, "q WHERE id = 1")
	sent := b.countStatements(t, "WITH RECURSIVE caused")
	require.Empty(t, b.restore(t, unit).Left)
	require.EqualValues(t, 1, sent.within.Load())
	require.EqualValues(t, 3, sent.count.Load(), "the deletion itself, before and after")
}

package listen_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// unwaited is how long a test waits for a lane to look behind its barrier. One that has fallen asleep
// instead never does.
const unwaited = 500 * time.Millisecond

// A writer that found the lane awake and did not notify commits only after the lane has tried to sleep.
func TestBarrierWaitsForWriters(t *testing.T) {
	t.Parallel()
	// What the writer does before the lane drops its lock, while it stands at the barrier, and last.
	scripts := map[string][3]string{
		"open":                    {insert, "SELECT", "COMMIT"},
		"more rows later":         {insert, insert, "COMMIT"},
		"savepoint":               {"SAVEPOINT s; " + insert + "; RELEASE s", "SELECT", "COMMIT"},
		"beside a savepoint":      {insert + "; SAVEPOINT s; " + insert, "ROLLBACK TO s", "COMMIT"},
		"tracked parent":          {"DELETE FROM parents WHERE id = 1", "SELECT", "COMMIT"},
		"prepared before":         {insert + "; PREPARE TRANSACTION 'gid'", "SELECT", "COMMIT PREPARED 'gid'"},
		"prepared at the barrier": {insert, "PREPARE TRANSACTION 'gid'", "COMMIT PREPARED 'gid'"},
		"prepared and taken back": {insert, "PREPARE TRANSACTION 'gid'", "ROLLBACK PREPARED 'gid'"},
	}
	for _, level := range []string{"READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"} {
		for name, script := range scripts {
			if level != "READ COMMITTED" && name != "open" && name != "prepared at the barrier" {
				continue
			}
			t.Run(level+"/"+name, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				p := newProbe(b)
				open := p.gate()
				p.start()
				p.wakeUp()
				writer := b.connect()
				step := func(sql string) {
					t.Helper()
					execute(t, writer, strings.ReplaceAll(sql, "gid", b.Name))
				}
				step("BEGIN ISOLATION LEVEL " + level + "; " + script[0])

				open()
				p.awaitBarrier()
				step(script[1])
				p.awaitLooks(5)
				step(script[2])
				b.requireDrained()
			})
		}
	}
}

// awaitBarrier waits until the lane has dropped its lock.
func (p *probe) awaitBarrier() {
	p.b.t.Helper()
	pgtest.WaitFor(p.b.t, "the awake lock to be dropped", func(ctx context.Context) (bool, error) {
		awake, err := p.b.awake(ctx)
		return !awake, err
	})
	p.awaitLooks(5)
}

// awaitLooks waits until the lane has looked some more times, or evidently does not.
func (p *probe) awaitLooks(more int64) {
	p.b.t.Helper()
	before, began := p.looks.Load(), time.Now()
	p.await("more looks", func() bool {
		return p.looks.Load() >= before+more || time.Since(began) > unwaited
	})
}

// Whoever finds nobody awake notifies, and is not waited for twice.
func TestBarrierLetsLaterWritersPass(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p := newProbe(b)
	open := p.gate()
	p.start()
	p.wakeUp()
	early, late := b.connect(), b.connect()
	execute(t, early, "BEGIN; "+insert)
	open()
	p.awaitBarrier()
	execute(t, late, "BEGIN; "+insert)
	execute(t, early, "ROLLBACK")
	looks := int64(-1)
	pgtest.WaitFor(t, "the lane to sleep although a writer is at work", func(context.Context) (bool, error) {
		before := looks
		looks = p.looks.Load()
		return looks == before, nil
	})
	execute(t, late, "COMMIT")
	b.requireDrained()
}

// Readers, and writers of other tables and databases, hold nobody up.
func TestBarrierWaitsForNobodyElse(t *testing.T) {
	t.Parallel()
	b, other := setup(t), setup(t)
	p := newProbe(b)
	reader, writer, foreigner := b.connect(), b.connect(), other.connect()
	execute(t, reader, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM "+table)
	execute(t, writer, "BEGIN; CREATE TABLE another (id int); INSERT INTO another VALUES (1)")
	execute(t, foreigner, "BEGIN; "+insert)
	p.awaitSleep()
	require.EqualValues(t, 2, p.looks.Load())
	b.Exec(insert)
	b.requireDrained()
}

// between runs once, when the lane has dropped its lock and is about to look for writers.
type between struct {
	once sync.Once
	run  func()
}

func (b *between) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "virtualtransaction") {
		b.once.Do(b.run)
	}
	return ctx
}

func (b *between) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The ear dies after the lane has dropped its lock. Writers find the key free and notify, and no connection hears it.
func TestEarDiesBetweenUnlockAndBarrier(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"writer before the barrier", "writer behind the barrier"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := newProbe(b)
			p.Poll = never
			var dials atomic.Int64
			redial := make(chan struct{})
			p.Ear.Conn.AfterConnect = func(ctx context.Context, _ *pgconn.PgConn) error {
				if dials.Add(1) > 1 {
					select {
					case <-redial:
					case <-ctx.Done():
					}
				}
				return nil
			}
			writer, killer := b.connect(), b.connect()
			begin := func() { execute(t, writer, "BEGIN; "+insert) }
			before := name == "writer before the barrier"
			p.tracer = &between{run: func() {
				execute(t, killer, "SELECT pg_terminate_backend($1, 10000)", b.connections(ears)[0])
				if before {
					begin()
				}
			}}
			open := p.gate()
			b.Exec(insert)
			p.start()
			p.await("the work to begin", func() bool { return p.works.Load() == 1 })
			open()
			p.await("the ear to dial again", func() bool { return dials.Load() == 2 })
			if before {
				p.awaitLooks(5)
				execute(t, writer, "COMMIT")
				b.requireDrained()
				close(redial)
				return
			}
			looks := int64(-1)
			pgtest.WaitFor(t, "the lane to sleep", func(context.Context) (bool, error) {
				last := looks
				looks = p.looks.Load()
				return looks == last, nil
			})
			begin()
			execute(t, writer, "COMMIT")
			close(redial)
			b.requireDrained()
		})
	}
}

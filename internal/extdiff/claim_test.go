package extdiff_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
)

// tracer calls a function before a statement that contains a text is sent.
type tracer struct {
	text string
	do   func()
}

func (a tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, a.text) {
		a.do()
	}
	return ctx
}

func (tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// If the transaction that takes a claim fails, the worker does not end the claim that
// another worker has taken in the meantime.
func TestFailedClaimLeavesOtherClaim(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]func(t *testing.T, b *bundle) (undo func()){
		"lock timeout": func(t *testing.T, b *bundle) func() {
			b.engine.Limits.Lock = 100 * time.Millisecond
			tx := pgtest.Begin(t, b.Pool(), "SELECT FROM merge_request_diffs FOR UPDATE")
			return func() { require.NoError(t, tx.Rollback(t.Context())) }
		},
		"failed commit": func(_ *testing.T, b *bundle) func() {
			b.Exec(`
				CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$;
				CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON sexton.external_diffs DEFERRABLE INITIALLY DEFERRED
				FOR EACH ROW WHEN (NEW.holder = 'tester') EXECUTE FUNCTION refuse()`)
			return func() {}
		},
	}, func(t *testing.T, _ string, fail func(t *testing.T, b *bundle) func()) {
		b := inFolder(t)
		b.add(1, threeFiles()...)
		undo, done := fail(t, b), make(chan error, 1)
		claim, finish := b.pausedMove(t, done)
		other := sync.OnceFunc(func() {
			undo()
			claim()
		})
		settings := b.Connected.Pool.Config()
		settings.ConnConfig.Tracer = tracer{"-- name: DiffRelease", other}
		b.engine.DB.Pool = pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
		t.Cleanup(b.engine.DB.Pool.Close)
		_, err := b.engine.Move(t.Context(), 1)
		require.Error(t, err)
		other()
		require.Equal(t, [][]string{{"other"}},
			b.Rows("SELECT holder FROM sexton.external_diffs WHERE busy_until > now()"))
		finish()
		require.NoError(t, <-done)
		require.Equal(t, "t", b.stored(1)[0][0])
	})
}

// pausedMove returns two functions. claim starts to move diff 1 in another worker and
// returns when the other worker has the claim. finish lets the move end, and done
// receives the error of the move.
func (b *bundle) pausedMove(t *testing.T, done chan<- error) (claim, finish func()) {
	other, claimed, end := b.newEngine(t, "other"), make(chan struct{}), make(chan struct{})
	finish = sync.OnceFunc(func() { close(end) })
	t.Cleanup(finish)
	other.Reached = func(p extdiff.Point) {
		if p == extdiff.PointClaimed {
			close(claimed)
			<-end
		}
	}
	return func() {
		go func() {
			_, err := other.Move(t.Context(), 1)
			done <- err
		}()
		<-claimed
	}, finish
}

// The last transaction of a move or restore locks the claim, which prevents renewals. The
// transaction may take longer than the claim.
func TestLastTransactionMayOutlastClaim(t *testing.T) {
	t.Parallel()
	awaitExpiry := func(t *testing.T, b *bundle) {
		b.waitFor(t, "the claim to expire",
			"EXISTS (SELECT FROM sexton.external_diffs WHERE busy_until < clock_timestamp())")
	}
	pgtest.Each(t, map[string]func(t *testing.T, b *bundle) error{
		"move": func(t *testing.T, b *bundle) error {
			_, err := b.engine.Move(t.Context(), 2)
			return err
		},
		"restore": func(t *testing.T, b *bundle) error {
			locked, done := pgtest.Begin(t, b.Pool(), "SELECT FROM merge_request_diffs WHERE id = 1 FOR UPDATE"),
				make(chan error, 1)
			go func() {
				_, err := b.engine.Restore(t.Context(), 1)
				done <- err
			}()
			awaitExpiry(t, b)
			require.NoError(t, locked.Rollback(t.Context()))
			return <-done
		},
	}, func(t *testing.T, _ string, work func(t *testing.T, b *bundle) error) {
		b := inFolder(t)
		b.addMoved(t, 1, threeFiles()...)
		b.add(2, threeFiles()...)
		before := b.texts(t, 1)
		b.engine.TTL, b.engine.Limits.Lock = 4*time.Second, time.Minute
		b.engine.Reached = func(point extdiff.Point) {
			if point == extdiff.PointSwitched {
				awaitExpiry(t, b)
			}
		}
		require.NoError(t, work(t, b))
		require.Equal(t, before, b.texts(t, 1))
		require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE busy_until IS NOT NULL"))
	})
}

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

// ahead calls a function before a statement with a text is sent.
type ahead struct {
	text string
	do   func()
}

func (a ahead) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, a.text) {
		a.do()
	}
	return ctx
}

func (ahead) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A claim is rolled back, and another worker takes the diff before the first one can do
// anything about its own claim.
func TestAClaimThatFailedEndsNoOthersClaim(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]func(t *testing.T, b *bundle) (undo func()){
		"at the look": func(t *testing.T, b *bundle) func() {
			b.engine.Limits.Lock = 100 * time.Millisecond
			tx := pgtest.Begin(t, b.Pool(), "SELECT FROM merge_request_diffs FOR UPDATE")
			return func() { require.NoError(t, tx.Rollback(t.Context())) }
		},
		"at the commit": func(_ *testing.T, b *bundle) func() {
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
		claim, goOn := b.stopsClaimed(t, done)
		other := sync.OnceFunc(func() {
			undo()
			claim()
		})
		settings := b.Connected.Pool.Config()
		settings.ConnConfig.Tracer = ahead{"-- name: DiffRelease", other}
		b.engine.DB.Pool = pgtest.Must(pgxpool.NewWithConfig(t.Context(), settings))(t)
		t.Cleanup(b.engine.DB.Pool.Close)
		_, err := b.engine.Move(t.Context(), 1)
		require.Error(t, err)
		other()
		require.Equal(t, [][]string{{"other"}},
			b.Rows("SELECT holder FROM sexton.external_diffs WHERE busy_until > now()"))
		goOn()
		require.NoError(t, <-done)
		require.Equal(t, "t", b.stored(1)[0][0])
	})
}

// stopsClaimed returns a function that has another worker move diff 1 up to its claim,
// and one that lets it go on to the end, which done tells.
func (b *bundle) stopsClaimed(t *testing.T, done chan<- error) (claim, goOn func()) {
	other, claimed, end := b.newEngine(t, "other"), make(chan struct{}), make(chan struct{})
	goOn = sync.OnceFunc(func() { close(end) })
	t.Cleanup(goOn)
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
	}, goOn
}

// The last transaction has locked the claim, which cannot be renewed meanwhile: it may
// take longer than the claim lasts.
func TestTheLastTransactionMayOutlastTheClaim(t *testing.T) {
	t.Parallel()
	over := func(t *testing.T, b *bundle) {
		b.waitFor(t, "the claim's time to be over",
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
			over(t, b)
			require.NoError(t, locked.Rollback(t.Context()))
			return <-done
		},
	}, func(t *testing.T, _ string, work func(t *testing.T, b *bundle) error) {
		b := inFolder(t)
		b.moved(t, 1, threeFiles()...)
		b.add(2, threeFiles()...)
		before := b.texts(t, 1)
		b.engine.TTL, b.engine.Limits.Lock = 4*time.Second, time.Minute
		b.engine.Reached = func(point extdiff.Point) {
			if point == extdiff.PointSwitched {
				over(t, b)
			}
		}
		require.NoError(t, work(t, b))
		require.Equal(t, before, b.texts(t, 1))
		require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE busy_until IS NOT NULL"))
	})
}

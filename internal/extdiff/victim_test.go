package extdiff_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
)

// kill runs work with an engine that is killed at a point.
func (b *bundle) kill(t *testing.T, at extdiff.Point, work func(*extdiff.Engine) error) {
	b.KillAt(t, func(v *dbtest.Victim, die func()) error {
		engine := b.newEngine(t, "victim")
		engine.DB = v.Connected(t)
		engine.Reached = func(p extdiff.Point) {
			if p == at {
				die()
			}
		}
		return work(engine)
	})
}

func move(ctx context.Context) func(*extdiff.Engine) error {
	return func(e *extdiff.Engine) error { _, err := e.Move(ctx, 1); return err }
}

func restore(ctx context.Context) func(*extdiff.Engine) error {
	return func(e *extdiff.Engine) error { _, err := e.Restore(ctx, 1); return err }
}

func remove(ctx context.Context) func(*extdiff.Engine) error {
	return func(e *extdiff.Engine) error { _, err := e.Remove(ctx, 10); return err }
}

// expire ends all claims and the waits of all removals, as if their time had passed.
func (b *bundle) expire() {
	b.Exec("UPDATE sexton.external_diffs SET busy_until = now() - interval '1 second' WHERE busy_until IS NOT NULL")
	b.Exec("UPDATE sexton.external_diff_removals SET not_before = now() - interval '1 second'")
}

func threeFiles() []file {
	return []file{
		{path: "b", text: new(onePart)},
		{path: "a/b", text: encoded("\x00"), binary: true},
		{path: "c", text: new("äö\n")},
	}
}

func TestKillAtEachPointOfMove(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		b.add(1, threeFiles()...)
		before := b.texts(t, 1)
		for _, point := range []extdiff.Point{
			extdiff.PointClaimed, extdiff.PointReading, extdiff.PointUploaded, extdiff.PointVerified,
			extdiff.PointSwitched, extdiff.PointMoved,
		} {
			b.kill(t, point, move(t.Context()))
			require.Equal(t, before, b.texts(t, 1), "texts after a kill at %s", point)
			require.LessOrEqual(t, len(b.dangling(t)), 1, "objects after a kill at %s", point)
			if point == extdiff.PointMoved {
				break
			}
			require.Equal(t, [][]string{{"NULL", "NULL", "1"}}, b.stored(1), "killed at %s", point)
			_, err := b.engine.Move(t.Context(), 1)
			var busy *extdiff.BusyError
			require.ErrorAs(t, err, &busy, "killed at %s", point)
			require.Equal(t, "victim", busy.Holder)
			b.expire()
		}
		b.expire()
		require.Equal(t, extdiff.External, b.move(t, 1).Skipped)
		require.Empty(t, b.findings(t, 0))
		require.Equal(t, before, b.texts(t, 1))
	})
}

// dangling returns the keys of the objects that no row refers to, including unfinished
// files.
func (b *bundle) dangling(t *testing.T) (keys []string) {
	for _, f := range b.findings(t, 0) {
		require.True(t, f.Dangling, "%s: %s", f.Key, f.Problem)
		keys = append(keys, f.Key)
	}
	return keys
}

func TestKillAtEachPointOfRestore(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		b.add(1, threeFiles()...)
		before := b.texts(t, 1)
		for _, point := range []extdiff.Point{extdiff.PointCollected, extdiff.PointRestored, extdiff.PointDeleted} {
			pgtest.Must(b.engine.Release(t.Context(), 1))(t)
			_ = b.move(t, 1)
			require.Equal(t, "t", b.stored(1)[0][0])
			b.kill(t, point, restore(t.Context()))
			require.Equal(t, before, b.texts(t, 1), "texts after a kill at %s", point)
			b.expire()
			restored := pgtest.Must(b.engine.Restore(t.Context(), 1))(t)
			require.Equal(t, point == extdiff.PointCollected, restored.Files > 0, "killed at %s", point)
			require.Equal(t, before, b.texts(t, 1))
			pgtest.Must(b.engine.Remove(t.Context(), 10))(t)
			require.Empty(t, b.keys(t), "killed at %s", point)
			require.Empty(t, b.Rows("SELECT FROM sexton.external_diff_removals"))
		}
	})
}

func TestKillAtEachPointOfRemoval(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	for _, point := range []extdiff.Point{extdiff.PointEntry, extdiff.PointUnused, extdiff.PointDeleted} {
		b.addMoved(t, 1, threeFiles()...)
		b.Exec("DELETE FROM merge_request_diffs")
		b.kill(t, point, remove(t.Context()))
		require.Len(t, b.Rows("SELECT FROM sexton.external_diff_removals"), 1)
		b.expire()
		require.Equal(t, extdiff.Removed{Objects: 1}, pgtest.Must(b.engine.Remove(t.Context(), 10))(t))
		require.Empty(t, b.keys(t))
		require.Empty(t,
			b.Rows("SELECT FROM sexton.external_diff_removals UNION ALL SELECT FROM sexton.external_diffs"))
	}
}

// If a worker dies while it deletes the object of a diff, the diff cannot be moved for 15
// minutes, because the deletion may still arrive.
func TestDiffIsQuarantinedAfterKilledRemoval(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.addMoved(t, 1, threeFiles()...)
	b.kill(t, extdiff.PointUnused, restore(t.Context()))
	pgtest.Must(b.engine.Release(t.Context(), 1))(t)
	_, err := b.engine.Move(t.Context(), 1)
	var busy *extdiff.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, "victim", busy.Holder)
	require.WithinDuration(t, time.Now().Add(15*time.Minute), busy.Until, 5*time.Minute)
}

// If a worker is stopped for longer than its claim, it changes neither rows nor objects
// when it continues. The worker is stopped at each point.
func TestLateWorkerChangesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		points := []extdiff.Point{
			extdiff.PointClaimed, extdiff.PointReading, extdiff.PointUploaded,
			extdiff.PointVerified,
		}
		for i, point := range points {
			id := int64(i + 1)
			b.add(id, threeFiles()...)
			before := b.texts(t, id)
			late := b.newEngine(t, "late")
			other := b.newEngine(t, "other")
			taken := false
			late.Reached = func(p extdiff.Point) {
				if p != point || taken {
					return
				}
				taken = true
				b.expire()
				// The rows change after the late worker has read them, so its object has
				// outdated texts.
				b.Exec("UPDATE merge_request_diff_files SET diff = diff || 'more' WHERE merge_request_diff_id = $1 AND old_path = 'b'", id)
				require.Empty(t, pgtest.Must(other.Move(t.Context(), id))(t).Skipped)
			}
			moved, err := late.Move(t.Context(), id)
			require.True(t, taken)
			require.True(t, err != nil || moved.Skipped == extdiff.External, "stopped at %s: %+v", point, moved)
			if point == extdiff.PointVerified {
				require.NoError(t, err, "Move detects the lost claim and reads the diff again")
			}
			before["b"] += "more"
			require.Equal(t, before, b.texts(t, id), "stopped at %s", point)
			require.Empty(t, b.dangling(t))
		}
	})
}

func TestTwoWorkersOnOneDiff(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		const diffs, workers = 5, 4
		for id := int64(1); id <= diffs; id++ {
			b.add(id, threeFiles()...)
		}
		before := b.texts(t, 1)
		won := make(chan int, workers)
		for n := range workers {
			engine := b.newEngine(t, fmt.Sprint("worker ", n))
			go func() {
				wins := 0
				for id := int64(1); id <= diffs; id++ {
					moved, err := engine.Move(context.Background(), id)
					if _, busy := errors.AsType[*extdiff.BusyError](err); err != nil && !busy {
						t.Errorf("move diff %d: %v", id, err)
					}
					if err == nil && moved.Skipped == "" {
						wins++
					}
				}
				won <- wins
			}()
		}
		total := 0
		for range workers {
			total += <-won
		}
		require.Equal(t, diffs, total, "each diff is moved by one worker")
		for id := int64(1); id <= diffs; id++ {
			require.Equal(t, before, b.texts(t, id))
		}
		require.Empty(t, b.findings(t, 0))
		require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE busy_until IS NOT NULL"))
	})
}

// The claim is renewed until the upload ends.
func TestClaimIsRenewed(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, threeFiles()...)
	// The claim is renewed every 3 seconds and ends 7 seconds after the last renewal, so
	// a renewal may be 4 seconds late.
	b.engine.TTL = 12 * time.Second
	waited := false
	b.engine.Reached = func(p extdiff.Point) {
		if p != extdiff.PointReading || waited {
			return
		}
		waited = true
		first := b.Rows("SELECT busy_until FROM sexton.external_diffs")
		b.waitFor(t, "the claim to be renewed twice",
			"(SELECT busy_until FROM sexton.external_diffs) > $1::timestamptz + interval '5 s'", first[0][0])
	}
	require.Empty(t, b.move(t, 1).Skipped)
}

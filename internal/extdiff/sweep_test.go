package extdiff_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

// sweeper begins a round whenever none is under way, and takes everything for old enough that is older than the marker.
func (b *bundle) sweeper(t *testing.T, engine *extdiff.Engine) *extdiff.Sweeper {
	return &extdiff.Sweeper{Engine: engine, Fence: b.granted(t), Every: time.Nanosecond, Grace: -time.Hour}
}

func (b *bundle) swept(t *testing.T, s *extdiff.Sweeper) extdiff.Swept {
	return pgtest.Must(s.Run(t.Context()))(t)
}

// put writes an object that no row knows of.
func (b *bundle) put(t *testing.T, keys ...string) {
	for _, key := range keys {
		pgtest.Must(b.engine.Store.Put(t.Context(), key, "", func(w io.Writer) error {
			_, err := io.WriteString(w, "left behind")
			return err
		}))(t)
	}
}

func TestASweepRemovesWhatNoRowRefersTo(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		owned(b.engine)
		b.moved(t, 1, file{path: "a", text: new(onePart)})
		b.put(t, "merge_request_diffs/mr-7/diff-12", "merge_request_diffs/mr-8/diff-1", "merge_request_diffs/readme", "other/mr-7/diff-1")
		var gone []string
		s := b.sweeper(t, b.engine)
		s.Gone = func(object blobstore.Info) { gone = append(gone, object.Key) }
		require.Equal(t, extdiff.Swept{Listed: 4, Swept: 2, Foreign: 1}, b.swept(t, s))
		require.Equal(t, []string{"merge_request_diffs/mr-7/diff-12", "merge_request_diffs/mr-8/diff-1"}, gone)
		require.ElementsMatch(t, []string{extdiff.MarkerKey, key1, "merge_request_diffs/readme", "other/mr-7/diff-1"}, b.keys(t))
		require.Equal(t, extdiff.Swept{Listed: 2, Foreign: 1}, b.swept(t, s), "the second round finds nothing")
		require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE busy_until IS NOT NULL"))
		stores := pgtest.Must(extdiff.ReadStores(t.Context(), b.Pool(), b.Connected.Names))(t)
		require.Len(t, stores, 1)
		require.Equal(t, extdiff.Swept{Listed: 2, Foreign: 1}, stores[0].Swept)
		require.NotNil(t, stores[0].SweepEndedAt)
	})
}

func TestASweepComesWhenItIsDue(t *testing.T) {
	t.Parallel()
	b := inOwnFolder(t)
	b.put(t, key1)
	s := b.sweeper(t, b.engine)
	s.Every = 24 * time.Hour
	require.Zero(t, b.swept(t, s), "the first one waits as well")
	b.Exec("UPDATE sexton.external_diff_stores SET first_used_at = now() - interval '25 hours'")
	s.Every = 0
	require.Zero(t, b.swept(t, s), "it is switched off")
	s.Every = 24 * time.Hour
	require.EqualValues(t, 1, b.swept(t, s).Swept)
	b.put(t, key1)
	require.Zero(t, b.swept(t, s))
	b.Exec("UPDATE sexton.external_diff_stores SET sweep_began_at = now() - interval '25 hours'")
	require.EqualValues(t, 1, b.swept(t, s).Swept)
}

// The folder's clock is that of its files.
func TestASweepSparesYoungObjectsByTheStoresClock(t *testing.T) {
	t.Parallel()
	b := inOwnFolder(t)
	require.NoError(t, b.engine.Owner.Check(t.Context()))
	b.put(t, key1, "merge_request_diffs/mr-7/diff-2")
	folder := strings.TrimPrefix(b.address, "file://")
	// As if the store were ten days behind.
	age := func(key string, days int) {
		at := time.Now().AddDate(0, 0, -days)
		require.NoError(t, os.Chtimes(filepath.Join(folder, key), at, at))
	}
	age(extdiff.MarkerKey, 10)
	age(key1, 10)
	age("merge_request_diffs/mr-7/diff-2", 12)
	s := b.sweeper(t, b.engine)
	s.Grace = 24 * time.Hour
	require.Equal(t, extdiff.Swept{Listed: 2, Swept: 1}, b.swept(t, s))
	require.Equal(t, []string{extdiff.MarkerKey, key1}, b.keys(t))
}

// Neither a worker that is killed between listing and deleting, nor one in the middle of the round, loses the place.
func TestASweepGoesOnWhereItWasKilled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		owned(b.engine)
		require.NoError(t, b.engine.Owner.Check(t.Context()))
		var keys []string
		for n := range 7 {
			keys = append(keys, fmt.Sprintf("merge_request_diffs/mr-7/diff-%d", n+1))
		}
		b.put(t, keys...)
		s := b.sweeper(t, b.engine)
		s.Page = 3
		b.kill(t, "sweep", extdiff.PointListed)
		require.Len(t, b.keys(t), 8)
		require.Equal(t, [][]string{{"", "t", "t"}}, b.Rows("SELECT sweep_after, sweep_began_at IS NOT NULL, sweep_ended_at IS NULL FROM sexton.external_diff_stores"))
		b.kill(t, "sweep", extdiff.PointDeleted)
		require.Len(t, b.keys(t), 7)

		began := b.Rows("SELECT sweep_began_at FROM sexton.external_diff_stores")
		stopped := &stopping{t: t, b: b, after: 2}
		first := owned(b.newEngine(t, "first"))
		first.Reached = stopped.reached
		_, err := (&extdiff.Sweeper{Engine: first, Fence: s.Fence, Every: s.Every, Grace: s.Grace, Page: 3}).Run(t.Context())
		require.Error(t, err, "its lease was taken away after a page")
		require.Equal(t, [][]string{{"merge_request_diffs/mr-7/diff-3"}}, b.Rows("SELECT sweep_after FROM sexton.external_diff_stores"))

		s.Fence = b.granted(t)
		b.expire()
		require.Equal(t, extdiff.Swept{Listed: 1, Swept: 1}, b.swept(t, s), "the stopped one had removed a page whose place it could not note")
		require.Equal(t, began, b.Rows("SELECT sweep_began_at FROM sexton.external_diff_stores"), "it is the same round")
		require.Equal(t, []string{extdiff.MarkerKey}, b.keys(t))
		require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE diff_id <> 1"), "the claim of the killed one ends by itself")
	})
}

// stopping raises the fence after so many pages, as the next holder of the lease would.
type stopping struct {
	t     *testing.T
	b     *bundle
	after int
}

func (s *stopping) reached(p extdiff.Point) {
	if p != extdiff.PointListed {
		return
	}
	if s.after--; s.after == 0 {
		s.b.Exec("UPDATE sexton.fences SET token = token + 1")
	}
}

// Between the look at the rows and the deletion the diff was moved, or is about to be.
func TestASweepSparesWhatComesIntoUse(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		owned(b.engine)
		for id := int64(1); id <= 2; id++ {
			b.moved(t, id, file{path: "a", text: new(onePart)})
			pgtest.Must(b.engine.Restore(t.Context(), id))(t)
			pgtest.Must(b.engine.Release(t.Context(), id))(t)
		}
		b.put(t, key1, "merge_request_diffs/mr-7/diff-2")
		other := owned(b.newEngine(t, "other"))
		s := b.sweeper(t, b.engine)
		b.engine.Reached = func(p extdiff.Point) {
			if p != extdiff.PointListed {
				return
			}
			require.Empty(t, pgtest.Must(other.Move(t.Context(), 1))(t).Skipped)
			b.Exec(`INSERT INTO sexton.external_diffs (diff_id, holder, busy_until) VALUES (2, 'mover', now() + interval '1 minute')
				ON CONFLICT (diff_id) DO UPDATE SET busy_until = EXCLUDED.busy_until`)
		}
		require.Equal(t, extdiff.Swept{Listed: 2}, b.swept(t, s))
		require.Equal(t, onePart, b.object(t, key1))
		require.Len(t, b.keys(t), 3)
	})
}

// Where most objects have no row, the rows are what is missing.
func TestASweepHoldsBackWhereTooMuchIsDangling(t *testing.T) {
	t.Parallel()
	b := inOwnFolder(t)
	require.NoError(t, b.engine.Owner.Check(t.Context()))
	for n := range 21 {
		b.put(t, fmt.Sprintf("merge_request_diffs/mr-7/diff-%d", n+1))
	}
	s := b.sweeper(t, b.engine)
	require.Equal(t, extdiff.Swept{Listed: 21, HeldBack: 21}, b.swept(t, s))
	require.Len(t, b.keys(t), 22)
	pgtest.Must(b.engine.RemoveDangling(t.Context(), extdiff.Finding{Key: key1}))(t)
	require.Equal(t, extdiff.Swept{Listed: 20, Swept: 20}, b.swept(t, s), "few enough")
}

// keeping is a store with three objects that answers deletions of the second one with a fault.
func keeping(t *testing.T, fault s3test.Fault) (*bundle, *s3test.Gateway, *extdiff.Sweeper) {
	gateway := s3test.New(t, s3test.Options{})
	b := onStore(t, gateway.URL("diffs"))
	owned(b.engine)
	require.NoError(t, b.engine.Owner.Check(t.Context()))
	b.put(t, key1, "merge_request_diffs/mr-7/diff-2", "merge_request_diffs/mr-7/diff-3")
	s := b.sweeper(t, b.engine)
	gateway.Proxy.Fail(func(request string) s3test.Fault {
		if strings.HasPrefix(request, "DELETE ") && strings.Contains(request, "diff-2") {
			return fault
		}
		return s3test.Pass
	})
	return b, gateway, s
}

func TestASweepWaitsForTheStore(t *testing.T) {
	t.Parallel()
	b, gateway, s := keeping(t, s3test.Busy)
	swept, err := s.Run(t.Context())
	var outage *blobstore.OutageError
	require.ErrorAs(t, err, &outage)
	require.Equal(t, extdiff.Swept{Listed: 1, Swept: 1}, swept)
	require.Equal(t, [][]string{{key1}}, b.Rows("SELECT sweep_after FROM sexton.external_diff_stores"))
	gateway.Proxy.Fail(func(string) s3test.Fault { return s3test.Busy })
	_, err = s.Run(t.Context())
	require.ErrorAs(t, err, &outage)
	gateway.Proxy.Fail(nil)
	b.expire()
	require.EqualValues(t, 2, b.swept(t, s).Swept)
	require.Equal(t, []string{extdiff.MarkerKey}, b.keys(t))
	require.True(t, pgtest.Scalar[bool](t, b.Database, "SELECT sweep_ended_at IS NOT NULL FROM sexton.external_diff_stores"))
}

// The store does not delete one object: those behind it go, and the round comes to its end.
func TestASweepGoesOnBehindAnObjectThatStays(t *testing.T) {
	t.Parallel()
	b, gateway, s := keeping(t, s3test.Deny)
	for _, want := range []extdiff.Swept{{Listed: 3, Swept: 2}, {Listed: 1}} {
		swept, err := s.Run(t.Context())
		var refused *blobstore.AccessError
		require.ErrorAs(t, err, &refused)
		require.ErrorContains(t, err, "sweep merge_request_diffs/mr-7/diff-2: ")
		require.Equal(t, want, swept)
		require.True(t, pgtest.Scalar[bool](t, b.Database, "SELECT sweep_ended_at IS NOT NULL FROM sexton.external_diff_stores"))
	}
	gateway.Proxy.Fail(nil)
	require.Equal(t, extdiff.Swept{Listed: 1, Swept: 1}, b.swept(t, s), "and it goes once it can")
}

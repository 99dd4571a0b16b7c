package riverjobs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

func (b bundle) moveDiff(ctx context.Context, id int64) error {
	return b.deps.useDiffs(ctx, func(engine *extdiff.Engine) error {
		_, err := engine.Move(ctx, id)
		return err
	})
}

// currentEngine returns the shared engine that useDiffs passes to its callback.
func (b bundle) currentEngine(t *testing.T) (used *extdiff.Engine) {
	require.NoError(t, b.deps.useDiffs(t.Context(), func(engine *extdiff.Engine) error { used = engine; return nil }))
	return used
}

func TestMovesShareOneStore(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	b, _ := diffBundle(t, "SEXTON_EXTERNAL_DIFFS__BUCKET="+gateway.URL("diffs"))
	countMarkerReads := func() (n int) {
		for _, request := range gateway.Proxy.Seen() {
			if strings.HasPrefix(request, "GET /diffs/"+extdiff.MarkerKey) {
				n++
			}
		}
		return n
	}
	b.mustRun(t, MigrateExternalDiffArgs{DiffID: 1})
	engine, before := b.currentEngine(t), countMarkerReads()
	require.Positive(t, before)
	var all sync.WaitGroup
	for id := range int64(3) {
		all.Go(func() {
			if _, err := run(t.Context(), b.deps, MigrateExternalDiffArgs{DiffID: id + 1}); err != nil {
				t.Errorf("move diff %d: %v", id+1, err)
			}
		})
	}
	all.Wait()
	require.Equal(t, [][]string{{"3"}}, b.db.Rows("SELECT count(*) FROM merge_request_diffs WHERE stored_externally"))
	require.Same(t, engine, b.currentEngine(t))
	require.Equal(t, before, countMarkerReads(), "only the first move reads the marker object")
}

// AWS_SHARED_CREDENTIALS_FILE belongs to the whole process, so this test does not run in
// parallel.
func TestCorrectedCredentialsAreUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	t.Setenv("AWS_PROFILE", "worker")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	gateway := s3test.New(t, s3test.Options{Secret: "mended"})
	b, _ := diffBundle(t, "SEXTON_EXTERNAL_DIFFS__BUCKET="+gateway.URL("diffs"))
	var refused *blobstore.AccessError
	require.ErrorAs(t, b.moveDiff(t.Context(), 1), &refused, "the profile does not exist")
	for _, secret := range []string{"wrong", "mended"} {
		text := fmt.Sprintf("[worker]\naws_access_key_id = sexton\naws_secret_access_key = %s\n", secret)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		err := b.moveDiff(t.Context(), 1)
		if secret == "wrong" {
			require.ErrorAs(t, err, &refused)
			require.Contains(t, refused.Reason, "SignatureDoesNotMatch")
			continue
		}
		require.NoError(t, err)
	}
	require.Equal(t, [][]string{{"t"}}, b.db.Rows("SELECT stored_externally FROM merge_request_diffs WHERE id = 1"))
}

func TestRefusedEngineStaysOpenWhileInUse(t *testing.T) {
	t.Parallel()
	b, _ := diffBundle(t)
	refusal := &blobstore.AccessError{}
	var first *extdiff.Engine
	err := b.deps.useDiffs(t.Context(), func(engine *extdiff.Engine) error {
		first = engine
		require.ErrorIs(t, b.deps.useDiffs(t.Context(), func(engine *extdiff.Engine) error {
			require.Same(t, first, engine)
			return fmt.Errorf("move: %w", refusal)
		}), refusal)
		require.NoError(t, b.moveDiff(t.Context(), 1), "the move uses a new engine")
		require.NotSame(t, first, b.currentEngine(t))
		pgtest.Must(first.Move(t.Context(), 2))(t)
		return refusal // The first engine caused this error. The second engine stays open.
	})
	require.ErrorIs(t, err, refusal)
	require.NoError(t, b.deps.useDiffs(t.Context(), func(engine *extdiff.Engine) error {
		require.NotSame(t, first, engine)
		_, err := engine.Move(t.Context(), 3)
		return err
	}))
	require.Equal(t, [][]string{{"3"}}, b.db.Rows("SELECT count(*) FROM merge_request_diffs WHERE stored_externally"))
}

func TestBackOffDoublesUntilASuccess(t *testing.T) {
	t.Parallel()
	var r backOff
	now := time.Now()
	require.Zero(t, r.wait(now))
	require.True(t, r.begin(now, longestPause))
	require.False(t, r.begin(now.Add(time.Second), longestPause), "a failure of a job that began before the pause")
	require.Equal(t, 9*time.Second, r.wait(now.Add(time.Second)))
	now = now.Add(firstPause)
	require.Zero(t, r.wait(now))
	require.True(t, r.begin(now, longestPause))
	require.Equal(t, 20*time.Second, r.wait(now))
	for range 20 {
		now = now.Add(longestPause)
		require.True(t, r.begin(now, longestPause))
	}
	require.Equal(t, longestPause, r.wait(now))
	r.end(now)
	require.Zero(t, r.wait(now))
	require.True(t, r.begin(now, longestPause))
	require.Equal(t, firstPause, r.wait(now))
}

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

// opened is the store in use.
func (b bundle) opened(t *testing.T) (used *extdiff.Engine) {
	require.NoError(t, b.deps.useDiffs(t.Context(), func(engine *extdiff.Engine) error { used = engine; return nil }))
	return used
}

func TestMovesShareOneStore(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	b, _ := diffBundle(t, "SEXTON_EXTERNAL_DIFFS__BUCKET="+gateway.URL("diffs"))
	looks := func() (n int) {
		for _, request := range gateway.Proxy.Seen() {
			if strings.HasPrefix(request, "GET /diffs/"+extdiff.MarkerKey) {
				n++
			}
		}
		return n
	}
	b.ran(t, MigrateExternalDiffArgs{DiffID: 1})
	opened, before := b.opened(t), looks()
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
	require.Same(t, opened, b.opened(t))
	require.Equal(t, before, looks(), "whose the objects are was found out by the first move")
}

// The variable belongs to the process, so this test runs alone.
func TestMendedCredentialsAreSeen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	t.Setenv("AWS_PROFILE", "worker")
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	gateway := s3test.New(t, s3test.Options{Secret: "mended"})
	b, _ := diffBundle(t, "SEXTON_EXTERNAL_DIFFS__BUCKET="+gateway.URL("diffs"))
	var refused *blobstore.AccessError
	require.ErrorAs(t, b.moveDiff(t.Context(), 1), &refused, "there is no such profile")
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

func TestARefusedStoreStaysOpenForThoseAtWork(t *testing.T) {
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
		require.NoError(t, b.moveDiff(t.Context(), 1), "with a new one")
		require.NotSame(t, first, b.opened(t))
		pgtest.Must(first.Move(t.Context(), 2))(t)
		return refusal // Of the first one: the second has nothing to do with it.
	})
	require.ErrorIs(t, err, refusal)
	require.NoError(t, b.deps.useDiffs(t.Context(), func(engine *extdiff.Engine) error {
		require.NotSame(t, first, engine)
		_, err := engine.Move(t.Context(), 3)
		return err
	}))
	require.Equal(t, [][]string{{"3"}}, b.db.Rows("SELECT count(*) FROM merge_request_diffs WHERE stored_externally"))
}

func TestRefusalsPauseTogether(t *testing.T) {
	t.Parallel()
	var r backOff
	now := time.Now()
	require.Zero(t, r.wait(now))
	require.True(t, r.begin(now, longestPause))
	require.False(t, r.begin(now.Add(time.Second), longestPause), "one that was at work already")
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

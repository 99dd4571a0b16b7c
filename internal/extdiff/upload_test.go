package extdiff_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/extdiff"
	"sexton/internal/s3test"
)

// If a move is stopped during a multipart upload, no parts are left in the store, and the
// next attempt succeeds.
func TestStoppedUploadIsRetried(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	b := onStore(t, gateway.URL("diffs"))
	b.add(1, file{path: "a", text: new(strings.Repeat("äöü 123\n", 800_000))},
		file{path: "b", text: new(strings.Repeat("b\n", 2_000_000))})
	before := b.texts(t, 1)

	ctx, stop := context.WithCancel(t.Context())
	parts := func() (n int) {
		for _, request := range gateway.Proxy.Seen() {
			if strings.HasPrefix(request, "PUT ") && strings.Contains(request, "partNumber=") {
				n++
			}
		}
		return n
	}
	b.engine.Reached = func(p extdiff.Point) {
		if p == extdiff.PointReading && parts() > 0 {
			stop()
		}
	}
	_, err := b.engine.Move(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, b.keys(t))
	require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs"), "the claim is released")

	b.engine.Reached = nil
	sent := parts()
	require.Empty(t, b.move(t, 1).Skipped)
	require.Equal(t, 3, parts()-sent)
	require.Equal(t, before, b.texts(t, 1))
	require.Empty(t, b.findings(t, 0))
}

// With a minimal snapshot time, an upload uses one snapshot for each piece. If the rows
// change between two snapshots, it starts again.
func TestUploadUsesSeveralSnapshots(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new(strings.Repeat("äöü 123\n", 100_000))}, file{path: "b"},
		file{path: "c", text: new(onePart)}, file{path: "d", text: new(onePart)})
	before := b.texts(t, 1)
	b.engine.Limits.Snapshot = time.Nanosecond
	pieces, change := 0, sync.OnceFunc(func() {
		b.Exec("UPDATE merge_request_diff_files SET diff = 'x' || diff WHERE old_path = 'c'")
	})
	b.engine.Reached = func(p extdiff.Point) {
		if p != extdiff.PointReading {
			return
		}
		if pieces++; pieces == 3 {
			change()
		}
	}
	require.Empty(t, b.move(t, 1).Skipped)
	before["c"] = "x" + before["c"]
	require.Equal(t, before, b.texts(t, 1))
	require.Greater(t, pieces, 8, "the upload started again")
	require.Empty(t, b.findings(t, 0))
}

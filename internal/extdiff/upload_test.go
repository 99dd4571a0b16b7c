package extdiff_test

import (
	"context"
	"io"
	"net/url"
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

// onGateway has its objects on a server of its own. Diff 1 goes in three parts: two files, the first of them in the first two.
func onGateway(t *testing.T) (*bundle, *s3test.Gateway, map[string]string) {
	gateway := s3test.New(t, s3test.Options{})
	b := onStore(t, gateway.URL("diffs"))
	b.add(1, file{path: "a", text: new(strings.Repeat("äöü 123\n", 800_000))}, file{path: "b", text: new(strings.Repeat("b\n", 2_000_000))})
	return b, gateway, b.texts(t, 1)
}

// partsSent counts the parts that a server was sent, or was to be.
func partsSent(gateway *s3test.Gateway) (n int) {
	for _, request := range gateway.Proxy.Seen() {
		if strings.HasPrefix(request, "PUT ") && strings.Contains(request, "partNumber=") {
			n++
		}
	}
	return n
}

func (b *bundle) uploads(t *testing.T) (n int) {
	for _, err := range b.engine.Store.Uploads(t.Context(), "") {
		require.NoError(t, err)
		n++
	}
	return n
}

// moveRest moves diff 1 and expects no part to be sent that the server has.
func (b *bundle) moveRest(t *testing.T, gateway *s3test.Gateway, before map[string]string) {
	earlier := partsSent(gateway)
	moved := b.move(t, 1)
	require.Empty(t, moved.Skipped)
	require.GreaterOrEqual(t, moved.Kept, int64(blobstore.PartSize))
	require.Equal(t, 3-int((moved.Kept+blobstore.PartSize-1)/blobstore.PartSize), partsSent(gateway)-earlier)
	require.Equal(t, before, b.texts(t, 1))
	require.Empty(t, b.verified(t, 0))
	require.Zero(t, b.uploads(t))
	require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE upload_id IS NOT NULL"))
}

func TestAKilledUploadGoesOn(t *testing.T) {
	t.Parallel()
	b, gateway, before := onGateway(t)
	b.kill(t, "move", extdiff.PointPart)
	require.Equal(t, 1, b.uploads(t))
	b.expire()
	b.moveRest(t, gateway, before)
}

// All parts are there, and the object is, when the worker dies: none is sent again.
func TestAWorkerThatDiesAfterTheLastPartSendsNone(t *testing.T) {
	t.Parallel()
	b, gateway, before := onGateway(t)
	b.kill(t, "move", extdiff.PointUploaded)
	require.Equal(t, 3, partsSent(gateway))
	b.expire()
	b.moveRest(t, gateway, before)
}

// As a stop or a deploy ends it: that is no failure of the upload.
func TestAStoppedUploadGoesOn(t *testing.T) {
	t.Parallel()
	b, gateway, before := onGateway(t)
	ctx, stop := context.WithCancel(t.Context())
	b.engine.Reached = func(p extdiff.Point) {
		if p == extdiff.PointPart {
			stop()
		}
	}
	_, err := b.engine.Move(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, [][]string{{"0", "NULL", "t", "NULL"}},
		b.Rows("SELECT upload_failures, upload_error, upload_sent >= 5 * 1024 * 1024, busy_until FROM sexton.external_diffs"))
	b.engine.Reached = nil
	b.moveRest(t, gateway, before)
}

// No byte moves: the attempt ends, and says so in the row and the lists; the next one goes on.
func TestAStalledUploadIsBrokenOffAndGoesOn(t *testing.T) {
	t.Parallel()
	b, gateway, before := onGateway(t)
	patient := b.engine.Store
	hasty := pgtest.Must(blobstore.Open(t.Context(), b.address, blobstore.Options{Stall: 2 * time.Second, Attempts: 1}))(t)
	b.engine.Store = hasty
	gateway.Proxy.Fail(func(request string) s3test.Fault {
		if strings.Contains(request, "partNumber=2") {
			return s3test.Stall
		}
		return s3test.Pass
	})
	for n := range 2 {
		moved, err := b.engine.Move(t.Context(), 1)
		var outage *blobstore.OutageError
		require.ErrorAs(t, err, &outage)
		require.True(t, moved.BrokenOff)
		require.Equal(t, int64(n*blobstore.PartSize), moved.Kept)
	}
	backlog := pgtest.Must(extdiff.ReadBacklog(t.Context(), b.Pool(), b.Connected.Names))(t)
	require.Len(t, backlog.Uploads, 1)
	unfinished := backlog.Uploads[0]
	require.Equal(t, []int64{1, blobstore.PartSize, int64(len(before["a"]) + len(before["b"])), 2},
		[]int64{unfinished.DiffID, unfinished.Sent, unfinished.Bytes, unfinished.Failures})
	require.Contains(t, unfinished.Error, "timeout")
	failed := pgtest.Must(extdiff.ReadFailed(t.Context(), b.Pool(), b.Connected.Names, 10, nil))(t)
	require.Len(t, failed, 1)
	require.Equal(t, int64(2), failed[0].Attempts)
	require.Regexp(t, `^5242880 of \d+ bytes are uploaded since 20.*Z; the last attempt: .*timeout`, failed[0].Error)

	gateway.Proxy.Fail(nil)
	b.engine.Store = patient
	b.moveRest(t, gateway, before)
}

// A move to the other store ends in the middle, too.
func TestARelocationGoesOnWithItsParts(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	p := paired(t, gateway)
	p.add(1, file{path: "a", text: new(strings.Repeat("äöü 123\n", 1_200_000))})
	p.move(t, 1)
	before := p.texts(t, 1)
	ctx, stop := context.WithCancel(t.Context())
	p.bucket.Reached = func(point extdiff.Point) {
		if point == extdiff.PointPart {
			stop()
		}
	}
	_, err := p.bucket.Relocate(ctx, 1, 0)
	require.ErrorIs(t, err, context.Canceled)
	p.bucket.Reached = nil
	pgtest.Must(p.bucket.Relocate(t.Context(), 1, 0))(t)
	sent := map[string]int{}
	for _, request := range gateway.Proxy.Seen() {
		if address, err := url.Parse(strings.TrimPrefix(request, "PUT ")); err == nil && address.Query().Has("partNumber") {
			sent[address.Query().Get("partNumber")]++
		}
	}
	require.Equal(t, 1, sent["1"], "it is kept")
	require.Len(t, sent, 3)
	require.Equal(t, before, p.texts(t, 1))
	require.Equal(t, [][]string{{"2"}}, p.Rows("SELECT external_diff_store FROM merge_request_diffs"))
	require.Empty(t, p.Rows("SELECT FROM sexton.external_diffs WHERE upload_id IS NOT NULL"))
}

// Parts of other texts are of no use.
func TestAnUploadOfChangedTextsBeginsAnew(t *testing.T) {
	t.Parallel()
	b, gateway, before := onGateway(t)
	b.kill(t, "move", extdiff.PointPart)
	b.expire()
	b.Exec("UPDATE merge_request_diff_files SET diff = 'x' || diff WHERE old_path = 'a'")
	before["a"] = "x" + before["a"]
	earlier := partsSent(gateway)
	require.Zero(t, b.move(t, 1).Kept)
	require.Equal(t, 3, partsSent(gateway)-earlier)
	require.Equal(t, before, b.texts(t, 1))
	require.Zero(t, b.uploads(t))
}

// An object that is there, and an upload that is not, do not have to be one: here it is another's.
func TestAnotherObjectIsNotTakenForTheEndOfAnUpload(t *testing.T) {
	t.Parallel()
	b, _, before := onGateway(t)
	b.kill(t, "move", extdiff.PointPart)
	b.expire()
	for upload, err := range b.engine.Store.Uploads(t.Context(), "") {
		require.NoError(t, err)
		require.NoError(t, b.engine.Store.Abort(t.Context(), upload.Key, upload.ID))
		pgtest.Must(b.engine.Store.Put(t.Context(), upload.Key, "", func(io.Writer) error { return nil }))(t)
	}
	require.Zero(t, b.move(t, 1).Kept)
	require.Equal(t, before, b.texts(t, 1))
}

// A key that may not list parts begins anew each time, and leaves the parts of no attempt but the last.
func TestAnUploadWhosePartsCannotBeListedIsAborted(t *testing.T) {
	t.Parallel()
	b, gateway, _ := onGateway(t)
	b.kill(t, "move", extdiff.PointPart)
	gateway.Proxy.Fail(func(request string) s3test.Fault {
		if strings.HasPrefix(request, "GET ") && strings.Contains(request, "uploadId=") {
			return s3test.Deny
		}
		return s3test.Pass
	})
	for range 2 {
		b.expire()
		b.kill(t, "move", extdiff.PointPart)
		require.Equal(t, 1, b.uploads(t))
	}
	b.expire()
	require.Zero(t, b.move(t, 1).Kept)
	require.Zero(t, b.uploads(t))
}

// Neither a diff that is deleted or refused in the middle of its upload leaves parts, nor one that is skipped after it an entry.
func TestUploadsThatNoAttemptGoesOnWithEnd(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]func(t *testing.T, b *bundle){
		"deleted": func(t *testing.T, b *bundle) {
			b.kill(t, "move", extdiff.PointPart)
			b.Exec("DELETE FROM merge_request_diffs WHERE id = 1")
			b.expire()
			require.Equal(t, extdiff.Removed{Objects: 1}, pgtest.Must(b.engine.Remove(t.Context(), 10))(t))
		},
		"refused": func(t *testing.T, b *bundle) {
			b.kill(t, "move", extdiff.PointPart)
			b.expire()
			b.Exec("UPDATE merge_request_diffs SET files_count = 3 WHERE id = 1")
			require.Equal(t, extdiff.FilesMissing, b.move(t, 1).Skipped)
		},
		"not due any more": func(t *testing.T, b *bundle) {
			b.engine.Reached = func(point extdiff.Point) {
				if point == extdiff.PointVerified {
					b.Exec("UPDATE merge_request_diffs SET files_count = 0 WHERE id = 1")
				}
			}
			require.Equal(t, extdiff.NotDue, b.move(t, 1).Skipped)
		},
	}, func(t *testing.T, _ string, end func(t *testing.T, b *bundle)) {
		b, _, _ := onGateway(t)
		end(t, b)
		require.Zero(t, b.uploads(t))
		require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE upload_id IS NOT NULL OR busy_until IS NOT NULL"))
	})
}

func TestTheSweepAbortsAbandonedUploads(t *testing.T) {
	t.Parallel()
	b, gateway, _ := onGateway(t)
	b.kill(t, "move", extdiff.PointPart)
	b.expire()
	engine := owned(b.engine)
	fence := b.granted(t)
	sweep := func(grace time.Duration) int64 {
		swept := pgtest.Must((&extdiff.Sweeper{Engine: engine, Fence: fence, Every: time.Nanosecond, Grace: grace}).Run(t.Context()))(t)
		return swept.Aborted
	}
	require.Zero(t, sweep(time.Hour), "it is young")
	b.Exec("UPDATE sexton.external_diffs SET upload_seen_at = now() + interval '2 hours'")
	require.Zero(t, sweep(-time.Hour), "somebody is at it")
	require.Equal(t, 1, b.uploads(t))
	b.Exec("UPDATE sexton.external_diffs SET upload_seen_at = now()")
	gateway.Proxy.Fail(func(request string) s3test.Fault {
		if strings.Contains(request, "uploads") {
			return s3test.Deny
		}
		return s3test.Pass
	})
	require.Zero(t, sweep(-time.Hour), "a key without that right sweeps objects all the same")
	gateway.Proxy.Fail(func(request string) s3test.Fault {
		if strings.HasPrefix(request, "DELETE ") && strings.Contains(request, "uploadId=") {
			return s3test.Deny
		}
		return s3test.Pass
	})
	b.put(t, "merge_request_diffs/mr-7/diff-2")
	swept, err := (&extdiff.Sweeper{Engine: engine, Fence: fence, Every: time.Nanosecond, Grace: -time.Hour}).Run(t.Context())
	require.ErrorContains(t, err, "sweep uploads: ")
	require.Equal(t, extdiff.Swept{Listed: 1, Swept: 1}, swept, "nor does one that may not end them stop it")
	gateway.Proxy.Fail(nil)
	require.Equal(t, int64(1), sweep(-time.Hour))
	require.Zero(t, b.uploads(t))
	require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE upload_id IS NOT NULL"))
	require.Zero(t, sweep(-time.Hour))
}

// A snapshot per piece: the store may be as slow as it likes. Between two of them the rows may change.
func TestAnUploadTakesManySnapshots(t *testing.T) {
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
	require.Greater(t, pieces, 8, "it began anew")
	require.Empty(t, b.verified(t, 0))
}

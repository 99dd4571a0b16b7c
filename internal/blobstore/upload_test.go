package blobstore_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

// parts are what the server keeps of uploads that are not complete.
func parts(t *testing.T, gateway *s3test.Gateway) (found []string) {
	err := filepath.WalkDir(gateway.File(t, ".sgwtmp"), func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err == nil && entry.Type().IsRegular() {
			found = append(found, path)
		}
		return err
	})
	require.NoError(t, err)
	return found
}

// Whatever ends an upload in parts, they go, and so does its hold on memory: each case comes oftener than there are parts.
func TestAnUploadInPartsLeavesNone(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	store := open(t, gateway.URL("diffs")+"&prefix=our/", blobstore.Options{})
	content := noise(11 << 20)
	over := pgtest.Must(put(t, store, "", content))(t)
	require.FileExists(t, gateway.File(t, "our/"+key))
	require.Equal(t, digest(content), over)
	before := version(t, store)
	again := append([]byte("again"), content...) // The same content would be held for ours, of which the answer got lost.

	broken := errors.New("the source is broken")
	begin := func(w io.Writer) {
		pgtest.Must(w.Write(content))(t)
		require.NotEmpty(t, parts(t, gateway), "or there is nothing to be left")
	}
	for range 4 {
		_, err := store.Put(t.Context(), key, before, func(w io.Writer) error {
			begin(w)
			return broken
		})
		require.Equal(t, broken, err)
		require.PanicsWithValue(t, broken, func() {
			_, _ = store.Put(t.Context(), key, before, func(w io.Writer) error {
				begin(w)
				panic(broken) //nolint:forbidigo // As a fault in the source would.
			})
		})
		_, err = put(t, store, "", again)
		require.ErrorIs(t, err, blobstore.ErrChanged, "there is one")
		_, err = put(t, store, `"another"`, again)
		require.ErrorIs(t, err, blobstore.ErrChanged, "it is another one")
		require.Empty(t, parts(t, gateway))
	}
	require.Equal(t, before, version(t, store))
	found := pgtest.Must(store.Digest(t.Context(), key))(t)
	require.Equal(t, digest(content), found)

	pgtest.Must(put(t, store, before, again))(t)
	found = pgtest.Must(store.Digest(t.Context(), key))(t)
	require.Equal(t, digest(again), found)
}

// partsSent counts the parts that a server was sent.
func partsSent(gateway *s3test.Gateway) (n int) {
	for _, request := range gateway.Proxy.Seen() {
		if strings.HasPrefix(request, "PUT ") && strings.Contains(request, "partNumber=") {
			n++
		}
	}
	return n
}

func uploadsOf(t *testing.T, store *blobstore.Store) (found []blobstore.Upload) {
	for upload, err := range store.Uploads(t.Context(), "merge_request_diffs/") {
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), upload.Begun, time.Hour)
		found = append(found, blobstore.Upload{Key: upload.Key, ID: upload.ID})
	}
	return found
}

// Parts that the service has are not sent again: four of five here, by a process that knows no more than the ID. With and without
// checksums of parts.
func TestAnUploadGoesOnWithItsParts(t *testing.T) {
	t.Parallel()
	for _, parameters := range []string{"&prefix=our/", "&request_checksum_calculation=when_supported"} {
		gateway := s3test.New(t, s3test.Options{})
		store := open(t, gateway.URL("diffs")+parameters, blobstore.Options{})
		content := noise(4*blobstore.PartSize + 100)
		var sent atomic.Int64
		parts := &blobstore.Parts{Begun: func(context.Context, string) error { return nil }, Sent: func(n int64) { sent.Add(n) }}
		broken := errors.New("the process is stopped")
		write := func(size int, failure error) (blobstore.Digest, error) {
			sent.Store(0)
			return store.PutParts(t.Context(), key, version(t, store), parts, func(w io.Writer) error {
				_, err := w.Write(content[:size])
				return errors.Join(err, failure)
			})
		}
		_, err := write(4*blobstore.PartSize+1, broken)
		require.ErrorIs(t, err, broken)
		require.NotEmpty(t, parts.ID)
		require.Equal(t, int64(4*blobstore.PartSize), sent.Load())
		require.Empty(t, version(t, store))
		require.Equal(t, []blobstore.Upload{{Key: key, ID: parts.ID}}, uploadsOf(t, store))
		require.Equal(t, 4, partsSent(gateway))

		found := pgtest.Must(write(len(content), nil))(t)
		require.Equal(t, digest(content), found)
		require.Equal(t, 5, partsSent(gateway))
		require.Equal(t, int64(4*blobstore.PartSize), parts.Kept)
		require.Equal(t, int64(len(content)), sent.Load())
		require.Equal(t, string(content), string(read(t, store, 0, -1)))
		require.Empty(t, uploadsOf(t, store))

		// A crash right after the end: the ID is all that the next process has.
		parts.Kept = 0
		found = pgtest.Must(write(len(content), nil))(t)
		require.Equal(t, digest(content), found)
		require.True(t, parts.Complete)
		require.Equal(t, 5, partsSent(gateway))
	}
}

func TestAnAbortedUploadBeginsAnew(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	store := open(t, gateway.URL("diffs"), blobstore.Options{})
	content := noise(2 * blobstore.PartSize)
	var ids []string
	parts := &blobstore.Parts{
		Begun: func(_ context.Context, id string) error { ids = append(ids, id); return nil },
		Sent:  func(int64) {},
	}
	broken := errors.New("the process is stopped")
	_, err := store.PutParts(t.Context(), key, "", parts, func(w io.Writer) error {
		_, err := w.Write(content)
		return errors.Join(err, broken)
	})
	require.ErrorIs(t, err, broken)
	for range 2 {
		require.NoError(t, store.Abort(t.Context(), key, parts.ID), "also one that is no more")
	}
	require.Empty(t, uploadsOf(t, store))
	pgtest.Must(store.PutParts(t.Context(), key, "", parts, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}))(t)
	require.Len(t, ids, 2)
	require.False(t, parts.Complete)
	require.Equal(t, string(content), string(read(t, store, 0, -1)))

	// A key that may not list parts uploads all the same.
	gateway.Proxy.Fail(func(request string) s3test.Fault {
		if strings.HasPrefix(request, "GET ") && strings.Contains(request, "uploadId=") {
			return s3test.Deny
		}
		return s3test.Pass
	})
	pgtest.Must(store.PutParts(t.Context(), key, version(t, store), parts, func(w io.Writer) error {
		_, err := w.Write(append([]byte("x"), content...))
		return err
	}))(t)
	require.Len(t, ids, 3)
	require.NoError(t, open(t, "file://"+t.TempDir(), blobstore.Options{}).Abort(t.Context(), key, "any"))
}

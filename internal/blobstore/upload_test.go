package blobstore_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/s3test"
)

// parts are what the server keeps of uploads that are not complete.
func parts(t *testing.T, gateway *s3test.Gateway) (found []string) {
	t.Helper()
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
	over, err := put(t, store, "", content)
	require.NoError(t, err)
	require.FileExists(t, gateway.File(t, "our/"+key))
	require.Equal(t, digest(content), over)
	before := version(t, store)
	again := append([]byte("again"), content...) // The same content would be held for ours, of which the answer got lost.

	broken := errors.New("the source is broken")
	begin := func(w io.Writer) {
		_, err := w.Write(content)
		require.NoError(t, err)
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
	found, err := store.Digest(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, digest(content), found)

	_, err = put(t, store, before, again)
	require.NoError(t, err)
	found, err = store.Digest(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, digest(again), found)
}

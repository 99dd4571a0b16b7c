package blobstore_test

import (
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/s3test"
)

func write(t *testing.T, store *blobstore.Store, key, content string) {
	t.Helper()
	_, err := store.Put(t.Context(), key, "", func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
	require.NoError(t, err)
}

func listedAfter(t *testing.T, store *blobstore.Store, prefix, after string, most int) []string {
	t.Helper()
	keys := []string{}
	for info, err := range store.ListAfter(t.Context(), prefix, after) {
		require.NoError(t, err)
		require.Equal(t, int64(len(info.Key)), info.Size)
		require.WithinDuration(t, time.Now(), info.ModTime, time.Hour)
		if keys = append(keys, info.Key); len(keys) == most {
			break
		}
	}
	return keys
}

// Also in a part of a store: keys of others are not listed.
func TestListAfterGoesOnAnywhere(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, address, prefixed string) {
		t.Helper()
		write(t, open(t, address, blobstore.Options{}), "a/mr-0/diff-0", "a/mr-0/diff-0")
		store := open(t, prefixed, blobstore.Options{})
		require.Empty(t, listedAfter(t, store, "a/", "", 0))
		keys := []string{"a/.marker", "a/mr-1/diff-1", "a/mr-1/diff-10", "a/mr-1/diff-2", "a/mr-10/diff-3", "a/mr-2/diff-4", "a/z"}
		for _, key := range append(keys, "b/mr-1/diff-1") {
			write(t, store, key, key)
		}
		require.Equal(t, keys, listedAfter(t, store, "a/", "", 0))
		for i, key := range keys {
			require.Equal(t, keys[i+1:], listedAfter(t, store, "a/", key, 0), "after %s", key)
		}
		require.Equal(t, keys[2:4], listedAfter(t, store, "a/", keys[1], 2))
		require.NoError(t, store.Delete(t.Context(), keys[3]))
		require.Equal(t, keys[4:], listedAfter(t, store, "a/", keys[3], 0), "the object itself may be gone")
	}
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		address := "file://" + t.TempDir()
		test(t, address, address+"?prefix=part/of/")
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		address := s3test.New(t, s3test.Options{}).URL("diffs")
		test(t, address, address+"&prefix=part/of/")
	})
}

// More than S3 lists at once.
func TestListAfterGoesThroughPages(t *testing.T) {
	t.Parallel()
	store := open(t, s3test.New(t, s3test.Options{}).URL("diffs"), blobstore.Options{})
	for n := range 1005 {
		key := fmt.Sprintf("a/%04d", n)
		write(t, store, key, key)
	}
	keys := listedAfter(t, store, "a/", "a/0001", 0)
	require.Len(t, keys, 1003)
	require.Equal(t, "a/1004", keys[1002])
}

func TestGetReadsSmallObjects(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store *blobstore.Store) {
		t.Helper()
		_, _, err := store.Get(t.Context(), "a/b", 10)
		require.ErrorIs(t, err, blobstore.ErrNotFound)
		write(t, store, "a/b", "0123456789")
		content, written, err := store.Get(t.Context(), "a/b", 10)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(content))
		require.WithinDuration(t, time.Now(), written, time.Hour)
		_, _, err = store.Get(t.Context(), "a/b", 9)
		require.ErrorContains(t, err, "read a/b in "+store.String()+": it has more than 9 bytes")
	})
}

func TestAPrefixIsAFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write(t, open(t, "file://"+folder+"?prefix=x/y/", blobstore.Options{}), "a/b", "content")
	content, err := os.ReadFile(folder + "/x/y/a/b")
	require.NoError(t, err)
	require.Equal(t, "content", string(content))
	for _, prefix := range []string{"x", "../x/", "/x/", "x/../../y/"} {
		_, err := blobstore.Open(t.Context(), "file://"+folder+"?prefix="+prefix, blobstore.Options{Key: "external_diffs.bucket"})
		require.ErrorContains(t, err, fmt.Sprintf("has the prefix %q, which is no folder inside (write prefix=name/, with a slash at its end)", prefix))
	}
	require.NoDirExists(t, folder+"/../y")
	_, err = blobstore.Open(t.Context(), "file://"+folder+"/missing?prefix=x/", blobstore.Options{})
	require.ErrorContains(t, err, "create the folder, or mount the disk that it is on")
	require.NoDirExists(t, folder+"/missing")
}

func TestIdentityTellsStoresApart(t *testing.T) {
	t.Parallel()
	folder := "file://" + t.TempDir()
	for address, want := range map[string]string{
		folder:                folder,
		folder + "?prefix=x/": folder + "?prefix=x%2F",
		"s3://diffs?region=eu-central-1&endpoint=http://127.0.0.1:1&prefix=x/": "s3://diffs?endpoint=http%3A%2F%2F127.0.0.1%3A1&prefix=x%2F",
		"s3://diffs?region=eu-central-1":                                       "s3://diffs",
	} {
		require.Equal(t, want, open(t, address, blobstore.Options{}).Identity())
	}
}

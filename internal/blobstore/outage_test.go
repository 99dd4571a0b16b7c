package blobstore_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

// singleAttempt returns options with one attempt and the default time limits, so that a
// slow machine does not cause an outage.
func singleAttempt() blobstore.Options { return blobstore.Options{Attempts: 1} }

// shortStall returns options with one attempt and a short time limit, for a network that
// forwards nothing.
func shortStall() blobstore.Options {
	return blobstore.Options{Stall: 300 * time.Millisecond, Attempts: 1}
}

func always(fault s3test.Fault) func(string) s3test.Fault {
	return func(string) s3test.Fault { return fault }
}

func requireOutage(t *testing.T, err error, reason string) {
	var outage *blobstore.OutageError
	require.ErrorAs(t, err, &outage)
	require.Contains(t, outage.Reason, reason)
	require.Contains(t, err.Error(), "the store is not available: ")
	require.NotContains(t, err.Error(), "127.0.0.1", "only the cause contains addresses")
}

func TestNetworkFaultsAreOutages(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	patient := open(t, gateway.URL("diffs"), singleAttempt())
	pgtest.Must(put(t, patient, "", []byte("content")))(t)
	for fault, reason := range map[s3test.Fault]string{
		s3test.Busy: "503", s3test.Reset: "connection reset by peer", s3test.Stall: "timeout",
	} {
		gateway.Proxy.Fail(always(fault))
		store := patient
		if fault == s3test.Stall {
			store = open(t, gateway.URL("diffs"), shortStall())
		}
		_, err := store.Digest(t.Context(), key)
		requireOutage(t, err, reason)
		_, err = put(t, store, "", noise(100))
		requireOutage(t, err, reason)
		// An object of this size is sent in parts.
		_, err = put(t, store, "", noise(20<<20))
		requireOutage(t, err, reason)
		requireOutage(t, store.Delete(t.Context(), key), reason)
		for _, err := range store.List(t.Context(), "") {
			requireOutage(t, err, reason)
		}
	}
	gateway.Proxy.Fail(nil)
	require.Equal(t, "content", string(read(t, patient, 0, -1)), "an outage changes nothing")
}

func TestLostAnswerIsNotFailure(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	store := open(t, gateway.URL("diffs"), blobstore.Options{})
	for _, size := range []int{100, 20 << 20} {
		var cuts atomic.Int32
		gateway.Proxy.Fail(func(request string) s3test.Fault {
			if isWrite(request) && cuts.Add(1) == 1 {
				return s3test.Cut
			}
			return s3test.Pass
		})
		content := noise(size)
		written := pgtest.Must(put(t, store, version(t, store), content))(t)
		require.Equal(t, digest(content), written)
		require.Greater(t, cuts.Load(), int32(1), "requests were repeated")
	}
}

func TestSlowNetworkIsNotOutage(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	gateway.Proxy.Fail(always(s3test.Slow))
	store := open(t, gateway.URL("diffs"), singleAttempt())
	content := noise(1 << 20)
	written := pgtest.Must(put(t, store, "", content))(t)
	require.Equal(t, digest(content), written)
}

func TestWrongCredentialsAreAccessError(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{Secret: "another"})
	store := open(t, gateway.URL("diffs"), blobstore.Options{})
	_, err := put(t, store, "", []byte("content"))
	requireRefused(t, err, "SignatureDoesNotMatch",
		"(correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile)")
	_, err = store.Digest(t.Context(), key)
	requireRefused(t, err, "SignatureDoesNotMatch", "(correct AWS_ACCESS_KEY_ID")
	requireRefused(t, store.Probe(t.Context(), "probe"), "SignatureDoesNotMatch", "(correct AWS_ACCESS_KEY_ID")
	require.Len(t, gateway.Proxy.Seen(), 4,
		"refused requests are not repeated, but a HEAD request is followed by a list request")
}

func TestWrongRegionIsAccessError(t *testing.T) {
	t.Parallel()
	store := open(t, s3test.New(t, s3test.Options{}).URL("diffs")+"&region=eu-west-1", blobstore.Options{})
	_, err := store.Version(t.Context(), key)
	requireRefused(t, err, "AuthorizationHeaderMalformed", "(correct region and endpoint in the URL)")
	requireRefused(t, store.Probe(t.Context(), "probe"), "AuthorizationHeaderMalformed")
}

func TestMissingBucketIsAccessError(t *testing.T) {
	t.Parallel()
	store := open(t, s3test.New(t, s3test.Options{}).URL("elsewhere"), blobstore.Options{})
	_, err := put(t, store, "", []byte("content"))
	requireRefused(t, err, "external_diffs.bucket s3://elsewhere: 404 NoSuchBucket",
		"(create the bucket, or correct its name)")
	requireRefused(t, store.Probe(t.Context(), "probe"), "NoSuchBucket", "(create the bucket, or correct its name)")
}

func requireRefused(t *testing.T, err error, parts ...string) {
	var refused *blobstore.AccessError
	require.ErrorAs(t, err, &refused)
	for _, part := range parts {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), os.Getenv("AWS_SECRET_ACCESS_KEY"))
}

func TestFullBucketIsOutage(t *testing.T) {
	t.Parallel()
	store := open(t, s3test.New(t, s3test.Options{DiskBytes: 4 << 20}).URL("diffs"), singleAttempt())
	for _, size := range []int{6 << 20, 20 << 20} {
		_, err := put(t, store, "", noise(size))
		requireOutage(t, err, "507")
		require.Empty(t, version(t, store), "no incomplete object is left")
	}
	_, err := put(t, store, "", noise(1000))
	require.NoError(t, err, "a small object still fits")
}

// fillFolder is an environment variable with a path. If it is set, this test program
// fills the folder at that path instead of running tests.
const fillFolder = "SEXTON_TEST_FILL_FOLDER"

func fill(folder string) int {
	err := func() error {
		options := singleAttempt()
		options.Key = "external_diffs.bucket"
		store, err := blobstore.Open(context.Background(), "file://"+folder, options)
		if err != nil {
			return err
		}
		_, err = store.Put(context.Background(), key, "", func(w io.Writer) error {
			_, err := w.Write(noise(20 << 20))
			return err
		})
		return err
	}()
	fmt.Fprintln(os.Stdout, err)
	left, err := os.ReadDir(folder + "/merge_request_diffs/mr-1")
	fmt.Fprintln(os.Stdout, len(left), err)
	return 0
}

func TestFullDiskIsOutage(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	cmd := s3test.OnSmallDisk(t, folder, 4<<20, pgtest.Must(os.Executable())(t))
	cmd.Env = append(os.Environ(), fillFolder+"="+folder)
	output, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "the store is not available: no space left on device\n0 <nil>\n")
}

func write(t *testing.T, store *blobstore.Store, key, content string) {
	_, err := store.Put(t.Context(), key, "", func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
	require.NoError(t, err)
}

// listSelfNamed returns the keys with a prefix. It requires that the content of each
// object is as long as its key.
func listSelfNamed(t *testing.T, store *blobstore.Store, prefix string) []string {
	keys := []string{}
	for info, err := range store.List(t.Context(), prefix) {
		require.NoError(t, err)
		require.Equal(t, int64(len(info.Key)), info.Size)
		require.WithinDuration(t, time.Now(), info.ModTime, time.Hour)
		keys = append(keys, info.Key)
	}
	return keys
}

// List returns the objects with the given prefix. A store with a prefix lists only the
// objects under that prefix.
func TestListReturnsAllObjects(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, address, prefixed string) {
		write(t, open(t, address, blobstore.Options{}), "a/mr-0/diff-0", "a/mr-0/diff-0")
		store := open(t, prefixed, blobstore.Options{})
		require.Empty(t, listSelfNamed(t, store, "a/"))
		keys := []string{
			"a/.marker", "a/mr-1/diff-1", "a/mr-1/diff-10", "a/mr-1/diff-2", "a/mr-10/diff-3",
			"a/mr-2/diff-4", "a/z",
		}
		for _, key := range append(keys, "b/mr-1/diff-1") {
			write(t, store, key, key)
		}
		require.ElementsMatch(t, keys, listSelfNamed(t, store, "a/"))
		for range store.List(t.Context(), "a/") {
			break
		}
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

// S3 returns at most 1000 objects per page.
func TestListReadsAllPages(t *testing.T) {
	t.Parallel()
	store := open(t, s3test.New(t, s3test.Options{}).URL("diffs"), blobstore.Options{})
	for n := range 1005 {
		key := fmt.Sprintf("a/%04d", n)
		write(t, store, key, key)
	}
	keys := listSelfNamed(t, store, "a/")
	require.Len(t, keys, 1005)
	require.Equal(t, "a/1004", keys[1004])
}

func TestGetReadsSmallObjects(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store *blobstore.Store) {
		_, err := store.Get(t.Context(), "a/b", 10)
		require.ErrorIs(t, err, blobstore.ErrNotFound)
		write(t, store, "a/b", "0123456789")
		content, err := store.Get(t.Context(), "a/b", 10)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(content))
		_, err = store.Get(t.Context(), "a/b", 9)
		require.ErrorContains(t, err, "read a/b in "+store.String()+": it has more than 9 bytes")
	})
}

func TestPrefixOfFolder(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write(t, open(t, "file://"+folder+"?prefix=x/y/", blobstore.Options{}), "a/b", "content")
	content, err := os.ReadFile(folder + "/x/y/a/b")
	require.NoError(t, err)
	require.Equal(t, "content", string(content))
	for _, prefix := range []string{"x", "../x/", "/x/", "x/../../y/"} {
		_, err := blobstore.Open(t.Context(), "file://"+folder+"?prefix="+prefix,
			blobstore.Options{Key: "external_diffs.bucket"})
		require.ErrorContains(t, err,
			fmt.Sprintf("has the prefix %q, which is not a subfolder (write prefix=name/, with a trailing slash)",
				prefix))
	}
	require.NoDirExists(t, folder+"/../y")
	_, err = blobstore.Open(t.Context(), "file://"+folder+"/missing?prefix=x/", blobstore.Options{})
	require.ErrorContains(t, err, "create the folder, or mount its disk")
	require.NoDirExists(t, folder+"/missing")
}

func TestIdentity(t *testing.T) {
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

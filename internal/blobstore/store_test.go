package blobstore_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"sexton/internal/blobstore"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(fillFolder); folder != "" {
		os.Exit(fill(folder))
	}
	s3test.Prepare()
	goleak.VerifyTestMain(m)
}

func open(t *testing.T, address string, options blobstore.Options) *blobstore.Store {
	options.Key = "external_diffs.bucket"
	return pgtest.Must(blobstore.Open(t.Context(), address, options))(t)
}

// onBoth runs a test with each kind of store.
func onBoth(t *testing.T, test func(t *testing.T, store *blobstore.Store)) {
	t.Run("folder", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, "file://"+t.TempDir(), blobstore.Options{}))
	})
	t.Run("s3", func(t *testing.T) {
		t.Parallel()
		test(t, open(t, s3test.New(t, s3test.Options{}).URL("diffs"), blobstore.Options{}))
	})
}

const key = "merge_request_diffs/mr-1/diff-2"

func put(t *testing.T, store *blobstore.Store, over blobstore.Version, content []byte) (blobstore.Digest, error) {
	return store.Put(t.Context(), key, over, func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(content))
		return err
	})
}

func digest(content []byte) blobstore.Digest {
	return blobstore.Digest{Size: int64(len(content)), SHA256: sha256.Sum256(content)}
}

func read(t *testing.T, store *blobstore.Store, offset, size int64) []byte {
	reader := pgtest.Must(store.Range(t.Context(), key, offset, size))(t)
	content := pgtest.Must(io.ReadAll(reader))(t)
	require.NoError(t, reader.Close())
	return content
}

func noise(size int) []byte {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content)
	return content
}

func version(t *testing.T, store *blobstore.Store) blobstore.Version {
	return pgtest.Must(store.Version(t.Context(), key))(t)
}

func TestObjectsAreReadAsWritten(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store *blobstore.Store) {
		// The sizes are no bytes, a few bytes, a large object in one part, exactly one
		// part, and several parts.
		for _, size := range []int{0, 10, 200 << 10, 5 << 20, 27 << 20} {
			content := noise(size)
			written := pgtest.Must(put(t, store, version(t, store), content))(t)
			require.Equal(t, digest(content), written)
			require.Equal(t, written, pgtest.Must(store.Digest(t.Context(), key))(t))
			require.True(t, bytes.Equal(content, read(t, store, 0, -1)))
			if size > 5 {
				require.Equal(t, content[3:5], read(t, store, 3, 2))
				require.Empty(t, read(t, store, 3, 0))
			}
		}
		require.NoError(t, store.Delete(t.Context(), key))
		require.Empty(t, version(t, store))
		_, err := store.Digest(t.Context(), key)
		require.ErrorIs(t, err, blobstore.ErrNotFound)
		require.NoError(t, store.Probe(t.Context(), "host:1"))
		require.Empty(t, list(t, store, ""), "a probe leaves no objects")
	})
}

func list(t *testing.T, store *blobstore.Store, prefix string) []string {
	keys := []string{}
	for info, err := range store.List(t.Context(), prefix) {
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), info.ModTime, time.Minute)
		keys = append(keys, info.Key)
	}
	return keys
}

func TestWriteChecksVersion(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store *blobstore.Store) {
		pgtest.Must(put(t, store, "", []byte("first")))(t)
		_, err := put(t, store, "", []byte("second"))
		require.ErrorIs(t, err, blobstore.ErrChanged)
		before := version(t, store)
		pgtest.Must(put(t, store, before, []byte("third")))(t)
		_, err = put(t, store, before, []byte("fourth"))
		require.ErrorIs(t, err, blobstore.ErrChanged, "the replaced version no longer exists")
		require.Equal(t, "third", string(read(t, store, 0, -1)))
		before = version(t, store)
		require.NoError(t, store.Delete(t.Context(), key))
		_, err = put(t, store, before, []byte("fifth"))
		require.ErrorIs(t, err, blobstore.ErrChanged, "the replaced version no longer exists")
		require.Empty(t, version(t, store))
	})
}

func TestFailedWriteLeavesNoObject(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store *blobstore.Store) {
		broken := errors.New("the source is broken")
		_, err := store.Put(t.Context(), key, "", func(w io.Writer) error {
			pgtest.Must(w.Write(noise(20 << 20)))(t)
			return broken
		})
		require.Equal(t, broken, err)
		require.Empty(t, list(t, store, ""), "no objects or temporary files are left")

		ctx, cancel := context.WithCancelCause(t.Context())
		_, err = store.Put(ctx, key, "", func(w io.Writer) error {
			cancel(broken)
			_, err := w.Write(noise(20 << 20))
			return err
		})
		require.ErrorIs(t, err, broken)
		require.Empty(t, list(t, store, ""))
	})
}

func TestListWithPrefix(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store *blobstore.Store) {
		for _, key := range []string{"b/2", "a/1", "b/1"} {
			pgtest.Must(store.Put(t.Context(), key, "", func(io.Writer) error { return nil }))(t)
		}
		require.Equal(t, []string{"b/1", "b/2"}, list(t, store, "b/"))
	})
}

func TestPrefixIsPrependedToKeys(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	store := open(t, "file://"+folder+"?prefix=our/", blobstore.Options{})
	pgtest.Must(put(t, store, "", []byte("content")))(t)
	require.FileExists(t, filepath.Join(folder, "our", key))
	require.Equal(t, []string{key}, list(t, store, "merge"))
}

func TestOpenRefusesInvalidURLs(t *testing.T) {
	t.Parallel()
	for address, message := range map[string]string{
		"ftp://somewhere/else":             `external_diffs.bucket ftp://somewhere/else: has the scheme "ftp" (write file:///folder or`,
		"file:///there/is/no/such/folder":  `no such file or directory (create the folder, or mount its disk)`,
		"file://relative/folder":           `does not contain an absolute path`,
		"file:///tmp?create_dir=1":         `has the unknown parameter "create_dir"`,
		"s3://bucket/folder?region=x":      `does not name a bucket`,
		"s3://key:hunter2@bucket?region=x": `contains credentials (set AWS_ACCESS_KEY_ID`,
		"s3://bucket?region=x&nonsense=1":  `has the unknown parameter "nonsense" (remove it; a bucket has endpoint, prefix and region`,
		"://":                              `the configured store: is not a URL`,
	} {
		_, err := blobstore.Open(t.Context(), address, blobstore.Options{Key: "external_diffs.bucket"})
		var refused *blobstore.AccessError
		require.ErrorAs(t, err, &refused, address)
		require.ErrorContains(t, err, message)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestMissingFolderIsReported(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "disk")
	require.NoError(t, os.Mkdir(folder, 0o700))
	store := open(t, "file://"+folder, blobstore.Options{})
	require.NoError(t, os.Remove(folder))
	_, err := store.Digest(t.Context(), key)
	var refused *blobstore.AccessError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, "the folder is missing (create it, or mount its disk)")
	_, err = store.Range(t.Context(), key, 0, 1)
	require.ErrorAs(t, err, &refused)
	require.NoError(t, os.Mkdir(folder, 0o700))
	_, err = store.Digest(t.Context(), key)
	require.ErrorIs(t, err, blobstore.ErrNotFound)
}

func TestRangeBeyondEndIsUnexpectedEOF(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store *blobstore.Store) {
		pgtest.Must(put(t, store, "", []byte("short")))(t)
		reader := pgtest.Must(store.Range(t.Context(), key, 2, 10))(t)
		defer reader.Close()
		content, err := io.ReadAll(reader)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, "ort", string(content))
	})
}

func isWrite(request string) bool {
	return !strings.HasPrefix(request, "GET") && !strings.HasPrefix(request, "HEAD")
}

// Three uploads hold all buffers while they wait for their content. Other large objects
// wait for a buffer, and small objects are written immediately.
func TestUploadsShareBuffers(t *testing.T) {
	t.Parallel()
	store := open(t, s3test.New(t, s3test.Options{}).URL("diffs"), blobstore.Options{})
	content := noise(11 << 20)
	var writers sync.WaitGroup
	ready, proceed := make(chan struct{}), make(chan struct{})
	results := make([]error, 5)
	begin := func(i int, write func(w io.Writer) error) {
		writers.Go(func() { _, results[i] = store.Put(t.Context(), fmt.Sprintf("big-%d", i), "", write) })
	}
	all := func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
	for i := range 3 {
		begin(i, func(w io.Writer) error {
			if _, err := w.Write(content[:1<<20]); err != nil {
				return err
			}
			ready <- struct{}{}
			<-proceed
			_, err := w.Write(content[1<<20:])
			return err
		})
	}
	for range 3 {
		<-ready
	}
	begin(3, all)
	begin(4, all)
	_, err := store.Put(t.Context(), "small", "", func(w io.Writer) error {
		_, err := w.Write(content[:100_000])
		return err
	})
	require.NoError(t, err, "a small object needs no buffer")
	require.Equal(t, []string{"small"}, list(t, store, ""), "large objects wait for a buffer")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = store.Put(ctx, "late", "", all)
	require.ErrorIs(t, err, context.Canceled, "the wait ends with the context")
	close(proceed)
	writers.Wait()
	for i, err := range results {
		require.NoError(t, err)
		found := pgtest.Must(store.Digest(t.Context(), fmt.Sprintf("big-%d", i)))(t)
		require.Equal(t, digest(content), found)
	}
}

// All operations refuse an invalid key, because keys come from rows that applications
// write.
func TestInvalidKeysAreRefused(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, store *blobstore.Store) {
		for _, key := range []string{"", ".", "/a", "../a", "a/../../b", "a//b", "a/", "a\nb"} {
			want := fmt.Sprintf("%q is not a valid object key", key)
			_, err := store.Version(t.Context(), key)
			require.ErrorContains(t, err, want)
			_, err = store.Digest(t.Context(), key)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, store.Delete(t.Context(), key), want)
			_, err = store.Put(t.Context(), key, "", func(io.Writer) error { return nil })
			require.ErrorContains(t, err, want)
		}
		require.Empty(t, list(t, store, ""))
	})
}

// A write removes the temporary files of the same object, even if its key contains
// pattern characters, and keeps those of other objects.
func TestWriteRemovesEarlierTemporaryFiles(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	store := open(t, "file://"+root, blobstore.Options{})
	for _, name := range []string{"a[1]*?.X.tmp", "a1.X.tmp"} {
		require.NoError(t, os.WriteFile(filepath.Join(root, name), nil, 0o600))
	}
	pgtest.Must(store.Put(t.Context(), "a[1]*?", "", func(io.Writer) error { return nil }))(t)
	require.NoFileExists(t, filepath.Join(root, "a[1]*?.X.tmp"))
	require.FileExists(t, filepath.Join(root, "a1.X.tmp"))
}

// List ends if a faulty service returns the same page again and again.
func TestListEndsIfPagesRepeat(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w,
			`<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>again</NextContinuationToken></ListBucketResult>`)
	}))
	t.Cleanup(service.Close)
	store := open(t, "s3://diffs?endpoint="+service.URL, blobstore.Options{})
	for _, err := range store.List(t.Context(), "a/") {
		require.NoError(t, err)
	}
}

// parts returns the files of incomplete uploads on the server.
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

// A multipart upload that fails, panics or is refused leaves no parts and gives its
// buffer back. Each failure occurs more often than there are buffers.
func TestFailedMultipartUploadLeavesNoParts(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	store := open(t, gateway.URL("diffs")+"&prefix=our/", blobstore.Options{})
	content := noise(11 << 20)
	over := pgtest.Must(put(t, store, "", content))(t)
	require.FileExists(t, gateway.File(t, "our/"+key))
	require.Equal(t, digest(content), over)
	before := version(t, store)
	// The content must differ from the stored object. Put would treat the same content as
	// its own object whose response was lost.
	again := append([]byte("again"), content...)

	broken := errors.New("the source is broken")
	begin := func(w io.Writer) {
		pgtest.Must(w.Write(content))(t)
		require.NotEmpty(t, parts(t, gateway), "a part has been sent")
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
				panic(broken) //nolint:forbidigo // The test simulates a fault in the source.
			})
		})
		_, err = put(t, store, "", again)
		require.ErrorIs(t, err, blobstore.ErrChanged, "an object exists")
		_, err = put(t, store, `"another"`, again)
		require.ErrorIs(t, err, blobstore.ErrChanged, "the object has another version")
		require.Empty(t, parts(t, gateway))
	}
	require.Equal(t, before, version(t, store))
	found := pgtest.Must(store.Digest(t.Context(), key))(t)
	require.Equal(t, digest(content), found)

	pgtest.Must(put(t, store, before, again))(t)
	found = pgtest.Must(store.Digest(t.Context(), key))(t)
	require.Equal(t, digest(again), found)
}

package devpg

import (
	"archive/zip"
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// repository serves an archive as the published one does: a jar whose .txz holds the server. The one in testdata holds two
// scripts in place of initdb and postgres.
func repository(t *testing.T, downloads *atomic.Int32) *httptest.Server {
	t.Helper()
	txz, err := os.ReadFile("testdata/server.txz")
	require.NoError(t, err)
	var jar bytes.Buffer
	archive := zip.NewWriter(&jar)
	file, err := archive.Create("postgres.txz")
	require.NoError(t, err)
	_, err = file.Write(txz)
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".jar") {
			http.NotFound(w, r)
			return
		}
		downloads.Add(1)
		_, _ = w.Write(jar.Bytes())
	}))
	t.Cleanup(server.Close)
	return server
}

func TestFetchKeepsWhatItDownloads(t *testing.T) {
	t.Parallel()
	var downloads atomic.Int32
	cache := openTemp(t)
	url := repository(t, &downloads).URL
	for range 2 {
		dir, err := fetchInto(t.Context(), cache, url)
		require.NoError(t, err)
		require.Equal(t, filepath.Join(cache, "postgres-"+fetchVersion, "bin"), dir)
		info, err := os.Stat(filepath.Join(dir, "initdb"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "another user must be able to run it")
	}
	require.Equal(t, int32(1), downloads.Load(), "the second call must use the cache")
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no download folder may stay behind")
}

func TestFetchWithoutNetwork(t *testing.T) {
	t.Parallel()
	// A server that has been closed refuses connections as an unreachable one does.
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	cache := openTemp(t)
	env := among(t)
	env.fetch = func(ctx context.Context, _ *account) (string, error) { return fetchInto(ctx, cache, closed.URL) }
	_, err := start(t.Context(), Options{}, env)
	require.ErrorContains(t, err, "Get \""+closed.URL)
	require.ErrorContains(t, err, "apt-get install postgresql")
	requireEmpty(t, cache)
}

func TestFetchRefusesAnotherChecksum(t *testing.T) {
	t.Parallel()
	var downloads atomic.Int32
	jar := repository(t, &downloads).Config.Handler
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			_, _ = w.Write([]byte(strings.Repeat("0", 64)))
			return
		}
		jar.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	cache := openTemp(t)
	_, err := fetchInto(t.Context(), cache, server.URL)
	require.ErrorContains(t, err, "does not have the checksum that is published for it")
	requireEmpty(t, cache)
}

func TestFetchUnknownVersion(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	cache := openTemp(t)
	_, err := fetchInto(t.Context(), cache, server.URL)
	require.ErrorContains(t, err, fetchVersion+".jar: 404 Not Found")
	requireEmpty(t, cache)
}

func TestFetchCancelled(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	cache := openTemp(t)
	env := among(t)
	env.fetch = func(ctx context.Context, _ *account) (string, error) { return fetchInto(ctx, cache, server.URL) }
	_, err := start(ctx, Options{}, env)
	require.ErrorIs(t, err, context.Canceled)
	requireEmpty(t, cache)
}

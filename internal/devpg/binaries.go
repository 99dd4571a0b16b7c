package devpg

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/xi2/xz"
)

// findBinaries returns the folder of initdb and postgres. An explicit folder must hold them. Otherwise the first folder found
// wins, or the first of the given major version if an existing cluster asks for one, and at last a download.
func findBinaries(ctx context.Context, explicit, major string, env environment) (string, error) {
	if explicit != "" {
		dir, err := resolve(explicit)
		if err != nil {
			return "", fmt.Errorf("find Postgres server binaries in %q: %w", explicit, err)
		}
		if got := majorVersion(ctx, dir); major != "" && got != major {
			return "", fmt.Errorf("data folder holds a cluster of Postgres %s and %q is version %s: choose binaries of version %s",
				major, explicit, got, major)
		}
		return dir, nil
	}
	for _, folder := range env.folders(ctx) {
		dir, err := resolve(folder)
		if err == nil && (major == "" || majorVersion(ctx, dir) == major) {
			return dir, nil
		}
	}
	if major != "" {
		return "", fmt.Errorf("data folder holds a cluster of Postgres %s and no binaries of that version were found: "+
			"install them, or choose another folder", major)
	}
	dir, err := env.fetch(ctx, env.owner)
	if err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("fetch Postgres server binaries: %w", ctx.Err())
		}
		return "", fmt.Errorf("no Postgres server binaries (initdb, postgres) found and the download did not work (%w): "+
			"install them with 'apt-get install postgresql' (Debian, Ubuntu), 'dnf install postgresql-server' (RHEL, Fedora) or "+
			"'brew install postgresql' (macOS), or set SEXTON_PG_BIN to their folder", err)
	}
	return dir, nil
}

// resolve follows the link of initdb to its real folder and checks that postgres lives there too: some images link only a few of
// the tools into a folder of PATH, and the server finds its libraries and time zones relative to where it really is.
func resolve(folder string) (string, error) {
	initdb, err := filepath.EvalSymlinks(filepath.Join(folder, "initdb"))
	if err != nil {
		return "", err
	}
	dir, err := filepath.Abs(filepath.Dir(initdb))
	if err != nil {
		return "", err
	}
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			return "", err
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return "", fmt.Errorf("%s: %w", filepath.Join(dir, name), errors.New("not an executable file"))
		}
	}
	return dir, nil
}

// binaryFolders lists the folders to search, best first: PATH, what pg_config says, the distributions' folders, newest first.
func binaryFolders(ctx context.Context) []string {
	var folders []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) {
			folders = append(folders, dir)
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		folders = append(folders, strings.TrimSpace(string(out)))
	}
	installed := installedFolders()
	slices.SortStableFunc(installed, func(a, b string) int { return cmp.Compare(pathVersion(b), pathVersion(a)) })
	return append(folders, installed...)
}

// installedFolders lists the existing folders into which the usual packages put the server's binaries.
func installedFolders() []string {
	var folders []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
		"/usr/pgsql-*/bin",          // RHEL, Fedora: the Postgres project's own packages
		"/usr/libexec/postgresql*",  // Alpine
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin", // built from source
		"/usr/bin",             // Fedora's packages, Arch
	} {
		// A malformed pattern would be the only error.
		matches, _ := filepath.Glob(pattern)
		folders = append(folders, matches...)
	}
	return folders
}

// pathVersion reads the major version out of a folder's path, such as /usr/lib/postgresql/15/bin. Old two-part versions count as
// their first part; a path without a number as 0.
func pathVersion(path string) int {
	version, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(path))
	return version
}

// majorVersion asks the binaries for their major version ("15"), and returns an empty text when they do not run.
func majorVersion(ctx context.Context, dir string) string {
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return ""
	}
	return regexp.MustCompile(`\d+`).FindString(string(out))
}

const (
	// fetchVersion is the server that is downloaded where none is installed.
	fetchVersion = "18.3.0"
	// fetchRepository is where the builds of zonkyio/embedded-postgres-binaries are published.
	fetchRepository = "https://repo1.maven.org/maven2"
	// maxArchive bounds a download and what it unpacks to; a server has 40 and 150 MB.
	maxArchive = 1 << 30
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
	target := filepath.Join(cache, "postgres-"+fetchVersion)
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

	archive, err := download(ctx, repository)
	if err != nil {
		return "", err
	}
	if err := unpack(archive, work); err != nil {
		return "", fmt.Errorf("unpack downloaded server: %w", err)
	}
	if _, err := resolve(filepath.Join(work, "bin")); err != nil {
		return "", fmt.Errorf("the downloaded archive holds no server: %w", err)
	}
	if err := openForAll(work); err != nil {
		return "", err
	}
	if err := os.Rename(work, target); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("keep downloaded server: %w", err)
	}
	return resolve(filepath.Join(target, "bin"))
}

// download returns the published archive for this machine: a tar file in xz in a jar, which is a zip file.
func download(ctx context.Context, repository string) (_ io.Reader, err error) {
	arch := runtime.GOARCH
	if arch == "arm64" {
		arch = "arm64v8"
	}
	if _, err := os.Stat("/etc/alpine-release"); err == nil {
		arch += "-alpine"
	}
	name := "embedded-postgres-binaries-" + runtime.GOOS + "-" + arch
	url := fmt.Sprintf("%s/io/zonky/test/postgres/%s/%s/%s-%s.jar", repository, name, fetchVersion, name, fetchVersion)
	jar, err := get(ctx, url)
	if err != nil {
		return nil, err
	}
	// Not every mirror has the checksum.
	sum := sha256.Sum256(jar)
	if published, err := get(ctx, url+".sha256"); err == nil && !strings.HasPrefix(string(published), hex.EncodeToString(sum[:])) {
		return nil, fmt.Errorf("%s does not have the checksum that is published for it", url)
	}
	files, err := zip.NewReader(bytes.NewReader(jar), int64(len(jar)))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", url, err)
	}
	names, err := fs.Glob(files, "*.txz")
	if err != nil || len(names) != 1 {
		return nil, errors.Join(fmt.Errorf("%s holds %d archives instead of one", url, len(names)), err)
	}
	archive, err := fs.ReadFile(files, names[0])
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", url, err)
	}
	return xz.NewReader(bytes.NewReader(archive), 0)
}

func get(ctx context.Context, url string) (_ []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("get %s: %s", url, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, maxArchive))
}

// unpack writes the folders, files and links of a tar file into dir and nowhere else.
func unpack(archive io.Reader, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for entries := tar.NewReader(io.LimitReader(archive, maxArchive)); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := root.MkdirAll(filepath.Dir(entry.Name), 0o755); err != nil {
			return err
		}
		switch entry.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(filepath.Clean(entry.Name), 0o755)
		case tar.TypeSymlink:
			err = root.Symlink(entry.Linkname, entry.Name)
		case tar.TypeReg:
			err = write(root, entry, entries)
		}
		if err != nil {
			return err
		}
	}
}

func write(root *os.Root, entry *tar.Header, content io.Reader) (err error) {
	file, err := root.OpenFile(entry.Name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, entry.FileInfo().Mode().Perm())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = io.Copy(file, content)
	return err
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

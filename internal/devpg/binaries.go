package devpg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sexton/internal/problem"
)

// findBinaries returns the folder of initdb and postgres. An explicit folder must hold
// them. Otherwise it returns the first folder found. If there is none, it fetches a
// server.
func findBinaries(ctx context.Context, explicit string, env environment) (string, error) {
	if explicit != "" {
		dir, err := resolve(explicit)
		return dir, problem.Doing(err, "find Postgres server binaries in %q", explicit)
	}
	for _, folder := range env.folders(ctx) {
		if dir, err := resolve(folder); err == nil {
			return dir, nil
		}
	}
	dir, err := env.fetch(ctx, env.owner, newestMajor)
	switch {
	case err == nil:
		return dir, nil
	case ctx.Err() != nil:
		return "", fmt.Errorf("fetch Postgres server binaries: %w", ctx.Err())
	}
	return "", fmt.Errorf("no Postgres server binaries (initdb, postgres) found and the download did not work (%w): "+
		"install them with 'apt-get install postgresql' (Debian, Ubuntu), 'dnf install postgresql-server' (RHEL, Fedora) or "+
		"'brew install postgresql' (macOS), or set SEXTON_PG_BIN to their folder", err)
}

// resolve follows the link of initdb to its real folder and checks that postgres lives
// there too: some images link only a few of the tools into a folder of PATH, and the
// server finds its libraries and time zones relative to where it really is.
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

// binaryFolders lists the folders to search, best first: PATH, what pg_config says, the
// distributions' folders, newest first.
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

// installedFolders lists the existing folders into which the usual packages put the
// server's binaries.
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

// pathVersion reads the major version out of a folder's path, such as
// /usr/lib/postgresql/15/bin. Old two-part versions count as their first part; a path
// without a number as 0.
func pathVersion(path string) int {
	version, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(path))
	return version
}

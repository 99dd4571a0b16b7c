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

// findBinaries returns the folder of initdb and postgres. If a folder is given, it must
// contain both programs. Otherwise findBinaries returns the first suitable folder of the
// environment, or downloads a server if no folder is suitable.
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
	return "", fmt.Errorf("no Postgres server binaries (initdb, postgres) found and the download failed (%w): "+
		"install them with 'apt-get install postgresql' (Debian, Ubuntu), 'dnf install postgresql-server' (RHEL, Fedora) or "+
		"'brew install postgresql' (macOS), or set SEXTON_PG_BIN to their folder", err)
}

// resolve follows the symbolic link of initdb and checks that postgres is in the same
// folder. Some images link only a few of the programs into a folder of PATH, and the
// server finds its libraries and time zones relative to its real folder.
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

// binaryFolders returns the folders to search, in order: PATH, the folder that pg_config
// prints, and the folders of the distributions, newest first.
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

// installedFolders returns the program folders of Postgres packages that exist on this
// machine. The patterns include the packages of Debian, RHEL and Alpine, and Homebrew.
// The last two patterns match a build from source, and the packages of Fedora and Arch.
func installedFolders() []string {
	var folders []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/usr/libexec/postgresql*",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin",
		"/usr/bin",
	} {
		// Glob returns an error only for malformed patterns.
		matches, _ := filepath.Glob(pattern)
		folders = append(folders, matches...)
	}
	return folders
}

// pathVersion returns the first number in a folder's path, such as 15 for
// /usr/lib/postgresql/15/bin. It returns 0 for a path without a number, and 9 for the old
// version 9.6.
func pathVersion(path string) int {
	version, _ := strconv.Atoi(regexp.MustCompile(`\d+`).FindString(path))
	return version
}

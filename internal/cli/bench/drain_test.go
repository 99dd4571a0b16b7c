package bench_test

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/bench"
	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

func TestBenchDrain(t *testing.T) {
	t.Parallel()
	args, want := oneOf([][]any{
		{"wide", 10.0, 1_000.0, nil},
		{"fanout", 10.0, 10_000.0, nil},
		{"skew", 11.0, 1_100.0, nil},
		{"nullify", 10.0, 1_000.0, nil},
		{"single", 100.0, 100.0, nil},
		{"slow", 10.0, 30.0, nil},
	}, "drain", "--scale", "0.001", "--rounds", "1", "--pace", "turbo")
	document := benchmark(t, args...)
	require.Equal(t, []string{"benchmark", "foreground_duty", "pace", "rounds", "scale", "server", "sets"}, keys(document))
	require.Nil(t, document["foreground_duty"])
	require.Equal(t, "turbo", document["pace"])
	require.Equal(t, want, cells(document["sets"], "set", "parents", "rows", "foreground"))
	for _, set := range document["sets"].([]any) {
		require.Equal(t, []string{
			"contenders", "foreground", "parents", "ratio_parent_delete_to_native", "ratio_to_in_list", "ratio_to_native",
			"ratio_to_one_statement", "ratio_wal_to_native", "rows", "set",
		}, keys(set))
		contenders := set.(map[string]any)["contenders"]
		require.Equal(t, [][]any{{"one_statement"}, {"native"}, {"in_list"}, {"sexton"}}, cells(contenders, "contender"))
		for _, contender := range contenders.([]any) {
			require.Equal(t, []string{
				"contender", "parent_delete_ms", "rows_per_second", "seconds", "statement_ms", "statements", "wal_bytes",
			}, keys(contender))
			require.Equal(t, []string{"max", "p50", "p90", "p99"}, keys(contender.(map[string]any)["statement_ms"]))
			for _, field := range []string{"parent_delete_ms", "rows_per_second", "statements", "wal_bytes"} {
				require.Positive(t, contender.(map[string]any)[field], "%s of %v", field, contender)
			}
		}
	}
}

func TestBenchDrainBesideForeground(t *testing.T) {
	t.Parallel()
	r := measured(t, "drain", "--set", "nullify", "--scale", "0.001", "--rounds", "2", "--foreground", "--duty", "70")
	for _, line := range []string{
		`set +variant +seconds +rows/s +parents ms +WAL MB +statements +p50 ms +p99 ms +max ms`, `nullify +one statement( +[\d.]+){8}`, `nullify +in list( +[\d.]+){8}`,
		`set +sexton / one statement +/ native +/ in list +parents / native +WAL / native +parents +rows`, `nullify( +[\d.]+){5} +10 +1000`,
		`set +foreground under .*rows/s beside it .*`, `nullify +undisturbed( +[\d.]+){12}`, `nullify +native( +[\d.]+){12}`, `nullify +sexton( +[\d.]+){12}`,
		`median of 2 interleaved rounds, .*`, `foreground: .*; half of the parents deleted, Sexton's duty 70 %`,
	} {
		require.Regexp(t, `(?m)^`+line+`$`, r.Stdout)
	}
	require.NotRegexp(t, `(?m)^nullify +one statement( +[\d.]+){12}$`, r.Stdout, "which has no foreground")
	// They take turns in who begins.
	require.Contains(t, r.Stderr, "nullify: round 1 of 2, one_statement\n")
	require.Contains(t, r.Stderr, "nullify: round 2 of 2, native\nnullify: round 2 of 2, in_list\nnullify: round 2 of 2, sexton\nnullify: round 2 of 2, one_statement\n")
}

// Both ways of deleting bring all rows back. What they write is compared, and a server counts the WAL of all its databases together: this
// test has one of its own.
func TestBenchUndo(t *testing.T) {
	t.Parallel()
	args, want := oneOf([][]any{{"wide", 10.0, 1_000.0}, {"large", 4.0, 400.0}}, "undo", "--scale", "0.001", "--rounds", "1", "--json")
	r := measuredOn(t, pgtest.Server(t).URL("postgres"), args...)
	sets := decoded(t, r)["sets"].([]any)
	require.Equal(t, want, cells(sets, "set", "parents", "rows"))
	for _, set := range sets {
		require.Equal(t, []string{
			"contenders", "parents", "ratio_drain_to_off", "ratio_restore_to_copy", "ratio_wal_to_off", "rows", "set",
		}, keys(set))
		contenders := set.(map[string]any)["contenders"].([]any)
		require.Equal(t, [][]any{{"off"}, {"on"}}, cells(contenders, "contender"))
		for _, contender := range contenders {
			require.Positive(t, contender.(map[string]any)["restored_rows_per_second"])
		}
		off, on := contenders[0].(map[string]any), contenders[1].(map[string]any)
		require.Greater(t, on["wal_bytes"], off["wal_bytes"], "its rows are kept")
	}
}

func TestBenchDrainWithWrongArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"drain", "--set", "deep"}, "--set must be one of wide, fanout, skew, nullify, single, slow, all"},
		{[]string{"undo", "--set", "deep"}, "--set must be one of wide, large, all"},
		{[]string{"drain", "--scale", "0"}, "--scale must be more than 0"},
		{[]string{"drain", "--duty", "101"}, "--duty must be auto, or a percentage from 1 to 100"},
		{[]string{"drain", "--rounds", "-1"}, "--rounds must be more than 0"},
		{[]string{"drain", "--pace", "furious"}, "--pace must be one of normal"},
		{[]string{"scale", "--max", "9999"}, "--max must be between 10000 and 10000000"},
		{[]string{"scale", "--max", "10000001"}, "--max must be between 10000 and 10000000"},
	} {
		r := clitest.Run(nil, append([]string{"bench"}, test.args...)...)
		require.Equal(t, 2, r.Code, test.args)
		require.Contains(t, r.Stderr, test.want, test.args)
	}
	require.Equal(t, []string{"wide", "fanout", "skew", "nullify", "single", "slow"}, bench.DrainSets())
}

func TestBenchWorkers(t *testing.T) {
	t.Parallel()
	document := benchmark(t, "workers", "--scale", "0.001", "--rounds", "1")
	require.Equal(t, []string{"benchmark", "crews", "foreground_duty", "rounds", "rows", "scale", "server"}, keys(document))
	require.EqualValues(t, 1000, document["rows"])
	require.Equal(t, [][]any{{1.0, 1.0}, {1.0, 2.0}, {1.0, 4.0}, {2.0, 2.0}, {4.0, 4.0}}, cells(document["crews"], "databases", "workers"))
	for _, crew := range document["crews"].([]any) {
		require.Positive(t, crew.(map[string]any)["ratio_to_one_worker"])
	}
}

func TestBenchDiffs(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	document := benchmark(t, "diffs", "--scale", "0.004", "--rounds", "1", "--big", "20", "--bucket", "file://"+folder)
	require.Equal(t, []string{"benchmark", "big_diff", "max_workers", "rounds", "scale", "server", "sets", "store"}, keys(document))
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
		require.Positive(t, statements[1][0], "the changes of all diffs of a transaction are sent together")
		require.LessOrEqual(t, statements[1][0], set.(map[string]any)["objects"])
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
	found := []string{}
	require.NoError(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			found = append(found, path)
		}
		return err
	}))
	return found
}

func TestBenchGhost(t *testing.T) {
	t.Parallel()
	args, want := oneOf([][]any{{"big", 1.0, 2_000.0, nil}, {"many", 10.0, 10_000.0, nil}, {"duplicates", 1.0, 800.0, nil}},
		"ghost", "--scale", "0.002", "--rounds", "1", "--target", "0s")
	document := benchmark(t, args...)
	require.Equal(t, []string{"benchmark", "foreground_duty", "rounds", "scale", "server", "sets", "target_ms"}, keys(document))
	require.Nil(t, document["foreground_duty"])
	require.Zero(t, document["target_ms"])
	require.Equal(t, want, cells(document["sets"], "set", "users", "rows", "foreground"))
	for _, set := range document["sets"].([]any) {
		require.Equal(t, []string{
			"contenders", "foreground", "ratio_to_one_statement", "ratio_to_original", "ratio_wal_to_one_statement", "rows", "set", "users",
		}, keys(set))
		contenders := set.(map[string]any)["contenders"]
		require.Equal(t, [][]any{{"one_statement"}, {"original"}, {"sexton"}}, cells(contenders, "contender"))
		for _, contender := range contenders.([]any) {
			require.Equal(t, []string{"contender", "rows_per_second", "seconds", "statement_ms", "statements", "wal_bytes"}, keys(contender))
			for _, field := range []string{"rows_per_second", "statements", "wal_bytes"} {
				require.Positive(t, contender.(map[string]any)[field], "%s of %v", field, contender)
			}
		}
	}
	big := document["sets"].([]any)[0].(map[string]any)["contenders"]
	require.Equal(t, [][]any{{1.0}, {41.0}, {40.0}}, cells(big, "statements"), "50 rows each; the original's last one finds nothing")
}

func TestBenchGhostWithWrongArguments(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--set", "few"}, "--set must be one of big, many, duplicates, all"},
		{[]string{"--scale", "0"}, "--scale must be more than 0"},
		{[]string{"--duty", "101"}, "--duty must be auto, or a percentage from 1 to 100"},
		{[]string{"--target", "2s"}, "--target must be 0s, or between 1ms and 1s"},
	} {
		r := clitest.Run(nil, append([]string{"bench", "ghost"}, test.args...)...)
		require.Equal(t, 2, r.Code, test.args)
		require.Contains(t, r.Stderr, test.want, test.args)
	}
	require.Equal(t, []string{"big", "many", "duplicates"}, bench.GhostSets())
}

func TestBenchGroup(t *testing.T) {
	t.Parallel()
	document := benchmark(t, "group", "--scale", "0.01", "--rounds", "1", "--foreground", "--duty", "70")
	require.Equal(t, []string{
		"benchmark", "contenders", "foreground", "foreground_duty", "projects", "ratio_longest_statement_to_native", "ratio_seconds_to_native",
		"ratio_wal_to_native", "rounds", "rows", "scale", "server", "set",
	}, keys(document))
	require.EqualValues(t, 10, document["projects"])
	require.EqualValues(t, 1+10*(1+100*10), document["rows"])
	require.EqualValues(t, 70, document["foreground_duty"])
	require.Equal(t, [][]any{{"native", 1.0}}, cells(document["contenders"], "contender", "statements")[:1])
	for _, contender := range document["contenders"].([]any) {
		require.Equal(t, []string{"contender", "rows_per_second", "seconds", "statement_ms", "statements", "wal_bytes"}, keys(contender))
		require.Positive(t, contender.(map[string]any)["wal_bytes"])
		require.Positive(t, contender.(map[string]any)["statements"])
	}
	require.Equal(t, [][]any{{"undisturbed"}, {"native"}, {"sexton"}}, cells(document["foreground"], "contender"))
	for _, cell := range document["foreground"].([]any) {
		require.Equal(t, []string{
			"clients_busy_percent", "contender", "ms", "ratio_p50_to_undisturbed", "ratio_p99_to_undisturbed", "ratio_rows_per_second_to_alone",
			"rows_per_second", "statement_ms", "transactions",
		}, keys(cell))
	}

	for set, groups := range map[string]int{bench.DeepGroup: 4, bench.RingGroup: 1} {
		if !pgtest.Long {
			break
		}
		document := benchmark(t, "group", "--set", set, "--scale", "0.01", "--rounds", "1")
		require.Equal(t, set, document["set"])
		require.EqualValues(t, groups+10*(1+100*10), document["rows"])
	}

	r := clitest.Run(nil, "bench", "group", "--set", "all")
	require.Equal(t, 2, r.Code)
	require.Contains(t, r.Stderr, "--set must be one of flat, levels, ring")
	r = clitest.Run(nil, "bench", "group", "--duty", "101")
	require.Equal(t, 2, r.Code)
	require.Contains(t, r.Stderr, "--duty must be auto, or a percentage from 1 to 100")
}

func TestMain(m *testing.M) { clitest.Main(m) }

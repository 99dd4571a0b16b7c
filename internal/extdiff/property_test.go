package extdiff_test

import (
	"context"
	"encoding/base64"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"sexton/internal/blobstore"
	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

// paths generates short paths with few characters, so that folders often have nearly the
// same names as files.
func paths() *rapid.Generator[string] {
	part := rapid.StringMatching(`[a-cA-C.\-ä]{1,3}`)
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(part, 1, 4).Draw(t, "parts"), "/")
	})
}

func files() *rapid.Generator[[]file] {
	one := rapid.Custom(func(t *rapid.T) file {
		f := file{path: paths().Draw(t, "path")}
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			return f
		case 1:
			f.binary = true
			f.text = new(base64.StdEncoding.EncodeToString(rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "bytes")))
		case 2:
			f.binary = true // Some applications mark texts as binary that are not base64.
			f.text = new(rapid.StringMatching(`[ -~ä€😀]{0,40}`).Draw(t, "text"))
		case 3:
			f.text = new(strings.Repeat(rapid.StringMatching(`[+-][ -~ä€😀]{1,40}\n`).Draw(t, "line"),
				rapid.SampledFrom([]int{100, 40_000}).Draw(t, "lines")))
		default:
			f.text = new(rapid.StringMatching(`([+ -][ -~ä€😀\t]{0,40}\n){0,5}`).Draw(t, "text"))
		}
		return f
	})
	return rapid.SliceOfNDistinct(one, 1, 8, func(f file) string { return f.path })
}

// before reports whether the path a comes before b in the order of the tree: folders come
// before the files of the same folder. It is a second implementation of layout.sql.
func before(a, b string) bool {
	for {
		x, restA, folderA := strings.Cut(a, "/")
		y, restB, folderB := strings.Cut(b, "/")
		switch {
		case folderA != folderB:
			return folderA
		case x != y:
			return x < y
		case !folderA:
			return false
		}
		a, b = restA, restB
	}
}

func TestRandomDiffsAreRestoredUnchanged(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		id := int64(0)
		rapid.Check(t, func(rt *rapid.T) {
			id++
			diff := files().Draw(rt, "files")
			b.add(id, diff...)
			want := b.texts(t, id)
			require.Empty(rt, b.move(t, id).Skipped)
			require.Equal(rt, want, b.texts(t, id), "texts of the moved diff")
			stored := b.files(id)
			for i, row := range stored {
				require.True(rt, i == 0 || before(stored[i-1][1], row[1]), "%q comes before %q", stored[max(i-1, 0)][1],
					row[1])
			}
			pgtest.Must(b.engine.Restore(t.Context(), id))(rt)
			require.Equal(rt, want, b.texts(t, id), "texts of the restored diff")
			for _, row := range b.files(id) {
				for _, f := range diff {
					if f.path == row[1] {
						raw := ""
						if f.text != nil {
							raw = *f.text
						}
						require.Equal(rt, raw, row[6], "stored text of %q", f.path)
					}
				}
			}
		})
		require.Empty(t, b.keys(t))
	})
}

// A database with the encoding SQL_ASCII may contain texts that are not UTF-8. They are
// moved as base64.
func TestInvalidUTF8IsMovedAsBase64(t *testing.T) {
	t.Parallel()
	b := onDatabase(t, dbtest.ReferenceIn(t, "SQL_ASCII"), "file://"+t.TempDir())
	b.add(1, file{path: "a", text: new("plain ")}, file{path: "b", text: new("ä")}, file{path: "c", text: new("x")})
	b.Exec(`UPDATE merge_request_diff_files SET diff = convert_from(decode('2bff0afe', 'hex'), 'SQL_ASCII') WHERE old_path = 'c'`)
	want := map[string]string{"a": "plain ", "b": "ä", "c": "+\xff\n\xfe"}
	require.Equal(t, want, b.texts(t, 1))
	require.Empty(t, b.move(t, 1).Skipped)
	require.Equal(t, "plain äK/8K/g==", b.object(t, key1))
	require.Equal(t, [][]string{{"a", "f"}, {"b", "f"}, {"c", "t"}},
		b.Rows(`SELECT old_path, "binary" FROM merge_request_diff_files ORDER BY 1`))
	require.Equal(t, want, b.texts(t, 1))
	pgtest.Must(b.engine.Restore(t.Context(), 1))(t)
	require.Equal(t, want, b.texts(t, 1))
}

func TestLargeDiffNeedsLittleMemory(t *testing.T) { //nolint:paralleltest // It measures the memory of the whole process.
	const size = 32 << 20
	// Frequent collections keep garbage out of the measured heap.
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	stores := map[string]string{"folder": "file://" + t.TempDir(), "s3": s3test.New(t, s3test.Options{}).URL("diffs")}
	for name, address := range pgtest.Few(t, stores, "s3") {
		t.Run(name, func(t *testing.T) {
			b := onStore(t, address)
			b.add(1, file{path: "a"}, file{path: "b", text: new(onePart)})
			// Compressing the text would take longer than moving it.
			b.Exec("ALTER TABLE merge_request_diff_files ALTER diff SET STORAGE EXTERNAL")
			b.Exec(`UPDATE merge_request_diff_files SET diff = repeat((SELECT string_agg(md5(n::text), '') FROM generate_series(1, 32768) AS n), $1)
				WHERE old_path = 'a'`, size>>20)
			peak := watchHeap(t, func() {
				require.Empty(t, b.move(t, 1).Skipped)
			})
			t.Logf("%d MiB of memory to move %d MiB", peak>>20, size>>20)
			require.Less(t, peak, uint64(size/2), "bytes of memory while %d were moved", size)
			peak = watchHeap(t, func() {
				pgtest.Must(b.engine.Restore(t.Context(), 1))(t)
			})
			t.Logf("%d MiB of memory to restore them", peak>>20)
			require.Less(t, peak, uint64(size/2), "bytes of memory while %d were restored", size)
		})
	}
}

// watchHeap calls do, and returns by how many bytes the heap grew at most, including
// garbage.
func watchHeap(t *testing.T, do func()) uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	begin := stats.HeapInuse
	ctx, cancel := context.WithCancel(t.Context())
	var peak atomic.Uint64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			peak.Store(max(peak.Load(), stats.HeapInuse))
			<-tick.C
		}
	}()
	do()
	cancel()
	<-ended
	return peak.Load() - min(begin, peak.Load())
}

// If single requests to the store fail, the diff is readable after each failure, and the
// next attempt moves it.
func TestFailedRequestsLoseNoText(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	b := onStore(t, gateway.URL("diffs"))
	id := int64(0)
	for _, fault := range []s3test.Fault{s3test.Busy, s3test.Reset, s3test.Cut, s3test.Slow} {
		for at := range 4 {
			id++
			b.add(id, threeFiles()...)
			want := b.texts(t, id)
			requests := 0
			gateway.Proxy.Fail(func(string) s3test.Fault {
				requests++
				// Two requests in a row fail, so the client's own retry fails, too.
				if requests == at+1 || requests == at+2 {
					return fault
				}
				return s3test.Pass
			})
			_, err := b.engine.Move(t.Context(), id)
			gateway.Proxy.Fail(nil)
			if outage, is := asOutage(err); err != nil {
				require.True(t, is, "%v", err)
				require.NotEmpty(t, outage.Reason)
			}
			require.Equal(t, want, b.texts(t, id), "fault %d at request %d", fault, at)
			moved := b.move(t, id)
			require.True(t, moved.Skipped == "" || moved.Skipped == extdiff.External)
			require.Equal(t, want, b.texts(t, id), "fault %d at request %d", fault, at)
		}
	}
	require.Empty(t, b.findings(t, 0))
	require.Empty(t,
		b.Rows("SELECT FROM sexton.external_diffs WHERE busy_until IS NOT NULL OR skip_reason IS NOT NULL"))
}

func TestFullStoreLosesNoText(t *testing.T) {
	t.Parallel()
	b := onStore(t, s3test.New(t, s3test.Options{DiskBytes: 3 << 20}).URL("diffs"))
	b.add(1, file{path: "a"})
	b.Exec("UPDATE merge_request_diff_files SET diff = repeat('0123456789abcdef', 300000)")
	_, err := b.engine.Move(t.Context(), 1)
	outage, is := asOutage(err)
	require.True(t, is, "%v", err)
	require.Contains(t, outage.Reason, "507")
	require.Equal(t, [][]string{{"NULL", "NULL", "1"}}, b.stored(1))
	require.Empty(t, b.keys(t))
	b.add(2, threeFiles()...)
	require.Empty(t, b.move(t, 2).Skipped, "a small object still fits")
}

// If the server ends the session during an upload or before the COMMIT, the attempt
// fails, and the diff is unchanged.
func TestLostSessionLosesNoText(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		// The texts are larger than the buffers of the connection, so the server still
		// sends rows when the first piece arrives.
		b.add(1, append(threeFiles(), file{path: "d", text: new(strings.Repeat("d\n", 8<<20))})...)
		want := b.texts(t, 1)
		for _, point := range []extdiff.Point{extdiff.PointReading, extdiff.PointSwitched} {
			b.engine.Reached = func(p extdiff.Point) {
				if p == point { // The session is terminated at each try, because Move retries.
					b.Terminate("xact_start IS NOT NULL")
				}
			}
			_, err := b.engine.Move(t.Context(), 1)
			require.Error(t, err)
			_, is := asOutage(err)
			require.False(t, is, "not an outage of the store: %v", err)
			require.Equal(t, want, b.texts(t, 1))
		}
		b.engine.Reached = nil
		require.Empty(t, b.move(t, 1).Skipped)
		require.Equal(t, want, b.texts(t, 1))
	})
}

func asOutage(err error) (*blobstore.OutageError, bool) {
	return errors.AsType[*blobstore.OutageError](err)
}

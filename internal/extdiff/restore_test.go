package extdiff_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

func TestRestoreBringsTheTextsBackAndThenRemovesTheObject(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		// More than one piece, and no text at all.
		b.add(1, file{path: "a", text: new(strings.Repeat(onePart, 200_000))}, file{path: "b", text: encoded("\xff"), binary: true}, file{path: "c", text: new("")})
		before, rows := b.texts(t, 1), b.files(1)
		b.move(t, 1)
		restored := pgtest.Must(b.engine.Restore(t.Context(), 1))(t)
		require.Equal(t, extdiff.Restored{DiffID: 1, Files: 3, Bytes: int64(len(onePart)*200_000 + 4)}, restored)
		for _, row := range rows {
			row[2] = "NULL" // A new path that is the old one is left out.
		}
		require.Equal(t, rows, b.files(1))
		require.Equal(t, before, b.texts(t, 1))
		require.Equal(t, [][]string{{"f", "NULL", b.stored(1)[0][2]}}, b.stored(1))
		require.Empty(t, b.keys(t))
		require.Empty(t, b.Rows("SELECT FROM sexton.external_diff_removals"))

		require.Equal(t, extdiff.Kept, b.move(t, 1).Skipped, "it was brought back on purpose")
		_, ids := b.schedule(t, extdiff.Always, 10)
		require.Empty(t, ids)
		restored = pgtest.Must(b.engine.Restore(t.Context(), 1))(t)
		require.Equal(t, extdiff.Restored{DiffID: 1}, restored, "the second time there is nothing to do")

		released := pgtest.Must(b.engine.Release(t.Context(), 1))(t)
		require.True(t, released)
		released = pgtest.Must(b.engine.Release(t.Context(), 1))(t)
		require.False(t, released, "it is not kept any more")
		_, err := b.engine.Release(t.Context(), 99)
		require.ErrorIs(t, err, extdiff.ErrNoDiff)
		require.Empty(t, b.move(t, 1).Skipped)
		require.Equal(t, before, b.texts(t, 1))
		require.Empty(t, b.verified(t, 0))
	})
}

func TestRestoreChangesNothingWhereTheObjectIsDamaged(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new(onePart)}, file{path: "b", text: new(onePart)})
	b.move(t, 1)
	stored, files := b.stored(1), b.files(1)
	good := b.object(t, key1)
	for content, message := range map[string]string{
		good[:30]:                          "restore diff 1: diff 1 is damaged: the object has 30 bytes, its files have ",
		good + "x":                         "1 bytes follow the last file",
		strings.ReplaceAll(good, "o", "u"): "its checksum is not that of what was written",
	} {
		b.spoil(t, key1, content)
		_, err := b.engine.Restore(t.Context(), 1)
		require.ErrorContains(t, err, message)
		require.Equal(t, stored, b.stored(1))
		require.Equal(t, files, b.files(1))
		require.Equal(t, content, b.object(t, key1), "the object stays")
		require.Len(t, b.verified(t, 0), 1)
	}
	require.NoError(t, b.engine.Store.Delete(t.Context(), key1))
	_, err := b.engine.Restore(t.Context(), 1)
	require.ErrorContains(t, err, "no such object")
	_, err = b.engine.Restore(t.Context(), 99)
	require.ErrorIs(t, err, extdiff.ErrNoDiff)
	require.Empty(t, b.Rows("SELECT FROM sexton.external_diffs WHERE busy_until IS NOT NULL OR diff_id = 99"))
}

// The diff is back although its object could not go yet, and nobody moves it before it is certain what became of the deletion.
func TestRestoreLeavesAnObjectThatCannotGoYet(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	b := onStore(t, gateway.URL("diffs"))
	b.add(1, file{path: "a", text: new(onePart)})
	b.move(t, 1)
	gateway.Proxy.Fail(func(request string) s3test.Fault {
		if strings.HasPrefix(request, "DELETE") {
			return s3test.Reset
		}
		return s3test.Pass
	})
	require.Equal(t, key1, pgtest.Must(b.engine.Restore(t.Context(), 1))(t).Kept)
	require.Equal(t, map[string]string{"a": onePart}, b.texts(t, 1))
	pgtest.Must(b.engine.Release(t.Context(), 1))(t)
	_, err := b.engine.Move(t.Context(), 1)
	var busy *extdiff.BusyError
	require.ErrorAs(t, err, &busy)
	require.Equal(t, "a deletion that may still arrive", busy.Holder)
	require.WithinDuration(t, time.Now().Add(15*time.Minute), busy.Until, time.Minute)

	gateway.Proxy.Fail(nil)
	b.Exec("UPDATE sexton.external_diffs SET busy_until = now() - interval '1 second'")
	require.Equal(t, extdiff.Removed{Objects: 1}, pgtest.Must(b.engine.Remove(t.Context(), 10))(t))
	require.Empty(t, b.keys(t))
}

// Statements have a limit, which is here too short for the server to know it; a restore has none.
func TestARestoreTakesAsLongAsItsBytes(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new(strings.Repeat(onePart, 500_000))})
	before := b.texts(t, 1)
	b.move(t, 1)
	b.engine.Limits.Transfer = time.Nanosecond
	pgtest.Must(b.engine.Restore(t.Context(), 1))(t)
	require.Equal(t, before, b.texts(t, 1))
}

package extdiff_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
)

// withOwnerCheck makes an engine check the store's marker, and returns the engine.
func withOwnerCheck(engine *extdiff.Engine) *extdiff.Engine {
	engine.Owner = &extdiff.Owner{DB: engine.DB, Store: engine.Store}
	return engine
}

// inFolderWithOwnerCheck returns a bundle with a folder as its store, whose engine checks
// the marker.
func inFolderWithOwnerCheck(t *testing.T) *bundle {
	b := inFolder(t)
	withOwnerCheck(b.engine)
	return b
}

func (b *bundle) marker(t *testing.T) (m extdiff.Marker) {
	require.NoError(t, json.Unmarshal([]byte(b.object(t, extdiff.MarkerKey)), &m))
	return m
}

// requireNotOurs requires an error about the owner of the store, and returns its text.
func requireNotOurs(t *testing.T, err error) string {
	require.ErrorIs(t, err, extdiff.ErrNotOurs)
	var refused *blobstore.AccessError
	require.ErrorAs(t, err, &refused)
	require.Contains(t, refused.Fix, "`sexton diffs adopt`")
	return err.Error()
}

// requireAllRefused requires that a move, a restore, the removal of a dangling object and
// the removal of a queued object are refused because of the owner. It returns the text of
// the last error.
func (b *bundle) requireAllRefused(t *testing.T, engine *extdiff.Engine, diff int64) string {
	_, err := engine.Move(t.Context(), diff)
	requireNotOurs(t, err)
	_, err = engine.Restore(t.Context(), diff)
	requireNotOurs(t, err)
	_, err = engine.RemoveUnnamed(t.Context(), extdiff.Finding{Key: key1})
	requireNotOurs(t, err)
	b.Exec("INSERT INTO sexton.external_diff_removals (diff_id, key) VALUES (99, 'merge_request_diffs/mr-7/diff-99')")
	_, err = engine.Remove(t.Context(), 10)
	b.Exec("DELETE FROM sexton.external_diff_removals WHERE diff_id = 99")
	return requireNotOurs(t, err)
}

func TestStoreRefusesSecondDatabase(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, first *bundle) {
		second := onDatabase(t, dbtest.Reference(t), first.address)
		// All test databases are copies of one template, so they have the same
		// installation.
		second.Exec("UPDATE sexton.external_diff_installation SET id = gen_random_uuid()")
		for _, b := range []*bundle{first, second} {
			b.add(1, file{path: "a", text: new(onePart)})
			b.add(2, file{path: "a", text: new(onePart)})
			withOwnerCheck(b.engine)
		}
		first.move(t, 1)
		require.Equal(t, []string{extdiff.MarkerKey, key1}, first.keys(t))
		require.Empty(t, first.findings(t, 0), "the marker is not reported as dangling")
		message := second.requireAllRefused(t, second.engine, 1)
		names := pgtest.Scalar[string](t, first.Database, "SELECT current_database()")
		require.Contains(t, message, `the objects there belong to database "`+names+`"`)
		require.Contains(t, message, `this is database "`+pgtest.Scalar[string](t, second.Database,
			"SELECT current_database()")+`"`)
		require.NotContains(t, message, "a copy of it")
		require.Equal(t, onePart, first.object(t, key1))

		adopted := pgtest.Must(withOwnerCheck(second.newEngine(t, "successor")).Owner.Adopt(t.Context()))(t)
		require.True(t, adopted.Changed)
		require.Equal(t, names, adopted.Was.Database)
		second.engine = withOwnerCheck(second.newEngine(t, "successor"))
		require.Empty(t, second.move(t, 2).Skipped)
		first.requireAllRefused(t, withOwnerCheck(first.newEngine(t, "first")), 2)
		again := pgtest.Must(withOwnerCheck(second.newEngine(t, "successor")).Owner.Adopt(t.Context()))(t)
		require.False(t, again.Changed)
		require.Equal(t, adopted.Now.CreatedAt, again.Now.CreatedAt)
	})
}

// A restored dump has the same installation as the original but a different server.
func TestACopyOfTheDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	b := inFolderWithOwnerCheck(t)
	b.addMoved(t, 1, file{path: "a", text: new(onePart)})
	dump := b.Rows("SELECT id FROM sexton.external_diff_installation")[0][0]
	staging := onDatabase(t, dbtest.Reference(t), b.address)
	staging.add(1, file{path: "a", text: new("other")})
	staging.Exec("UPDATE sexton.external_diff_installation SET id = $1", dump)
	staging.Exec("INSERT INTO sexton.external_diff_stores (store) VALUES ($1)", b.engine.Store.Identity())
	withOwnerCheck(staging.engine)
	require.Contains(t, staging.requireAllRefused(t, staging.engine, 1), "a copy of it, or it has been moved")
	require.Equal(t, onePart, b.object(t, key1))
	require.NoError(t, withOwnerCheck(b.newEngine(t, "first")).Owner.Check(t.Context()))
}

func TestManyWorkersWriteOneMarker(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		var all sync.WaitGroup
		for range 6 {
			engine := withOwnerCheck(b.newEngine(t, "worker"))
			all.Go(func() {
				if err := engine.Owner.Check(t.Context()); err != nil {
					t.Errorf("check the marker: %v", err)
				}
			})
		}
		all.Wait()
		require.Equal(t, []string{extdiff.MarkerKey}, b.keys(t))
		require.Len(t, b.Rows("SELECT FROM sexton.external_diff_stores"), 1)
		require.Equal(t, b.Rows("SELECT id FROM sexton.external_diff_installation")[0][0], b.marker(t).Installation)
	})
}

// If the store is a folder, one worker may remove the temporary file with which another
// worker writes the marker. The other worker must not report a lost marker. The test
// removes the temporary files.
func TestRemovedUnfinishedMarkerIsWrittenAgain(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	for range 40 {
		folder := t.TempDir()
		checked := make(chan error, 1)
		owner := withOwnerCheck(b.engineOn(t, "file://"+folder, "worker")).Owner
		go func() { checked <- owner.Check(t.Context()) }()
		unfinished := filepath.Join(folder, extdiff.MarkerKey) + ".*.tmp"
		for removed := false; !removed && len(checked) == 0; {
			for _, name := range pgtest.Must(filepath.Glob(unfinished))(t) {
				removed = os.Remove(name) == nil
			}
		}
		require.NoError(t, <-checked)
	}
}

func TestStoreWithLostMarkerIsRefused(t *testing.T) {
	t.Parallel()
	b := inFolderWithOwnerCheck(t)
	b.addMoved(t, 1, file{path: "a", text: new(onePart)})
	require.NoError(t, b.engine.Store.Delete(t.Context(), extdiff.MarkerKey))
	require.NoError(t, b.engine.Owner.Check(t.Context()), "a check is valid for a minute")
	fresh := withOwnerCheck(b.newEngine(t, "other"))
	require.Contains(t, requireNotOurs(t, fresh.Owner.Check(t.Context())),
		"another disk or bucket may be in its place")
	require.Nil(t, pgtest.Must(fresh.Owner.Adopt(t.Context()))(t).Was)
	require.NoError(t, fresh.Owner.Check(t.Context()))

	b.overwrite(t, extdiff.MarkerKey, "{")
	require.Contains(t, requireNotOurs(t, withOwnerCheck(b.newEngine(t, "other")).Owner.Check(t.Context())),
		"cannot be read")
	pgtest.Must(fresh.Owner.Adopt(t.Context()))(t)
	require.NoError(t, withOwnerCheck(b.newEngine(t, "other")).Owner.Check(t.Context()))
}

// If a store has objects but no marker, the first worker writes the marker. A symbolic
// link to the folder is the same store.
func TestStoreWithoutMarkerGetsOne(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.addMoved(t, 1, file{path: "a", text: new(onePart)})
	require.Equal(t, []string{key1}, b.keys(t))
	withOwnerCheck(b.engine)
	require.NoError(t, b.engine.Owner.Check(t.Context()))
	require.Equal(t, []string{extdiff.MarkerKey, key1}, b.keys(t))
	link := t.TempDir() + "/link"
	require.NoError(t, os.Symlink(b.address[len("file://"):], link))
	other := withOwnerCheck(b.engineOn(t, "file://"+link, "other"))
	require.NoError(t, other.Owner.Check(t.Context()))
}

// If the disk of a folder is unmounted, the store refuses the folder below the mount
// point, even within the minute for which a check is valid.
func TestUnmountedFolderIsRefused(t *testing.T) {
	t.Parallel()
	b := inFolderWithOwnerCheck(t)
	require.NoError(t, b.engine.Owner.Check(t.Context()))
	folder := strings.TrimPrefix(b.address, "file://")
	require.NoError(t, os.Rename(folder, folder+".disk"))
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.Contains(t, requireNotOurs(t, b.engine.Owner.Check(t.Context())),
		"another disk or bucket may be in its place")
	require.NoError(t, os.Remove(folder))
	require.NoError(t, os.Rename(folder+".disk", folder))
	require.NoError(t, b.engine.Owner.Check(t.Context()))
}

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

// owned has the engine look at the store's marker.
func owned(engine *extdiff.Engine) *extdiff.Engine {
	engine.Owner = &extdiff.Owner{DB: engine.DB, Store: engine.Store}
	return engine
}

// inOwnFolder is inFolder with a store that has an owner.
func inOwnFolder(t *testing.T) *bundle {
	b := inFolder(t)
	owned(b.engine)
	return b
}

func (b *bundle) marker(t *testing.T) (m extdiff.Marker) {
	require.NoError(t, json.Unmarshal([]byte(b.object(t, extdiff.MarkerKey)), &m))
	return m
}

// refusedAsForeign reports that an error is about the owner, and returns its text.
func refusedAsForeign(t *testing.T, err error) string {
	require.ErrorIs(t, err, extdiff.ErrNotOurs)
	var refused *blobstore.AccessError
	require.ErrorAs(t, err, &refused)
	require.Contains(t, refused.Fix, "`sexton diffs adopt`")
	return err.Error()
}

// everythingRefused tries all that writes or deletes objects.
func (b *bundle) everythingRefused(t *testing.T, engine *extdiff.Engine, diff int64) string {
	_, err := engine.Move(t.Context(), diff)
	refusedAsForeign(t, err)
	_, err = engine.Restore(t.Context(), diff)
	refusedAsForeign(t, err)
	_, err = engine.RemoveUnnamed(t.Context(), extdiff.Finding{Key: key1})
	refusedAsForeign(t, err)
	b.Exec("INSERT INTO sexton.external_diff_removals (diff_id, key) VALUES (99, 'merge_request_diffs/mr-7/diff-99')")
	_, err = engine.Remove(t.Context(), 10)
	b.Exec("DELETE FROM sexton.external_diff_removals WHERE diff_id = 99")
	return refusedAsForeign(t, err)
}

func TestTwoDatabasesOnOneStoreRefuseEachOther(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, first *bundle) {
		second := over(t, dbtest.Reference(t), first.address)
		// The databases of tests are copies of one.
		second.Exec("UPDATE sexton.external_diff_installation SET id = gen_random_uuid()")
		for _, b := range []*bundle{first, second} {
			b.add(1, file{path: "a", text: new(onePart)})
			b.add(2, file{path: "a", text: new(onePart)})
			owned(b.engine)
		}
		first.move(t, 1)
		require.Equal(t, []string{extdiff.MarkerKey, key1}, first.keys(t))
		require.Empty(t, first.verified(t, 0), "the marker is no dangling object")
		message := second.everythingRefused(t, second.engine, 1)
		names := pgtest.Scalar[string](t, first.Database, "SELECT current_database()")
		require.Contains(t, message, `the objects there belong to database "`+names+`"`)
		require.Contains(t, message, `this is database "`+pgtest.Scalar[string](t, second.Database,
			"SELECT current_database()")+`"`)
		require.NotContains(t, message, "a copy of it")
		require.Equal(t, onePart, first.object(t, key1))

		adopted := pgtest.Must(owned(second.newEngine(t, "heir")).Owner.Adopt(t.Context()))(t)
		require.True(t, adopted.Changed)
		require.Equal(t, names, adopted.Was.Database)
		second.engine = owned(second.newEngine(t, "heir"))
		require.Empty(t, second.move(t, 2).Skipped)
		first.everythingRefused(t, owned(first.newEngine(t, "first")), 2)
		again := pgtest.Must(owned(second.newEngine(t, "heir")).Owner.Adopt(t.Context()))(t)
		require.False(t, again.Changed)
		require.Equal(t, adopted.Now.CreatedAt, again.Now.CreatedAt)
	})
}

// A restored dump has the same installation.
func TestACopyOfTheDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	b := inOwnFolder(t)
	b.moved(t, 1, file{path: "a", text: new(onePart)})
	dump := b.Rows("SELECT id FROM sexton.external_diff_installation")[0][0]
	staging := over(t, dbtest.Reference(t), b.address)
	staging.add(1, file{path: "a", text: new("other")})
	staging.Exec("UPDATE sexton.external_diff_installation SET id = $1", dump)
	staging.Exec("INSERT INTO sexton.external_diff_stores (store) VALUES ($1)", b.engine.Store.Identity())
	owned(staging.engine)
	require.Contains(t, staging.everythingRefused(t, staging.engine, 1), "a copy of it, or it has been moved")
	require.Equal(t, onePart, b.object(t, key1))
	require.NoError(t, owned(b.newEngine(t, "first")).Owner.Check(t.Context()))
}

func TestManyWorkersWriteOneMarker(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b *bundle) {
		t.Helper()
		var all sync.WaitGroup
		for range 6 {
			engine := owned(b.newEngine(t, "worker"))
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

// In a folder, a worker removes the unfinished marker of another, which may not take the
// store for one whose marker was lost. The test is the other worker.
func TestAWorkerWhoseMarkerIsRemovedRefusesNoStore(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	for range 40 {
		folder := t.TempDir()
		checked := make(chan error, 1)
		owner := owned(b.engineOn(t, "file://"+folder, "worker")).Owner
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

func TestAStoreThatLostItsMarkerIsRefused(t *testing.T) {
	t.Parallel()
	b := inOwnFolder(t)
	b.moved(t, 1, file{path: "a", text: new(onePart)})
	require.NoError(t, b.engine.Store.Delete(t.Context(), extdiff.MarkerKey))
	require.NoError(t, b.engine.Owner.Check(t.Context()), "a look counts for a minute")
	fresh := owned(b.newEngine(t, "other"))
	require.Contains(t, refusedAsForeign(t, fresh.Owner.Check(t.Context())),
		"another disk or bucket may be in its place")
	require.Nil(t, pgtest.Must(fresh.Owner.Adopt(t.Context()))(t).Was)
	require.NoError(t, fresh.Owner.Check(t.Context()))

	b.spoil(t, extdiff.MarkerKey, "{")
	require.Contains(t, refusedAsForeign(t, owned(b.newEngine(t, "other")).Owner.Check(t.Context())), "cannot be read")
	pgtest.Must(fresh.Owner.Adopt(t.Context()))(t)
	require.NoError(t, owned(b.newEngine(t, "other")).Owner.Check(t.Context()))
}

// A store that was filled by a version without markers is taken for ours, and one that is
// written in another way for the same.
func TestAStoreWithoutAMarkerGetsOne(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.moved(t, 1, file{path: "a", text: new(onePart)})
	require.Equal(t, []string{key1}, b.keys(t))
	owned(b.engine)
	require.NoError(t, b.engine.Owner.Check(t.Context()))
	require.Equal(t, []string{extdiff.MarkerKey, key1}, b.keys(t))
	link := t.TempDir() + "/link"
	require.NoError(t, os.Symlink(b.address[len("file://"):], link))
	other := owned(b.engineOn(t, "file://"+link, "other"))
	require.NoError(t, other.Owner.Check(t.Context()))
}

// Where the disk is taken away, what is below it must not take objects, not even for the
// minute that a look counts.
func TestAnotherFolderInThePlaceIsLookedAtAnew(t *testing.T) {
	t.Parallel()
	b := inOwnFolder(t)
	require.NoError(t, b.engine.Owner.Check(t.Context()))
	folder := strings.TrimPrefix(b.address, "file://")
	require.NoError(t, os.Rename(folder, folder+".disk"))
	require.NoError(t, os.Mkdir(folder, 0o700))
	require.Contains(t, refusedAsForeign(t, b.engine.Owner.Check(t.Context())),
		"another disk or bucket may be in its place")
	require.NoError(t, os.Remove(folder))
	require.NoError(t, os.Rename(folder+".disk", folder))
	require.NoError(t, b.engine.Owner.Check(t.Context()))
}

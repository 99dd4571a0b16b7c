package extdiff_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/blobstore"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
	"sexton/internal/s3test"
)

// pair is a database with a folder and a bucket: the bundle's engine works on the folder, the second one on the bucket.
type pair struct {
	*bundle

	bucket *extdiff.Engine
}

// link has two engines know each other.
func link(a, b *extdiff.Engine) {
	a.Other = &extdiff.Other{Open: func(context.Context) (*extdiff.Engine, error) { return b, nil }}
	b.Other = &extdiff.Other{Open: func(context.Context) (*extdiff.Engine, error) { return a, nil }}
}

func inBoth(t *testing.T) *pair {
	return paired(t, s3test.New(t, s3test.Options{}))
}

func paired(t *testing.T, gateway *s3test.Gateway) *pair {
	p := &pair{bundle: inFolder(t)}
	p.other = gateway.URL("diffs")
	p.bucket = p.engineOn(t, p.other, "tester")
	link(owned(p.engine), owned(p.bucket))
	return p
}

// relocate moves everything to the bucket.
func (p *pair) relocate(t *testing.T, r extdiff.Relocation) extdiff.Relocations {
	if r.Engine == nil {
		r.Engine = p.bucket
	}
	return pgtest.Must(r.Run(t.Context()))(t)
}

// at are the objects of a store without its marker.
func at(t *testing.T, engine *extdiff.Engine) []string {
	keys := []string{}
	for _, key := range (&bundle{engine: engine}).keys(t) {
		if key != extdiff.MarkerKey {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestObjectsMoveToTheOtherStoreAndBack(t *testing.T) {
	t.Parallel()
	p := inBoth(t)
	for id := int64(1); id <= 3; id++ {
		p.moved(t, id, threeFiles()...)
	}
	p.add(4, threeFiles()...)
	before, files := p.texts(t, 1), p.files(1)
	size := p.Rows("SELECT size FROM sexton.external_diffs WHERE diff_id = 1")[0][0]
	// As an application that moves diffs by itself leaves them.
	p.Exec("DELETE FROM sexton.external_diffs WHERE diff_id = 3")

	dry := p.relocate(t, extdiff.Relocation{DryRun: true, Window: 2})
	require.Equal(t, int64(3), dry.Diffs)
	require.Equal(t, fmt.Sprint(dry.Bytes/3), size)
	require.Equal(t, extdiff.Relocations{Diffs: 2, Bytes: dry.Bytes / 3 * 2, OverLimit: true}, p.relocate(t, extdiff.Relocation{DryRun: true, Limit: 2}))
	require.Empty(t, at(t, p.bucket), "a dry run copies nothing")

	one := p.relocate(t, extdiff.Relocation{Limit: 1, Later: time.Hour})
	require.Equal(t, extdiff.Relocations{Diffs: 1, Bytes: dry.Bytes / 3, OverLimit: true}, one)
	require.Equal(t, [][]string{{"t", "diff-1", "2"}}, p.stored(1))
	require.Equal(t, [][]string{{"t", "diff-2", "1"}}, p.stored(2))
	require.Len(t, at(t, p.engine), 3, "the old object stays for readers")
	for id := int64(1); id <= 4; id++ {
		require.Equal(t, before, p.texts(t, id), "diffs are read from both stores")
	}
	require.Empty(t, p.verified(t, 0), "and verified")

	p.Exec("UPDATE sexton.external_diff_removals SET not_before = now()")
	two := p.relocate(t, extdiff.Relocation{Window: 2})
	require.Equal(t, extdiff.Relocations{Diffs: 2, Bytes: dry.Bytes / 3 * 2, Removed: 3}, two)
	require.Empty(t, at(t, p.engine))
	require.Len(t, at(t, p.bucket), 3)
	require.Equal(t, files, p.files(1))
	require.Equal(t, before, p.texts(t, 3))
	require.Equal(t, [][]string{{size}}, p.Rows("SELECT DISTINCT size FROM sexton.external_diffs WHERE sha256 IS NOT NULL"))
	require.Equal(t, extdiff.Relocations{}, p.relocate(t, extdiff.Relocation{}), "the second time there is nothing to do")

	require.Equal(t, int64(3), p.relocate(t, extdiff.Relocation{Engine: p.engine, Later: time.Hour}).Diffs)
	p.relocate(t, extdiff.Relocation{Later: time.Hour})
	p.Exec("UPDATE sexton.external_diff_removals SET not_before = now()")
	removed := pgtest.Must(p.engine.Remove(t.Context(), 10))(t)
	require.Equal(t, extdiff.Removed{Objects: 3, Spared: 3}, removed, "the store that the rows name has the objects that are in use")
	require.Equal(t, before, p.texts(t, 1))
	require.Len(t, at(t, p.bucket), 3)
	require.Empty(t, at(t, p.engine))
	require.Empty(t, p.verified(t, 0))

	restored := pgtest.Must(p.engine.Restore(t.Context(), 1))(t)
	require.Equal(t, int64(3), restored.Files, "a diff comes back from the other store, too")
	require.Len(t, at(t, p.bucket), 2)
	p.Exec("DELETE FROM merge_request_diffs")
	removed = pgtest.Must(p.engine.Remove(t.Context(), 10))(t)
	require.Equal(t, extdiff.Removed{Objects: 3}, removed, "one of them may have been written in vain")
	require.Empty(t, at(t, p.bucket))
}

func TestObjectsThatAreNotWhatTheirRowsSayStay(t *testing.T) {
	t.Parallel()
	p := inBoth(t)
	for id := int64(1); id <= 4; id++ {
		p.moved(t, id, threeFiles()...)
	}
	key := func(id int64) string { return extdiff.Key(7, id) }
	p.spoil(t, key(1), p.object(t, key(1))[1:]+"x")
	p.spoil(t, key(2), "x")
	require.NoError(t, p.engine.Store.Delete(t.Context(), key(3)))
	p.Exec("UPDATE sexton.external_diffs SET holder = 'another', busy_until = now() + interval '1 hour' WHERE diff_id = 4")
	left := map[int64]string{}
	done := p.relocate(t, extdiff.Relocation{Left: func(id int64, err error) { left[id] = err.Error() }})
	require.Equal(t, extdiff.Relocations{Damaged: 3, Busy: 1}, done)
	require.Contains(t, left[1], "diff 1 is damaged: the object's checksum is ")
	require.Contains(t, left[2], "diff 2 is damaged: the object has 1 bytes, its files have ")
	require.Contains(t, left[3], "diff 3 is damaged: the object is missing")
	require.Contains(t, left[4], "diff 4 is being worked on by another until ")
	require.Empty(t, at(t, p.bucket))
	require.Equal(t, [][]string{{"1", "4"}}, p.Rows("SELECT external_diff_store, count(*) FROM merge_request_diffs GROUP BY 1"))
}

func TestKilledAtAnyPointOfARelocation(t *testing.T) {
	t.Parallel()
	p := inBoth(t)
	p.moved(t, 1, threeFiles()...)
	before := p.texts(t, 1)
	for _, point := range []extdiff.Point{
		extdiff.PointClaimed, extdiff.PointReading, extdiff.PointUploaded, extdiff.PointVerified, extdiff.PointSwitched, extdiff.PointMoved,
	} {
		p.kill(t, "relocate", point)
		require.Equal(t, before, p.texts(t, 1), "the diff is readable after a death at %s", point)
		require.Empty(t, p.verified(t, 0), "killed at %s", point)
		if point == extdiff.PointMoved {
			break
		}
		require.Equal(t, "1", p.stored(1)[0][2], "killed at %s", point)
		require.Equal(t, extdiff.Relocations{Busy: 1}, p.relocate(t, extdiff.Relocation{}), "killed at %s", point)
		p.expire()
	}
	p.expire()
	require.Equal(t, extdiff.Relocations{Removed: 1}, p.relocate(t, extdiff.Relocation{}), "the row and the list are changed together")
	require.Empty(t, at(t, p.engine))
	require.Equal(t, before, p.texts(t, 1))
	require.Empty(t, p.verified(t, 0))
}

// A merge request may be deleted at any point of a relocation, and leaves an object in neither store.
func TestDiffsAreDeletedDuringARelocation(t *testing.T) {
	t.Parallel()
	p := inBoth(t)
	for i, point := range []extdiff.Point{
		extdiff.PointClaimed, extdiff.PointReading, extdiff.PointUploaded, extdiff.PointVerified, extdiff.PointMoved,
	} {
		id := int64(i + 1)
		p.moved(t, id, threeFiles()...)
		p.bucket.Reached = func(reached extdiff.Point) {
			if reached == point {
				p.Exec("DELETE FROM merge_request_diffs WHERE id = $1", id)
			}
		}
		_, err := p.bucket.Relocate(t.Context(), id, 0)
		require.NoError(t, err, "deleted at %s", point)
		p.bucket.Reached = nil
		pgtest.Must(p.engine.Remove(t.Context(), 10))(t)
		require.Empty(t, at(t, p.engine), "deleted at %s", point)
		require.Empty(t, at(t, p.bucket), "deleted at %s", point)
		require.Empty(t, p.Rows("SELECT FROM sexton.external_diff_removals UNION ALL SELECT FROM sexton.external_diffs"), "deleted at %s", point)
	}
}

// A relocation that was stopped for longer than its claim lasts changes nothing afterwards.
func TestARelocationThatWasStoppedTooLongChangesNothing(t *testing.T) {
	t.Parallel()
	p := inBoth(t)
	for i, point := range []extdiff.Point{extdiff.PointClaimed, extdiff.PointReading, extdiff.PointUploaded, extdiff.PointVerified} {
		id := int64(i + 1)
		p.moved(t, id, threeFiles()...)
		before := p.texts(t, id)
		late, taken := p.engineOn(t, p.other, "late"), false
		late.Other = p.bucket.Other
		late.Reached = func(reached extdiff.Point) {
			if reached != point || taken {
				return
			}
			taken = true
			p.expire()
			pgtest.Must(p.engine.Restore(t.Context(), id))(t)
		}
		moved, err := late.Relocate(t.Context(), id, 0)
		require.True(t, taken)
		require.NoError(t, err, "stopped at %s", point)
		require.Equal(t, extdiff.NotDue, moved.Skipped, "stopped at %s", point)
		require.Equal(t, before, p.texts(t, id), "stopped at %s", point)
		require.Equal(t, "f", p.stored(id)[0][0])
	}
}

func TestRelocationsBesideEachOther(t *testing.T) {
	t.Parallel()
	p := inBoth(t)
	const diffs = 8
	for id := int64(1); id <= diffs; id++ {
		p.moved(t, id, threeFiles()...)
	}
	before := p.texts(t, 1)
	type result struct {
		done extdiff.Relocations
		err  error
	}
	ended := make(chan result)
	for n := range 3 {
		engine := p.engineOn(t, p.other, fmt.Sprint("command ", n))
		engine.Other = p.bucket.Other
		go func() {
			done, err := (&extdiff.Relocation{Engine: owned(engine)}).Run(context.Background())
			ended <- result{done, err}
		}()
	}
	var moved int64
	for range 3 {
		r := <-ended
		require.NoError(t, r.err)
		moved += r.done.Diffs
	}
	require.Equal(t, int64(diffs), moved, "each diff is moved once")
	p.expire()
	p.relocate(t, extdiff.Relocation{})
	require.Empty(t, at(t, p.engine))
	for id := int64(1); id <= diffs; id++ {
		require.Equal(t, before, p.texts(t, id))
	}
	require.Empty(t, p.verified(t, 0))
}

// A store that is away ends the move, and the next one goes on; it keeps objects of the configured store from nothing.
func TestAnOutageEndsARelocationAndNoRemovalOfTheOtherStore(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	p := paired(t, gateway)
	for id := int64(1); id <= 3; id++ {
		p.moved(t, id, threeFiles()...)
	}
	p.relocate(t, extdiff.Relocation{Limit: 1})
	gateway.Proxy.Fail(func(string) s3test.Fault { return s3test.Reset })
	_, err := (&extdiff.Relocation{Engine: p.bucket}).Run(t.Context())
	require.Error(t, err)
	require.Contains(t, err.Error(), "the store is not available")
	p.Exec("DELETE FROM merge_request_diffs WHERE id IN (1, 2)")
	p.Exec("UPDATE sexton.external_diff_removals SET not_before = now() - interval '1 minute' WHERE diff_id = 1")
	removed, err := p.engine.Remove(t.Context(), 10)
	require.Error(t, err)
	require.Equal(t, extdiff.Removed{Objects: 1, Failed: 1}, removed)
	require.Equal(t, []string{extdiff.Key(7, 3)}, at(t, p.engine))

	gateway.Proxy.Fail(nil)
	p.expire()
	require.Equal(t, int64(1), p.relocate(t, extdiff.Relocation{}).Diffs)
	require.Equal(t, []string{extdiff.Key(7, 3)}, at(t, p.bucket))
	require.Empty(t, at(t, p.engine))
}

func TestADiffInAStoreThatIsNotConfigured(t *testing.T) {
	t.Parallel()
	p := inBoth(t)
	p.moved(t, 1, threeFiles()...)
	p.relocate(t, extdiff.Relocation{})
	p.engine.Other = nil
	err := p.engine.Read(t.Context(), 1, func(*extdiff.Reading) error { return nil })
	require.ErrorContains(t, err, "was written to object storage, but the configured store file://")
	require.ErrorContains(t, err, "set external_diffs.other_bucket")
	away := errors.New("the disk is away")
	p.engine.Other = &extdiff.Other{Open: func(context.Context) (*extdiff.Engine, error) { return nil, away }}
	require.ErrorIs(t, p.engine.Read(t.Context(), 1, func(*extdiff.Reading) error { return nil }), away)
	p.add(2, threeFiles()...)
	require.Empty(t, p.move(t, 2).Skipped, "the configured store is none the worse for it")
	pgtest.Must((&extdiff.Relocation{Engine: p.bucket}).Run(t.Context()))(t)
}

// One bad diff is listed, and those behind it move.
func TestADiffThatFailsAloneEndsNoRelocation(t *testing.T) {
	t.Parallel()
	gateway := s3test.New(t, s3test.Options{})
	p := paired(t, gateway)
	const diffs = 12
	for id := int64(1); id <= diffs; id++ {
		p.moved(t, id, threeFiles()...)
	}
	p.Exec("UPDATE merge_request_diffs SET external_diff = '../diff-1' WHERE id = 1")
	left := map[int64]string{}
	note := func(id int64, err error) { left[id] = err.Error() }
	require.Equal(t, int64(1), p.relocate(t, extdiff.Relocation{Left: note}).Damaged)
	require.Equal(t, map[int64]string{1: `diff 1 is damaged: "merge_request_diffs/mr-7/../diff-1" is no key of an object`}, left)
	require.Len(t, at(t, p.bucket), diffs-1)

	p.Exec("UPDATE merge_request_diffs SET external_diff = 'diff-1' WHERE id = 1")
	refuse := func(method, object string) {
		gateway.Proxy.Fail(func(request string) s3test.Fault {
			if strings.HasPrefix(request, method) && strings.Contains(request, object) {
				return s3test.Deny
			}
			return s3test.Pass
		})
	}
	refuse("GET ", "diff-2")
	left = map[int64]string{}
	done := p.relocate(t, extdiff.Relocation{Engine: p.engine, Left: note, Limit: 1, Later: time.Hour})
	require.Equal(t, []int64{1, 1}, []int64{done.Failed, done.Diffs})
	require.Contains(t, left[2], "AccessDenied")

	refuse("GET ", "mr-7")
	done, err := (&extdiff.Relocation{Engine: p.engine, Left: note}).Run(t.Context())
	require.Equal(t, int64(9), done.Failed, "ten in a row are more than single diffs")
	var refused *blobstore.AccessError
	require.ErrorAs(t, err, &refused)

	refuse("DELETE ", "mr-7")
	p.Exec("UPDATE sexton.external_diff_removals SET not_before = now()")
	done, err = (&extdiff.Relocation{Engine: p.engine, Window: 2}).Run(t.Context())
	require.ErrorAs(t, err, &refused)
	require.Equal(t, int64(diffs-2), done.Diffs, "a store that keeps its old objects ends nothing, either")
}

// Another application names another object while this one is copied.
func TestADiffWithAnotherObjectMeanwhileMovesThatOne(t *testing.T) {
	t.Parallel()
	p := inBoth(t)
	p.moved(t, 1, threeFiles()...)
	before := p.texts(t, 1)
	rename := func(name string) func(extdiff.Point) {
		return func(point extdiff.Point) {
			if point == extdiff.PointVerified || point == extdiff.PointCollected {
				key := "merge_request_diffs/mr-7/" + name
				p.spoil(t, key, p.object(t, extdiff.Key(7, 1)))
				p.Exec("UPDATE merge_request_diffs SET external_diff = $1 WHERE id = 1", name)
			}
		}
	}
	p.engine.Reached = rename("diff-1-v2")
	_, err := p.engine.Restore(t.Context(), 1)
	require.ErrorContains(t, err, "the diff has changed meanwhile")
	require.Equal(t, before, p.texts(t, 1))
	p.bucket.Reached = rename("diff-1-v3")
	require.Equal(t, "merge_request_diffs/mr-7/diff-1-v3", pgtest.Must(p.bucket.Relocate(t.Context(), 1, 0))(t).Key)
	require.Equal(t, [][]string{{"t", "diff-1-v3", "2"}}, p.stored(1))
	require.Equal(t, before, p.texts(t, 1))
}

// The object of a diff that is deleted while workers move it is in the configured store, whichever way a relocation goes.
func TestARelocationRemovesObjectsOfTheConfiguredStoreThere(t *testing.T) {
	t.Parallel()
	p := inBoth(t)
	p.moved(t, 1, threeFiles()...)
	p.Exec("UPDATE merge_request_diffs SET stored_externally = false WHERE id = 1") // As a worker leaves it that dies before the switch.
	p.Exec("DELETE FROM merge_request_diffs WHERE id = 1")
	require.Equal(t, [][]string{{"NULL"}}, p.Rows("SELECT store FROM sexton.external_diff_removals"))
	require.Equal(t, extdiff.Relocations{Removed: 1}, p.relocate(t, extdiff.Relocation{Remover: p.engine}))
	require.Empty(t, at(t, p.engine))
	require.Empty(t, p.Rows("SELECT FROM sexton.external_diff_removals"))
}

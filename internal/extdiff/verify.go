package extdiff

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"sexton/internal/blobstore"
)

const (
	verifyPage = 100
	listPage   = 1000
	// DefaultGrace is the minimum age of an object that is reported as dangling. A
	// younger object may belong to a diff that is being moved.
	DefaultGrace = 24 * time.Hour
)

// Finding is a problem in the store.
type Finding struct {
	// DiffID is 0 if the object belongs to no diff.
	DiffID int64  `json:"diff_id,omitempty"`
	Key    string `json:"key"`
	// Dangling marks an object that no row refers to. Such an object only uses space.
	Dangling bool   `json:"dangling,omitempty"`
	Problem  string `json:"problem"`
}

// String returns a line with the diff, the key and the problem.
func (f Finding) String() string {
	line := "no diff: "
	if f.DiffID != 0 {
		line = fmt.Sprintf("diff %d: ", f.DiffID)
	}
	if f.Key != "" {
		line += f.Key
		line += ": "
	}
	return line + f.Problem
}

// Verified counts the diffs and objects that Verify has checked.
type Verified struct {
	Diffs   int64 `json:"diffs"`
	Bytes   int64 `json:"bytes"`
	Objects int64 `json:"objects"`
	// Damaged counts the findings about diffs. Dangling counts the objects that no row
	// refers to.
	Damaged  int64 `json:"damaged"`
	Dangling int64 `json:"dangling"`
}

// Verify reads every external diff and compares it with its rows. The files must be
// contiguous, the object must end where the last file ends, and its checksum must be the
// recorded one. Then Verify lists the objects older than grace that no row refers to. It
// calls found for each problem. It stops at the first error.
func (e *Engine) Verify(ctx context.Context, grace time.Duration, found func(Finding)) (Verified, error) {
	var verified Verified
	report := func(f Finding) {
		if f.Dangling {
			verified.Dangling++
		} else {
			verified.Damaged++
		}
		found(f)
	}
	after := int64(0)
	for {
		ids, err := e.DB.Queries().DiffExternal(ctx, after, verifyPage)
		if err != nil {
			return verified, fmt.Errorf("list external diffs: %w", err)
		}
		for _, id := range ids {
			if err := e.verifyOne(ctx, id, &verified, report); err != nil {
				return verified, fmt.Errorf("verify diff %d: %w", id, err)
			}
			after = id
		}
		if len(ids) < verifyPage {
			break
		}
	}
	return verified, e.reportDangling(ctx, grace, &verified, report)
}

// verifyOne checks one diff. If it finds a problem, it checks the diff again, because the
// diff may have been moved or deleted during the first check. It reports the result of
// the last check.
func (e *Engine) verifyOne(ctx context.Context, id int64, verified *Verified, report func(Finding)) error {
	was, problem, err := e.examine(ctx, id)
	if problem != "" {
		again, still, againErr := e.examine(ctx, id)
		was, problem, err = again, still, againErr
	}
	if err != nil || was.key == "" && problem == "" {
		return err
	}
	verified.Diffs++
	verified.Bytes += was.bytes()
	if problem != "" {
		report(Finding{DiffID: id, Key: was.key, Problem: problem})
	}
	return nil
}

func (e *Engine) examine(ctx context.Context, id int64) (was external, problem string, err error) {
	was, err = e.locate(ctx, id)
	broken, isBroken := errors.AsType[*BrokenError](err)
	other, isOther := errors.AsType[*otherStoreError](err)
	switch {
	case errors.Is(err, ErrNoDiff):
		return external{}, "", nil
	case isBroken:
		return was, broken.Reason, nil
	case isOther:
		return was, other.Error(), nil
	case err != nil || was.key == "":
		return was, "", err
	}
	found, err := e.Store.Digest(ctx, was.key)
	switch {
	case errors.Is(err, blobstore.ErrNotFound):
		return was, missing, nil
	case err != nil:
		return was, "", err
	}
	return was, was.differs(found), nil
}

const missing = "the object is missing"

// differs returns a text about the difference between an object and its rows, or "".
func (x external) differs(found blobstore.Digest) string {
	switch {
	case found.Size != x.bytes():
		return fmt.Sprintf("the object has %d bytes, its files have %d", found.Size, x.bytes())
	case x.sha256 != nil && found.SHA256 != *x.sha256:
		return fmt.Sprintf("the object has the checksum %x, but %x was written", short(found.SHA256),
			short(*x.sha256))
	}
	return ""
}

// short returns the first bytes of a checksum, for messages.
func short(sum [sha256.Size]byte) []byte { return sum[:8] }

// reportDangling reports the objects older than grace that no row refers to.
func (e *Engine) reportDangling(ctx context.Context, grace time.Duration, verified *Verified,
	report func(Finding),
) error {
	before := time.Now().Add(-grace)
	var page []blobstore.Info
	for object, err := range e.Store.List(ctx, rootPrefix) {
		if err != nil {
			return err
		}
		if isMarker(object.Key) {
			continue
		}
		verified.Objects++
		if object.ModTime.Before(before) {
			page = append(page, object)
		}
		if len(page) == listPage {
			if err := e.reportDanglingPage(ctx, page, report); err != nil {
				return err
			}
			page = page[:0]
		}
	}
	return e.reportDanglingPage(ctx, page, report)
}

func (e *Engine) reportDanglingPage(ctx context.Context, page []blobstore.Info, report func(Finding)) error {
	used, err := e.used(ctx, page)
	if err != nil {
		return err
	}
	for _, object := range page {
		if used[object.Key] {
			continue
		}
		id, ok := diffOf(object.Key)
		problem := "no diff refers to this object"
		switch {
		case !ok:
			problem = "the name of this object does not match the pattern of diffs"
		case strings.HasSuffix(object.Key, unfinished):
			problem = "the object is an unfinished upload"
		}
		report(Finding{DiffID: id, Key: object.Key, Dangling: true, Problem: problem})
	}
	return nil
}

// used returns the keys of the objects that some row refers to.
func (e *Engine) used(ctx context.Context, page []blobstore.Info) (map[string]bool, error) {
	var ids []int64
	for _, object := range page {
		if id, ok := diffOf(object.Key); ok {
			ids = append(ids, id)
		}
	}
	keys, err := e.DB.Queries().DiffKeys(ctx, ids)
	if err != nil {
		return nil, fmt.Errorf("read which objects are in use: %w", err)
	}
	used := map[string]bool{}
	for _, key := range keys {
		used[key] = true
	}
	return used, nil
}

// isMarker reports whether an object is the marker or an unfinished file of the marker.
func isMarker(key string) bool { return strings.HasPrefix(key, MarkerKey) }

// unfinished is the suffix of files that are being written. It follows the name of the
// object and a random text.
const unfinished = ".tmp"

// diffOf returns the id of the diff in an object key. ok is false if the key does not
// have the form of a diff's key.
func diffOf(key string) (diffID int64, ok bool) {
	if begun, is := strings.CutSuffix(key, unfinished); is {
		if dot := strings.LastIndexByte(begun, '.'); dot > 0 {
			key = begun[:dot]
		}
	}
	folder, name, found := strings.Cut(strings.TrimPrefix(key, folderPrefix), "/")
	mergeRequest, err := strconv.ParseInt(folder, 10, 64)
	if err != nil || !found {
		return 0, false
	}
	diffID, err = strconv.ParseInt(strings.TrimPrefix(name, namePrefix), 10, 64)
	if err != nil || Key(mergeRequest, diffID) != key {
		return 0, false
	}
	return diffID, true
}

// RemoveUnnamed deletes a dangling object that Verify has found, unless a row refers to
// it now. It reports whether it deleted the object.
func (e *Engine) RemoveUnnamed(ctx context.Context, f Finding) (deleted bool, err error) {
	id, ok := diffOf(f.Key)
	if !ok {
		return false,
			fmt.Errorf("remove %s: its name does not match the pattern of diffs; delete it with a tool of the store",
				f.Key)
	}
	if deleted, err = e.deleteObject(ctx, removal{diffID: id, key: f.Key}); err != nil {
		return false, fmt.Errorf("remove %s: %w", f.Key, err)
	}
	return deleted, nil
}

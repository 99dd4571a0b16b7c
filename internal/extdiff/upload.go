package extdiff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/dbsqlc"
	"sexton/internal/problem"
)

// layoutVersion changes with the order or the form of texts in objects: parts of another version fit no more.
const layoutVersion = 1

// upload writes the object. Nothing is locked meanwhile. Bytes that move are its only limit: a connection over which none moves is
// given up by the store. What goes in parts is noted with the diff, so that a later attempt goes on with them.
func (e *Engine) upload(ctx context.Context, claimed *claim, found look, moved *Moved) (surveyed survey, digest blobstore.Digest, err error) {
	from := &source{engine: e, found: found}
	defer func() { from.close(ctx) }()
	if err := from.open(ctx); err != nil || from.surveyed.obstacle(found) != "" {
		return from.surveyed, blobstore.Digest{}, err
	}
	surveyed = from.surveyed
	// A small object is taken for the first of its key, which saves a request: over another one the store refuses it, and the next try
	// asks for that one's version.
	over := blobstore.Version("")
	if claimed.again || surveyed.bytes > blobstore.PartSize {
		// The rows that are sent are read after the version: an object that another worker writes later, from later rows, is never replaced.
		from.close(ctx)
		if over, err = e.Store.Version(ctx, moved.Key); err != nil {
			return surveyed, blobstore.Digest{}, err
		}
	}
	digest, err = e.put(ctx, claimed, over, surveyed, moved, func(w io.Writer) error { return from.stream(ctx, w) })
	if err == nil && digest.Size != surveyed.bytes {
		err = fmt.Errorf("write %s: %d bytes were read where %d are stored", moved.Key, digest.Size, surveyed.bytes)
	}
	return surveyed, digest, err
}

// put writes the object. One of more than a part goes on with the parts of an earlier attempt if the rows are the same.
func (e *Engine) put(
	ctx context.Context, claimed *claim, over blobstore.Version, surveyed survey, moved *Moved, write func(io.Writer) error,
) (digest blobstore.Digest, err error) {
	if e.Store.Kind() == blobstore.Local || surveyed.bytes <= blobstore.PartSize {
		return e.Store.Put(ctx, moved.Key, over, write)
	}
	state := fmt.Sprintf("%d %s %s %s", layoutVersion, e.Store.Identity(), moved.Key, surveyed.fingerprint)
	earlier, err := e.earlierUpload(ctx, claimed, moved.Key, state)
	if err != nil {
		return digest, err
	}
	claimed.sent.Store(0)
	parts := &blobstore.Parts{
		ID: earlier,
		Sent: func(bytes int64) {
			claimed.sent.Add(bytes)
			e.reach(PointPart)
		},
		Begun: func(ctx context.Context, id string) error {
			noted, err := e.DB.Queries().UploadBegan(ctx, id, state, surveyed.bytes, claimed.diffID, claimed.token)
			if err == nil && noted == 0 {
				return errLost
			}
			return err
		},
	}
	digest, err = e.Store.PutParts(ctx, moved.Key, over, parts, write)
	moved.Kept = parts.Kept
	if err != nil {
		_, out := errors.AsType[*blobstore.OutageError](err)
		moved.BrokenOff = out && parts.ID != ""
		return digest, errors.Join(err, e.noteBrokenOff(ctx, claimed, err))
	}
	if parts.Complete {
		// The earlier attempt may have come to its end, or another program's object is there.
		if found, err := e.Store.Digest(ctx, moved.Key); err != nil || found != digest {
			return digest, errors.Join(err, errChanged, e.forgetUpload(ctx, claimed))
		}
	}
	return digest, nil
}

// earlierUpload returns the upload that an earlier attempt has left; "" where there is none, or one of other texts, which it ends.
func (e *Engine) earlierUpload(ctx context.Context, claimed *claim, key, state string) (id string, err error) {
	was, err := e.DB.Queries().Upload(ctx, claimed.diffID, claimed.token)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for an earlier upload: %w", err)
	case was.State != state:
		_ = e.Store.Abort(ctx, key, was.ID) // What cannot be ended is left to the sweep.
		return "", e.forgetUpload(ctx, claimed)
	}
	return was.ID, nil
}

// endUpload ends the upload that a deleted diff has left, in whichever store it is.
func (e *Engine) endUpload(ctx context.Context, claimed *claim, key string) error {
	id, err := e.DB.Queries().UploadOfDeleted(ctx, claimed.diffID, claimed.token)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err != nil:
		return fmt.Errorf("look for the upload of diff %d: %w", claimed.diffID, err)
	}
	// What cannot be ended is left to the sweep.
	_ = e.Each(ctx, func(at *Engine) error { return at.Store.Abort(ctx, key, id) })
	return e.forgetUpload(ctx, claimed)
}

// noteBrokenOff notes how far an upload has come. That of a worker that is stopped is no failure.
func (e *Engine) noteBrokenOff(ctx context.Context, claimed *claim, cause error) error {
	var reason *string
	failures := 0
	if outage, ok := errors.AsType[*blobstore.OutageError](cause); ok {
		reason, failures = &outage.Reason, 1
	}
	return settle(ctx, e.DB, fmt.Sprintf("note the upload of diff %d", claimed.diffID), func(ctx context.Context, on *dbsqlc.Queries) error {
		return on.UploadBrokenOff(ctx, claimed.sent.Load(), failures, reason, claimed.diffID, claimed.token)
	})
}

func (e *Engine) forgetUpload(ctx context.Context, claimed *claim) error {
	return problem.Doing(e.DB.Queries().UploadForget(ctx, claimed.diffID, claimed.token), "forget the upload of diff %d", claimed.diffID)
}

// abort ends uploads in parts that no attempt goes on with: of diffs that are deleted or not due any more. It begins with the first of
// all again in each round.
func (s *Sweeper) abort(ctx context.Context, before time.Time, swept *Swept) error {
	old := map[string]blobstore.Upload{}
	listing, stop := context.WithCancel(ctx)
	defer stop()
	for upload, err := range s.Engine.Store.Uploads(listing, rootPrefix) {
		if _, refused := errors.AsType[*blobstore.AccessError](err); refused {
			return nil // A key without this right sweeps objects all the same; the bucket's own rules end uploads.
		}
		if err != nil {
			return err
		}
		if _, ours := diffOf(upload.Key); ours && upload.Begun.Before(before) {
			old[upload.ID] = upload
		}
		if len(old) == listPage {
			break
		}
	}
	if len(old) == 0 {
		return nil
	}
	on := s.Engine.DB.Queries()
	abandoned, err := on.UploadsAbandoned(ctx, slices.Collect(maps.Keys(old)), s.Grace.Seconds())
	if err != nil {
		return fmt.Errorf("look for abandoned uploads: %w", err)
	}
	for until := time.Now().Add(sweepTime); len(abandoned) > 0 && time.Now().Before(until); abandoned = abandoned[1:] {
		id := abandoned[0]
		if err := s.Engine.Store.Abort(ctx, old[id].Key, id); err != nil {
			if err = fmt.Errorf("sweep uploads: %w", err); s.passOver(ctx, err) {
				continue
			}
			return err
		}
		if err := on.UploadAborted(ctx, id); err != nil {
			return fmt.Errorf("note an aborted upload: %w", err)
		}
		swept.Aborted++
	}
	return nil
}

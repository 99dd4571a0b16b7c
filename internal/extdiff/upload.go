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
	"sexton/internal/pgschema"
)

// layoutVersion changes with the order or the form of texts in objects: parts of another version fit no more.
const layoutVersion = 1

// upload writes the object. Nothing is locked meanwhile. Bytes that move are its only limit: a connection over which none moves is
// given up by the store. What goes in parts is noted with the diff, so that a later attempt goes on with them.
func (e *Engine) upload(ctx context.Context, claimed *claim, found look, moved *Moved) (surveyed survey, digest blobstore.Digest, err error) {
	over, err := e.Store.Version(ctx, moved.Key)
	if err != nil {
		return survey{}, blobstore.Digest{}, err
	}
	from := &source{engine: e, found: found}
	defer func() { from.close(ctx) }()
	if err := from.open(ctx); err != nil || from.surveyed.obstacle(found) != "" {
		return from.surveyed, blobstore.Digest{}, err
	}
	surveyed = from.surveyed
	digest, err = e.put(ctx, claimed, over, surveyed, moved, func(w io.Writer) error { return from.stream(ctx, w) })
	if err == nil && digest.Size != surveyed.bytes {
		err = fmt.Errorf("write %s: %d bytes were read where %d are stored", moved.Key, digest.Size, surveyed.bytes)
	}
	return surveyed, digest, err
}

const (
	uploadSQL = `SELECT ledger.upload_id, ledger.upload_state FROM "sexton".external_diffs AS ledger
WHERE ledger.diff_id OPERATOR(pg_catalog.=) $1 AND ledger.token OPERATOR(pg_catalog.=) $2 AND ledger.upload_id IS NOT NULL`

	// goneUploadSQL is the upload of a diff that is deleted.
	goneUploadSQL = uploadSQL + ` AND NOT EXISTS (SELECT FROM "public".merge_request_diffs AS diff WHERE diff.id OPERATOR(pg_catalog.=) $1)`

	beganSQL = `
UPDATE "sexton".external_diffs
SET upload_id = $3,
    upload_state = $4,
    upload_bytes = $5,
    upload_sent = 0,
    upload_failures = 0,
    upload_error = NULL,
    upload_began_at = pg_catalog.clock_timestamp(),
    upload_seen_at = pg_catalog.clock_timestamp()
WHERE diff_id OPERATOR(pg_catalog.=) $1
  AND token OPERATOR(pg_catalog.=) $2`

	brokenOffSQL = `
UPDATE "sexton".external_diffs
SET upload_sent = $3,
    upload_failures = upload_failures OPERATOR(pg_catalog.+) $4::pg_catalog.int4,
    upload_error = coalesce($5, upload_error),
    upload_seen_at = pg_catalog.clock_timestamp()
WHERE diff_id OPERATOR(pg_catalog.=) $1
  AND token OPERATOR(pg_catalog.=) $2
  AND upload_id IS NOT NULL`

	forgetUploadSQL = `UPDATE "sexton".external_diffs SET upload_id = NULL WHERE diff_id OPERATOR(pg_catalog.=) $1 AND token OPERATOR(pg_catalog.=) $2`
)

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
			noted, err := e.DB.Pool.Exec(ctx, e.DB.Names.Render(beganSQL), claimed.diffID, claimed.token, id, state, surveyed.bytes)
			if err == nil && noted.RowsAffected() == 0 {
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
		// The earlier attempt may have come to its end, or somebody else's object is there.
		if found, err := e.Store.Digest(ctx, moved.Key); err != nil || found != digest {
			return digest, errors.Join(err, errChanged, e.forgetUpload(ctx, claimed))
		}
	}
	return digest, nil
}

// earlierUpload returns the upload that an earlier attempt has left; "" where there is none, or one of other texts, which it ends.
func (e *Engine) earlierUpload(ctx context.Context, claimed *claim, key, state string) (id string, err error) {
	var was string
	err = e.DB.Pool.QueryRow(ctx, e.DB.Names.Render(uploadSQL), claimed.diffID, claimed.token).Scan(&id, &was)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look for an earlier upload: %w", err)
	case was != state:
		_ = e.Store.Abort(ctx, key, id) // What cannot be ended is left to the sweep.
		return "", e.forgetUpload(ctx, claimed)
	}
	return id, nil
}

// endUpload ends the upload that a deleted diff has left, in whichever store it is.
func (e *Engine) endUpload(ctx context.Context, claimed *claim, key string) error {
	var id, state string
	err := e.DB.Pool.QueryRow(ctx, e.DB.Names.Render(goneUploadSQL), claimed.diffID, claimed.token).Scan(&id, &state)
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	_, err := e.DB.Pool.Exec(ctx, e.DB.Names.Render(brokenOffSQL), claimed.diffID, claimed.token, claimed.sent.Load(), failures, reason)
	if err != nil {
		return fmt.Errorf("note the upload of diff %d: %w", claimed.diffID, err)
	}
	return nil
}

func (e *Engine) forgetUpload(ctx context.Context, claimed *claim) error {
	if _, err := e.DB.Pool.Exec(ctx, e.DB.Names.Render(forgetUploadSQL), claimed.diffID, claimed.token); err != nil {
		return fmt.Errorf("forget the upload of diff %d: %w", claimed.diffID, err)
	}
	return nil
}

const (
	// abandonedSQL is which of some uploads ($1) no attempt has been at for a while ($2), or no row knows.
	abandonedSQL = `
SELECT one.id
FROM pg_catalog.unnest($1::pg_catalog.text[]) AS one (id)
WHERE NOT EXISTS (
    SELECT FROM "sexton".external_diffs AS ledger
    WHERE ledger.upload_id OPERATOR(pg_catalog.=) one.id
      AND ledger.upload_seen_at OPERATOR(pg_catalog.>)
          (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) pg_catalog.make_interval(secs => $2::pg_catalog.float8))
)`

	abortedSQL = `UPDATE "sexton".external_diffs SET upload_id = NULL WHERE upload_id OPERATOR(pg_catalog.=) $1`
)

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
	db := s.Engine.DB
	rows, err := db.Pool.Query(ctx, db.Names.Render(abandonedSQL), slices.Collect(maps.Keys(old)), s.Grace.Seconds())
	if err != nil {
		return fmt.Errorf("look for abandoned uploads: %w", err)
	}
	abandoned, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for abandoned uploads: %w", err)
	}
	until := time.Now().Add(sweepTime)
	for _, id := range abandoned {
		if err := s.Engine.Store.Abort(ctx, old[id].Key, id); err != nil {
			return fmt.Errorf("sweep uploads: %w", err)
		}
		if _, err := db.Pool.Exec(ctx, db.Names.Render(abortedSQL), id); err != nil {
			return fmt.Errorf("note an aborted upload: %w", err)
		}
		swept.Aborted++
		if time.Now().After(until) {
			break
		}
	}
	return nil
}

// Unfinished is an upload in parts that has not come to its end.
type Unfinished struct {
	DiffID int64 `json:"diff_id"`
	// Bytes is the size of the object, Sent the part that the store has, by the minute.
	Bytes   int64     `json:"bytes"`
	Sent    int64     `json:"bytes_sent"`
	BeganAt time.Time `json:"began_at"`
	// SeenAt is when a worker was last at it.
	SeenAt time.Time `json:"seen_at"`
	// Failures counts how often no byte has moved for too long, or the store was away. Error is why the last time.
	Failures int64  `json:"failures"`
	Error    string `json:"error,omitempty"`
}

const unfinishedSQL = `
SELECT ledger.diff_id, ledger.upload_bytes, ledger.upload_sent, ledger.upload_began_at, ledger.upload_seen_at,
    ledger.upload_failures::bigint, coalesce(ledger.upload_error, '')
FROM "sexton".external_diffs AS ledger
WHERE ledger.upload_id IS NOT NULL
ORDER BY ledger.upload_began_at, ledger.diff_id
LIMIT $1`

// mostUnfinished bounds how many unfinished uploads are listed.
const mostUnfinished = 20

// ReadUnfinished lists the first of the uploads in parts that have not come to their end, the oldest first.
func ReadUnfinished(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names) ([]Unfinished, error) {
	rows, err := db.Query(ctx, names.Render(unfinishedSQL), mostUnfinished)
	if err != nil {
		return nil, fmt.Errorf("list unfinished uploads: %w", err)
	}
	unfinished, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Unfinished])
	if err != nil {
		return nil, fmt.Errorf("list unfinished uploads: %w", err)
	}
	return unfinished, nil
}

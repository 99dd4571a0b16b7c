package extdiff

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/blobstore"
	"sexton/internal/problem"
)

// source reads the content of a diff's object. It uses several short snapshots, because
// vacuum must not wait for a slow upload. The fingerprint ensures that all snapshots have
// the same rows.
type source struct {
	engine   *Engine
	found    diffRow
	surveyed survey
	// tx is the transaction of the current snapshot, or nil.
	tx pgx.Tx
	// ordinal is the place of the next file in the object. number is the number of the
	// next piece of the next file.
	ordinal, number int
}

// open begins a snapshot and surveys the files. It returns errChanged if the survey
// differs from that of the first snapshot.
func (s *source) open(ctx context.Context) error {
	e := s.engine
	ctx, cancel := context.WithTimeout(ctx, e.snapshotLimit())
	defer cancel()
	tx, err := e.DB.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	first := s.surveyed == survey{}
	s.tx = tx
	var q pgx.Batch
	q.Queue(e.boundStatement(), e.boundArgs(e.snapshotLimit())...)
	q.Queue(statement("index_scans"))
	// The diff is read again, because another worker may have claimed and moved it. Its
	// texts would then be read as empty.
	q.Queue(e.diffStatement(""), s.found.diffID)
	q.Queue(e.DB.Names.Render(statement("survey")), s.found.diffID)
	results := tx.SendBatch(ctx, &q)
	defer func() { _ = results.Close() }() // All errors of the statements are returned by the scans.
	for range 2 {
		if _, err := results.Exec(); err != nil {
			return fmt.Errorf("set the limits of the transaction: %w", err)
		}
	}
	again, err := scanDiff(results.QueryRow(), s.found.diffID)
	if err != nil {
		return err
	}
	surveyed := survey{skip: again.skip}
	if again.skip == "" {
		err = results.QueryRow().Scan(&surveyed.files, &surveyed.bytes, &surveyed.inconsistent, &surveyed.fingerprint)
		if err != nil {
			return fmt.Errorf("count the files: %w", err)
		}
	}
	if first {
		s.surveyed = surveyed
	}
	if surveyed != s.surveyed {
		return errChanged
	}
	return nil
}

// close ends the snapshot.
func (s *source) close(ctx context.Context) {
	if s.tx == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	_ = s.tx.Rollback(ctx) // The transaction has changed nothing.
	s.tx = nil
}

// stream writes the content to w, from as many snapshots as necessary. Each snapshot
// provides at least one piece.
func (s *source) stream(ctx context.Context, w io.Writer) error {
	for {
		if s.tx == nil {
			if err := s.open(ctx); err != nil {
				return err
			}
		}
		ended, err := s.streamSnapshot(ctx, w)
		s.close(ctx)
		if ended || err != nil {
			return err
		}
	}
}

// streamSnapshot writes pieces from one snapshot until the snapshot's time ends. It
// reports whether all pieces were written.
func (s *source) streamSnapshot(ctx context.Context, w io.Writer) (ended bool, err error) {
	e := s.engine
	reading, cancel := context.WithTimeout(ctx, e.snapshotLimit())
	defer cancel()
	rows, err := s.tx.Query(reading, e.DB.Names.Render(statement("stream")), s.found.diffID, pieceBytes, s.ordinal,
		s.number)
	if err != nil {
		return false, fmt.Errorf("read texts: %w", err)
	}
	defer func() {
		cancel() // Without this call, Close would read all remaining rows.
		rows.Close()
	}()
	most := e.Limits.orDefaults().Snapshot
	until := time.Now().Add(most)
	for rows.Next() {
		var ordinal, number int
		// piece refers to the buffer of the connection, which is valid until the next
		// row.
		var piece pgtype.DriverBytes
		if err := rows.Scan(&ordinal, &number, &piece); err != nil {
			return false, fmt.Errorf("read texts: %w", err)
		}
		if ordinal < s.ordinal || ordinal == s.ordinal && number != s.number || ordinal > s.ordinal && number != 0 {
			return false, fmt.Errorf("read texts: got piece %d of file %d instead of piece %d of file %d", number,
				ordinal, s.number, s.ordinal)
		}
		slow := time.AfterFunc(most, cancel)
		_, err := w.Write(piece)
		slow.Stop()
		if err != nil {
			return false, err
		}
		s.ordinal, s.number = ordinal, number+1
		e.reach(PointReading)
		if reading.Err() != nil || time.Now().After(until) {
			return false, ctx.Err()
		}
	}
	return true, problem.Doing(rows.Err(), "read texts")
}

// upload writes the object of a diff. It locks no rows and has no time limit, but the
// store closes a connection that makes no progress.
func (e *Engine) upload(ctx context.Context, claimed *claim, found diffRow, key string) (
	surveyed survey, digest blobstore.Digest, err error,
) {
	from := &source{engine: e, found: found}
	defer func() { from.close(ctx) }()

	if err := from.open(ctx); err != nil || from.surveyed.obstacle(found) != "" {
		return from.surveyed, blobstore.Digest{}, err
	}
	surveyed = from.surveyed

	// A small object is first written as a new object, which saves the request for the
	// version. If the object exists, the store refuses, and the next try reads the
	// version.
	over := blobstore.Version("")
	if claimed.again || surveyed.bytes > blobstore.PartSize {
		// The version is read before the rows. An object that another worker writes from
		// later rows then has a newer version and is not replaced.
		from.close(ctx)
		if over, err = e.Store.Version(ctx, key); err != nil {
			return surveyed, blobstore.Digest{}, err
		}
	}

	digest, err = e.Store.Put(ctx, key, over, func(w io.Writer) error { return from.stream(ctx, w) })
	if err == nil && digest.Size != surveyed.bytes {
		err = fmt.Errorf("write %s: read %d bytes from the rows instead of %d", key, digest.Size, surveyed.bytes)
	}
	return surveyed, digest, err
}

package extdiff

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"

	"sexton/internal/blobstore"
	"sexton/internal/database"
	"sexton/internal/problem"
)

// Restored is the result of Restore.
type Restored struct {
	DiffID int64 `json:"diff_id"`
	// Files and Bytes describe the restored texts. They are 0 if the diff was already in
	// the database.
	Files int64 `json:"files"`
	Bytes int64 `json:"bytes"`
	// Kept is the key of the object if it could not be deleted yet. It is queued for
	// removal.
	Kept string `json:"object_kept,omitempty"`
}

// ErrNoDiff reports that there is no diff with the given id.
var ErrNoDiff = errors.New("there is no such diff")

// Restore writes the texts of a diff back to the database, marks the diff as kept there,
// and deletes the object. It changes nothing if the object differs from the recorded
// checksum or lacks a text that a row refers to.
func (e *Engine) Restore(ctx context.Context, diffID int64) (_ Restored, err error) {
	restored := Restored{DiffID: diffID}
	var object removal
	err = e.withClaim(ctx, diffID, func(held context.Context, claimed *claim) (err error) {
		object, err = e.restoreTexts(held, claimed, &restored)
		return err
	})
	if err != nil {
		return restored, fmt.Errorf("restore diff %d: %w", diffID, err)
	}
	if object.key == "" {
		return restored, nil
	}
	e.reach(PointRestored)
	// The object is already queued for removal, so an error here only delays its
	// deletion.
	if deleted, err := e.deleteObject(ctx, object); err != nil || !deleted {
		restored.Kept = object.key
		return restored, nil //nolint:nilerr // Kept reports it.
	}
	return restored, problem.Doing(e.DB.Queries().RemovalDelete(ctx, object.id),
		"remove %s from the queue", object.key)
}

// Release allows a restored diff to be moved again. released reports whether the diff was
// restored. Release returns ErrNoDiff if the diff does not exist.
func (e *Engine) Release(ctx context.Context, diffID int64) (released bool, err error) {
	found, err := e.DB.Queries().DiffUnkeep(ctx, diffID)
	if err == nil && !found.There {
		err = ErrNoDiff
	}
	return found.Released, problem.Doing(err, "release diff %d", diffID)
}

// collectSQL is the statement that creates a temporary table for the pieces of a diff.
const collectSQL = `CREATE TEMPORARY TABLE sexton_pieces (relative_order integer, number integer, body pg_catalog.bytea) ON COMMIT DROP`

// indexSQL creates an index by which the UPDATE finds the pieces of each file. ANALYZE
// makes the planner use the index.
const indexSQL = `CREATE INDEX ON pg_temp.sexton_pieces (relative_order, number); ANALYZE pg_temp.sexton_pieces`

// restoreTexts restores a diff in one transaction. The transaction locks no rows until it
// has read the object. Each statement has a time limit, and the store closes a connection
// that makes no progress. restoreTexts queues the object for removal and returns it.
func (e *Engine) restoreTexts(ctx context.Context, claimed *claim, restored *Restored) (object removal, err error) {
	defer claimed.confirmed.Store(false)
	err = database.Write(ctx, e.DB.Pool, func(tx pgx.Tx) error {
		if err := e.bound(ctx, tx, e.Limits.orDefaults().Transfer); err != nil {
			return err
		}
		external, err := e.readExternal(ctx, tx, claimed.diffID)
		if err != nil || external.key == "" {
			return err
		}
		if _, err := tx.Exec(ctx, collectSQL); err != nil {
			return fmt.Errorf("create a temporary table: %w", err)
		}
		if err := e.collect(ctx, tx, external); err != nil {
			return err
		}
		e.reach(PointCollected)
		if err := claimed.confirm(ctx, tx); err != nil {
			return err
		}
		if err := e.lockUnchanged(ctx, tx, external); err != nil {
			return err
		}
		put, err := tx.Exec(ctx, e.DB.Names.Render(statement("restore_texts")), claimed.diffID)
		if err != nil {
			return fmt.Errorf("restore texts: %w", err)
		}
		if put.RowsAffected() != int64(len(external.files)) {
			return fmt.Errorf("restore texts: %d of %d files changed", put.RowsAffected(), len(external.files))
		}
		if _, err := tx.Exec(ctx, e.DB.Names.Render(statement("unmark")), claimed.diffID); err != nil {
			return fmt.Errorf("mark diff as in the database: %w", err)
		}
		on := e.DB.Names.Queries(tx)
		if err := on.DiffKeep(ctx, claimed.diffID, claimed.token); err != nil {
			return fmt.Errorf("record that the diff is kept in the database: %w", err)
		}
		object = removal{diffID: claimed.diffID, key: external.key, store: &external.store}
		restored.Files, restored.Bytes = int64(len(external.files)), external.bytes()
		if object.id, err = on.RemoveNext(ctx, object.diffID, object.key, external.store); err != nil {
			return fmt.Errorf("queue the object for removal: %w", err)
		}
		return nil
	})
	if err != nil {
		return removal{}, err
	}
	return object, nil
}

// lockUnchanged locks the diff and its files, and returns errChanged if they have
// changed.
func (e *Engine) lockUnchanged(ctx context.Context, tx pgx.Tx, was external) error {
	locked, err := tx.Exec(ctx, e.DB.Names.Render(statement("lock_unchanged")), was.diffID, was.mergeRequestID,
		was.store, was.name)
	if err != nil {
		return fmt.Errorf("lock diff: %w", err)
	}
	var fingerprint string
	if err := tx.QueryRow(ctx, e.DB.Names.Render(statement("lock_files")), was.diffID).Scan(&fingerprint); err != nil {
		return fmt.Errorf("lock files: %w", err)
	}
	if locked.RowsAffected() == 0 || fingerprint != was.fingerprint {
		return errChanged
	}
	return nil
}

// collect reads the object, copies the pieces of its files to the temporary table, and
// compares size and checksum with the recorded ones.
func (e *Engine) collect(ctx context.Context, tx pgx.Tx, was external) error {
	from, err := e.Store.Range(ctx, was.key, 0, -1)
	if err != nil {
		return err
	}
	defer from.Close()
	hash := sha256.New()
	source := &pieces{from: io.TeeReader(from, hash), files: was.files, buffer: make([]byte, pieceBytes)}
	columns := []string{"relative_order", "number", "body"}
	for copied := int64(1); err == nil && copied > 0; {
		source.room = piecesAtOnce
		copied, err = tx.CopyFrom(ctx, pgx.Identifier{"pg_temp", "sexton_pieces"}, columns,
			pgx.CopyFromFunc(source.next))
	}
	switch {
	case source.ended:
		return &BrokenError{DiffID: was.diffID, Reason: fmt.Sprintf("the object has %d bytes, its files have %d",
			source.read, was.bytes())}
	case source.err != nil:
		return source.err // The error of the COPY only reports that the COPY was aborted.
	case err != nil:
		return fmt.Errorf("collect texts of %s: %w", was.key, err)
	}
	if rest, err := io.Copy(hash, from); err != nil || rest > 0 {
		if err != nil {
			return err
		}
		return fmt.Errorf("collect texts of %s: %d bytes follow the last file", was.key, rest)
	}
	if was.sha256 != nil && [sha256.Size]byte(hash.Sum(nil)) != *was.sha256 {
		return fmt.Errorf("collect texts of %s: its checksum differs from the recorded one", was.key)
	}
	_, err = tx.Exec(ctx, indexSQL)
	return problem.Doing(err, "index texts of %s", was.key)
}

// piecesAtOnce is the number of pieces that one COPY writes. The number is small, so that
// the time limit of a statement does not limit the size of an object.
const piecesAtOnce = 16

// pieces splits the content of an object into pieces of its files.
type pieces struct {
	from   io.Reader
	files  []externalFile
	buffer []byte
	// done is the number of bytes that have been read of the first file in files. number
	// is the number of the last piece that was read of the first file.
	done   int64
	number int32
	// room is the number of pieces that the current statement may still write.
	room int
	// read counts the bytes of all files. ended reports whether the object is too short.
	read  int64
	ended bool
	err   error
}

// next returns the next row of the temporary table, or nil to end the statement.
func (p *pieces) next() ([]any, error) {
	for len(p.files) > 0 && p.done == p.files[0].size {
		p.files, p.done, p.number = p.files[1:], 0, -1
	}
	if len(p.files) == 0 || p.room == 0 {
		return nil, nil
	}
	p.room--
	piece := p.buffer[:min(int64(len(p.buffer)), p.files[0].size-p.done)]
	n, err := io.ReadFull(p.from, piece)
	p.read += int64(n)
	if err != nil {
		// The error is compared by identity, because an outage may wrap
		// io.ErrUnexpectedEOF.
		p.ended = err == io.EOF || err == io.ErrUnexpectedEOF
		p.err = err
		return nil, err
	}
	p.done += int64(len(piece))
	p.number++
	return []any{p.files[0].order, p.number, piece}, nil
}

// locate returns the object of a diff and the positions of its files, read in one
// snapshot.
func (e *Engine) locate(ctx context.Context, diffID int64) (was external, err error) {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	err = pgx.BeginTxFunc(ctx, e.DB.Pool, snapshot, func(tx pgx.Tx) error {
		was, err = e.readExternal(ctx, tx, diffID)
		return err
	})
	return was, err
}

// readExternal reads the object of a diff and the positions of its files. The key is
// empty if the texts are in the database.
func (e *Engine) readExternal(ctx context.Context, tx pgx.Tx, diffID int64) (external, error) {
	found := external{diffID: diffID}
	var stored bool
	var name *string
	var checksum []byte
	err := tx.QueryRow(ctx, e.DB.Names.Render(statement("external")), diffID).
		Scan(&found.mergeRequestID, &stored, &name, &found.store, &found.size, &checksum, &found.fingerprint)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return found, ErrNoDiff
	case err != nil:
		return found, fmt.Errorf("read the location of the diff: %w", err)
	case !stored:
		return found, nil
	case name == nil || *name == "":
		return found, namelessError(diffID)
	}
	found.name = *name
	found.key = fmt.Sprintf("%s%d/%s", folderPrefix, found.mergeRequestID, found.name)
	if err := blobstore.CheckKey(found.key); err != nil {
		return found, &BrokenError{DiffID: diffID, Reason: err.Error()}
	}
	if len(checksum) == sha256.Size {
		sum := [sha256.Size]byte(checksum)
		found.sha256 = &sum
	}
	if err := checkStoreKind(e.Store, found.key, found.store); err != nil {
		return found, err
	}
	rows, _ := tx.Query(ctx, e.DB.Names.Render(statement("external_files")), diffID)
	var file externalFile
	var offset, size *int64
	_, err = pgx.ForEachRow(rows, []any{&file.order, &offset, &size, &file.binary}, func() error {
		if offset == nil || size == nil {
			return &BrokenError{DiffID: diffID, Reason: fmt.Sprintf("file %d has no offset or no size", file.order)}
		}
		file.offset, file.size = *offset, *size
		found.files = append(found.files, file)
		return nil
	})
	if err != nil {
		return found, err
	}
	return found, found.contiguous()
}

// external is a diff whose texts are in the store.
type external struct {
	diffID, mergeRequestID int64
	// name is the column external_diff, which is the last part of key.
	name, key string
	store     int
	// size and sha256 were recorded when Sexton moved the diff. They are nil if another
	// program moved it.
	size        *int64
	sha256      *[sha256.Size]byte
	fingerprint string
	// files are in the order of their offsets.
	files []externalFile
}

type externalFile struct {
	order        int32
	offset, size int64
	binary       bool
}

func (x external) bytes() int64 {
	if len(x.files) == 0 {
		return 0
	}
	last := x.files[len(x.files)-1]
	return last.offset + last.size
}

// contiguous returns an error if there is a gap or an overlap between the files, or if
// their total size differs from the recorded size.
func (x external) contiguous() error {
	at := int64(0)
	for _, file := range x.files {
		if file.offset != at || file.size < 0 {
			return &BrokenError{DiffID: x.diffID, Reason: fmt.Sprintf(
				"file %d is at bytes %d to %d, but the previous one ends at %d", file.order, file.offset,
				file.offset+file.size, at)}
		}
		at += file.size
	}
	if x.size != nil && *x.size != at {
		return &BrokenError{DiffID: x.diffID, Reason: fmt.Sprintf("its files have %d bytes, but %d were written", at,
			*x.size)}
	}
	return nil
}

// BrokenError reports that the rows of a diff and its object are inconsistent.
type BrokenError struct {
	DiffID int64
	Reason string
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("diff %d is damaged: %s", e.DiffID, e.Reason)
}

// namelessError returns the error for an external diff without an object name.
func namelessError(diffID int64) *BrokenError {
	return &BrokenError{DiffID: diffID, Reason: "it is stored externally, but its external_diff is empty"}
}

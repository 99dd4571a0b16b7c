package extdiff

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"sexton/internal/blobstore"
	"sexton/internal/database"
	"sexton/internal/problem"
)

// File is one file of a diff, without its text.
type File struct {
	Order   int32  `json:"relative_order"`
	OldPath string `json:"old_path"`
	NewPath string `json:"new_path"`
	// Bytes is the length of the text as it is stored.
	Bytes int64 `json:"bytes"`
	// Binary reports whether the text is stored as base64.
	Binary bool `json:"binary"`
	// External reports whether the text is in the store, at Offset of the object.
	External bool  `json:"external"`
	Offset   int64 `json:"offset,omitempty"`
	// Unplaced reports that the text is in the store, but its offset or size is missing.
	Unplaced bool `json:"unplaced,omitempty"`

	key string
}

// Reader reads single diffs. It needs no lease and no claim.
type Reader struct {
	DB     database.Database
	Limits Limits
	// Open opens the store. Read calls it only for a diff whose texts are in the store.
	Open func(ctx context.Context) (*blobstore.Store, error)
}

// Reading is one diff in one snapshot.
type Reading struct {
	db     database.Database
	diffID int64
	// store holds the object of an external diff. tx reads texts in the database. Either
	// store or tx is nil.
	store *blobstore.Store
	tx    pgx.Tx
	Files []File
}

// Read calls read with the Reading of a diff. Texts in the database can be read in their
// snapshot until read returns. If the diff is deleted or restored while read is running,
// its object may be deleted. Read returns ErrNoDiff if the diff does not exist.
func (from Reader) Read(ctx context.Context, diffID int64, read func(r *Reading) error) error {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	r := &Reading{db: from.DB, diffID: diffID}
	var store int
	external := false
	err := pgx.BeginTxFunc(ctx, from.DB.Pool, snapshot, func(tx pgx.Tx) (err error) {
		if store, external, err = r.find(ctx, tx, from.Limits.orDefaults()); err != nil {
			return fmt.Errorf("read diff %d: %w", diffID, err)
		}
		if external {
			return nil
		}
		r.tx = tx
		return read(r)
	})
	if err != nil || !external {
		return err
	}
	if r.store, err = from.Open(ctx); err == nil {
		err = checkStoreKind(r.store, r.Files[0].key, store)
	}
	if err != nil {
		return fmt.Errorf("read diff %d: %w", diffID, err)
	}
	return read(r)
}

// unbound removes the time limits while texts are read, because the output may go to a
// pager.
const unbound = `SELECT pg_catalog.set_config('statement_timeout', '0', true), pg_catalog.set_config('idle_in_transaction_session_timeout', '0', true)`

// find reads the files of the diff. external reports whether the texts are in a store,
// and store is the kind of that store.
func (r *Reading) find(ctx context.Context, tx pgx.Tx, limits Limits) (store int, external bool, err error) {
	args := []any{limits.Statement.Milliseconds(), limits.Lock.Milliseconds(), r.db.Names.Path}
	if _, err := tx.Exec(ctx, r.db.Names.Render(statement("bound")), args...); err != nil {
		return 0, false, fmt.Errorf("set the limits of the transaction: %w", err)
	}
	if _, err := tx.Exec(ctx, statement("index_scans")); err != nil {
		return 0, false, fmt.Errorf("configure the planner: %w", err)
	}
	// The transaction only reads, so no trigger of the application needs its search path.
	if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog, pg_temp"); err != nil {
		return 0, false, fmt.Errorf("set the search path: %w", err)
	}
	there, err := r.db.Names.Queries(tx).DiffExists(ctx, r.diffID)
	if err != nil {
		return 0, false, err
	}
	if !there {
		return 0, false, ErrNoDiff
	}

	rows, _ := tx.Query(ctx, r.db.Names.Render(statement("files")), r.diffID)
	var f File
	row := []any{
		&f.Order, &f.OldPath, &f.NewPath, &f.Bytes, &f.Binary, &f.External, &f.Offset, &f.Unplaced, &f.key,
		&store,
	}
	_, err = pgx.ForEachRow(rows, row, func() error {
		r.Files = append(r.Files, f)
		if external = external || f.External; f.External && f.key == "" {
			return namelessError(r.diffID)
		}
		return nil
	})
	if err == nil && !external {
		_, err = tx.Exec(ctx, unbound)
	}
	return store, external, err
}

// WriteText writes the text of a file. It decodes base64. Old applications also mark
// texts as binary that are not base64. WriteText writes such texts unchanged. It returns
// a *BrokenError if offset or size is missing.
func (r *Reading) WriteText(ctx context.Context, file File, to io.Writer) error {
	if file.Unplaced {
		reason := fmt.Sprintf("file %d (%s) has no offset or size, so its text cannot be found", file.Order,
			file.NewPath)
		return &BrokenError{DiffID: r.diffID, Reason: reason}
	}
	if !file.Binary {
		return r.writeStored(ctx, file, to)
	}
	// Written bytes cannot be taken back, so the text is decoded once before it is
	// written.
	err := r.decode(ctx, file, io.Discard)
	if _, corrupt := errors.AsType[base64.CorruptInputError](err); corrupt || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.writeStored(ctx, file, to)
	}
	if err != nil {
		return err
	}
	return r.decode(ctx, file, to)
}

func (r *Reading) decode(ctx context.Context, file File, to io.Writer) error {
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := r.writeStored(ctx, file, writer)
		_ = writer.CloseWithError(err)
		ended <- err
	}()
	_, err := io.Copy(to, base64.NewDecoder(base64.StdEncoding.Strict(), strictReader{reader}))
	_ = reader.Close()
	if storedErr := <-ended; storedErr != nil && !errors.Is(storedErr, io.ErrClosedPipe) {
		return storedErr
	}
	return err
}

// strictReader is a reader that returns an error for line breaks, which the base64
// decoder would ignore. Base64 texts in these rows have no line breaks.
type strictReader struct{ from io.Reader }

func (s strictReader) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if at := bytes.IndexAny(p[:n], "\r\n"); at >= 0 {
		return at, base64.CorruptInputError(at)
	}
	return n, err
}

// writeStored writes a text as it is stored.
func (r *Reading) writeStored(ctx context.Context, file File, to io.Writer) error {
	if file.External {
		if file.Bytes == 0 {
			return nil
		}
		from, err := r.store.Range(ctx, file.key, file.Offset, file.Bytes)
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = io.Copy(to, from)
		return err
	}
	rows, err := r.tx.Query(ctx, r.db.Names.Render(statement("piece")), r.diffID, file.Order, pieceBytes)
	if err != nil {
		return fmt.Errorf("read text: %w", err)
	}
	defer rows.Close()
	for want := 0; rows.Next(); want++ {
		var number int
		var piece pgtype.DriverBytes
		if err := rows.Scan(&number, &piece); err != nil {
			return fmt.Errorf("read text: %w", err)
		}
		if number != want {
			return fmt.Errorf("read text: got piece %d instead of piece %d", number, want)
		}
		if _, err := to.Write(piece); err != nil {
			return err
		}
	}
	return problem.Doing(rows.Err(), "read text")
}

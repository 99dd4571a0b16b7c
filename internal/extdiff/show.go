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

	"sexton/internal/problem"
)

// File is one file of a diff, without its text.
type File struct {
	Order   int32  `json:"relative_order"`
	OldPath string `json:"old_path"`
	NewPath string `json:"new_path"`
	// Bytes is the length of the text as it is stored.
	Bytes int64 `json:"bytes"`
	// Binary reports that it is stored as base64.
	Binary bool `json:"binary"`
	// External reports that it is in the store, at Offset of the object.
	External bool  `json:"external"`
	Offset   int64 `json:"offset,omitempty"`
	// Unplaced reports that it is in the store, and its row does not say where: offset or size is missing.
	Unplaced bool `json:"unplaced,omitempty"`

	key string
}

// Reading is one diff as it is at one moment, wherever it is stored.
type Reading struct {
	engine *Engine
	// at works on the store that the object is in, tx reads texts that are in the database: one of them is nil.
	at     *Engine
	tx     pgx.Tx
	diffID int64
	Files  []File
}

// Read calls read with a diff. Texts in the database stay readable as they are until that returns; the object of an external diff may
// go when the diff is deleted or restored meanwhile. The error is ErrNoDiff where there is none.
func (e *Engine) Read(ctx context.Context, diffID int64, read func(r *Reading) error) error {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	r := &Reading{engine: e, diffID: diffID}
	err := pgx.BeginTxFunc(ctx, e.DB.Pool, snapshot, func(tx pgx.Tx) error {
		if err := r.look(ctx, tx); err != nil {
			return fmt.Errorf("read diff %d: %w", diffID, err)
		}
		if r.at != nil {
			return nil
		}
		r.tx = tx
		return read(r)
	})
	if err != nil || r.at == nil {
		return err
	}
	return read(r)
}

// unbound lets reading take its time, as behind a pager.
const unbound = `SELECT pg_catalog.set_config('statement_timeout', '0', true), pg_catalog.set_config('idle_in_transaction_session_timeout', '0', true)`

// look reads what files the diff has, and in which store they are.
func (r *Reading) look(ctx context.Context, tx pgx.Tx) error {
	e := r.engine
	if err := e.bound(ctx, tx, e.Limits.orDefaults().Transfer); err != nil {
		return err
	}
	// No trigger fires here that would need the application's path.
	if _, err := tx.Exec(ctx, "SET LOCAL search_path = pg_catalog, pg_temp"); err != nil {
		return fmt.Errorf("set path: %w", err)
	}
	there, err := e.DB.Names.Queries(tx).DiffExists(ctx, r.diffID)
	if err != nil {
		return err
	}
	if !there {
		return ErrNoDiff
	}
	rows, _ := tx.Query(ctx, e.DB.Names.Render(statement("files")), r.diffID)
	var f File
	var store int
	row := []any{&f.Order, &f.OldPath, &f.NewPath, &f.Bytes, &f.Binary, &f.External, &f.Offset, &f.Unplaced, &f.key, &store}
	_, err = pgx.ForEachRow(rows, row, func() error {
		r.Files = append(r.Files, f)
		switch {
		case !f.External:
			return nil
		case f.key == "":
			return nameless(r.diffID)
		}
		r.at, err = e.at(ctx, f.key, store)
		return err
	})
	if err == nil && r.at == nil {
		_, err = tx.Exec(ctx, unbound)
	}
	return err
}

// WriteText sends the text of a file to a writer, decoded where it is base64. What is marked so and is none, as old applications have
// it, is sent as it is. The error is a *BrokenError where the row does not say where the text is.
func (r *Reading) WriteText(ctx context.Context, file File, to io.Writer) error {
	if file.Unplaced {
		reason := fmt.Sprintf("file %d (%s) has no offset or no size, so where its text is cannot be told", file.Order, file.NewPath)
		return &BrokenError{DiffID: r.diffID, Reason: reason}
	}
	if !file.Binary {
		return r.writeStored(ctx, file, to)
	}
	// Nothing can be taken back, so the first reading is to see whether it can be decoded.
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
	_, err := io.Copy(to, base64.NewDecoder(base64.StdEncoding.Strict(), unbroken{reader}))
	_ = reader.Close()
	if storedErr := <-ended; storedErr != nil && !errors.Is(storedErr, io.ErrClosedPipe) {
		return storedErr
	}
	return err
}

// unbroken refuses line breaks, which the decoder would pass over: with them a text is no base64 of anybody's making.
type unbroken struct{ from io.Reader }

func (u unbroken) Read(p []byte) (int, error) {
	n, err := u.from.Read(p)
	if at := bytes.IndexAny(p[:n], "\r\n"); at >= 0 {
		return at, base64.CorruptInputError(at)
	}
	return n, err
}

// writeStored sends a text as it is stored.
func (r *Reading) writeStored(ctx context.Context, file File, to io.Writer) error {
	if file.External {
		if file.Bytes == 0 {
			return nil
		}
		from, err := r.at.Store.Range(ctx, file.key, file.Offset, file.Bytes)
		if err != nil {
			return err
		}
		defer from.Close()
		_, err = io.Copy(to, from)
		return err
	}
	rows, err := r.tx.Query(ctx, r.engine.DB.Names.Render(statement("piece")), r.diffID, file.Order, pieceBytes)
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
			return fmt.Errorf("read text: piece %d came in place of piece %d", number, want)
		}
		if _, err := to.Write(piece); err != nil {
			return err
		}
	}
	return problem.Doing(rows.Err(), "read text")
}

package blobstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// Kind is the kind of a store, with the values of GitLab's column external_diff_store.
type Kind int

// The kinds of stores.
const (
	Local  Kind = 1
	Object Kind = 2
)

// String returns the name of the kind for messages.
func (k Kind) String() string {
	switch k {
	case Local:
		return "local disk"
	case Object:
		return "object storage"
	default:
		return fmt.Sprintf("store %d", int(k))
	}
}

// Digest identifies the content of an object.
type Digest struct {
	// Size is the number of bytes.
	Size   int64
	SHA256 [sha256.Size]byte
}

// Version identifies a state of an object. "" means that the object does not exist.
type Version string

// Info is an object in a listing.
type Info struct {
	Key string
	// Size is the number of bytes.
	Size    int64
	ModTime time.Time
}

// Options are the settings of a store that are not in its URL.
type Options struct {
	// Key is the configuration key of the URL, for messages.
	Key string
	// Stall is the maximum time without progress on a connection, and the maximum time
	// until a response begins. 0 means 30 s.
	Stall time.Duration
	// Attempts is the number of attempts of an S3 request before an outage is reported. 0
	// means 3.
	Attempts int
}

// backend stores the objects of a Store. It returns the errors of the system or the
// service unchanged.
type backend interface {
	version(ctx context.Context, key string) (Version, error)
	// read returns a reader of size bytes beginning at offset, or of all remaining bytes
	// if size is negative.
	read(ctx context.Context, key string, offset, size int64) (io.ReadCloser, error)
	remove(ctx context.Context, key string) error
	// write returns a writer that replaces the version over of an object.
	write(ctx context.Context, key string, over Version) (writer, error)
	// list returns the objects whose keys begin with prefix.
	list(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// writer writes one object. Exactly one of commit and abort is called.
type writer interface {
	io.Writer
	// commit ends the write. If it returns an error, the writer leaves no files or parts,
	// unless a response of the service was lost.
	commit() error
	abort()
}

// CheckKey returns an error if a key is not a relative path within a folder, or if a
// client or service would change it.
func CheckKey(key string) error {
	if key == "." || !filepath.IsLocal(filepath.FromSlash(key)) || path.Clean(key) != key ||
		strings.ContainsFunc(key, unicode.IsControl) {
		return fmt.Errorf("%q is not a valid object key", key)
	}
	return nil
}

// Store is one folder or bucket. It is safe for concurrent use. Connections are closed
// after they have been idle for the time Options.Stall.
type Store struct {
	objects backend
	kind    Kind
	// label is the URL without parameters, for messages.
	label string
	// folder is the folder of a local store.
	folder folder
	// identity is the label with the parameters prefix and endpoint.
	identity string
	key      string
}

// Kind returns the kind of the store.
func (s *Store) Kind() Kind { return s.kind }

// String returns the URL without parameters.
func (s *Store) String() string { return s.label }

// Identity returns the URL with the parameters prefix and endpoint, which identifies the
// store. It contains no secrets.
func (s *Store) Identity() string { return s.identity }

// Version returns the current version of an object, or "" if the object does not exist.
func (s *Store) Version(ctx context.Context, key string) (Version, error) {
	found, err := s.objects.version(ctx, key)
	err = s.judge(ctx, "query", key, err)
	switch {
	case errors.Is(err, ErrNotFound):
		return "", nil
	case err != nil:
		return "", s.explain(ctx, err)
	}
	return found, nil
}

// explain returns a more precise error for a refused HEAD request. The response to a HEAD
// request has only a status. The response to a list request also has an error code.
func (s *Store) explain(ctx context.Context, vague error) error {
	if _, temporary := errors.AsType[*OutageError](vague); temporary || s.kind == Local || ctx.Err() != nil {
		return vague
	}
	for _, err := range s.List(ctx, "sexton-probe/none/") {
		if refused, ok := errors.AsType[*AccessError](err); ok {
			return refused
		}
		break
	}
	return vague
}

// Put writes an object with the bytes that the function write sends to its writer, and
// replaces the version over. It returns ErrChanged if the object has another version. It
// returns an error of write unchanged. After an error the object is unchanged or, if a
// response was lost, written completely.
func (s *Store) Put(ctx context.Context, key string, over Version, write func(io.Writer) error) (Digest, error) {
	to, err := s.objects.write(ctx, key, over)
	if err != nil {
		return Digest{}, s.displaced(key, over, s.judge(ctx, "write", key, err))
	}
	filled := false
	defer func() { // The buffer is also released if write panics.
		if !filled {
			to.abort()
		}
	}()
	into := &digester{to: to, hash: sha256.New()}
	if err := write(into); err != nil {
		if into.failed == nil {
			return Digest{}, err
		}
		return Digest{}, s.judge(ctx, "write", key, into.failed)
	}
	filled = true
	if err := to.commit(); err != nil {
		err = s.displaced(key, over, s.judge(ctx, "write", key, err))
		// If the response to the first request was lost, the client sent it again, and
		// the service compared the version with the object that the first request wrote.
		// The write succeeded if the stored object has the written content.
		if errors.Is(err, ErrChanged) && s.kind == Object {
			if found, readErr := s.Digest(ctx, key); readErr == nil && found == into.digest() {
				return found, nil
			}
		}
		return Digest{}, err
	}
	return into.digest(), nil
}

// displaced converts ErrNotFound of a write to ErrChanged. Either the version to be
// replaced was deleted, or another process has removed the temporary file or its folder.
func (s *Store) displaced(key string, over Version, err error) error {
	if (over != "" || s.kind == Local) && errors.Is(err, ErrNotFound) {
		return fmt.Errorf("write %s to %s: %w", key, s.label, ErrChanged)
	}
	return err
}

// digester writes bytes to another writer and computes their digest. failed is the last
// error of that writer.
type digester struct {
	to     io.Writer
	hash   hash.Hash
	size   int64
	failed error
}

func (d *digester) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	_, _ = d.hash.Write(p[:n]) // A hash returns no errors.
	d.size += int64(n)
	d.failed = err
	return n, err
}

func (d *digester) digest() Digest {
	digest := Digest{Size: d.size}
	d.hash.Sum(digest.SHA256[:0])
	return digest
}

// Get returns the content of a small object. It returns an error if the size of the
// object exceeds most, in bytes.
func (s *Store) Get(ctx context.Context, key string, most int64) ([]byte, error) {
	reader, err := s.objects.read(ctx, key, 0, -1)
	if err != nil {
		return nil, s.judge(ctx, "read", key, err)
	}
	defer func() { _ = reader.Close() }()
	content, err := io.ReadAll(io.LimitReader(reader, most+1))
	switch {
	case err != nil:
		return nil, s.judge(ctx, "read", key, err)
	case int64(len(content)) > most:
		return nil, fmt.Errorf("read %s in %s: it has more than %d bytes", key, s.label, most)
	}
	return content, nil
}

// Digest reads an object completely and returns its digest.
func (s *Store) Digest(ctx context.Context, key string) (Digest, error) {
	reader, err := s.Range(ctx, key, 0, -1)
	if err != nil {
		return Digest{}, err
	}
	defer reader.Close()
	into := &digester{to: io.Discard, hash: sha256.New()}
	if _, err := io.Copy(into, reader); err != nil {
		return Digest{}, err
	}
	return into.digest(), nil
}

// Range returns a reader of size bytes beginning at offset, or of all remaining bytes if
// size is negative. The reader returns this package's errors, and io.ErrUnexpectedEOF if
// the object is too short.
func (s *Store) Range(ctx context.Context, key string, offset, size int64) (io.ReadCloser, error) {
	reader, err := s.objects.read(ctx, key, offset, size)
	if err != nil {
		return nil, s.judge(ctx, "read", key, err)
	}
	return &judgedReader{store: s, ctx: ctx, key: key, from: reader, left: size}, nil
}

// judgedReader reads an object and converts errors to this package's errors.
type judgedReader struct {
	store *Store
	ctx   context.Context //nolint:containedctx // The context of the read.
	key   string
	from  io.ReadCloser
	// left is the number of bytes left, or negative if it is unknown.
	left int64
}

func (r *judgedReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if r.left >= 0 {
		r.left -= int64(n)
	}
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, io.EOF) && r.left > 0:
		return n, fmt.Errorf("read %s in %s: %w", r.key, r.store.label, io.ErrUnexpectedEOF)
	case errors.Is(err, io.EOF):
		return n, io.EOF
	}
	return n, r.store.judge(r.ctx, "read", r.key, err)
}

func (r *judgedReader) Close() error { return r.from.Close() }

// Delete removes an object. In a folder, it returns ErrNotFound if the object does not
// exist. S3 services do not report missing objects.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.judge(ctx, "delete", key, s.objects.remove(ctx, key))
}

// List returns the objects whose keys begin with prefix. It reads them page by page and
// ends at the first error.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for object, err := range s.objects.list(ctx, prefix) {
			if !yield(object, s.judge(ctx, "list", prefix, err)) || err != nil {
				return
			}
		}
	}
}

// Probe writes a small object, reads it back and deletes it. It returns an error if one
// of the steps fails.
func (s *Store) Probe(ctx context.Context, name string) error {
	key := "sexton-probe/" + name
	content := strings.Repeat("sexton ", 100)
	found, err := s.Version(ctx, key)
	if err != nil {
		return err
	}
	written, err := s.Put(ctx, key, found, func(w io.Writer) error {
		_, err := io.WriteString(w, content)
		return err
	})
	if err != nil {
		return err
	}
	read, err := s.Digest(ctx, key)
	if err != nil {
		return err
	}
	if err := s.Delete(ctx, key); err != nil {
		return err
	}
	if read != written {
		return fmt.Errorf("read %s in %s: its content differs from what was written", key, s.label)
	}
	return nil
}

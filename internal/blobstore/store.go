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

// The kinds.
const (
	Local  Kind = 1
	Object Kind = 2
)

// String names the kind in messages.
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
	// Size is in bytes.
	Size   int64
	SHA256 [sha256.Size]byte
}

// Version identifies a state of an object; "" means that there is no object.
type Version string

// Info is an object in a listing.
type Info struct {
	Key string
	// Size is in bytes.
	Size    int64
	ModTime time.Time
}

// Options are the settings that are not in the URL.
type Options struct {
	// Key is the configuration key that messages name.
	Key string
	// Stall is the maximum time without progress on a connection, and until an answer
	// begins; 0 means 30 s.
	Stall time.Duration
	// Attempts is the number of attempts of an S3 request before an outage; 0 means 3.
	Attempts int
}

// backend stores the objects. Its errors are those of the system or the service.
type backend interface {
	version(ctx context.Context, key string) (Version, error)
	// read returns size bytes from offset on, or all of them if size is negative.
	read(ctx context.Context, key string, offset, size int64) (io.ReadCloser, error)
	remove(ctx context.Context, key string) error
	// write begins to write an object over a version.
	write(ctx context.Context, key string, over Version) (writer, error)
	// list returns the objects whose keys begin with prefix.
	list(ctx context.Context, prefix string) iter.Seq2[Info, error]
}

// writer writes one object. Exactly one of commit and abort is called.
type writer interface {
	io.Writer
	// commit ends the write. After an error it leaves nothing behind, unless an answer of
	// the service was lost.
	commit() error
	abort()
}

// CheckKey returns an error for a key that is not a relative path in a folder, or that a
// client or service would change.
func CheckKey(key string) error {
	if key == "." || !filepath.IsLocal(filepath.FromSlash(key)) || path.Clean(key) != key ||
		strings.ContainsFunc(key, unicode.IsControl) {
		return fmt.Errorf("%q is not a valid key of an object", key)
	}
	return nil
}

// Store is one folder or bucket. It is safe for concurrent use. Connections are closed
// after they have been idle for Options.Stall.
type Store struct {
	objects backend
	kind    Kind
	// label names the store in messages, without parameters.
	label string
	// folder is the folder of a local store.
	folder folder
	// identity is the label with prefix and endpoint.
	identity string
	key      string
}

// Kind returns the kind of the store.
func (s *Store) Kind() Kind { return s.kind }

// String returns the URL without parameters.
func (s *Store) String() string { return s.label }

// Identity returns the URL with prefix and endpoint, which identifies the store. It
// contains no secrets.
func (s *Store) Identity() string { return s.identity }

// Version returns the current version of an object, "" if there is none.
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

// explain returns a better error for a refused HEAD request, whose answer has a status
// but no error code: a list request is refused with the code.
func (s *Store) explain(ctx context.Context, vague error) error {
	if _, passing := errors.AsType[*OutageError](vague); passing || s.kind == Local || ctx.Err() != nil {
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

// Put writes an object: the bytes that write sends to its writer, under the key, over a
// version. It returns ErrChanged if the object has another version. An error of write is
// returned as it is. After an error the object is as before or, if an answer was lost, as
// written. It is never incomplete.
func (s *Store) Put(ctx context.Context, key string, over Version, write func(io.Writer) error) (Digest, error) {
	to, err := s.objects.write(ctx, key, over)
	if err != nil {
		return Digest{}, s.displaced(key, over, s.judge(ctx, "write", key, err))
	}
	filled := false
	defer func() { // Also release the buffer after a panic of write.
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
		// If an answer was lost, the client has repeated the request and found its own
		// object.
		if errors.Is(err, ErrChanged) && s.kind == Object {
			if found, readErr := s.Digest(ctx, key); readErr == nil && found == into.digest() {
				return found, nil
			}
		}
		return Digest{}, err
	}
	return into.digest(), nil
}

// displaced converts "not found" of a write to ErrChanged: the version to be replaced was
// deleted or, in a folder, another process has removed the temporary file or its folder.
func (s *Store) displaced(key string, over Version, err error) error {
	if (over != "" || s.kind == Local) && errors.Is(err, ErrNotFound) {
		return fmt.Errorf("write %s to %s: %w", key, s.label, ErrChanged)
	}
	return err
}

// digester passes bytes on and computes their digest.
type digester struct {
	to     io.Writer
	hash   hash.Hash
	size   int64
	failed error
}

func (d *digester) Write(p []byte) (int, error) {
	n, err := d.to.Write(p)
	_, _ = d.hash.Write(p[:n]) // It never fails.
	d.size += int64(n)
	d.failed = err
	return n, err
}

func (d *digester) digest() Digest {
	digest := Digest{Size: d.size}
	d.hash.Sum(digest.SHA256[:0])
	return digest
}

// Get reads a small object. It returns an error if the object has more than most bytes.
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

// Digest reads an object from end to end.
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

// Range returns a reader of size bytes from offset on, or of all bytes if size is
// negative. The reader returns this package's errors, and io.ErrUnexpectedEOF if the
// object is shorter.
func (s *Store) Range(ctx context.Context, key string, offset, size int64) (io.ReadCloser, error) {
	reader, err := s.objects.read(ctx, key, offset, size)
	if err != nil {
		return nil, s.judge(ctx, "read", key, err)
	}
	return &judgedReader{store: s, ctx: ctx, key: key, from: reader, left: size}, nil
}

// judgedReader converts errors during the read of an object.
type judgedReader struct {
	store *Store
	ctx   context.Context //nolint:containedctx // The context of the read.
	key   string
	from  io.ReadCloser
	// left is the number of bytes left, negative if it is unknown.
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

// Delete removes an object. In a folder it returns ErrNotFound if the object does not
// exist. S3 does not report that.
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.judge(ctx, "delete", key, s.objects.remove(ctx, key))
}

// List returns the objects whose keys begin with prefix, page by page. It ends at the
// first error.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for object, err := range s.objects.list(ctx, prefix) {
			if !yield(object, s.judge(ctx, "list", prefix, err)) || err != nil {
				return
			}
		}
	}
}

// Probe writes an object, reads it back and deletes it.
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

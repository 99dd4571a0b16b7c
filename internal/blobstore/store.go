package blobstore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"log/slog"
	"path"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// Kind is where a store is. The numbers are those of GitLab's column external_diff_store.
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

// Digest stands for the content of an object.
type Digest struct {
	// Size is in bytes.
	Size   int64
	SHA256 [sha256.Size]byte
}

// Version tells one state of an object from its other ones; "" stands for: there is none.
type Version string

// Info is an object in a listing.
type Info struct {
	Key string
	// Size is in bytes.
	Size    int64
	ModTime time.Time
}

// Options are what does not stand in the URL.
type Options struct {
	// Key is the configuration key that messages name.
	Key string
	// Stall is how long a connection may move no byte, and how long an answer may take to begin; 0 means 30 s.
	Stall time.Duration
	// Attempts is how often the S3 client tries a request before it reports an outage; 0 means 3.
	Attempts int
	// Logger takes what the S3 client says; without one it says nothing.
	Logger *slog.Logger
}

// backend holds the objects. Its errors are the system's or the service's own.
type backend interface {
	version(ctx context.Context, key string) (Version, error)
	// read returns size bytes from offset on, all of them where size is negative, and when the object was written.
	read(ctx context.Context, key string, offset, size int64) (io.ReadCloser, time.Time, error)
	remove(ctx context.Context, key string) error
	// write begins an object over a version. Closed when wanted, which ends with ctx, has ended, it leaves nothing but parts for resume.
	write(ctx, wanted context.Context, key string, over Version, resume *Parts) (io.WriteCloser, error)
	// list returns the objects whose keys begin with prefix and come after the key after, in an order that is always the same.
	list(ctx context.Context, prefix, after string) iter.Seq2[Info, error]
}

// CheckKey refuses a key that is none in a folder, or that a client or service would write in another way.
func CheckKey(key string) error {
	if key == "." || !filepath.IsLocal(filepath.FromSlash(key)) || path.Clean(key) != key || strings.ContainsFunc(key, unicode.IsControl) {
		return fmt.Errorf("%q is no key of an object", key)
	}
	return nil
}

// Store is one folder or bucket. It is safe for concurrent use. Connections end by themselves once they have been idle for Options.Stall.
type Store struct {
	objects backend
	kind    Kind
	// label names the store in messages, without parameters.
	label string
	// folder is where a local store's objects are.
	folder folder
	// identity is the label with the parameters that tell one store from another.
	identity string
	key      string
}

// Kind returns where the store is.
func (s *Store) Kind() Kind { return s.kind }

// String names the store.
func (s *Store) String() string { return s.label }

// Identity names the store as String does, with the prefix and the endpoint: two stores have the same only where they are one. It
// holds nothing secret.
func (s *Store) Identity() string { return s.identity }

// Version returns the state that the object is in.
func (s *Store) Version(ctx context.Context, key string) (Version, error) {
	found, err := s.objects.version(ctx, key)
	err = s.judge(ctx, "look at", key, err)
	switch {
	case errors.Is(err, ErrNotFound):
		return "", nil
	case err != nil:
		return "", s.explain(ctx, err)
	}
	return found, nil
}

// explain looks for the cause of a refusal that a service gave without a word, as it answers the question for an object's version
// with a status alone: a list of no objects is refused for the same cause, with its name.
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

// Put writes an object: what write sends to its writer, under the key, in place of the version over. Where the object is
// in another state by then it is ErrChanged, and the object stays as it is. An error of write itself is returned as it is.
// After an error the object is as before or, where an answer got lost, as written; it is never in part.
func (s *Store) Put(ctx context.Context, key string, over Version, write func(io.Writer) error) (Digest, error) {
	return s.PutParts(ctx, key, over, nil, write)
}

// PutParts is a Put that goes on with the parts of an earlier one; nil is for one that leaves none.
func (s *Store) PutParts(ctx context.Context, key string, over Version, resume *Parts, write func(io.Writer) error) (Digest, error) {
	upload, cancel := context.WithCancel(ctx)
	defer cancel()
	writer, err := s.objects.write(ctx, upload, key, over, resume)
	if err != nil {
		return Digest{}, s.displaced(key, over, s.judge(ctx, "write", key, err))
	}
	into := &digester{to: writer, hash: sha256.New()}
	if err := fill(into, write, cancel, writer); err != nil {
		// A cancelled writer leaves no object.
		cancel()
		closeErr := writer.Close()
		if into.failed == nil {
			return Digest{}, err
		}
		return Digest{}, s.judge(ctx, "write", key, errors.Join(into.failed, uncancelled(closeErr)))
	}
	if err := writer.Close(); err != nil {
		err = s.displaced(key, over, s.judge(ctx, "write", key, err))
		// Where an answer got lost, the client has asked again, and has found what it wrote itself.
		if errors.Is(err, ErrChanged) && s.kind == Object {
			if found, readErr := s.Digest(ctx, key); readErr == nil && found == into.digest() {
				return found, nil
			}
		}
		return Digest{}, err
	}
	return into.digest(), nil
}

// fill calls write. A panic there ends its job alone: it must not keep the memory that all uploads share.
func fill(into io.Writer, write func(io.Writer) error, cancel context.CancelFunc, writer io.Closer) error {
	returned := false
	defer func() {
		if !returned {
			cancel()
			_ = writer.Close()
		}
	}()
	err := write(into)
	returned = true
	return err
}

// displaced turns "not found" of a write into what it means: the version to be replaced is no more or, in a folder, another process
// has removed the unfinished file, or the folder around it.
func (s *Store) displaced(key string, over Version, err error) error {
	if (over != "" || s.kind == Local) && errors.Is(err, ErrNotFound) {
		return fmt.Errorf("write %s to %s: %w", key, s.label, ErrChanged)
	}
	return err
}

func uncancelled(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// digester passes bytes on and notes what they were.
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

// Get reads a small object as a whole, and returns when it was written by the store's own clock. One of more than most bytes is an
// error.
func (s *Store) Get(ctx context.Context, key string, most int64) (content []byte, written time.Time, err error) {
	reader, written, err := s.objects.read(ctx, key, 0, -1)
	if err != nil {
		return nil, time.Time{}, s.judge(ctx, "read", key, err)
	}
	defer func() { _ = reader.Close() }()
	content, err = io.ReadAll(io.LimitReader(reader, most+1))
	switch {
	case err != nil:
		return nil, time.Time{}, s.judge(ctx, "read", key, err)
	case int64(len(content)) > most:
		return nil, time.Time{}, fmt.Errorf("read %s in %s: it has more than %d bytes", key, s.label, most)
	}
	return content, written, nil
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

// Range reads size bytes from offset on, or all of them where size is negative. Errors of the reader are judged like the others;
// an object that ends before is io.ErrUnexpectedEOF.
func (s *Store) Range(ctx context.Context, key string, offset, size int64) (io.ReadCloser, error) {
	reader, _, err := s.objects.read(ctx, key, offset, size)
	if err != nil {
		return nil, s.judge(ctx, "read", key, err)
	}
	return &judgedReader{store: s, ctx: ctx, key: key, from: reader, left: size}, nil
}

// judgedReader judges errors in the middle of an object.
type judgedReader struct {
	store *Store
	ctx   context.Context //nolint:containedctx // that of the read which this is a part of
	key   string
	from  io.ReadCloser
	// left is negative where the size is not known.
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

// Delete removes an object; ErrNotFound where a folder has none. (S3 says nothing about that.)
func (s *Store) Delete(ctx context.Context, key string) error {
	return s.judge(ctx, "delete", key, s.objects.remove(ctx, key))
}

// List goes through the objects whose keys begin with the prefix, page by page. It ends at the first error.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return s.ListAfter(ctx, prefix, "")
}

// ListAfter goes through the objects whose keys begin with prefix, which ends with a slash, and come after the key after, in an
// order that is always the same. It costs as much as what it lists, wherever that begins. It ends at the first error.
func (s *Store) ListAfter(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		for object, err := range s.objects.list(ctx, prefix, after) {
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
		return fmt.Errorf("read %s in %s: it is not what was written", key, s.label)
	}
	return nil
}

package blobstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// bucket keeps objects in an S3-compatible service.
type bucket struct {
	client minio.Core
	name   string
	// prefix begins all keys in the bucket.
	prefix string
	// verify has the client compare answers with the checksums that they carry.
	verify  bool
	uploads *uploads
}

func (b *bucket) version(ctx context.Context, key string) (Version, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	found, err := b.client.StatObject(ctx, b.name, b.prefix+key, minio.StatObjectOptions{})
	return Version(found.ETag), err
}

func (b *bucket) read(ctx context.Context, key string, offset, size int64) (io.ReadCloser, time.Time, error) {
	if err := CheckKey(key); err != nil {
		return nil, time.Time{}, err
	}
	options := minio.GetObjectOptions{Checksum: b.verify}
	switch {
	case size >= 0: // A range of no bytes cannot be asked for.
		_ = options.SetRange(offset, offset+max(size, 1)-1) // It refuses what is negative alone.
	case offset > 0:
		_ = options.SetRange(offset, 0)
	}
	body, found, _, err := b.client.GetObject(ctx, b.name, b.prefix+key, options)
	if err == nil && size == 0 {
		err = body.Close()
		body = http.NoBody
	}
	return body, found.LastModified, err
}

func (b *bucket) remove(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	return b.client.RemoveObject(ctx, b.name, b.prefix+key, minio.RemoveObjectOptions{})
}

func (b *bucket) write(ctx, wanted context.Context, key string, over Version, resume *Parts) (io.WriteCloser, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	begun := b.uploads.open(ctx, wanted, key, over, resume)
	return sink{begun.Write, begun.Close}, nil
}

// sink is a writer of functions, as a backend is.
type sink struct {
	write func(p []byte) (int, error)
	close func() error
}

func (s sink) Write(p []byte) (int, error) { return s.write(p) }

func (s sink) Close() error { return s.close() }

// list goes through the keys in their order, page by page.
func (b *bucket) list(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	options := minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}
	if after != "" {
		options.StartAfter = b.prefix + after
	}
	return func(yield func(Info, error) bool) {
		for object := range b.client.ListObjectsIter(context.WithValue(ctx, lastPage{}, new(string)), b.name, options) {
			if errors.Is(object.Err, errCircles) {
				return
			}
			info := Info{Key: strings.TrimPrefix(object.Key, b.prefix), Size: object.Size, ModTime: object.LastModified}
			if !yield(info, object.Err) || object.Err != nil {
				return
			}
		}
	}
}

// listPage is how many entries one answer of the service has.
const listPage = 1000

// Upload is one in parts that is not complete.
type Upload struct {
	Key, ID string
	// Begun is by the store's clock.
	Begun time.Time
}

// unfinished goes through the uploads in parts that are not complete.
func (b *bucket) unfinished(ctx context.Context, prefix string) iter.Seq2[Upload, error] {
	return func(yield func(Upload, error) bool) {
		for key, id := "", ""; ; {
			page, err := b.client.ListMultipartUploads(ctx, b.name, b.prefix+prefix, key, id, "", listPage)
			if err != nil {
				yield(Upload{}, err)
				return
			}
			for _, u := range page.Uploads {
				if !yield(Upload{Key: strings.TrimPrefix(u.Key, b.prefix), ID: u.UploadID, Begun: u.Initiated}, nil) {
					return
				}
			}
			if !page.IsTruncated || page.NextKeyMarker == key && page.NextUploadIDMarker == id {
				return // The next page would be this one again, as a faulty service sends it.
			}
			key, id = page.NextKeyMarker, page.NextUploadIDMarker
		}
	}
}

func (b *bucket) abort(ctx context.Context, key, id string) error {
	return b.client.AbortMultipartUpload(ctx, b.name, b.prefix+key, id)
}

// Uploads goes through the uploads in parts, of keys that begin with prefix, that are not complete. A folder has none. It ends at the
// first error.
func (s *Store) Uploads(ctx context.Context, prefix string) iter.Seq2[Upload, error] {
	return func(yield func(Upload, error) bool) {
		if s.objects.unfinished == nil {
			return
		}
		for upload, err := range s.objects.unfinished(ctx, prefix) {
			if !yield(upload, s.judge(ctx, "list uploads of", prefix, err)) || err != nil {
				return
			}
		}
	}
}

// Abort ends an upload in parts and removes them. One that is complete or aborted is none.
func (s *Store) Abort(ctx context.Context, key, id string) error {
	if s.objects.abort == nil {
		return nil
	}
	err := s.objects.abort(ctx, key, id)
	if isNoUpload(err) {
		return nil
	}
	return s.judge(ctx, "abort the upload of", key, err)
}

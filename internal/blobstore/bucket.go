package blobstore

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// bucket keeps objects in an S3-compatible service. It writes them itself: the libraries' own uploaders take a new set of buffers for each object.
type bucket struct {
	client *s3.Client
	name   string
	// prefix begins all keys in the bucket.
	prefix string
	// checksum is the sort that the service wants with each part, as with the whole; empty where it may not know any.
	checksum types.ChecksumAlgorithm
	slots    chan struct{}
	parts    sync.Pool
}

// newBucket has the process collect garbage early, unless the environment says when.
func newBucket(client *s3.Client, name, prefix string) *bucket {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	b := &bucket{
		client: client, name: name, prefix: prefix, slots: make(chan struct{}, partsAtOnce),
		parts: sync.Pool{New: func() any { return new([PartSize]byte) }},
	}
	if client.Options().RequestChecksumCalculation != aws.RequestChecksumCalculationWhenRequired {
		b.checksum = types.ChecksumAlgorithmCrc32
	}
	return b
}

func (b *bucket) version(ctx context.Context, key string) (Version, error) {
	if err := CheckKey(key); err != nil {
		return "", err
	}
	found, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: aws.String(b.prefix + key)})
	if err != nil {
		return "", err
	}
	return Version(aws.ToString(found.ETag)), nil
}

func (b *bucket) read(ctx context.Context, key string, offset, size int64) (io.ReadCloser, time.Time, error) {
	if err := CheckKey(key); err != nil {
		return nil, time.Time{}, err
	}
	request := &s3.GetObjectInput{Bucket: &b.name, Key: aws.String(b.prefix + key)}
	switch {
	case size > 0:
		request.Range = aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+size-1))
	case size == 0: // A range of no bytes cannot be asked for.
		request.Range = aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset))
	case offset > 0:
		request.Range = aws.String(fmt.Sprintf("bytes=%d-", offset))
	}
	found, err := b.client.GetObject(ctx, request)
	if err != nil {
		return nil, time.Time{}, err
	}
	if size == 0 {
		return http.NoBody, aws.ToTime(found.LastModified), found.Body.Close()
	}
	return found.Body, aws.ToTime(found.LastModified), nil
}

func (b *bucket) remove(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: aws.String(b.prefix + key)})
	return err
}

// stopsInCircles ends a listing whose next page is the one before, as faulty services send it for ever.
func stopsInCircles(o *s3.ListObjectsV2PaginatorOptions) { o.StopOnDuplicateToken = true }

// list goes through the keys in their order, page by page.
func (b *bucket) list(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	request := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: aws.String(b.prefix + prefix)}
	if after != "" {
		request.StartAfter = aws.String(b.prefix + after)
	}
	return func(yield func(Info, error) bool) {
		for pages := s3.NewListObjectsV2Paginator(b.client, request, stopsInCircles); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, object := range page.Contents {
				key := strings.TrimPrefix(aws.ToString(object.Key), b.prefix)
				if !yield(Info{Key: key, Size: aws.ToInt64(object.Size), ModTime: aws.ToTime(object.LastModified)}, nil) {
					return
				}
			}
		}
	}
}

// Upload is one in parts that is not complete.
type Upload struct {
	Key, ID string
	// Begun is by the store's clock.
	Begun time.Time
}

// Uploads goes through the uploads in parts, of keys that begin with prefix, that are not complete. A folder has none. It ends at the
// first error.
func (s *Store) Uploads(ctx context.Context, prefix string) iter.Seq2[Upload, error] {
	return func(yield func(Upload, error) bool) {
		b, ok := s.objects.(*bucket)
		if !ok {
			return
		}
		request := &s3.ListMultipartUploadsInput{Bucket: &b.name, Prefix: aws.String(b.prefix + prefix)}
		last := [2]string{}
		for pages := s3.NewListMultipartUploadsPaginator(b.client, request); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(Upload{}, s.judge(ctx, "list uploads of", prefix, err))
				return
			}
			for _, u := range page.Uploads {
				key := strings.TrimPrefix(aws.ToString(u.Key), b.prefix)
				if !yield(Upload{Key: key, ID: aws.ToString(u.UploadId), Begun: aws.ToTime(u.Initiated)}, nil) {
					return
				}
			}
			next := [2]string{aws.ToString(page.NextKeyMarker), aws.ToString(page.NextUploadIdMarker)}
			if next == last {
				return // As with stopsInCircles, which this listing has no option for.
			}
			last = next
		}
	}
}

// Abort ends an upload in parts and removes them. One that is complete or aborted is none.
func (s *Store) Abort(ctx context.Context, key, id string) error {
	b, ok := s.objects.(*bucket)
	if !ok {
		return nil
	}
	_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.name, Key: aws.String(b.prefix + key), UploadId: &id})
	if isNoUpload(err) {
		return nil
	}
	return s.judge(ctx, "abort the upload of", key, err)
}

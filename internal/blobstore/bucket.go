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

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// bucket stores objects in an S3-compatible service. It uses the AWS SDK although that is
// the largest part of the program. The SDK corrects for a wrong clock of the worker, and
// finds credentials of profiles, SSO and roles. minio-go is smaller, but all its requests
// fail if the clock is wrong by 15 minutes.
type bucket struct {
	client *s3.Client
	name   string
	// prefix is prepended to all keys in the bucket.
	prefix string
	// buffers holds one buffer for each object that may be uploaded in parts at the same
	// time. A nil buffer has not been allocated yet.
	buffers chan []byte
}

// newBucket returns a bucket. If GOGC is not set, it also sets the garbage collection
// percentage of the process to gcPercent.
func newBucket(client *s3.Client, name, prefix string) *bucket {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	b := &bucket{client: client, name: name, prefix: prefix, buffers: make(chan []byte, largeUploads)}
	for range largeUploads {
		b.buffers <- nil
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

func (b *bucket) read(ctx context.Context, key string, offset, size int64) (io.ReadCloser, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	request := &s3.GetObjectInput{Bucket: &b.name, Key: aws.String(b.prefix + key)}
	switch {
	case size > 0:
		request.Range = aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset+size-1))
	case size == 0: // An HTTP range cannot be empty, so one byte is requested.
		request.Range = aws.String(fmt.Sprintf("bytes=%d-%d", offset, offset))
	case offset > 0:
		request.Range = aws.String(fmt.Sprintf("bytes=%d-", offset))
	}
	found, err := b.client.GetObject(ctx, request)
	if err != nil {
		return nil, err
	}
	if size == 0 {
		return http.NoBody, found.Body.Close()
	}
	return found.Body, nil
}

func (b *bucket) remove(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: aws.String(b.prefix + key)})
	return err
}

// list returns the objects page by page, in the order of their keys.
func (b *bucket) list(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	request := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: aws.String(b.prefix + prefix)}
	// Faulty services return the same page forever, so list ends if a page repeats.
	stop := func(o *s3.ListObjectsV2PaginatorOptions) { o.StopOnDuplicateToken = true }
	return func(yield func(Info, error) bool) {
		for pages := s3.NewListObjectsV2Paginator(b.client, request, stop); pages.HasMorePages(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(Info{}, err)
				return
			}
			for _, object := range page.Contents {
				key := strings.TrimPrefix(aws.ToString(object.Key), b.prefix)
				if !yield(Info{Key: key, Size: aws.ToInt64(object.Size), ModTime: aws.ToTime(object.LastModified)},
					nil) {
					return
				}
			}
		}
	}
}

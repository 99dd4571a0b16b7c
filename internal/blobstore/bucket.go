package blobstore

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// bucket keeps objects in an S3-compatible service.
type bucket struct {
	client *s3.Client
	name   string
	// prefix is what all keys begin with in the bucket.
	prefix  string
	uploads *uploads
}

func (b *bucket) version(ctx context.Context, key string) (Version, error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	found, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.name, Key: aws.String(b.prefix + key)})
	if err != nil {
		return "", err
	}
	return Version(aws.ToString(found.ETag)), nil
}

func (b *bucket) read(ctx context.Context, key string, offset, size int64) (io.ReadCloser, time.Time, error) {
	if err := checkKey(key); err != nil {
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
	if err := checkKey(key); err != nil {
		return err
	}
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &b.name, Key: aws.String(b.prefix + key)})
	return err
}

func (b *bucket) write(ctx, wanted context.Context, key string, over Version) (io.WriteCloser, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	return b.uploads.open(ctx, wanted, key, over), nil
}

// list goes through the keys in their order, page by page.
func (b *bucket) list(ctx context.Context, prefix, after string) iter.Seq2[Info, error] {
	request := &s3.ListObjectsV2Input{Bucket: &b.name, Prefix: aws.String(b.prefix + prefix)}
	if after != "" {
		request.StartAfter = aws.String(b.prefix + after)
	}
	return func(yield func(Info, error) bool) {
		for pages := s3.NewListObjectsV2Paginator(b.client, request); pages.HasMorePages(); {
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

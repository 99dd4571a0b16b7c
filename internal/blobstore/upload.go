package blobstore

import (
	"bytes"
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// PartSize is the smallest part that S3 accepts, and the size of each part of a larger
// object. With at most 10,000 parts, an object has at most 50 GB.
const PartSize = 5 << 20

const (
	// largeUploads limits the number of objects larger than smallSize that are uploaded
	// at the same time. Each of them needs a buffer of PartSize.
	largeUploads = 3
	// smallSize is the size of the largest object that is uploaded without a buffer of
	// PartSize. Most objects are smaller.
	smallSize = 128 << 10
	// abortTimeout limits the request that aborts a failed upload. If that request fails,
	// the bucket's lifecycle rules remove the parts.
	abortTimeout = 5 * time.Second
	contentType  = "application/octet-stream"
	// gcPercent replaces Go's default of 100. With 15 MiB of buffers the process would
	// otherwise grow beyond 64 MiB.
	gcPercent = 50
)

// upload writes one object. It sends an object that fits into one part in one request,
// and a larger object as a multipart upload.
//
// The parts are sent in sequence from one buffer. The SDK's transfer manager (0.5.7)
// needs three buffers per object, and logs a failed completion to standard error.
type upload struct {
	*bucket

	ctx  context.Context //nolint:containedctx // The context of the write.
	key  string
	over Version
	// content holds the bytes that are sent next. large reports whether content uses one
	// of the bucket's buffers.
	content []byte
	large   bool
	// id is the ID of the multipart upload, or nil before the first part. sent holds the
	// parts that were sent.
	id   *string
	sent []types.CompletedPart
}

func (b *bucket) write(ctx context.Context, key string, over Version) (writer, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	return &upload{bucket: b, ctx: ctx, key: b.prefix + key, over: over}, nil
}

func (u *upload) Write(p []byte) (written int, err error) {
	for written < len(p) {
		if err := u.makeRoom(len(p) - written); err != nil {
			return written, err
		}
		n := min(cap(u.content)-len(u.content), len(p)-written)
		u.content = append(u.content, p[written:written+n]...)
		written += n
	}
	return written, nil
}

// makeRoom ensures that content has room for some of the next n bytes. It may send a part
// or wait for a buffer.
func (u *upload) makeRoom(n int) error {
	switch {
	case len(u.content) < cap(u.content):
		return nil
	case u.large:
		return u.sendPart()
	case len(u.content)+n <= smallSize:
		u.content = append(make([]byte, 0, min(smallSize, 2*(len(u.content)+n))), u.content...)
		return nil
	}
	select {
	case buffer := <-u.buffers:
		if buffer == nil {
			buffer = make([]byte, PartSize)
		}
		u.content, u.large = append(buffer[:0], u.content...), true
		return nil
	case <-u.ctx.Done():
		return u.ctx.Err()
	}
}

// release gives the buffer back to the bucket.
func (u *upload) release() {
	if u.large {
		u.buffers <- u.content[:cap(u.content)]
		u.content, u.large = nil, false
	}
}

// sendPart sends content as the next part.
func (u *upload) sendPart() error {
	if u.id == nil {
		begun, err := u.client.CreateMultipartUpload(u.ctx, &s3.CreateMultipartUploadInput{
			Bucket: &u.name, Key: &u.key, ContentType: aws.String(contentType),
		})
		if err != nil {
			return err
		}
		u.id = begun.UploadId
	}
	number := int32(len(u.sent) + 1)
	part, err := u.client.UploadPart(u.ctx, &s3.UploadPartInput{
		Bucket: &u.name, Key: &u.key, UploadId: u.id, PartNumber: &number, Body: bytes.NewReader(u.content),
	})
	if err != nil {
		return err
	}
	u.sent = append(u.sent, types.CompletedPart{PartNumber: &number, ETag: part.ETag})
	u.content = u.content[:0]
	return nil
}

// commit sends the remaining bytes and completes the object.
func (u *upload) commit() error {
	var match, noneMatch *string
	if u.over == "" {
		noneMatch = aws.String("*")
	} else {
		match = aws.String(string(u.over))
	}
	if u.id == nil {
		defer u.release()
		_, err := u.client.PutObject(u.ctx, &s3.PutObjectInput{
			Bucket: &u.name, Key: &u.key, ContentType: aws.String(contentType), Body: bytes.NewReader(u.content),
			IfMatch: match, IfNoneMatch: noneMatch,
		})
		return err
	}
	err := u.sendPart()
	if err == nil {
		_, err = u.client.CompleteMultipartUpload(u.ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &u.name, Key: &u.key, UploadId: u.id,
			MultipartUpload: &types.CompletedMultipartUpload{Parts: u.sent},
			IfMatch:         match, IfNoneMatch: noneMatch,
		})
	}
	if err != nil {
		// If the service has completed the upload and the response was lost, the abort
		// has no effect.
		u.abort()
		return err
	}
	u.release()
	return nil
}

// abort gives the buffer back and deletes the parts that were sent.
func (u *upload) abort() {
	u.release()
	if u.id == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortTimeout)
	defer cancel()
	_, _ = u.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: &u.name, Key: &u.key,
		UploadId: u.id,
	})
}

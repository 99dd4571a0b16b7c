package blobstore

import (
	"bytes"
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// PartSize is the smallest part that S3 accepts. With at most 10,000 parts an object has
// at most 50 GB. A larger object is sent in parts.
const PartSize = 5 << 20

const (
	// largeUploads is how many objects larger than smallSize are uploaded at the same
	// time. Each needs a buffer of PartSize.
	largeUploads = 3
	// smallSize is the largest object that is uploaded without such a buffer. Most
	// objects are smaller.
	smallSize = 128 << 10
	// abortTimeout limits the time to abort a failed upload. If that fails, the bucket's
	// lifecycle rules remove its parts.
	abortTimeout = 5 * time.Second
	contentType  = "application/octet-stream"
	// gcPercent replaces Go's default of 100: with 15 MiB of buffers the process would
	// otherwise grow beyond 64 MiB.
	gcPercent = 50
)

// upload writes one object. An object that fits into one part is sent in one request.
//
// It sends parts in sequence from one buffer. The SDK's transfer manager (0.5.7) needs
// three buffers per object, and logs a failed completion to standard error.
type upload struct {
	*bucket

	ctx  context.Context //nolint:containedctx // The context of the write.
	key  string
	over Version
	// content holds the bytes that are sent next. It uses the buffer if large is set.
	content []byte
	large   bool
	// id is set after the first part, sent has the parts of the object.
	id   *string
	sent []types.CompletedPart
}

func (b *bucket) write(ctx context.Context, key string, over Version) (writer, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	return &upload{bucket: b, ctx: ctx, key: b.prefix + key, over: over}, nil
}

// Write implements io.Writer.
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

// makeRoom ensures that content can take more of the next n bytes.
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

// release returns the buffer.
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

// commit implements writer.
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
		// If the service completed it and the answer was lost, there is nothing to abort.
		u.abort()
		return err
	}
	u.release()
	return nil
}

// abort implements writer.
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

package blobstore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
)

// PartSize is the least that S3 takes for a part. It allows 10,000 of them, hence 50 GB. An object of more bytes goes in parts.
const PartSize = 5 << 20

const (
	// partsAtOnce are the parts that all uploads to a store hold together: memory depends neither on the size of objects nor on how
	// many are written at a time. One part is sent while the next one is filled, so a third lets a second upload go on.
	partsAtOnce = 3
	// smallSize is the memory that each upload holds beside: most objects are smaller, and wait for no other upload.
	smallSize = 128 << 10
	// abortTimeout bounds the end of an upload that has failed. What it cannot remove has no name, and the service's rules remove it.
	abortTimeout = 5 * time.Second
	contentType  = "application/octet-stream"
	// gcPercent is how much may be allocated, in percent of what is in use, before the next collection of garbage. The buffers are 15 MiB: with Go's
	// own 100 the process would grow beyond the 64 MiB that it may take. One without uploads would only collect twice as often.
	gcPercent = 50
)

// Parts has a Put go on with the parts that an earlier one of the same bytes has sent. After a failure its upload stays: the next Put
// goes on with it, or Abort ends it. A folder keeps nothing.
type Parts struct {
	// ID names the earlier upload, "" where there is none, and then the new one.
	ID string
	// Begun is called with the ID of a new upload before its first part is sent.
	Begun func(ctx context.Context, id string) error
	// Sent is called with the bytes of each part that the service has, those of the earlier upload included.
	Sent func(bytes int64)
	// Kept counts the bytes of parts that did not have to be sent.
	Kept int64
	// Complete is set where the earlier upload is gone and there is an object: the upload may have come to its end. Nothing is sent
	// then, and the caller has to compare the object with the digest.
	Complete bool
}

// upload is one object that is being written. What fits into one part goes in one request when it is closed.
type upload struct {
	*bucket

	ctx context.Context //nolint:containedctx // that of the write which this is
	// wanted ends before ctx where the object is not to be.
	wanted context.Context //nolint:containedctx // as above
	key    string
	over   Version
	// content holds the bytes that are sent next. It is a part's, and counts, where part is set.
	content []byte
	part    *[PartSize]byte
	// id names an upload in parts; sent has the parts that the service has, underWay the end of the one that is being sent.
	id       *string
	sent     []types.CompletedPart
	underWay chan error
	failed   error
	// resume is nil where the parts go with a failure; kept has those of an earlier upload.
	resume *Parts
	kept   map[int32]types.Part
}

// write begins an upload over the version. It has to be closed; where wanted has ended by then, nothing is written. The part that
// is under way is then sent to its end all the same, unless ctx has ended too: a service may keep one that was broken off, as it
// comes after the order to remove all parts.
func (b *bucket) write(ctx, wanted context.Context, key string, over Version, resume *Parts) (io.WriteCloser, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	return &upload{bucket: b, ctx: ctx, wanted: wanted, key: b.prefix + key, over: over, resume: resume}, nil
}

// Write implements io.Writer.
func (u *upload) Write(p []byte) (written int, err error) {
	for written < len(p) && u.failed == nil {
		if u.failed = u.makeRoom(len(p) - written); u.failed != nil {
			break
		}
		n := min(cap(u.content)-len(u.content), len(p)-written)
		u.content = append(u.content, p[written:written+n]...)
		written += n
	}
	return written, u.failed
}

// makeRoom ensures that content can take more: some of n bytes.
func (u *upload) makeRoom(n int) error {
	switch {
	case u.part == nil && len(u.content)+n <= smallSize:
		if cap(u.content) < len(u.content)+n {
			u.content = append(make([]byte, 0, min(smallSize, 2*(len(u.content)+n))), u.content...)
		}
		return nil
	case u.part == nil:
		return u.takePart(u.content)
	case len(u.content) < PartSize:
		return nil
	}
	if err := u.send(); err != nil {
		return err
	}
	return u.takePart(nil)
}

// takePart waits for room in memory, which others give back with each part of theirs that has been sent.
func (u *upload) takePart(begin []byte) error {
	select {
	case u.slots <- struct{}{}:
	case <-u.wanted.Done():
		return u.wanted.Err()
	}
	u.part, _ = u.parts.Get().(*[PartSize]byte)
	u.content = u.part[:copy(u.part[:], begin)]
	return nil
}

func (b *bucket) giveBack(part *[PartSize]byte) {
	if part != nil {
		b.parts.Put(part)
		<-b.slots
	}
}

// send sends content as the next part, after the one before.
func (u *upload) send() error {
	if err := u.await(); err != nil {
		return err
	}
	if err := u.begin(); err != nil {
		return err
	}
	number := int32(len(u.sent) + 1)
	u.sent = append(u.sent, types.CompletedPart{PartNumber: &number})
	done, content, part := &u.sent[number-1], u.content, u.part
	u.content, u.part = nil, nil
	// Its bytes are those of the same object, which the caller reads back as a whole.
	if earlier, kept := u.kept[number]; u.taken() || kept && aws.ToInt64(earlier.Size) == int64(len(content)) {
		done.ETag, done.ChecksumCRC32 = earlier.ETag, earlier.ChecksumCRC32
		u.giveBack(part)
		u.resume.Kept += int64(len(content))
		u.resume.Sent(int64(len(content)))
		return nil
	}
	u.underWay = make(chan error, 1)
	go func(ended chan<- error) {
		sent, err := u.client.UploadPart(u.ctx, &s3.UploadPartInput{
			Bucket: &u.name, Key: &u.key, UploadId: u.id, PartNumber: &number, Body: bytes.NewReader(content),
			ChecksumAlgorithm: u.checksum,
		})
		u.giveBack(part)
		if err == nil {
			done.ETag, done.ChecksumCRC32 = sent.ETag, sent.ChecksumCRC32
			if u.resume != nil {
				u.resume.Sent(int64(len(content)))
			}
		}
		ended <- err
	}(u.underWay)
	return nil
}

// begin begins the upload in parts, or finds the earlier one that it goes on with.
func (u *upload) begin() error {
	if u.id != nil || u.taken() {
		return nil
	}
	if u.resume != nil && u.resume.ID != "" {
		err := u.find()
		if !isNoUpload(err) && !isDenied(err) {
			return err
		}
		if isDenied(err) {
			u.end(&u.resume.ID) // Its parts would stay, and cost, for ever.
		}
		if u.resume.Complete = u.over != "" && isNoUpload(err); u.resume.Complete {
			return nil
		}
	}
	begun, err := u.client.CreateMultipartUpload(u.ctx, &s3.CreateMultipartUploadInput{
		Bucket: &u.name, Key: &u.key, ContentType: aws.String(contentType), ChecksumAlgorithm: u.checksum,
	})
	if err != nil {
		return err
	}
	u.id = begun.UploadId
	if u.resume == nil {
		return nil
	}
	u.resume.ID = aws.ToString(u.id)
	return u.resume.Begun(u.ctx, u.resume.ID)
}

// find lists the parts of the earlier upload.
func (u *upload) find() error {
	kept := map[int32]types.Part{}
	request := &s3.ListPartsInput{Bucket: &u.name, Key: &u.key, UploadId: &u.resume.ID}
	stops := func(o *s3.ListPartsPaginatorOptions) { o.StopOnDuplicateToken = true }
	for pages := s3.NewListPartsPaginator(u.client, request, stops); pages.HasMorePages(); {
		page, err := pages.NextPage(u.ctx)
		if err != nil {
			return err
		}
		for _, part := range page.Parts {
			kept[aws.ToInt32(part.PartNumber)] = part
		}
	}
	u.id, u.kept = &u.resume.ID, kept
	return nil
}

// taken reports whether the object that is there is taken for what the earlier upload has become.
func (u *upload) taken() bool { return u.resume != nil && u.resume.Complete }

// isNoUpload reports whether the service knows no such upload: it is complete, or was aborted.
func isNoUpload(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && api.ErrorCode() == noSuchUpload
}

// isDenied reports whether this key may not ask for parts, or the service knows no such question.
func isDenied(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && (api.ErrorCode() == "AccessDenied" || api.ErrorCode() == "NotImplemented")
}

// await waits for the part that is being sent.
func (u *upload) await() error {
	if u.underWay == nil {
		return nil
	}
	err := <-u.underWay
	u.underWay = nil
	return err
}

// Close implements io.Closer. Without an error the object is there.
func (u *upload) Close() error {
	defer func() {
		u.giveBack(u.part)
		u.part = nil
	}()
	if u.failed == nil {
		u.failed = u.wanted.Err()
	}
	if u.failed == nil && u.id == nil && !u.taken() {
		return u.putWhole()
	}
	if u.failed == nil {
		u.failed = u.send()
	}
	u.failed = errors.Join(u.failed, u.await())
	if u.failed != nil {
		u.abort()
		return u.failed
	}
	if u.taken() {
		return nil
	}
	if err := u.complete(); err != nil {
		// An answer that got lost may have been yes; then there is nothing left to abort.
		u.abort()
		return err
	}
	return nil
}

// conditions are those of the last request: the version to be replaced.
func (u *upload) conditions() (match, noneMatch *string) {
	if u.over == "" {
		return nil, aws.String("*")
	}
	return aws.String(string(u.over)), nil
}

func (u *upload) putWhole() error {
	match, noneMatch := u.conditions()
	_, err := u.client.PutObject(u.ctx, &s3.PutObjectInput{
		Bucket: &u.name, Key: &u.key, ContentType: aws.String(contentType), Body: bytes.NewReader(u.content),
		IfMatch: match, IfNoneMatch: noneMatch,
	})
	return err
}

func (u *upload) complete() error {
	match, noneMatch := u.conditions()
	_, err := u.client.CompleteMultipartUpload(u.ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &u.name, Key: &u.key, UploadId: u.id, MultipartUpload: &types.CompletedMultipartUpload{Parts: u.sent},
		IfMatch: match, IfNoneMatch: noneMatch,
	})
	return err
}

// abort removes the parts of an upload that has failed and does not go on later.
func (u *upload) abort() {
	if u.id != nil && u.resume == nil {
		u.end(u.id)
	}
}

// end ends an upload in parts.
func (u *upload) end(id *string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(u.ctx), abortTimeout)
	defer cancel()
	// A service that cannot be reached keeps them for a while.
	_, _ = u.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &u.name, Key: &u.key, UploadId: id})
}

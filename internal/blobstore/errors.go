package blobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// ErrNotFound reports that the object does not exist.
var ErrNotFound = errors.New("no such object")

// ErrChanged reports that another process has overwritten or deleted the object.
var ErrChanged = errors.New("another process has overwritten the object")

// OutageError reports that the store is temporarily unreachable, overloaded or full. The
// same request can succeed later without a change of the configuration.
type OutageError struct {
	// Store is the URL without its parameters. Reason is the text of the error. Both are
	// free of secrets.
	Store, Reason string
	// Operation is the failed operation, for example "write
	// merge_request_diffs/mr-1/diff-2".
	Operation string
	// Err is the cause. Its text may contain addresses.
	Err error
}

func (e *OutageError) Error() string {
	return fmt.Sprintf("%s in %s: the store is not available: %s", e.Operation, e.Store, e.Reason)
}

func (e *OutageError) Unwrap() error { return e.Err }

// AccessError reports that the store cannot be used with this configuration.
type AccessError struct {
	// Key is the configuration key of the URL. Store is the URL without its parameters.
	Key, Store string
	Reason     string
	// Fix is an instruction for the operator.
	Fix string
	Err error
}

func (e *AccessError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s: %s (%s)", e.Key, e.Store, e.Reason, e.Fix))
}

func (e *AccessError) Unwrap() error { return e.Err }

// Refuse returns an AccessError for this store. Callers use it if the content of the
// store shows that the store must not be used.
func (s *Store) Refuse(reason, fix string, err error) *AccessError {
	return &AccessError{Key: s.key, Store: s.label, Reason: reason, Fix: fix, Err: err}
}

// fixes returns the fix for each S3 error code that a wrong configuration causes.
func fixes() map[string]string {
	const keys = "correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile"
	const access = "allow this key to list the bucket, and to get, put and delete its objects"
	const region = "correct region and endpoint in the URL"
	return map[string]string{
		"InvalidAccessKeyId": keys, "XAdminUserNotFound": keys, "SignatureDoesNotMatch": keys, "ExpiredToken": keys,
		"InvalidToken":         keys,
		"TokenRefreshRequired": keys, "AccessDenied": access, "AllAccessDisabled": access, "AccountProblem": access,
		"Forbidden":    access,
		"NoSuchBucket": "create the bucket, or correct its name", "InvalidBucketName": "correct the bucket's name",
		"RequestTimeTooSkewed": "correct this machine's clock", "PermanentRedirect": region,
		"AuthorizationHeaderMalformed": region,
		"MethodNotAllowed":             region,
		"NotImplemented":               "use an S3 service that supports conditional writes",
	}
}

// judge converts the error of an operation to one of this package's errors. If ctx has
// ended, it returns the cause of ctx.
func (s *Store) judge(ctx context.Context, verb, key string, err error) error {
	if err == nil {
		return nil
	}
	operation := strings.TrimSpace(verb + " " + key)
	if ctx.Err() != nil {
		return fmt.Errorf("%s in %s: %w", operation, s.label, context.Cause(ctx))
	}
	status := 0
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		status = response.HTTPStatusCode()
	}
	code := ""
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		code = api.ErrorCode()
	}
	if fix, known := fixes()[code]; known {
		return s.Refuse(reasonOf(err), fix, err)
	}
	if s.kind == Local {
		if reason, fix := s.folder.unusable(err); reason != "" {
			return s.Refuse(reason, fix, err)
		}
	}
	switch {
	case status == http.StatusPreconditionFailed || status == http.StatusConflict,
		code == "NoSuchUpload": // The upload was completed but the response was lost, or another process aborted it.
		return fmt.Errorf("%s in %s: %w", operation, s.label, ErrChanged)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return s.Refuse(reasonOf(err), fixes()["AccessDenied"], err)
	case isTemporary(status, err):
		return &OutageError{Store: s.label, Operation: operation, Reason: reasonOf(err), Err: err}
	case status == http.StatusNotFound || errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s in %s: %w", operation, s.label, ErrNotFound)
	}
	return fmt.Errorf("%s in %s: %w", operation, s.label, err)
}

// isTemporary reports whether an error is temporary: an error of the network, of an
// overloaded, broken or full server, or of a full disk.
func isTemporary(status int, err error) bool {
	switch {
	case status >= http.StatusInternalServerError, status == http.StatusTooManyRequests,
		status == http.StatusRequestTimeout:
		return true
	case status != 0 && status != http.StatusOK && status != http.StatusPartialContent:
		return false
	}
	for _, temporary := range []error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.ESTALE, syscall.EMFILE, syscall.ENFILE, syscall.ENODEV,
		syscall.ENOMEM,
		syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.ECONNABORTED, syscall.EPIPE, syscall.ETIMEDOUT,
		syscall.EHOSTUNREACH, syscall.ENETUNREACH, io.ErrUnexpectedEOF, context.DeadlineExceeded, net.ErrClosed,
	} {
		if errors.Is(err, temporary) {
			return true
		}
	}
	// A syscall.Errno implements net.Error, too.
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return true
	}
	_, unsent := errors.AsType[*smithyhttp.RequestSendError](err)
	_, garbled := errors.AsType[*smithy.DeserializationError](err)
	return unsent || garbled
}

// reasonOf returns the message of the service or the system in an error, without
// addresses, request ids and headers.
func reasonOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		reason := strings.TrimSpace(api.ErrorCode() + ": " + strings.TrimSpace(api.ErrorMessage()))
		if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
			reason = fmt.Sprintf("%d %s", response.HTTPStatusCode(), reason)
		}
		return short(reason)
	}
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok && response.HTTPStatusCode() != 0 {
		return fmt.Sprintf("status %d %s", response.HTTPStatusCode(), http.StatusText(response.HTTPStatusCode()))
	}
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err.Error()
	}
	// All of these errors mean that the connection was closed. The timing decides which
	// one is returned.
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed) {
		return syscall.ECONNRESET.Error()
	}
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		return number.Error()
	}
	if operation, ok := errors.AsType[*net.OpError](err); ok {
		return short(operation.Err.Error())
	}
	if request, ok := errors.AsType[*url.Error](err); ok {
		return short(request.Err.Error())
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return short(err.Error())
		}
		err = inner
	}
}

// short returns the first line of a text, at most 200 bytes of it.
func short(text string) string {
	const most = 200
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	text = strings.TrimSuffix(text, ":")
	if len(text) > most {
		// The dots are ASCII, because not every database encoding has the character "…".
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

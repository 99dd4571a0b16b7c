package blobstore

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
)

const (
	defaultStall    = 30 * time.Second
	defaultAttempts = 3
	// maxBackoff is the longest wait between two attempts of one request.
	maxBackoff = 2 * time.Second
	// credentialsTimeout limits the search for credentials, because it may send requests
	// to services that do not exist.
	credentialsTimeout = 5 * time.Second
	// writeBuffer is the maximum number of bytes of a request in the send buffer of the
	// system.
	writeBuffer = 512 << 10
)

// Open opens the store at a URL: file:///folder with the parameter prefix, or s3://bucket
// with the parameters region, endpoint and prefix. Credentials and all other settings
// come from the environment and the shared files of the AWS SDK. The error is an
// *AccessError. Open sends no request to the service. Use Probe to test access.
func Open(ctx context.Context, address string, options Options) (*Store, error) {
	if options.Stall <= 0 {
		options.Stall = defaultStall
	}
	if options.Attempts <= 0 {
		options.Attempts = defaultAttempts
	}
	s := &Store{key: options.Key, label: "the configured store"}
	u, err := ParseURL(address)
	if u != nil {
		s.label = u.Scheme + "://" + u.Host + u.Path
	}
	if wrong, ok := errors.AsType[*URLError](err); ok {
		return nil, s.Refuse(wrong.Reason, wrong.Fix, nil)
	}
	parameters := u.Query()
	s.identity = s.label
	identifying := url.Values{}
	for _, name := range []string{"prefix", "endpoint"} {
		if value := parameters.Get(name); value != "" {
			identifying.Set(name, value)
			s.identity = s.label + "?" + identifying.Encode()
		}
	}
	if u.Scheme == "file" {
		err = s.openFolder(u, parameters.Get("prefix"))
	} else {
		err = s.openBucket(ctx, u.Host, parameters, options)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Store) openFolder(u *url.URL, prefix string) error {
	// A missing folder is not created, because its disk may not be mounted.
	root := filepath.Clean(u.Path)
	info, err := os.Stat(root) //nolint:gosec // The configuration names it.
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return s.Refuse(reasonOf(err), "create the folder, or mount its disk", err)
	}
	s.folder, s.kind = folder(filepath.Join(root, filepath.FromSlash(prefix))), Local
	s.objects = s.folder
	// The folder of the prefix is created, because the existing root shows that the disk
	// is mounted.
	if err := os.MkdirAll(string(s.folder), 0o750); err != nil {
		return s.Refuse(reasonOf(err), "allow this user to write to the folder, or create the folder of the prefix",
			err)
	}
	return nil
}

func (s *Store) openBucket(ctx context.Context, name string, parameters url.Values, options Options) error {
	endpoint := parameters.Get("endpoint")
	settings, err := config.LoadDefaultConfig(ctx, func(o *config.LoadOptions) error {
		o.Region = parameters.Get("region")
		// Many services do not support the SDK's checksums. Callers of a Store compare
		// digests anyway.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.Retryer = func() aws.Retryer {
			return retry.NewStandard(func(o *retry.StandardOptions) {
				o.MaxAttempts, o.MaxBackoff, o.RateLimiter = options.Attempts, maxBackoff, ratelimit.None
			})
		}
		return nil
	})
	if err != nil {
		return s.Refuse(reasonOf(err), "correct the AWS variables and files", err)
	}
	if settings.Region == "" {
		if endpoint == "" {
			return s.Refuse("has no region", "add ?region=… to the URL, or set AWS_REGION", nil)
		}
		settings.Region = "us-east-1"
	}
	settings.HTTPClient = httpClient(options.Stall)
	if err := s.findCredentials(ctx, settings); err != nil {
		return err
	}
	client := s3.NewFromConfig(settings, func(o *s3.Options) {
		if endpoint != "" {
			o.BaseEndpoint, o.UsePathStyle = &endpoint, true
		}
	})
	s.objects, s.kind = newBucket(client, name, parameters.Get("prefix")), Object
	return nil
}

// findCredentials returns an error if the SDK finds no credentials. Without this check,
// each request would return its own error.
func (s *Store) findCredentials(ctx context.Context, settings aws.Config) error {
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	if _, err := settings.Credentials.Retrieve(ctx); err != nil {
		return s.Refuse("has no credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", err)
	}
	return nil
}

// idleConns is the maximum number of idle connections. If it were smaller than the number
// of concurrent uploads, each request would open a connection.
const idleConns = 64

// httpClient returns a client that closes a connection after the time stall without
// progress. It does not limit the total time of a request, because objects may have any
// size.
func httpClient(stall time.Duration) *awshttp.BuildableClient {
	dialer := &net.Dialer{Timeout: min(stall, 10*time.Second)}
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.ResponseHeaderTimeout = stall
		t.IdleConnTimeout = stall
		t.MaxIdleConnsPerHost = idleConns
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			// Bytes in the send buffer count as sent. A large buffer could take longer to
			// send than the limit for a response.
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetWriteBuffer(writeBuffer)
			}
			return &watchedConn{Conn: conn, stall: stall}, nil
		}
	})
}

// watchedConn is a connection that fails if no byte is read or written for the time
// stall. Each call extends both deadlines, because the transport waits in Read for the
// response while it sends a long body.
type watchedConn struct {
	net.Conn

	stall   time.Duration
	stalled atomic.Bool
}

func (c *watchedConn) Read(p []byte) (int, error) { return c.watch(c.Conn.Read, p) }

func (c *watchedConn) Write(p []byte) (int, error) { return c.watch(c.Conn.Write, p) }

func (c *watchedConn) watch(move func([]byte) (int, error), p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil && !c.stalled.Load() {
		return 0, err
	}
	n, err := move(p)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.stalled.Store(true)
	case errors.Is(err, net.ErrClosed) && c.stalled.Load():
		err = os.ErrDeadlineExceeded // The other direction has timed out and closed the connection.
	}
	return n, err
}

// FolderInfo returns the current folder of a local store, for os.SameFile. The result
// differs after a disk was mounted or unmounted there. FolderInfo returns nil for a
// bucket, or if the folder is missing.
func (s *Store) FolderInfo() os.FileInfo {
	if s.kind != Local {
		return nil
	}
	found, err := os.Stat(string(s.folder))
	if err != nil {
		return nil
	}
	return found
}

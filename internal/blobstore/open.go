package blobstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"
	gocloudaws "gocloud.dev/aws"
	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/s3blob"

	"sexton/internal/bucketurl"
)

const (
	defaultStall    = 30 * time.Second
	defaultAttempts = 3
	// maxBackoff is the longest pause between two attempts of one request.
	maxBackoff = 2 * time.Second
	// credentialsTimeout bounds the search for credentials, which may ask services that are not there.
	credentialsTimeout = 5 * time.Second
)

// Open makes a store of a URL: file:///folder, or s3://bucket with the parameters endpoint (any S3-compatible service), region,
// profile and the others of gocloud.dev, use_path_style (true where there is an endpoint), and prefix for both.
// Credentials come from the usual places: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, shared files, the machine's role. The error
// is an *AccessError. It asks the service nothing; see Probe.
func Open(ctx context.Context, address string, options Options) (*Store, error) {
	if options.Stall <= 0 {
		options.Stall = defaultStall
	}
	if options.Attempts <= 0 {
		options.Attempts = defaultAttempts
	}
	s := &Store{key: options.Key, label: "the configured store"}
	u, err := bucketurl.Parse(address)
	if u != nil {
		s.label = u.Scheme + "://" + u.Host + u.Path
	}
	if wrong, ok := errors.AsType[*bucketurl.Error](err); ok {
		return nil, s.refuse(wrong.Reason, wrong.Fix, nil)
	}
	parameters := u.Query()
	prefix := parameters.Get("prefix")
	parameters.Del("prefix")
	s.prefix, s.identity = prefix, identityOf(s.label, prefix, parameters.Get("endpoint"))
	if u.Scheme == "file" {
		err = s.openFolder(u, prefix)
	} else {
		err = s.openBucket(ctx, u, parameters, prefix, options)
	}
	if err != nil {
		return nil, err
	}
	if prefix != "" {
		s.bucket = blob.PrefixedBucket(s.bucket, prefix)
	}
	return s, nil
}

// identityOf is the same for all URLs that differ only in how to get to the store.
func identityOf(label, prefix, endpoint string) string {
	telling := url.Values{}
	for name, value := range map[string]string{"prefix": prefix, "endpoint": endpoint} {
		if value != "" {
			telling.Set(name, value)
		}
	}
	if len(telling) == 0 {
		return label
	}
	return label + "?" + telling.Encode()
}

func (s *Store) openFolder(u *url.URL, prefix string) error {
	// Temporary files stand beside the objects: a rename from another file system is none. A folder that is missing is not made:
	// it may be on a disk that is not mounted.
	bucket, err := fileblob.OpenBucket(u.Path, &fileblob.Options{
		NoTempDir: true, Metadata: fileblob.MetadataDontWrite, DirFileMode: 0o750,
	})
	if err != nil {
		return s.refuse(reasonOf(err), "create the folder, or mount the disk that it is on", err)
	}
	s.bucket, s.kind = bucket, Local
	s.folder = filepath.Join(filepath.Clean(u.Path), filepath.FromSlash(prefix))
	// That of the prefix is: the one around it shows that the disk is there.
	if err := os.MkdirAll(s.folder, 0o750); err != nil {
		_ = bucket.Close()
		return s.refuse(reasonOf(err), "let this user write to the folder, or create the one that the prefix names", err)
	}
	return nil
}

func (s *Store) openBucket(ctx context.Context, u *url.URL, parameters url.Values, prefix string, options Options) error {
	own := parameters.Get("endpoint") != ""
	pathStyle := own
	if value := parameters.Get("use_path_style"); value != "" {
		pathStyle, _ = strconv.ParseBool(value) // It has been read before.
		parameters.Del("use_path_style")
	}
	if own && parameters.Get("request_checksum_calculation") == "" {
		// Many services do not know the SDK's newer checksums. Whoever uses a Store compares digests anyway.
		parameters.Set("request_checksum_calculation", "when_required")
	}
	settings, err := gocloudaws.V2ConfigFromURLParams(ctx, parameters)
	if err != nil {
		return s.refuse(reasonOf(err), "correct the URL's parameters", err)
	}
	if settings.Region == "" {
		if !own {
			return s.refuse("names no region", "add ?region=… to the URL, or set AWS_REGION", nil)
		}
		settings.Region = "us-east-1"
	}
	if err := s.findCredentials(ctx, settings); err != nil {
		return err
	}
	settings.HTTPClient, settings.Logger = httpClient(options.Stall), clientLog{options.Logger}
	retryer := settings.Retryer
	settings.Retryer = func() aws.Retryer {
		return retry.AddWithMaxAttempts(retry.AddWithMaxBackoffDelay(retryer(), maxBackoff), options.Attempts)
	}
	client := s3.NewFromConfig(settings, func(o *s3.Options) { o.UsePathStyle = pathStyle })
	bucket, err := s3blob.OpenBucket(ctx, client, u.Host, &s3blob.Options{RequestChecksumCalculation: settings.RequestChecksumCalculation})
	if err != nil {
		return s.refuse(reasonOf(err), "correct the URL", err)
	}
	s.bucket, s.kind = bucket, Object
	s.uploads = newUploads(client, u.Host, prefix)
	return nil
}

// findCredentials looks for credentials once: without any, every request would say so in its own way.
func (s *Store) findCredentials(ctx context.Context, settings aws.Config) error {
	if settings.Credentials == nil || aws.IsCredentialsProvider(settings.Credentials, aws.AnonymousCredentials{}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	if _, err := settings.Credentials.Retrieve(ctx); err != nil {
		return s.refuse("has no credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", err)
	}
	return nil
}

// clientLog is the S3 client's own log.
type clientLog struct{ to *slog.Logger }

func (l clientLog) Logf(class logging.Classification, format string, values ...any) {
	if l.to == nil {
		return
	}
	level := slog.LevelDebug
	if class == logging.Warn {
		level = slog.LevelWarn
	}
	l.to.Log(context.Background(), level, "s3_client", "said", strings.TrimSpace(fmt.Sprintf(format, values...)))
}

// httpClient gives up on connections that are stuck. It bounds no request as a whole, as objects are of any size.
func httpClient(stall time.Duration) *awshttp.BuildableClient {
	dialer := &net.Dialer{Timeout: min(stall, 10*time.Second)}
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.ResponseHeaderTimeout = stall
		t.IdleConnTimeout = stall
		t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &watchedConn{Conn: conn, stall: stall}, nil
		}
	})
}

// watchedConn fails where no byte moves for too long. Each call puts off both deadlines: while a long body is sent, the
// transport waits in Read for the answer.
type watchedConn struct {
	net.Conn

	stall time.Duration
}

func (c *watchedConn) Read(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *watchedConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.stall)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// folderGone tells that a local store's folder itself is missing.
func (s *Store) folderGone() bool {
	_, err := os.Stat(s.folder)
	return os.IsNotExist(err)
}

// Place is the folder of a local store as it is now, for os.SameFile: another one where a disk has been mounted over it, or taken
// away. It is nil for a bucket, and where the folder is gone.
func (s *Store) Place() os.FileInfo {
	if s.kind != Local {
		return nil
	}
	found, err := os.Stat(s.folder)
	if err != nil {
		return nil
	}
	return found
}

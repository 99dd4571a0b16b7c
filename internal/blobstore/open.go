package blobstore

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"sexton/internal/bucketurl"
)

const (
	defaultStall    = 30 * time.Second
	defaultAttempts = 3
	// credentialsTimeout bounds the search for credentials, which may ask services that are not there.
	credentialsTimeout = 5 * time.Second
	// writeBuffer is how much of a request the system holds at most.
	writeBuffer = 512 << 10
)

// Open makes a store of a URL: file:///folder, or s3://bucket with the parameters that package bucketurl
// knows: endpoint (any S3-compatible service), region, profile, use_path_style (true where there is an endpoint), and prefix for both.
// Credentials come from the usual places: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, shared files, the machine's role. The error
// is an *AccessError. It asks the service nothing; see Probe.
func Open(ctx context.Context, address string, options Options) (*Store, error) {
	options.Stall, options.Attempts = cmp.Or(options.Stall, defaultStall), cmp.Or(options.Attempts, defaultAttempts)
	s := &Store{key: options.Key, label: "the configured store"}
	u, err := bucketurl.Parse(address)
	if u != nil {
		s.label = u.Scheme + "://" + u.Host + u.Path
	}
	if wrong, ok := errors.AsType[*bucketurl.Error](err); ok {
		return nil, s.Refuse(wrong.Reason, wrong.Fix, nil)
	}
	parameters := u.Query()
	s.identity = s.label
	telling := url.Values{}
	for _, name := range []string{"prefix", "endpoint"} {
		if value := parameters.Get(name); value != "" {
			telling.Set(name, value)
			s.identity = s.label + "?" + telling.Encode()
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
	// A folder that is missing is not made: it may be on a disk that is not mounted.
	root := filepath.Clean(u.Path)
	info, err := os.Stat(root) //nolint:gosec // The configuration names it.
	if err == nil && !info.IsDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return s.Refuse(reasonOf(err), "create the folder, or mount the disk that it is on", err)
	}
	s.folder, s.kind = folder(filepath.Join(root, filepath.FromSlash(prefix))), Local
	s.objects = backend{version: s.folder.version, read: s.folder.read, remove: s.folder.remove, write: s.folder.write, list: s.folder.list}
	// That of the prefix is made: the one around it shows that the disk is there.
	if err := os.MkdirAll(string(s.folder), 0o750); err != nil {
		return s.Refuse(reasonOf(err), "let this user write to the folder, or create the one that the prefix names", err)
	}
	return nil
}

func (s *Store) openBucket(ctx context.Context, name string, parameters url.Values, options Options) error {
	is := func(name string) bool {
		value, _ := strconv.ParseBool(parameters.Get(name)) // It has been read before.
		return value
	}
	own := parameters.Get("endpoint")
	region := cmp.Or(parameters.Get("region"), os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if region == "" && own == "" {
		return s.Refuse("names no region", "add ?region=… to the URL, or set AWS_REGION", nil)
	}
	region = cmp.Or(region, "us-east-1")
	host := "s3." + region + ".amazonaws.com"
	if is("fips") {
		host = "s3-fips." + region + ".amazonaws.com"
	}
	endpoint, err := url.Parse(cmp.Or(own, "https://"+host))
	if err != nil { // An own endpoint has been read before.
		return s.Refuse("has a region that is no part of a server's name", "correct region=…, or AWS_REGION", nil)
	}
	transport := wire{transport(options.Stall)}
	keys, err := s.findCredentials(ctx, transport, region, parameters)
	if err != nil {
		return err
	}
	lookup := minio.BucketLookupAuto
	switch {
	case is("use_path_style") || is("hostname_immutable") || own != "" && parameters.Get("use_path_style") == "":
		lookup = minio.BucketLookupPath
	case own != "":
		lookup = minio.BucketLookupDNS
	}
	client, err := minio.NewCore(endpoint.Host, &minio.Options{
		Creds: keys, Secure: endpoint.Scheme == "https", Transport: transport, Region: region, BucketLookup: lookup, MaxRetries: options.Attempts,
	})
	if err != nil {
		return s.Refuse(reasonOf(err), "correct the URL's parameters", err)
	}
	client.SetS3EnableDualstack(is("dualstack"))
	// Many services do not know the newer checksums. Callers of a Store compare digests anyway.
	checksums := parameters.Get("request_checksum_calculation")
	prefix := parameters.Get("prefix")
	b := &bucket{
		client: *client, name: name, prefix: prefix, verify: parameters.Get("response_checksum_validation") != "when_required",
		uploads: newUploads(*client, name, prefix, checksums == "when_supported" || checksums == "" && own == ""),
	}
	s.kind, s.objects = Object, backend{b.version, b.read, b.remove, b.write, b.list, b.unfinished, b.abort}
	return nil
}

// findCredentials looks for credentials once: without any, every request would say so in its own way.
func (s *Store) findCredentials(ctx context.Context, transport http.RoundTripper, region string, parameters url.Values) (*credentials.Credentials, error) {
	if anonymous, _ := strconv.ParseBool(parameters.Get("anonymous")); anonymous {
		return credentials.NewStatic("", "", "", credentials.SignatureAnonymous), nil
	}
	profile := parameters.Get("profile")
	keys := credentials.New(&credentials.FileAWSCredentials{Profile: profile})
	if profile == "" {
		keys = credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{Region: region},
		})
	}
	if role := parameters.Get("role"); role != "" {
		keys = credentials.New(&assumed{keys: keys, STSAssumeRole: credentials.STSAssumeRole{
			STSEndpoint: "https://sts." + region + ".amazonaws.com",
			Options:     credentials.STSAssumeRoleOptions{RoleARN: role, RoleSessionName: "sexton", Location: region},
		}})
	}
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	found, err := keys.GetWithContext(&credentials.CredContext{Context: ctx, Client: &http.Client{Transport: transport}})
	switch {
	case err != nil && profile != "":
		return nil, s.Refuse("has no credentials in the profile "+profile+": "+reasonOf(err), "correct the profile", err)
	case err != nil || found.AccessKeyID == "":
		return nil, s.Refuse("has no credentials", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE", err)
	}
	return keys, nil
}

// assumed are the credentials of a role, which it takes on with other ones.
type assumed struct {
	credentials.STSAssumeRole

	keys *credentials.Credentials
}

// RetrieveWithCredContext implements credentials.Provider.
func (a *assumed) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	own, err := a.keys.GetWithContext(cc)
	if err != nil {
		return own, err
	}
	a.Options.AccessKey, a.Options.SecretKey, a.Options.SessionToken = own.AccessKeyID, own.SecretAccessKey, own.SessionToken
	return a.STSAssumeRole.RetrieveWithCredContext(cc)
}

// transport gives up on connections that are stuck. It bounds no request as a whole, as objects are of any size.
func transport(stall time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: min(stall, 10*time.Second)}
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // The standard library's.
	t.ResponseHeaderTimeout, t.IdleConnTimeout, t.MaxIdleConnsPerHost, t.DisableCompression = stall, stall, 10, true
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// Bytes that the system holds count as moved: without a limit their way could take longer than an answer may.
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(writeBuffer)
		}
		return &watchedConn{Conn: conn, stall: stall}, nil
	}
	return t
}

// wire lends each request its body until the answer has been read: the transport may go on reading it afterwards, when its memory is another
// part's, or the client sends it again.
type wire struct{ *http.Transport }

// lastPage is the key under which the context of a listing has the token of the last page.
type lastPage struct{}

// errCircles ends a listing whose next page is the one before, as faulty services send it for ever.
var errCircles = errors.New("the next page is the one before")

// RoundTrip implements http.RoundTripper.
func (w wire) RoundTrip(request *http.Request) (*http.Response, error) {
	last, listing := request.Context().Value(lastPage{}).(*string)
	token := request.URL.Query().Get("continuation-token")
	if listing && token != "" && token == *last {
		return nil, errCircles
	}
	sent, body := *request, &lent{from: request.Body}
	if request.Body != nil {
		sent.Body = body
	}
	answer, err := w.Transport.RoundTrip(&sent)
	if err != nil {
		_ = body.Close()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = syscall.ECONNRESET // The client would word it with the address.
		}
		return nil, err
	}
	if listing && answer.StatusCode == http.StatusOK {
		*last = token
	}
	answer.Body = &answered{ReadCloser: answer.Body, body: body}
	return answer, nil
}

// lent is the body of a request until it is closed.
type lent struct {
	mu     sync.Mutex
	from   io.Reader
	closed bool
}

func (l *lent) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, io.ErrClosedPipe
	}
	return l.from.Read(p)
}

func (l *lent) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}

// answered is the body of an answer, with which the request's ends.
type answered struct {
	io.ReadCloser

	body *lent
}

func (a *answered) Close() error { return errors.Join(a.ReadCloser.Close(), a.body.Close()) }

// watchedConn fails where no byte moves for too long. Each call puts off both deadlines: while a long body is sent, the
// transport waits in Read for the answer.
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
		err = os.ErrDeadlineExceeded // The other direction has met it first, and has closed the connection.
	}
	return n, err
}

// Place is the folder of a local store as it is now, for os.SameFile: another one where a disk has been mounted over it, or taken
// away. It is nil for a bucket, and where the folder is gone.
func (s *Store) Place() os.FileInfo {
	if s.kind != Local {
		return nil
	}
	found, err := os.Stat(string(s.folder))
	if err != nil {
		return nil
	}
	return found
}

package s3test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	buildTimeout = 8 * time.Minute
	startTimeout = 20 * time.Second
	accessKey    = "sexton"
	secretKey    = "the-spade-is-behind-the-door"
)

// binary builds the server once per test process, and returns its path.
var binary = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	goMod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(goMod)))
	var stderr bytes.Buffer
	// With -n, the go command builds the tool and prints its path.
	build := exec.CommandContext(ctx, "go", "-C", filepath.Join(root, "tools", "versitygw"), "tool", "-n", "versitygw")
	// Without cgo, tests with and without the race detector share one binary.
	build.Env, build.Stderr = append(os.Environ(), "CGO_ENABLED=0"), &stderr
	path, err := build.Output()
	if err != nil {
		return "", fmt.Errorf("build versitygw, which needs the module proxy once: %w: %s", err, &stderr)
	}
	return strings.TrimSpace(string(path)), nil
})

// Prepare sets the credentials and the region in the environment of this process.
func Prepare() {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_REGION": "us-east-1",
		"AWS_EC2_METADATA_DISABLED": "true",
		// The developer's own settings are ignored.
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_PROFILE": "",
		"AWS_SESSION_TOKEN": "",
	} {
		_ = os.Setenv(name, value) // Setenv fails only for an invalid name.
	}
}

// Gateway is a running S3 server.
type Gateway struct {
	// Proxy forwards requests to the server.
	Proxy *Proxy

	folder string
	// small reports whether the data is on a disk that is mounted only for the server, so
	// that this process cannot read it.
	small bool
}

// Options are the settings of the server that New starts.
type Options struct {
	// DiskBytes is the size of the server's disk. 0 uses the disk of the machine.
	DiskBytes int64
	// Secret is the secret key that the server accepts. "" is the key that Prepare sets.
	Secret string
}

// New starts a server with the bucket "diffs", and stops it at the end of the test.
func New(tb testing.TB, options Options) *Gateway {
	path, err := binary()
	require.NoError(tb, err)
	// A Unix socket path is limited to about 100 bytes.
	folder, err := os.MkdirTemp("", "sexton-s3-")
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, os.RemoveAll(folder)) })
	for _, name := range []string{"data", "data/diffs", "meta"} {
		require.NoError(tb, os.Mkdir(filepath.Join(folder, name), 0o700))
	}
	g := &Gateway{folder: folder, small: options.DiskBytes > 0}
	socket := filepath.Join(folder, "s3.sock")
	args := []string{
		path, "--port", socket, "--quiet", "posix", "--sidecar", filepath.Join(folder, "meta"),
		filepath.Join(folder, "data"),
	}
	g.run(tb, args, cmp.Or(options.Secret, secretKey), options.DiskBytes)
	g.Proxy = newProxy(tb, socket)
	return g
}

// run starts the server and waits until it listens.
func (g *Gateway) run(tb testing.TB, args []string, secret string, diskBytes int64) {
	var output bytes.Buffer
	cmd := exec.CommandContext(context.WithoutCancel(tb.Context()), args[0], args[1:]...)
	if diskBytes > 0 {
		cmd = OnSmallDisk(tb, filepath.Join(g.folder, "data"), diskBytes, args...)
	}
	cmd.Env = []string{"ROOT_ACCESS_KEY=" + accessKey, "ROOT_SECRET_KEY=" + secret, "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = &output, &output
	// The kernel kills the server if this process ends or is killed.
	ended, err := spawn(cmd)
	require.NoError(tb, err, "start versitygw")
	tb.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	ctx, cancel := context.WithTimeout(tb.Context(), startTimeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	dialer := net.Dialer{}
	for {
		conn, err := dialer.DialContext(ctx, "unix", filepath.Join(g.folder, "s3.sock"))
		if err == nil {
			require.NoError(tb, conn.Close())
			return
		}
		select {
		case <-tick.C:
		case <-ended:
			require.Fail(tb, "versitygw ended", "%s", &output)
		case <-ctx.Done():
			require.Fail(tb, "versitygw does not listen", "%v", errors.Join(err, ctx.Err()))
		}
	}
}

// URL returns the URL of a bucket. Only the bucket "diffs" exists.
func (g *Gateway) URL(bucket string) string {
	return "s3://" + bucket + "?endpoint=" + url.QueryEscape(g.Proxy.URL())
}

// File returns the path of an object's file in the bucket "diffs", for tests that damage
// the object.
func (g *Gateway) File(tb testing.TB, key string) string {
	require.False(tb, g.small, "the server's disk is not visible to the test")
	return filepath.Join(g.folder, "data", "diffs", filepath.FromSlash(key))
}

package web_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"sexton/internal/config"
	"sexton/internal/web"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// lines is a writer that passes each log line to waiting tests.
type lines struct {
	mu      sync.Mutex
	all     []map[string]any
	changed chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var line map[string]any
	if err := json.Unmarshal(p, &line); err != nil {
		return 0, err
	}
	l.all = append(l.all, line)
	close(l.changed)
	l.changed = make(chan struct{})
	return len(p), nil
}

// wait waits for a log line with this message and returns its attributes.
func (l *lines) wait(t *testing.T, message string) map[string]any {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		l.mu.Lock()
		changed := l.changed
		for _, line := range l.all {
			if text, ok := line["msg"].(string); ok && strings.HasPrefix(text, message) {
				l.mu.Unlock()
				return line
			}
		}
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			require.Fail(t, "missing log line", "%q in %v", message, l.all)
		}
	}
}

// site is a running server with its address and log.
type site struct {
	address string
	log     *lines
	stop    func()
}

// start starts a server and returns before the server listens.
func start(t *testing.T, settings config.HTTP, ready web.Readiness) site {
	return startWith(t, settings, ready, func(*web.Server) {})
}

func startWith(t *testing.T, settings config.HTTP, ready web.Readiness, change func(*web.Server)) site {
	s := site{log: &lines{changed: make(chan struct{})}}
	server := web.Server{
		Settings: settings,
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "the metrics\n")
		}),
		Ready:  func(context.Context) web.Readiness { return ready },
		Logger: slog.New(slog.NewJSONHandler(s.log, nil)),
	}
	change(&server)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { server.Run(ctx) })
	s.stop = func() { cancel(); running.Wait() }
	t.Cleanup(s.stop)
	return s
}

// serve starts a server on a free port.
func serve(t *testing.T, settings config.HTTP, ready web.Readiness) site {
	return serveWith(t, settings, ready, func(*web.Server) {})
}

func serveWith(t *testing.T, settings config.HTTP, ready web.Readiness, change func(*web.Server)) site {
	if settings.Listen == "" {
		settings.Listen = "127.0.0.1:0"
	}
	s := startWith(t, settings, ready, change)
	address, ok := s.log.wait(t, "http_server_started")["address"].(string)
	require.True(t, ok)
	s.address = address
	return s
}

// answer is the response to a request.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (s site) request(t *testing.T, method, path string, change func(*http.Request)) answer {
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.address+path, nil)
	require.NoError(t, err)
	if change != nil {
		change(request)
	}
	// Without keep-alive, no idle connection delays the server's shutdown.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return answer{code: response.StatusCode, header: response.Header, body: string(body)}
}

func (s site) get(t *testing.T, path string) answer {
	return s.request(t, http.MethodGet, path, nil)
}

func TestPaths(t *testing.T) {
	t.Parallel()
	s := serve(t, config.HTTP{}, web.Readiness{
		Ready:     true,
		Databases: []web.DatabaseState{{Name: "main", Ready: true, Required: true}},
	})
	require.Equal(t, "the metrics\n", s.get(t, "/metrics").body)
	require.Equal(t, "ok\n", s.get(t, "/healthz").body)
	ready := s.get(t, "/readyz")
	require.Equal(t, http.StatusOK, ready.code)
	require.Equal(t, "application/json", ready.header.Get("Content-Type"))
	require.JSONEq(t, `{"ready": true, "databases": [{"name": "main", "ready": true, "required": true}]}`, ready.body)
	require.Equal(t, http.StatusNotFound, s.get(t, "/elsewhere").code)
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		require.Equal(t, http.StatusMethodNotAllowed, s.request(t, http.MethodPost, path, nil).code, path)
		require.Equal(t, http.StatusOK, s.request(t, http.MethodHead, path, nil).code, path)
	}
}

func TestNotReady(t *testing.T) {
	t.Parallel()
	s := serve(t, config.HTTP{}, web.Readiness{
		Reasons:   []string{"the worker stops"},
		Databases: []web.DatabaseState{{Name: "main", Required: true, Reasons: []string{"no connection"}}},
	})
	ready := s.get(t, "/readyz")
	require.Equal(t, http.StatusServiceUnavailable, ready.code)
	require.JSONEq(t, `{"ready": false, "reasons": ["the worker stops"],
		"databases": [{"name": "main", "ready": false, "required": true, "reasons": ["no connection"]}]}`, ready.body)
	require.Equal(t, http.StatusOK, s.get(t, "/healthz").code, "the process lives")
}

func TestServerWithoutAddress(t *testing.T) {
	t.Parallel()
	server := web.Server{Logger: slog.New(slog.DiscardHandler)}
	server.Run(t.Context())
}

func TestTakenPortIsRetried(t *testing.T) {
	t.Parallel()
	first := serve(t, config.HTTP{}, web.Readiness{})
	second := start(t, config.HTTP{Listen: first.address}, web.Readiness{Ready: true})
	warning := second.log.wait(t, "http_listen_failed")
	require.Equal(t, "http.listen", warning["key"])
	require.Equal(t, first.address, warning["address"])
	require.Equal(t, "WARN", warning["level"])
	require.Contains(t, warning["error"], "address already in use")
	require.Equal(t, http.StatusServiceUnavailable, first.get(t, "/readyz").code)

	first.stop()
	require.Equal(t, first.address, second.log.wait(t, "http_server_started")["address"])
	second.address = first.address
	require.Equal(t, http.StatusOK, second.get(t, "/readyz").code)
	second.stop()
	listener, err := net.Listen("tcp", first.address)
	require.NoError(t, err, "a stopped server frees its port")
	require.NoError(t, listener.Close())
}

func TestStopWhileThePortIsTaken(t *testing.T) {
	t.Parallel()
	second := start(t, config.HTTP{Listen: serve(t, config.HTTP{}, web.Readiness{}).address}, web.Readiness{})
	second.log.wait(t, "http_listen_failed")
	began := time.Now()
	second.stop()
	require.Less(t, time.Since(began), 4*time.Second, "a stop does not wait for the next attempt to listen")
}

// A shutdown does not wait for idle connections, and waits a limited time for slow
// requests.
func TestStopWithOpenConnections(t *testing.T) {
	t.Parallel()
	s := serve(t, config.HTTP{}, web.Readiness{})
	slow, err := net.Dial("tcp", s.address)
	require.NoError(t, err)
	defer slow.Close()
	_, err = io.WriteString(slow, "GET /metrics HTTP/1.1\r\nHost: local")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, s.get(t, "/healthz").code, "the server has accepted the earlier connection")
	began := time.Now()
	s.stop()
	require.Less(t, time.Since(began), 3*time.Second)
}

// The resolved address is checked, because the configuration may contain a host name.
func TestPublicAddressNeedsCredentials(t *testing.T) {
	t.Parallel()
	s := start(t, config.HTTP{Listen: "0.0.0.0:0"}, web.Readiness{})
	require.Contains(t, s.log.wait(t, "http_listen_failed")["error"], "needs user and password, or a token")
	s.stop()

	s = serve(t, config.HTTP{Listen: "0.0.0.0:0", Token: "secret"}, web.Readiness{})
	_, port, err := net.SplitHostPort(s.address)
	require.NoError(t, err)
	s.address = net.JoinHostPort("127.0.0.1", port)
	require.Equal(t, http.StatusUnauthorized, s.get(t, "/metrics").code)
	require.Equal(t, http.StatusOK, s.request(t, http.MethodGet, "/metrics", func(r *http.Request) {
		r.Host = "worker-1.example.com:8686"
		r.Header.Set("Authorization", "Bearer secret")
	}).code, "a public address accepts any host name")
}

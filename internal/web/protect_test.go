package web_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/pgtest"
	"sexton/internal/web"
)

func TestCredentials(t *testing.T) {
	t.Parallel()
	basic := func(user, password string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, password) }
	}
	header := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", value) }
	}
	password := config.HTTP{User: "ann", Password: "pass word:1"}
	token := config.HTTP{Token: "t0ken"}
	both := config.HTTP{User: "ann", Password: "pass word:1", Token: "t0ken"}
	type example struct {
		settings config.HTTP
		change   func(*http.Request)
		want     int
	}
	pgtest.Each(t, map[string]example{
		"none":                    {password, nil, http.StatusUnauthorized},
		"password":                {password, basic("ann", "pass word:1"), http.StatusOK},
		"wrong password":          {password, basic("ann", "pass word:2"), http.StatusUnauthorized},
		"beginning of a password": {password, basic("ann", "pass"), http.StatusUnauthorized},
		"wrong user":              {password, basic("bob", "pass word:1"), http.StatusUnauthorized},
		"empty":                   {password, basic("", ""), http.StatusUnauthorized},
		"token instead":           {password, header("Bearer "), http.StatusUnauthorized},
		"garbage":                 {password, header("Basic !!!"), http.StatusUnauthorized},
		"no token":                {token, nil, http.StatusUnauthorized},
		"token":                   {token, header("Bearer t0ken"), http.StatusOK},
		"token, other case":       {token, header("bearer t0ken"), http.StatusOK},
		"wrong token":             {token, header("Bearer t0keN"), http.StatusUnauthorized},
		"empty token":             {token, header("Bearer "), http.StatusUnauthorized},
		"password instead":        {token, basic("", ""), http.StatusUnauthorized},
		"token as password":       {token, basic("t0ken", "t0ken"), http.StatusUnauthorized},
		"either, by password":     {both, basic("ann", "pass word:1"), http.StatusOK},
		"either, by token":        {both, header("Bearer t0ken"), http.StatusOK},
		"either, by wrong token":  {both, header("Bearer pass word:1"), http.StatusUnauthorized},
		"either, by half of each": {both, basic("ann", "t0ken"), http.StatusUnauthorized},
		"user without a password": {
			config.HTTP{User: "ann", Token: "t0ken"},
			basic("ann", ""),
			http.StatusUnauthorized,
		},
		"without any, none needed": {config.HTTP{}, nil, http.StatusOK},
	}, func(t *testing.T, _ string, test example) {
		s := serve(t, test.settings, web.Readiness{Ready: true})
		require.Equal(t, test.want, s.request(t, http.MethodGet, "/metrics", test.change).code)
		ready := s.request(t, http.MethodGet, "/readyz", test.change)
		if test.change == nil {
			require.Equal(t, http.StatusOK, ready.code, "/readyz needs no credentials")
		} else {
			require.Equal(t, test.want, ready.code, "/readyz refuses wrong credentials")
		}
		require.Equal(t, http.StatusOK, s.request(t, http.MethodGet, "/healthz", test.change).code)
		if test.want == http.StatusUnauthorized {
			require.Equal(t, http.StatusUnauthorized, s.request(t, http.MethodGet, "/no-such-page", test.change).code,
				"the answer does not show which pages exist")
		}
	})
}

// /readyz answers requests without credentials with true or false, and without names or
// errors of databases.
func TestReadinessWithoutCredentials(t *testing.T) {
	t.Parallel()
	for code, state := range map[int]web.Readiness{
		http.StatusOK: {Ready: true, Databases: []web.DatabaseState{{Name: "main", Ready: true, Required: true}}},
		http.StatusServiceUnavailable: {
			Reasons: []string{"the worker stops"}, Databases: []web.DatabaseState{{
				Name: "main", Required: true,
				Reasons: []string{"no connection"},
			}},
		},
	} {
		s := serve(t, config.HTTP{Listen: "0.0.0.0:0", User: "ann", Password: "word", Token: "t0ken"}, state)
		_, port := pgtest.Must2(net.SplitHostPort(s.address))(t)
		s.address = net.JoinHostPort("127.0.0.1", port)
		open := s.request(t, http.MethodGet, "/readyz", func(r *http.Request) { r.Host = "10.1.2.3:8686" })
		require.Equal(t, code, open.code)
		require.JSONEq(t, fmt.Sprintf(`{"ready": %t}`, state.Ready), open.body)
		for _, header := range []string{
			"Bearer t0ken",
			"Basic " + base64.StdEncoding.EncodeToString([]byte("ann:word")),
		} {
			known := s.request(t, http.MethodGet, "/readyz",
				func(r *http.Request) { r.Header.Set("Authorization", header) })
			require.Equal(t, code, known.code)
			require.Contains(t, known.body, `"name":"main"`)
		}
		for _, path := range []string{"/readyz/", "//readyz", "/readyz/x", "/metrics"} {
			require.Equal(t, http.StatusUnauthorized, s.get(t, path).code, path)
		}
		require.Equal(t, http.StatusUnauthorized, s.request(t, http.MethodPost, "/readyz", nil).code)
	}
}

// The first wrong credentials are logged immediately. Later ones are logged together, as
// one line with their number. The log contains no user name and no path.
func TestWrongCredentialsAreLogged(t *testing.T) {
	t.Parallel()
	s := serve(t, config.HTTP{User: "ann", Password: "word", Token: "t0ken"}, web.Readiness{Ready: true})
	require.Equal(t, http.StatusUnauthorized, s.get(t, "/").code)
	require.Equal(t, http.StatusOK, s.get(t, "/readyz").code)
	const tries = 20
	for range tries {
		require.Equal(t, http.StatusUnauthorized, s.request(t, http.MethodGet, "/readyz?geheim",
			func(r *http.Request) { r.SetBasicAuth("geheim", "geheim") }).code)
		require.Equal(t, http.StatusUnauthorized, s.request(t, http.MethodGet, "/geheim",
			func(r *http.Request) { r.Header.Set("Authorization", "Bearer geheim") }).code)
	}
	s.stop()
	var logged []map[string]any
	for _, line := range s.log.all {
		require.NotContains(t, fmt.Sprint(line), "geheim")
		if line["msg"] == "credentials_refused" {
			require.Equal(t, "WARN", line["level"])
			require.Equal(t, "127.0.0.1", line["remote"])
			logged = append(logged, line)
		}
	}
	require.NotEmpty(t, logged)
	require.NotContains(t, logged[0], "left_out", "no line was left out before the first")
	left := 0.0
	for _, line := range logged[1:] {
		left += 1 + line["left_out"].(float64)
	}
	require.InDelta(t, 2*tries-1, left, 0, "every refusal is counted")
	require.Less(t, len(logged), tries, "most refusals share a line")
}

func TestRefusalNamesAcceptedCredentials(t *testing.T) {
	t.Parallel()
	s := serve(t, config.HTTP{User: "ann", Password: "one", Token: "two"}, web.Readiness{})
	refused := s.get(t, "/metrics")
	require.Equal(t, []string{`Basic realm="sexton", charset="UTF-8"`, `Bearer realm="sexton"`},
		refused.header.Values("WWW-Authenticate"))
	require.NotContains(t, refused.body, "metrics")
	s = serve(t, config.HTTP{Token: "two"}, web.Readiness{})
	require.Equal(t, []string{`Bearer realm="sexton"`}, s.get(t, "/metrics").header.Values("WWW-Authenticate"))
}

// A server on a loopback address rejects host names that are not local. Another site
// could let its name resolve to this machine, and the browser then sends that name.
func TestLoopbackRejectsOtherHostNames(t *testing.T) {
	t.Parallel()
	s := serve(t, config.HTTP{}, web.Readiness{Ready: true})
	for host, want := range map[string]int{
		"localhost": http.StatusOK, "localhost:8686": http.StatusOK, "LOCALHOST:1": http.StatusOK,
		"127.0.0.1":    http.StatusOK,
		"127.9.9.9:80": http.StatusOK, "[::1]:8686": http.StatusOK, "[::1]": http.StatusOK,
		"evil.example.com": http.StatusMisdirectedRequest, "evil.example.com:8686": http.StatusMisdirectedRequest,
		"localhost.evil.example.com": http.StatusMisdirectedRequest,
		"127.0.0.1.evil.example.com": http.StatusMisdirectedRequest,
		"10.0.0.1":                   http.StatusMisdirectedRequest, "[fe80::1]:8686": http.StatusMisdirectedRequest,
		"0.0.0.0:8686": http.StatusMisdirectedRequest,
	} {
		for _, path := range []string{"/metrics", "/readyz", "/healthz", "/"} {
			got := s.request(t, http.MethodGet, path, func(r *http.Request) { r.Host = host })
			if path == "/" && want == http.StatusOK {
				require.Equal(t, http.StatusNotFound, got.code, host)
				continue
			}
			require.Equal(t, want, got.code, "%s of %s", path, host)
		}
	}
}

func TestOtherOriginsCannotChange(t *testing.T) {
	t.Parallel()
	s := serve(t, config.HTTP{Token: "secret"}, web.Readiness{})
	send := func(method string, headers map[string]string) int {
		return s.request(t, method, "/metrics", func(r *http.Request) {
			r.Header.Set("Authorization", "Bearer secret")
			for name, value := range headers {
				r.Header.Set(name, value)
			}
		}).code
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		require.Equal(t, http.StatusForbidden, send(method, map[string]string{"Sec-Fetch-Site": "cross-site"}), method)
		require.Equal(t, http.StatusForbidden, send(method, map[string]string{"Sec-Fetch-Site": "same-site"}), method)
		require.Equal(t, http.StatusForbidden, send(method, map[string]string{"Origin": "https://evil.example.com"}),
			method)
		// The response is 405 and not 403: the path does not support the method.
		require.Equal(t, http.StatusMethodNotAllowed, send(method, map[string]string{"Sec-Fetch-Site": "same-origin"}),
			method)
		require.Equal(t, http.StatusMethodNotAllowed, send(method, nil), method)
	}
	require.Equal(t, http.StatusOK, send(http.MethodGet, map[string]string{"Sec-Fetch-Site": "cross-site"}),
		"another site may send reads, because it cannot see the response")
}

func TestSecurityHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t, config.HTTP{Token: "secret"}, web.Readiness{})
	for _, got := range []answer{
		s.get(t, "/healthz"), s.get(t, "/metrics"), s.get(t, "/elsewhere"),
		s.request(t, http.MethodGet, "/", func(r *http.Request) { r.Host = "evil.example.com" }),
		s.request(t, http.MethodPost, "/", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example.com") }),
	} {
		for name, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cache-Control":                "no-store",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
		} {
			require.Equal(t, want, got.header.Get(name), "%s with code %d", name, got.code)
		}
		require.Contains(t, got.header.Get("Content-Security-Policy"), "default-src 'none'")
		require.Empty(t, got.header.Get("Access-Control-Allow-Origin"))
	}
}

func TestHeadersAreLimited(t *testing.T) {
	t.Parallel()
	s := serve(t, config.HTTP{}, web.Readiness{})
	got := s.request(t, http.MethodGet, "/healthz", func(r *http.Request) {
		r.Header.Set("X-Long",
			strings.Repeat("x", 32<<10))
	})
	require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, got.code)
}

func TestSlowHeadersTimeOut(t *testing.T) {
	t.Parallel()
	s := serveWith(t, config.HTTP{}, web.Readiness{}, func(server *web.Server) {
		server.Page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			of, _ := r.Context().Value(http.ServerContextKey).(*http.Server)
			_, _ = fmt.Fprint(w, of.ReadHeaderTimeout, " ", of.ReadTimeout, " ", of.MaxHeaderBytes)
		})
	})
	require.Equal(t, "2s 10s 16384", s.request(t, http.MethodGet, "/", nil).body)
}

// Health checks are answered while other clients send their headers slowly and other
// requests take long.
func TestHealthChecksUnderLoad(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := serveWith(t, config.HTTP{}, web.Readiness{Ready: true}, func(server *web.Server) {
		server.Page = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release })
	})
	defer close(release)
	healthy := func() {
		for range 5 {
			conn, err := net.Dial("tcp", s.address)
			require.NoError(t, err)
			require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
			_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
			require.NoError(t, err)
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, response.StatusCode)
			require.NoError(t, response.Body.Close())
			require.NoError(t, conn.Close())
		}
	}
	open := func(n int, text string) {
		for range n {
			conn, err := net.Dial("tcp", s.address)
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			_, err = io.WriteString(conn, text)
			require.NoError(t, err)
		}
	}
	open(300, "GET / HTTP/1.1\r\nHost: local")
	healthy()
	open(150, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	healthy()
}

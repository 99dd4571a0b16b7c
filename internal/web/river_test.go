package web_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/web"
)

// recorder replaces River and the audit table in tests. It records requests and changes.
type recorder struct {
	mu       sync.Mutex
	recorded []string
	served   []string
	broken   bool
}

func (r *recorder) record(_ context.Context, by web.Visitor, change web.Change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return errors.New("no database")
	}
	r.recorded = append(r.recorded, by.Actor+": "+change.Action+" "+change.Target)
	return nil
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served = append(r.served, request.Method+" "+request.URL.Path+" "+string(body))
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w,
		`{"data": [{"id": 9007199254740993, "args": {"user_id": 4711}, "kind": "k"}], "args": [1]}`)
}

func (r *recorder) seen() (recorded, served []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recorded, r.served
}

func serveRiver(t *testing.T, settings config.HTTP, river *recorder) site {
	return serveWith(t, settings, web.Readiness{}, func(s *web.Server) {
		s.River, s.Record = river, river.record
		s.Page = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "page of "+web.VisitorOf(r.Context()).Actor)
		})
	})
}

func post(body string, headers ...string) func(*http.Request) {
	return func(r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader(body))
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
	}
}

func TestChangesOfRiverAreRecorded(t *testing.T) {
	t.Parallel()
	river := &recorder{}
	s := serveRiver(t, config.HTTP{User: "ann", Password: "pw", Token: "secret"}, river)
	token := []string{"Authorization", "Bearer secret"}
	for _, change := range []struct{ method, path, body string }{
		{http.MethodPost, "/river/api/jobs/retry", `{"ids":["7","8"]}`},
		{http.MethodPut, "/river/api/queues/users/pause", ""},
		{http.MethodPatch, "/river/api/queues/users", `{"concurrency": null}`},
		{http.MethodPost, "/river/api/elsewhere", "no JSON"},
	} {
		require.Equal(t, http.StatusOK, s.request(t, change.method, change.path, post(change.body, token...)).code)
	}
	require.Equal(t, http.StatusOK, s.request(t, http.MethodPost, "/river/api/jobs/cancel", func(r *http.Request) {
		post(`{"ids":["9"]}`)(r)
		r.SetBasicAuth("ann", "pw")
	}).code)
	require.Equal(t, http.StatusOK, s.request(t, http.MethodGet, "/river/api/jobs", post("", token...)).code)
	recorded, served := river.seen()
	require.Equal(t, []string{
		"token: retry jobs 7, 8", "token: pause queue users", "token: update queue users",
		"token: change /river/api/elsewhere", "ann: cancel jobs 9",
	}, recorded)
	require.Equal(t, []string{
		`POST /river/api/jobs/retry {"ids":["7","8"]}`, "PUT /river/api/queues/users/pause ",
		`PATCH /river/api/queues/users {"concurrency": null}`,
		"POST /river/api/elsewhere no JSON", `POST /river/api/jobs/cancel {"ids":["9"]}`, "GET /river/api/jobs ",
	}, served, "the body reaches River")
	require.Equal(t, "page of token", s.request(t, http.MethodGet, "/", post("", token...)).body)
}

func TestUnrecordedChangeIsRefused(t *testing.T) {
	t.Parallel()
	river := &recorder{broken: true}
	s := serveRiver(t, config.HTTP{}, river)
	refused := s.request(t, http.MethodPost, "/river/api/jobs/retry", post(`{"ids":["7"]}`))
	require.Equal(t, http.StatusServiceUnavailable, refused.code)
	require.Equal(t, "the change was not made because it cannot be recorded\n", refused.body)
	_, served := river.seen()
	require.Empty(t, served)
	require.Equal(t, "no database", s.log.wait(t, "change_not_recorded")["error"])

	river = &recorder{}
	s = serveRiver(t, config.HTTP{}, river)
	require.Equal(t, http.StatusRequestEntityTooLarge, s.request(t, http.MethodPost, "/river/api/jobs/retry",
		post(strings.Repeat("x", 65<<10))).code)
	recorded, served := river.seen()
	require.Empty(t, served)
	require.Empty(t, recorded)
}

func TestReadOnlyRefusesEveryChange(t *testing.T) {
	t.Parallel()
	river := &recorder{}
	s := serveRiver(t, config.HTTP{ReadOnly: true, Token: "secret"}, river)
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, "PURGE"} {
		for _, path := range []string{
			"/", "/jobs/k/pause", "/river/", "/river/api/jobs/retry",
			"/river/api/queues/k/pause", "/metrics", "/readyz",
		} {
			refused := s.request(t, method, path, post("", "Authorization", "Bearer secret"))
			require.Equal(t, http.StatusForbidden, refused.code, "%s %s", method, path)
			require.Contains(t, refused.body, "http.read_only")
			require.Equal(t, http.StatusUnauthorized, s.request(t, method, path, nil).code, "%s %s", method, path)
		}
	}
	require.Equal(t, http.StatusOK, s.request(t, http.MethodGet, "/river/",
		post("", "Authorization", "Bearer secret")).code)
	require.Equal(t, "page of token", s.request(t, http.MethodGet, "/", post("", "Authorization", "Bearer secret")).body)
	recorded, served := river.seen()
	require.Empty(t, recorded)
	require.Equal(t, []string{"GET /river/ "}, served)
}

func TestRiverNeedsCredentials(t *testing.T) {
	t.Parallel()
	river := &recorder{}
	s := serveRiver(t, config.HTTP{User: "ann", Password: "pw"}, river)
	for _, path := range []string{"/", "/live", "/river/", "/river/api/jobs", "/metrics"} {
		require.Equal(t, http.StatusUnauthorized, s.get(t, path).code, path)
		require.Equal(t, http.StatusMisdirectedRequest,
			s.request(t, http.MethodGet, path, func(r *http.Request) { r.Host = "evil.example.com" }).code, path)
	}
	for _, path := range []string{"/jobs/k/pause", "/river/api/jobs/retry"} {
		for _, headers := range [][]string{
			{"Sec-Fetch-Site", "cross-site"},
			{"Sec-Fetch-Site", "same-site"},
			{"Origin", "https://evil.example.com"},
		} {
			refused := s.request(t, http.MethodPost, path, func(r *http.Request) {
				post("", headers...)(r)
				// A browser also sends saved credentials with requests from other sites.
				r.SetBasicAuth("ann", "pw")
			})
			require.Equal(t, http.StatusForbidden, refused.code, "%s with %q", path, headers)
		}
	}
	recorded, served := river.seen()
	require.Empty(t, recorded)
	require.Empty(t, served)
}

func TestArgumentsOfJobsAreHidden(t *testing.T) {
	t.Parallel()
	s := serveRiver(t, config.HTTP{}, &recorder{})
	hidden := s.get(t, "/river/api/jobs")
	require.JSONEq(t, `{"data": [{"id": 9007199254740993, "args": {"hidden": "http.show_args is off"}, "kind": "k"}],
		"args": {"hidden": "http.show_args is off"}}`, hidden.body)
	require.NotContains(t, hidden.body, "4711")
	require.Contains(t, hidden.body, "9007199254740993", "large IDs keep all digits")
	require.Contains(t, hidden.header.Get("Content-Security-Policy"), "script-src 'self';")
	require.Equal(t, "application/json", hidden.header.Get("Content-Type"))
	s = serveRiver(t, config.HTTP{ShowArgs: true}, &recorder{})
	require.Contains(t, s.get(t, "/river/api/jobs").body, "4711")
}

package integration

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// loopback makes a worker serve HTTP on a free port of the loopback address.
const loopback = "SEXTON_HTTP__LISTEN=127.0.0.1:0"

// httpAddress waits until the worker serves HTTP and returns its address.
func (w *runningWorker) httpAddress(t *testing.T) string {
	w.waitForLog(t, `"msg":"http_server_started"`)
	found := regexp.MustCompile(`"msg":"http_server_started","address":"([^"]+)"`).FindStringSubmatch(w.log.String())
	require.Len(t, found, 2, "the log must contain the address")
	return found[1]
}

// httpGet requests a page. Code 0 means that there was no response.
func httpGet(ctx context.Context, address, path string) (code int, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	// An open connection would delay the shutdown of the server.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// waitForMetrics waits until the metrics contain all lines. Gauges may be up to five
// seconds old.
func waitForMetrics(t *testing.T, address string, lines ...string) {
	for _, line := range lines {
		pgtest.WaitFor(t, "metric "+line, func(ctx context.Context) (bool, error) {
			_, page := httpGet(ctx, address, "/metrics")
			return strings.Contains(page, "\n"+line+"\n"), nil
		})
	}
}

// waitReady waits until a worker is ready and returns the body of its response.
func waitReady(t *testing.T, address string) string {
	var body string
	pgtest.WaitFor(t, "the worker to be ready", func(ctx context.Context) (bool, error) {
		code, text := httpGet(ctx, address, "/readyz")
		body = text
		return code == http.StatusOK, nil
	})
	return body
}

// testRunServes checks the metrics of a worker during a deletion and a pause, and starts
// a second worker that is configured for the same port.
func testRunServes(t *testing.T, p program) {
	s := newWorkSite(t, p)
	first := s.startWorker(t, loopback)
	address := first.httpAddress(t)
	require.JSONEq(t, `{"ready": true, "databases": [{"name": "main", "ready": true, "required": true}]}`,
		waitReady(t, address))
	code, body := httpGet(t.Context(), address, "/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)
	waitForMetrics(t, address,
		`sexton_up{database="main"} 1`, `sexton_scrape_complete{database="main"} 1`,
		`sexton_listener{database="main",kind="loose_foreign_keys_cleanup",state="listening"} 1`,
		`sexton_workers 1`,
		`sexton_backlog_rows{database="main",deletion_table="loose_foreign_keys_deleted_records"} 0`,
	)

	s.exec(t, "DELETE FROM parents WHERE id <= 2")
	waitForMetrics(t, address,
		`sexton_loose_foreign_key_deletions_total{database="main",table="children"} 20`,
		`sexton_loose_foreign_key_processed_deleted_records_total{database="main",table="parents"} 2`,
		`sexton_sli_loose_foreign_key_clean_ups_error_total{database="main"} 0`,
		`sexton_waiting{database="main",kind="loose_foreign_keys_cleanup",reason="paused"} 0`,
	)
	p.run(t, s.dir, s.url, 0, "pause", kind)
	// The pause takes effect after River has notified the worker's client.
	waitForMetrics(t, address, `sexton_paused{kind="loose_foreign_keys_cleanup"} 1`)
	s.exec(t, "DELETE FROM parents WHERE id = 3")
	waitForMetrics(t, address,
		`sexton_waiting{database="main",kind="loose_foreign_keys_cleanup",reason="paused"} 1`,
		`sexton_backlog_rows{database="main",deletion_table="loose_foreign_keys_deleted_records"} 1`,
	)

	second := s.startWorker(t, "SEXTON_HTTP__LISTEN="+address)
	second.waitForLog(t, `"key":"http.listen","address":"`+address+`"`)
	p.run(t, s.dir, s.url, 0, "resume", kind)
	s.wait(t, stopLimit*3, "all work to be done", workDone)
	first.stop(t)
	require.Equal(t, address, second.httpAddress(t), "the second worker must take over the port")
	waitReady(t, address)
	second.stop(t)
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err, "a stopped worker must free its port")
	require.NoError(t, listener.Close())
	s.requireCleanedUp(t)
}

// testRunServesDuringOutage requests metrics during an outage of the database. Every
// scrape must be answered and report the outage.
func testRunServesDuringOutage(t *testing.T, p program) {
	s := newWorkSite(t, p)
	began := time.Now()
	w := s.startWorker(t, loopback)
	address := w.httpAddress(t)
	waitReady(t, address)

	adminURL := pgtest.Must(url.Parse(s.url))(t)
	name := strings.TrimPrefix(adminURL.Path, "/")
	adminURL.Path = "/postgres"
	admin := pgtest.Connect(t, adminURL.String())
	allow := func(connections bool) {
		pgtest.Exec(t, admin, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %t", pgx.Identifier{name}.Sanitize(),
			connections))
	}
	allow(false)
	pgtest.Exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
	waitForMetrics(t, address, `sexton_up{database="main"} 0`)
	code, page := httpGet(t.Context(), address, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.NotContains(t, page, "\nsexton_backlog_rows{")
	require.NotContains(t, page, "\nsexton_workers ")
	require.Contains(t, page, "\nsexton_sli_loose_foreign_key_clean_ups_total{", "counters do not depend on the database")
	var body string
	pgtest.WaitFor(t, "the worker to report that it is not ready", func(ctx context.Context) (bool, error) {
		code, body = httpGet(ctx, address, "/readyz")
		return code == http.StatusServiceUnavailable, nil
	})
	require.Contains(t, body, "cannot be reached")
	code, _ = httpGet(t.Context(), address, "/healthz")
	require.Equal(t, http.StatusOK, code)

	allow(true)
	waitForMetrics(t, address, `sexton_up{database="main"} 1`)
	waitReady(t, address)
	s.exec(t, "DELETE FROM parents WHERE id = 1")
	s.wait(t, stopLimit*3, "the worker to continue", workDone)
	w.stop(t)
	// Without rate limiting River would log more than one line per second.
	most := 2 + int(time.Since(began)/(30*time.Second))
	require.LessOrEqual(t, strings.Count(w.log.String(), "Error fetching jobs"), most, "lines of River's fetch errors")
}

// pageRequest requests a page of a worker as user ann, whose password is in a file, and
// returns the status code and the body.
func pageRequest(ctx context.Context, t *testing.T, method, address, path string, form url.Values) (int, string) {
	request := pgtest.Must(http.NewRequestWithContext(ctx, method, "http://"+address+path,
		strings.NewReader(form.Encode())))(t)
	request.SetBasicAuth("ann", "pass word")
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	defer client.CloseIdleConnections()
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	return response.StatusCode, string(pgtest.Must(io.ReadAll(response.Body))(t))
}

// testRunShowsThePage pauses a kind on the page and resumes it in River UI, and checks
// that both changes are recorded.
func testRunShowsThePage(t *testing.T, p program) {
	s := newWorkSite(t, p)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "password"), []byte("pass word\n"), 0o600))
	credentials := []string{loopback, "SEXTON_HTTP__USER=ann", "SEXTON_HTTP__PASSWORD_FILE=password"}
	w := s.startWorker(t, credentials...)
	address := w.httpAddress(t)
	s.wait(t, stopLimit, "the first sample",
		"EXISTS (SELECT FROM sexton.samples WHERE database = 'main' AND deletion_table = 'loose_foreign_keys_deleted_records')")

	code, body := pageRequest(t.Context(), t, http.MethodPost, address, "/jobs/"+kind+"/pause",
		url.Values{"reason": {"long backup"}})
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, "Paused by ann since ", "the response must redirect to the page")
	require.Contains(t, body, "long backup")
	require.Contains(t, body, `href="/river/"`)
	s.exec(t, "DELETE FROM parents WHERE id = 1")
	pgtest.WaitFor(t, "the page to show the deletion", func(ctx context.Context) (bool, error) {
		_, body := pageRequest(ctx, t, http.MethodGet, address, "/live", nil)
		return strings.Contains(body, `<span class="n">1</span>`), nil
	})
	code, body = pageRequest(t.Context(), t, http.MethodGet, address, "/river/", nil)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "<title>River</title>")
	code, body = pageRequest(t.Context(), t, http.MethodPut, address, "/river/api/queues/"+kind+"/resume", nil)
	require.Equal(t, http.StatusOK, code, body)
	require.EqualValues(t, 2, s.count(t, `SELECT count(*) FROM sexton.audit WHERE actor = 'ann' AND remote = '127.0.0.1'
		AND (action, target, reason) IN (('pause', $1, 'long backup'), ('resume', 'queue ' || $1, ''))`, kind))

	s.wait(t, stopLimit*3, "the resumed queue to be processed", workDone)
	w.stop(t)
	require.NotContains(t, w.log.String(), "pass word")
}

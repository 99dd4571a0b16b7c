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

// loopback is an address for a worker's HTTP server whose port the system chooses.
const loopback = "SEXTON_HTTP__LISTEN=127.0.0.1:0"

// httpAddress waits until the worker serves and returns where.
func (w *runningWorker) httpAddress(t *testing.T) string {
	w.logged(t, `"msg":"http_server_started"`)
	found := regexp.MustCompile(`"msg":"http_server_started","address":"([^"]+)"`).FindStringSubmatch(w.log.String())
	require.Len(t, found, 2, "the address in the log")
	return found[1]
}

// ask gets a page; code 0 stands for no answer at all.
func ask(ctx context.Context, address, path string) (code int, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	// No connection may outlive its answer and hold up the server's end.
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

// shown waits until the metrics have all these lines. Gauges are as old as five seconds.
func shown(t *testing.T, address string, lines ...string) {
	for _, line := range lines {
		pgtest.WaitFor(t, "metric "+line, func(ctx context.Context) (bool, error) {
			_, page := ask(ctx, address, "/metrics")
			return strings.Contains(page, "\n"+line+"\n"), nil
		})
	}
}

// readyWorker waits until a worker is ready and returns what it says.
func readyWorker(t *testing.T, address string) string {
	var said string
	pgtest.WaitFor(t, "the worker to be ready", func(ctx context.Context) (bool, error) {
		code, text := ask(ctx, address, "/readyz")
		said = text
		return code == http.StatusOK, nil
	})
	return said
}

// testRunServes follows a deletion in the metrics of a worker, and has a second copy
// configured for the same port.
func testRunServes(t *testing.T, p program) {
	s := newWorkSite(t, p)
	first := s.started(t, loopback)
	address := first.httpAddress(t)
	require.JSONEq(t, `{"ready": true, "databases": [{"name": "main", "ready": true, "required": true}]}`,
		readyWorker(t, address))
	code, body := ask(t.Context(), address, "/healthz")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "ok\n", body)
	shown(t, address,
		`sexton_up{database="main"} 1`, `sexton_scrape_complete{database="main"} 1`,
		`sexton_listener{database="main",kind="loose_foreign_keys_cleanup",state="listening"} 1`,
		`sexton_workers 1`,
		`sexton_backlog_rows{database="main",deletion_table="loose_foreign_keys_deleted_records"} 0`,
	)

	s.exec(t, "DELETE FROM parents WHERE id <= 2")
	shown(t, address,
		`sexton_loose_foreign_key_deletions_total{database="main",table="children"} 20`,
		`sexton_loose_foreign_key_processed_deleted_records_total{database="main",table="parents"} 2`,
		`sexton_sli_loose_foreign_key_clean_ups_error_total{database="main"} 0`,
		`sexton_waiting{database="main",kind="loose_foreign_keys_cleanup",reason="paused"} 0`,
	)
	p.run(t, s.dir, s.url, 0, "pause", kind)
	// The worker's River client learns of the pause by a notification.
	shown(t, address, `sexton_paused{kind="loose_foreign_keys_cleanup"} 1`)
	s.exec(t, "DELETE FROM parents WHERE id = 3")
	shown(t, address,
		`sexton_waiting{database="main",kind="loose_foreign_keys_cleanup",reason="paused"} 1`,
		`sexton_backlog_rows{database="main",deletion_table="loose_foreign_keys_deleted_records"} 1`,
	)

	second := s.started(t, "SEXTON_HTTP__LISTEN="+address)
	second.logged(t, `"key":"http.listen","address":"`+address+`"`)
	p.run(t, s.dir, s.url, 0, "resume", kind)
	s.wait(t, stopLimit*3, "everything to be finished", noWork)
	first.stop(t)
	require.Equal(t, address, second.httpAddress(t), "the second copy takes the port over")
	readyWorker(t, address)
	second.stop(t)
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err, "a stopped worker frees its port")
	require.NoError(t, listener.Close())
	s.cleanedUp(t)
}

// testRunServesWhileTheDatabaseIsAway asks through an outage: every scrape is answered,
// and says what is down.
func testRunServesWhileTheDatabaseIsAway(t *testing.T, p program) {
	s := newWorkSite(t, p)
	began := time.Now()
	w := s.started(t, loopback)
	address := w.httpAddress(t)
	readyWorker(t, address)

	elsewhere := pgtest.Must(url.Parse(s.url))(t)
	name := strings.TrimPrefix(elsewhere.Path, "/")
	elsewhere.Path = "/postgres"
	admin := pgtest.Connect(t, elsewhere.String())
	allow := func(connections bool) {
		pgtest.Exec(t, admin, fmt.Sprintf("ALTER DATABASE %s ALLOW_CONNECTIONS %t", pgx.Identifier{name}.Sanitize(),
			connections))
	}
	allow(false)
	pgtest.Exec(t, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
	shown(t, address, `sexton_up{database="main"} 0`)
	code, page := ask(t.Context(), address, "/metrics")
	require.Equal(t, http.StatusOK, code)
	require.NotContains(t, page, "\nsexton_backlog_rows{")
	require.NotContains(t, page, "\nsexton_workers ")
	require.Contains(t, page, "\nsexton_sli_loose_foreign_key_clean_ups_total{", "counters are the process's own")
	var said string
	pgtest.WaitFor(t, "the worker to say that it is not ready", func(ctx context.Context) (bool, error) {
		code, said = ask(ctx, address, "/readyz")
		return code == http.StatusServiceUnavailable, nil
	})
	require.Contains(t, said, "cannot be reached")
	code, _ = ask(t.Context(), address, "/healthz")
	require.Equal(t, http.StatusOK, code)

	allow(true)
	shown(t, address, `sexton_up{database="main"} 1`)
	readyWorker(t, address)
	s.exec(t, "DELETE FROM parents WHERE id = 1")
	s.wait(t, stopLimit*3, "the worker to go on", noWork)
	w.stop(t)
	// Undampened it is one line per queue and second, and more.
	most := 2 + int(time.Since(began)/(30*time.Second))
	require.LessOrEqual(t, strings.Count(w.log.String(), "Error fetching jobs"), most, "River's complaints")
}

// send asks a worker for a page as Ann does, whose password is in a file, and returns
// code and body.
func send(ctx context.Context, t *testing.T, method, address, path string, form url.Values) (int, string) {
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

// testRunShowsThePage pauses and resumes a kind on the page of a worker that also serves
// River UI, and checks that both changes are recorded.
func testRunShowsThePage(t *testing.T, p program) {
	s := newWorkSite(t, p)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "password"), []byte("pass word\n"), 0o600))
	credentials := []string{loopback, "SEXTON_HTTP__USER=ann", "SEXTON_HTTP__PASSWORD_FILE=password"}
	w := s.started(t, credentials...)
	address := w.httpAddress(t)
	s.wait(t, stopLimit, "the first sample",
		"EXISTS (SELECT FROM sexton.samples WHERE database = 'main' AND deletion_table = 'loose_foreign_keys_deleted_records')")

	code, body := send(t.Context(), t, http.MethodPost, address, "/jobs/"+kind+"/pause",
		url.Values{"reason": {"long backup"}})
	require.Equal(t, http.StatusOK, code, body)
	require.Contains(t, body, "Paused by ann since ", "the browser is sent back to the page")
	require.Contains(t, body, "long backup")
	require.Contains(t, body, `href="/river/"`)
	s.exec(t, "DELETE FROM parents WHERE id = 1")
	pgtest.WaitFor(t, "the deletion to show", func(ctx context.Context) (bool, error) {
		_, body := send(ctx, t, http.MethodGet, address, "/live", nil)
		return strings.Contains(body, `<span class="n">1</span>`), nil
	})
	code, body = send(t.Context(), t, http.MethodGet, address, "/river/", nil)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "<title>River</title>")
	code, body = send(t.Context(), t, http.MethodPut, address, "/river/api/queues/"+kind+"/resume", nil)
	require.Equal(t, http.StatusOK, code, body)
	require.EqualValues(t, 2, s.count(t, `SELECT count(*) FROM sexton.audit WHERE actor = 'ann' AND remote = '127.0.0.1'
		AND (action, target, reason) IN (('pause', $1, 'long backup'), ('resume', 'queue ' || $1, ''))`, kind))

	s.wait(t, stopLimit*3, "the resumed queue to be worked off", noWork)
	w.stop(t)
	require.NotContains(t, w.log.String(), "pass word")
}

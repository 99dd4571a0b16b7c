package integration

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// send asks a worker for a page as Ann does, whose password is in a file, and returns code and body.
func send(ctx context.Context, t *testing.T, method, address, path string, form url.Values) (int, string) {
	t.Helper()
	request := pgtest.Must(http.NewRequestWithContext(ctx, method, "http://"+address+path, strings.NewReader(form.Encode())))(t)
	request.SetBasicAuth("ann", "pass word")
	if form != nil {
		request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	defer client.CloseIdleConnections()
	response := pgtest.Must(client.Do(request))(t)
	defer response.Body.Close()
	return response.StatusCode, string(pgtest.Must(io.ReadAll(response.Body))(t))
}

// testRunShowsThePage pauses and resumes by the page of a worker, with River's pages beside it, and finds those changes recorded.
// A second worker, which is read-only, refuses all of them.
func testRunShowsThePage(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "password"), []byte("pass word\n"), 0o600))
	credentials := []string{loopback, "SEXTON_HTTP__USER=ann", "SEXTON_HTTP__PASSWORD_FILE=password"}
	w := s.started(t, credentials...)
	address := w.httpAddress(t)
	s.wait(t, stopLimit, "the first sample", "EXISTS (SELECT FROM sexton.samples WHERE database = 'main' AND deletion_table = 'loose_foreign_keys_deleted_records')")

	code, body := send(t.Context(), t, http.MethodPost, address, "/jobs/"+kind+"/pause", url.Values{"reason": {"long backup"}})
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

	readOnly := s.start(t, append([]string{cronOff}, credentials...), "--read-only")
	readOnly.logged(t, `"msg":"worker started"`)
	address = readOnly.httpAddress(t)
	for _, path := range []string{"/jobs/" + kind + "/pause", "/failures/retry", "/river/api/jobs/retry", "/river/api/queues/" + kind + "/pause"} {
		code, body := send(t.Context(), t, http.MethodPost, address, path, nil)
		require.Equal(t, http.StatusForbidden, code, path)
		require.Contains(t, body, "read-only")
	}
	_, body = send(t.Context(), t, http.MethodGet, address, "/", nil)
	require.NotContains(t, body, "<form")
	require.EqualValues(t, 2, s.count(t, "SELECT count(*) FROM sexton.audit"))
	w.stop(t)
	readOnly.stop(t)
	require.NotContains(t, w.log.String(), "pass word")
}

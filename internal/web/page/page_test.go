package page_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	htmltext "html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/jobrun"
	"sexton/internal/operator"
	"sexton/internal/web"
	"sexton/internal/web/page"
)

// source is a page.Source that returns the state that a test has set, and records the
// requested changes.
type source struct {
	mu       sync.Mutex
	overview operator.Overview
	series   []jobrun.Series
	kept     []operator.Deletion
	err      error
	read     int
	done     []string
}

func (s *source) Overview(context.Context) (operator.Overview, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read++
	return s.overview, s.err
}

func (s *source) History(context.Context, time.Duration, time.Duration) ([]jobrun.Series, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.series, s.err
}

func (s *source) SetPaused(_ context.Context, by web.Visitor, kind, reason string, pause bool) error {
	action := map[bool]string{true: "pause ", false: "resume "}[pause]
	return s.do(action + kind + " by " + by.Actor + ": " + reason)
}

func (s *source) Retry(_ context.Context, by web.Visitor, what components.Retry) (string, error) {
	return "1 row due now", s.do("retry " + what.Source + "/" + what.Database + "/" + what.ID + what.Reason + " by " +
		by.Actor)
}

func (s *source) RunNow(_ context.Context, by web.Visitor, kind string) error {
	return s.do("run " + kind + " by " + by.Actor)
}

func (s *source) CancelGroup(_ context.Context, _ web.Visitor, group, user string) error {
	return s.do(fmt.Sprintf("cancel %s for %s", group, user))
}

func (s *source) Deletion(_ context.Context, id int64) (*operator.Deletion, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.kept {
		if one.ID == id && s.err == nil {
			return &one, nil
		}
	}
	return nil, s.err
}

func (s *source) Undo(_ context.Context, by web.Visitor, id int64) (string, error) {
	return "3 rows restored", s.do(fmt.Sprintf("undo %d by %s", id, by.Actor))
}

func (s *source) do(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.done, what)
	return s.err
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func newPage(t *testing.T, s *source, readOnly bool) (*page.Page, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	p, err := page.New(page.Options{
		Source: s, ReadOnly: readOnly, Version: "v1.2.3",
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	return p, &log
}

func get(t *testing.T, p http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	answer := httptest.NewRecorder()
	p.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return answer
}

func post(t *testing.T, p http.Handler, path string, form url.Values, fragments bool) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(form.Encode()))
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if fragments {
		request.Header.Set("Hx-Request", "true")
	}
	answer := httptest.NewRecorder()
	p.ServeHTTP(answer, request)
	return answer
}

const tombs = "loose_foreign_keys_deleted_records"

// jobIn returns the state of a kind in one of its databases.
func jobIn(kind, summary, schedule, table, database string, databases ...string) operator.JobState {
	state := operator.JobState{Kind: kind, Schedule: schedule, Database: database}
	state.Job.Summary, state.Job.DeletionTable, state.Job.Databases = summary, table, databases
	return state
}

// busyOverview returns an overview in which every part of the page has content.
func busyOverview() operator.Overview {
	now := time.Now()
	works := jobIn("clean", "cleans up", "* * * * *", tombs, "main", "main", "ci")
	works.LastRun, works.Running = &now, &operator.Pass{
		RunID: 7, Holder: "host:1", StartedAt: now.Add(-10 * time.Second),
		Stats: []byte(`{"processed": 100, "delete_count": 3000, "delete_count_by_table": {"issues": 2000, "notes": 1000}}`),
	}
	works.Running.Estimate(components.Backlog{Table: tombs, Pending: 303, Deferred: 3})
	waits := jobIn("clean", "cleans up", "* * * * *", tombs, "ci", "main", "ci")
	waits.WaitingFor = new("lease held by host:2 until 2030-01-02T03:04:05Z")
	paused := jobIn("import", "imports", "", "imports", "main", "main")
	paused.Paused, paused.WaitingFor = true, new("paused by ann since 2030-01-02T03:04:05Z: backup")
	ended, started := now, now.Add(-12*time.Millisecond)
	return operator.Overview{
		Reading: operator.Reading{
			DeletionTables: []components.Backlog{
				{
					Table: tombs, Database: "main", Unit: "tombstone", Pending: 303, OldestAgeSeconds: 95, Deferred: 3,
					DeferredUntil: new(now.Add(time.Minute)),
				},
				{Table: tombs, Database: "ci", Unreachable: "database ci cannot be reached"},
				{Table: "imports", Database: "main", Unit: "import", Pending: 10_000, Capped: true},
			},
			Jobs:   []operator.JobState{works, waits, paused},
			Leases: []operator.Lease{{Key: "clean:ci", Holder: "host:2", ExpiresAt: now.Add(time.Minute)}},
			Cron:   &operator.Leader{Leader: "host:1", Until: now.Add(time.Minute)},
			Workers: []dbsqlc.ClientsAliveRow{{
				ClientID: "host:1", StartedAt: now.Add(-time.Hour),
				Deaf: []string{"clean/main"},
			}},
		},
		Failures: operator.Failures{Failures: []components.Failure{
			{
				Source: "tombstones", Database: "main", ID: "5", What: "public.projects, key <b>7</b>",
				Error: `issues: "quoted" <script>alert(1)</script>`, Attempts: 4, Next: now.Add(time.Hour),
			},
			{Source: "jobs", ID: "9", What: "job 9", GivenUp: true},
		}, More: true},
		Runs: []dbsqlc.RunsRecentRow{
			{
				ID: 6, Kind: "clean", Database: "main", StartedAt: started, EndedAt: &ended, Outcome: new("done"),
				Stats: []byte(`{"processed": 2, "delete_count_by_table": {"issues": 20}}`),
			},
			{
				ID: 5, Kind: "clean", Database: "main", StartedAt: started, EndedAt: &ended, Outcome: new("over_limit"),
				Held: new("rows of notes: row locked by pid 7"),
			},
		},
		Changes: []database.Change{{
			At: now, Actor: "ann", Remote: "10.0.0.7:1", Action: "pause", Target: "import",
			Reason: "backup",
		}},
	}
}

// text returns the text of a page without its tags.
func text(html string) string {
	return htmltext.UnescapeString(strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(html,
		" ")), " "))
}

func TestPageWithoutScripts(t *testing.T) {
	t.Parallel()
	p, log := newPage(t, &source{overview: busyOverview()}, false)
	answer := get(t, p, "/")
	require.Equal(t, http.StatusOK, answer.Code)
	require.Equal(t, "text/html; charset=utf-8", answer.Header().Get("Content-Type"))
	shown := text(answer.Body.String())
	for _, want := range []string{
		"Database ci cannot be reached", "303 tombstones", "10,000+ imports", "1 min 35 s", "Next attempt in",
		"1 × issues: \"quoted\"",
		"Running for 10 s: 3,000 rows for 100 tombstones, ", " per second, about 30 s left.",
		"issues 2,000, notes 1,000",
		"Waits for lease held by host:2 until 2030-01-02T03:04:05Z", "Paused by ann since 2030-01-02T03:04:05Z: backup",
		"Cleans up. Schedule * * * * *", "polls for clean/main", "The leader of the schedules is host:1 until in",
		"There are more failures.",
		"given up", "20 rows for 2 tombstones: issues 20", "12 ms", "No progress: rows of notes: row locked by pid 7",
		"ann · pause import backup", "from 10.0.0.7:1", "v1.2.3",
	} {
		require.Contains(t, shown, want)
	}
	require.Contains(t, answer.Body.String(), `<progress value="100" max="400"`)
	require.Empty(t, log.String())
}

// The page has no inline scripts or styles, and no address on another host. A browser
// would silently drop what the Content-Security-Policy forbids.
func TestNothingIsInlineOrExternal(t *testing.T) {
	t.Parallel()
	p, _ := newPage(t, &source{overview: busyOverview()}, false)
	html := get(t, p, "/").Body.String()
	require.Contains(t, html, `id="retry-tombstones-main-5"`)
	require.Contains(t, html, `id="retry-jobs--9"`)
	require.NotRegexp(t, `(?i)<style|\sstyle=|\son\w+=|javascript:`, html)
	for _, script := range regexp.MustCompile(`<script[^>]*>[^<]*`).FindAllString(html, -1) {
		require.Regexp(t, `^<script src="/assets/[^"]+" defer>$`, script)
	}
	for _, address := range regexp.MustCompile(`(?:src|href|action|hx-post|hx-get)="([^"]*)"`).FindAllStringSubmatch(html, -1) {
		require.Regexp(t, `^(/[a-z]|#)`, address[1])
	}
	require.Contains(t, html, "&lt;script&gt;alert(1)&lt;/script&gt;")
	require.Contains(t, html, "key &lt;b&gt;7&lt;/b&gt;")
	for _, path := range []string{"/", "/live", "/history", "/assets/page.js", "/elsewhere"} {
		policy := get(t, p, path).Header().Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'; script-src 'self'; style-src 'self'; ", path)
		require.NotContains(t, policy, "unsafe", path)
	}
}

func TestEmptyStates(t *testing.T) {
	t.Parallel()
	p, _ := newPage(t, &source{overview: operator.Overview{Reading: operator.Reading{
		DeletionTables: []components.Backlog{{Table: tombs, Database: "main", Unit: "tombstone"}},
		Jobs:           []operator.JobState{jobIn("clean_up_all", "cleans up", "", tombs, "main", "main")},
	}}}, false)
	shown := text(get(t, p, "/").Body.String())
	for _, want := range []string{
		"clean_ up_ all", "Nothing is pending All deletions are cleaned up.", "0 tombstones", "Has not run yet.",
		"Runs when another job inserts it.",
		"No unresolved failures.", "No run has changed anything yet.", "No worker is running.", "No lease is held.",
		"No change in the last 90 days",
	} {
		require.Contains(t, shown, want)
	}
}

func TestReadingsAreShared(t *testing.T) {
	t.Parallel()
	s := &source{overview: busyOverview()}
	p, _ := newPage(t, s, false)
	var viewers sync.WaitGroup
	for range 50 {
		viewers.Go(func() {
			answer := httptest.NewRecorder()
			p.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/live", nil))
			_, _ = io.Copy(io.Discard, answer.Body)
		})
	}
	viewers.Wait()
	require.LessOrEqual(t, s.read, 2, "fifty concurrent requests share readings")
}

func TestOutageKeepsTheLastReading(t *testing.T) {
	t.Parallel()
	s := &source{err: errors.New("no server answers")}
	p, log := newPage(t, s, false)
	shown := text(get(t, p, "/").Body.String())
	require.Contains(t, shown, "The state cannot be read")
	require.Contains(t, shown, "no server answers")
	require.Contains(t, shown, "No data yet.")
	require.Contains(t, log.String(), "page_outdated")

	s.fail(nil)
	s.overview = busyOverview()
	require.Equal(t, http.StatusSeeOther, post(t, p, "/jobs/clean/resume", nil, false).Code, "a change makes the next request read again")
	require.Contains(t, text(get(t, p, "/").Body.String()), "10,000+ imports")
	s.fail(errors.New("connection lost"))
	post(t, p, "/jobs/clean/resume", nil, false)
	shown = text(get(t, p, "/").Body.String())
	require.Contains(t, shown, "10,000+ imports")
	require.Contains(t, shown, "connection lost")
	require.Regexp(t, "Last read (just now|[0-9]+ s ago)", shown)
}

// During an outage, the chart keeps its old values and shows no stale value as the
// present.
func TestOutageKeepsTheHistory(t *testing.T) {
	t.Parallel()
	at := time.Now().Add(-10 * time.Minute).Unix()
	s := &source{overview: busyOverview(), series: []jobrun.Series{{
		Table: tombs, Database: "main",
		Points: []jobrun.Point{{At: at, Pending: 7}, {At: at + 30, Pending: 8}},
	}}}
	p, _ := newPage(t, s, false)
	require.Contains(t, get(t, p, "/").Body.String(), "<polyline")
	s.fail(errors.New("no server answers"))
	post(t, p, "/jobs/clean/resume", nil, false)
	require.Contains(t, get(t, p, "/").Body.String(), "<polyline")
	history := get(t, p, "/history?span=1h")
	require.Equal(t, http.StatusOK, history.Code)
	require.Contains(t, history.Body.String(), `"pending":[7,8]`)

	p, _ = newPage(t, s, false)
	require.Equal(t, http.StatusServiceUnavailable, get(t, p, "/history?span=1h").Code, "there is no earlier reading to show")
}

// Errors, keys and targets of any length are truncated.
func TestLongTextsAreTruncated(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 5_000)
	o := busyOverview()
	o.DeletionTables[0].DeferredReason, o.DeletionTables[1].Unreachable = long, long
	o.Jobs[1].WaitingFor, o.Jobs[2].LastError = &long, &long
	o.Failures.Failures[0].What, o.Failures.Failures[0].Error = long, long
	o.Runs[0].Error, o.Changes[0].Target = &long, long
	p, _ := newPage(t, &source{overview: o}, false)
	shown := get(t, p, "/").Body.String()
	require.Contains(t, shown, strings.Repeat("ä", 280)+"…")
	require.NotContains(t, shown, strings.Repeat("ä", 281))
}

func TestButtons(t *testing.T) {
	t.Parallel()
	s := &source{overview: busyOverview()}
	p, log := newPage(t, s, false)
	plain := post(t, p, "/jobs/clean/pause", url.Values{"reason": {" long\n backup "}}, false)
	require.Equal(t, http.StatusSeeOther, plain.Code)
	require.Equal(t, "/", plain.Header().Get("Location"))
	fragments := post(t, p, "/jobs/clean/pause", url.Values{}, true)
	require.Equal(t, http.StatusOK, fragments.Code)
	require.Contains(t, text(fragments.Body.String()), "Paused clean; a run in progress continues to its end.")
	for _, id := range []string{"notice", "overview", "rest"} {
		require.Regexp(t, `id="`+id+`"[^>]* hx-swap-oob="true"`, fragments.Body.String())
	}
	require.Contains(t, text(post(t, p, "/jobs/clean/resume", url.Values{}, true).Body.String()), "Resumed clean.")
	require.Contains(t, text(post(t, p, "/jobs/pause", url.Values{"reason": {"fire"}}, true).Body.String()),
		"Paused all jobs; a run in progress continues to its end.")
	require.Contains(t, text(post(t, p, "/failures/retry",
		url.Values{"source": {"tombstones"}, "database": {"main"}, "id": {"5"}}, true).Body.String()), "1 row due now.")
	require.Equal(t, []string{
		"pause clean by : long backup", "pause clean by : ", "resume clean by : ", "pause  by : fire",
		"retry tombstones/main/5 by ",
	}, s.done)

	require.Equal(t, http.StatusUnprocessableEntity, post(t, p, "/jobs/clean/pause",
		url.Values{"reason": {strings.Repeat("x", 201)}}, false).Code)
	require.Equal(t, http.StatusBadRequest, post(t, p, "/jobs/clean/pause",
		url.Values{"reason": {strings.Repeat("x", 17<<10)}}, false).Code)
	for _, strange := range []string{"a\x00b", "a\x1b[2Jb", "a\xffb"} {
		require.Equal(t, http.StatusUnprocessableEntity,
			post(t, p, "/jobs/clean/pause", url.Values{"reason": {strange}}, false).Code, "%q", strange)
	}
	require.Len(t, s.done, 5)
	require.Equal(t, http.StatusMethodNotAllowed, get(t, p, "/jobs/clean/pause").Code, "a GET request changes nothing")

	s.fail(&components.RefusedError{Reason: "there is no job <x>"})
	refused := post(t, p, "/jobs/x/pause", nil, true)
	require.Equal(t, http.StatusUnprocessableEntity, refused.Code)
	require.Contains(t, refused.Body.String(), "There is no job &lt;x&gt;.")
	require.Equal(t, "there is no job <x>\n", post(t, p, "/jobs/x/pause", nil, false).Body.String())
	require.NotContains(t, log.String(), "change_failed")
	s.fail(errors.New("secret detail"))
	broken := post(t, p, "/jobs/x/pause", nil, false)
	require.Equal(t, http.StatusInternalServerError, broken.Code)
	require.NotContains(t, broken.Body.String(), "secret")
	require.Contains(t, log.String(), "secret detail")
}

// A run without counted rows is listed with its other statistics.
func TestRunWithoutRowsShowsStatistics(t *testing.T) {
	t.Parallel()
	o := busyOverview()
	o.Runs[0].Stats = []byte(`{"diff_id": 1700, "key": "mr-7/diff-17", "bytes": 51200, "files": 3, "latency_seconds": {"0.1": 1}}`)
	p, _ := newPage(t, &source{overview: o}, false)
	require.Contains(t, text(get(t, p, "/").Body.String()), "bytes 51,200, diff id 1700, files 3, key mr-7/diff-17")
}

// A run that waits has no estimate of the remaining time and no progress bar.
func TestWaitingRunHasNoEstimate(t *testing.T) {
	t.Parallel()
	o := busyOverview()
	works := &o.Jobs[0]
	works.WaitingFor = new("row of issues locked by pid 7")
	works.Running.Stats = []byte(`{"processed": 100, "waiting_for": "row of issues locked by pid 7", "delete_count_by_table": {"issues": 2000}}`)
	works.Running.Estimate(components.Backlog{Table: tombs, Pending: 1})
	p, _ := newPage(t, &source{overview: o}, false)
	html := get(t, p, "/jobs/clean").Body.String()
	require.Contains(t, text(html), "Waits for row of issues locked by pid 7")
	require.NotContains(t, html, " left")
	require.NotContains(t, html, "<progress")
}

func TestRunWithOnlyFailuresIsNotDone(t *testing.T) {
	t.Parallel()
	o := busyOverview()
	o.Runs[0].Stats = []byte(`{"processed": 0, "errors": [{"table": "issues", "sqlstate": "23503", "count": 1}]}`)
	o.DeletionTables[0].Confirming = components.PendingCap
	p, _ := newPage(t, &source{overview: o}, false)
	html := get(t, p, "/").Body.String()
	require.Contains(t, html, `<span class="tag no_progress">no progress</span>`)
	require.NotContains(t, html, `<span class="tag done">`)
	require.Regexp(t, `(?s)<h3>To be retried</h3>.*public\.projects.*<h3>Given up</h3>.*job 9`, html)
	require.Contains(t, text(html), "Recheck 10,000+")
}

func TestReadOnlyHasNoButtons(t *testing.T) {
	t.Parallel()
	p, _ := newPage(t, &source{overview: busyOverview()}, true)
	html := get(t, p, "/").Body.String()
	require.NotContains(t, html, "<form")
	require.NotContains(t, html, "<button")
	require.Contains(t, html, "read-only")
}

func TestAssets(t *testing.T) {
	t.Parallel()
	p, _ := newPage(t, &source{}, false)
	html := get(t, p, "/").Body.String()
	loaded := regexp.MustCompile(`"(/assets/[^"]+)"`).FindAllStringSubmatch(html, -1)
	require.GreaterOrEqual(t, len(loaded), 6)
	for _, one := range loaded {
		answer := get(t, p, one[1])
		require.Equal(t, http.StatusOK, answer.Code, one[1])
		require.Contains(t, answer.Header().Get("Cache-Control"), "immutable")
		require.Regexp(t, `^(text/(javascript|css); charset=utf-8|image/svg\+xml)$`,
			answer.Header().Get("Content-Type"), one[1])
	}
	for _, licence := range []string{"/assets/htmx-LICENSE.txt", "/assets/uplot-LICENSE.txt"} {
		require.Equal(t, http.StatusOK, get(t, p, licence).Code)
	}
	for _, path := range []string{"/assets/", "/assets/nothing.js", "/assets/../page.go", "/assets"} {
		require.NotEqual(t, http.StatusOK, get(t, p, path).Code, path)
	}
}

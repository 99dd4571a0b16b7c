package page_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/components"
	"sexton/internal/drain/dml"
	"sexton/internal/groupschedule"
	"sexton/internal/operator"
	"sexton/internal/undo"
)

// Jobs, failed rows, and the rows with one reason each have a path of their own.
func TestAddresses(t *testing.T) {
	t.Parallel()
	o := busyOverview()
	for n := range 120 {
		o.Failures.Failures = append(o.Failures.Failures, components.Failure{
			Source: "users", ID: fmt.Sprint(n + 1000), What: fmt.Sprintf("user %d", n+1000),
			Error: fmt.Sprintf("posts: SQLSTATE 23503: Key (id)=(%d)", n), Since: time.Now(),
		})
	}
	o.Failures.Capped = []string{"users"}
	o.Failures.Failures = append(o.Failures.Failures, components.Failure{
		Source: "tombstones", Database: "main", ID: "6", What: "locked one",
		Error: "notes: SQLSTATE 55P03: lock timeout (row locked by pid 17 (psql) since 2030-01-02T03:04:05Z)",
	})
	o.Groups = []groupschedule.Group{{
		GroupID: dml.IntegerID(44), Path: "a/b", State: "deferred",
		UserID: new(dml.IntegerID(10)), LastError: "x",
	}}
	s := &source{overview: o}
	p, _ := newPage(t, s, false)
	whole := get(t, p, "/")
	key := regexp.MustCompile(`/failures\?reason=(\w+)">120&#43; users`).FindStringSubmatch(whole.Body.String())
	require.NotEmpty(t, key)
	require.Contains(t, whole.Body.String(), `id="retry-reason-`+key[1]+`"`)
	for _, want := range []string{
		"44 a/b deferred",
		"waits for a lock notes: SQLSTATE 55P03: lock timeout (row locked by pid 17 (psql) since 2030-01-02T03:04:05Z)",
	} {
		require.Contains(t, text(whole.Body.String()), want)
	}
	require.Contains(t, text(get(t, p, "/failures").Body.String()), "122+ failed or given up, 1 waits for a lock")

	job := text(get(t, p, "/jobs/clean").Body.String())
	require.Contains(t, job, "Running for")
	require.NotContains(t, job, "Paused by ann")
	require.NotContains(t, job, "Failed and given up")
	require.Equal(t, http.StatusNotFound, get(t, p, "/jobs/none").Code)
	rows := regexp.MustCompile(`id="retry-users-`)
	for address, want := range map[string]int{
		"/failures": 50, "/failures?reason=" + key[1]: 50,
		"/failures?reason=none": 0,
	} {
		require.Len(t, rows.FindAllString(get(t, p, address).Body.String(), -1), want, address)
	}
	require.Contains(t, text(get(t, p, "/failures").Body.String()),
		"These are the first 50. sexton failures list --limit N prints more.")
	// A fragment has the focus of the page that requests it.
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/live", nil)
	request.Header.Set("Hx-Current-Url", "http://localhost/failures?reason="+key[1])
	answer := httptest.NewRecorder()
	p.ServeHTTP(answer, request)
	require.Len(t, rows.FindAllString(answer.Body.String(), -1), 50)

	post(t, p, "/jobs/clean/run", nil, false)
	post(t, p, "/groups/44/cancel", url.Values{"user": {"10"}}, false)
	post(t, p, "/failures/retry", url.Values{"reason": {key[1]}}, false)
	require.Equal(t, http.StatusUnprocessableEntity, post(t, p, "/groups/44/cancel", url.Values{"user": {""}},
		false).Code)
	require.Equal(t, []string{"run clean by ", "cancel 44 for 10", "retry //" + key[1] + " by "}, s.done)
}

// The page lists a saved deletion, has a page for it with a button that needs a
// confirmation, and shows the result of the restore.
func TestKeptDeletions(t *testing.T) {
	t.Parallel()
	o := busyOverview()
	p, _ := newPage(t, &source{overview: o}, false)
	require.NotContains(t, get(t, p, "/").Body.String(), "can be undone", "undo is off")
	o.Kept = &operator.Kept{}
	p, _ = newPage(t, &source{overview: o}, false)
	require.Contains(t, text(get(t, p, "/").Body.String()), "No deletion is kept yet.")
	one := operator.Deletion{Unit: &undo.Unit{
		ID: 4711, Database: "main", Table: "public.projects", Actor: "app", Keys: []string{"7", "<b>"},
		State: "incomplete", Waiting: true, DeletedAt: time.Now().Add(-time.Minute),
		Until: time.Now().Add(72 * time.Hour),
		Tables: []undo.TableRows{
			{Table: "public.projects", Action: "delete", Rows: 9},
			{Table: "public.issues", Action: "update", Rows: 5000, Restored: 1, LeftOut: 3},
		},
	}}
	o.Kept.Deletions, o.Kept.Size = []operator.Deletion{one}, undo.Sized(5_000_000, 2*time.Hour)
	s := &source{overview: o, kept: o.Kept.Deletions}
	p, _ = newPage(t, s, false)
	html := get(t, p, "/").Body.String()
	require.Contains(t, html, `href="/deletions/4711"`)
	require.Contains(t, text(html), "public.projects , key 7, <b> and 7 more main 5,009 incomplete still running in")
	require.Contains(t, text(html), "5.0 MB of deleted rows are kept, the oldest for 2h0m0s")
	shown := text(get(t, p, "/deletions/4711").Body.String())
	for _, want := range []string{
		"app deleted from public.projects", "issues changed 5,000 1 3", "Restore 5,008 rows",
		"is not restored and is listed here",
	} {
		require.Contains(t, shown, want)
	}
	require.NotContains(t, shown, "Last runs")
	require.Contains(t, text(post(t, p, "/deletions/4711/undo", nil, true).Body.String()), "3 rows restored.")
	require.Equal(t, []string{"undo 4711 by "}, s.done)
	require.Equal(t, http.StatusMethodNotAllowed, get(t, p, "/deletions/4711/undo").Code)
	require.Equal(t, http.StatusUnprocessableEntity, post(t, p, "/deletions/x/undo", nil, false).Code)
	for _, none := range []string{"/deletions/9", "/deletions/x", "/deletions/-4711"} {
		require.Equal(t, http.StatusNotFound, get(t, p, none).Code, none)
	}

	s.kept[0].Undone = &operator.Undone{By: "ann", Since: time.Now()}
	shown = text(get(t, p, "/deletions/4711").Body.String())
	require.Contains(t, shown, "Being restored: requested by ann just now")
	require.NotContains(t, shown, "Restore ")
	s.kept[0].Undone.Report = &undo.Report{
		Restored: 4, LeftRows: 1, Triggers: true,
		Left: []undo.Left{{Table: "public.issues", Key: "8", Reason: "its key is taken"}},
	}
	shown = text(get(t, p, "/deletions/4711").Body.String())
	for _, want := range []string{
		"4 rows restored, 1 row left: requested by ann", "triggers fired",
		"public.issues 8 its key is taken", "Restore ",
	} {
		require.Contains(t, shown, want)
	}
	p, _ = newPage(t, s, true)
	require.NotContains(t, get(t, p, "/deletions/4711").Body.String(), "<form")
	s.fail(errors.New("the table is gone"))
	require.Contains(t, text(get(t, p, "/deletions/4711").Body.String()),
		"The deletion cannot be read: the table is gone")
}

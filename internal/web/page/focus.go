package page

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"sexton/internal/components"
	"sexton/internal/dbsqlc"
)

// maxRows is the number of failures that the page lists. `sexton failures list --limit N`
// prints more.
const maxRows = 50

// focus is the part of the page that the request's path selects. The zero value is the
// whole page.
type focus struct {
	// Kind is one kind of job: /jobs/KIND.
	Kind string
	// Failures selects only the failures: /failures with the parameter reason.
	Failures bool
	Reason   string
	// Deletion is the number of a saved deletion: /deletions/ID.
	Deletion int64
}

// All reports whether the whole page is shown.
func (f focus) All() bool { return f.Kind == "" && !f.Failures && f.Deletion == 0 }

// Jobs reports whether jobs and their runs are shown.
func (f focus) Jobs() bool { return !f.Failures && f.Deletion == 0 }

// focusOf returns the focus of a request's address. For a fragment it uses the address of
// the page, which htmx sends in a header.
func focusOf(r *http.Request) focus {
	at := r.URL
	if page, err := url.Parse(r.Header.Get("Hx-Current-Url")); err == nil && page.Path != "" {
		at = page
	}
	parts := strings.Split(strings.Trim(at.Path, "/"), "/")
	switch {
	case parts[0] == "jobs" && len(parts) == 2:
		return focus{Kind: parts[1]}
	case parts[0] == "failures" && len(parts) == 1:
		return focus{Failures: true, Reason: at.Query().Get("reason")}
	case parts[0] == "deletions" && len(parts) == 2:
		if id, err := strconv.ParseInt(parts[1], 10, 64); err == nil && id > 0 {
			return focus{Deletion: id}
		}
		// No deletion has this ID, so the page is "not found".
		return focus{Deletion: -1}
	}
	return focus{}
}

// list holds the first failures.
type list struct {
	Rows []components.Failure
	// Total counts all failures. Locked counts the failures that only wait for a lock.
	Total  int
	Locked int64
	// More reports that there are more failures than were read.
	More bool
}

// Cut reports whether failures were left out of the list.
func (l list) Cut() bool { return l.Total > len(l.Rows) }

// narrow removes all parts of the view that the focus does not select.
func (v *view) narrow(at focus) {
	v.Focus = at
	if at.Kind != "" {
		v.Jobs = slices.DeleteFunc(v.Jobs, func(job jobView) bool { return job.Kind != at.Kind })
		v.Overview.Runs = slices.DeleteFunc(slices.Clone(v.Overview.Runs),
			func(run dbsqlc.RunsRecentRow) bool { return run.Kind != at.Kind })
	}
	if !at.Failures {
		return
	}
	for _, reason := range v.Reasons {
		if at.Reason != "" && reason.Key != at.Reason {
			continue
		}
		v.List.More = v.List.More || reason.More && !reason.Locked
		for _, failure := range reason.Failures {
			if reason.Locked {
				v.List.Locked++
			}
			v.List.Rows = append(v.List.Rows, failure)
		}
	}
	v.List.Total = len(v.List.Rows)
	v.List.Rows = v.List.Rows[:min(maxRows, v.List.Total)]
}

// missing reports whether the address selects a job or a deletion that does not exist.
func (v *view) missing() bool {
	return v.Focus.Kind != "" && len(v.Jobs) == 0 || v.Focus.Deletion != 0 && v.Unread == nil && v.Deletion == nil
}

// attempt describes the next attempt for a row. If At is empty and GivenUp is false, the
// row is due now.
type attempt struct {
	GivenUp bool
	At      moment
}

func nextTry(now time.Time, f components.Failure) attempt {
	if f.GivenUp || !f.Next.After(now) {
		return attempt{GivenUp: f.GivenUp}
	}
	return attempt{At: momentAt(now, f.Next)}
}

// Failed returns the number of failures without the rows that only wait for a lock.
func (l list) Failed() int64 { return int64(l.Total) - l.Locked }

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

// perPage is how many rows a page of the failures has.
const perPage = 50

// focus is the part of the page that an address names. The zero value is all of it.
type focus struct {
	// Kind is one kind of job: /jobs/KIND.
	Kind string
	// Failures are shown alone: /failures with the parameters reason, q and page, or one row of them, /rows/SOURCE/ID with the parameter database.
	Failures             bool
	Reason, Query        string
	Source, Database, ID string
	// Deletion is a kept one: /deletions/ID.
	Deletion int64
	// Number counts the pages from 1.
	Number int
}

// All reports whether the whole page is shown.
func (f focus) All() bool { return f.Kind == "" && !f.Failures && f.Deletion == 0 }

// Jobs reports whether jobs and their runs are shown.
func (f focus) Jobs() bool { return !f.Failures && f.Deletion == 0 }

// focusOf reads the address. A fragment has that of the page that asks for it, which htmx sends along.
func focusOf(r *http.Request) focus {
	at := r.URL
	if page, err := url.Parse(r.Header.Get("Hx-Current-Url")); err == nil && page.Path != "" {
		at = page
	}
	parts, query := strings.Split(strings.Trim(at.Path, "/"), "/"), at.Query()
	number, _ := strconv.Atoi(query.Get("page"))
	f := focus{Reason: query.Get("reason"), Query: strings.TrimSpace(query.Get("q")), Database: query.Get("database"), Number: max(1, number)}
	switch {
	case parts[0] == "jobs" && len(parts) == 2:
		return focus{Kind: parts[1]}
	case parts[0] == "failures" && len(parts) == 1:
		f.Failures = true
		return f
	case parts[0] == "rows" && len(parts) == 3:
		return focus{Failures: true, Source: parts[1], ID: parts[2], Database: f.Database, Number: 1}
	case parts[0] == "deletions" && len(parts) == 2:
		if id, err := strconv.ParseInt(parts[1], 10, 64); err == nil && id > 0 {
			return focus{Deletion: id}
		}
		return focus{Deletion: -1} // There is none of such a number.
	}
	return focus{}
}

// rowAddress is that of one failure.
func rowAddress(f components.Failure) string {
	address := "/rows/" + url.PathEscape(f.Source) + "/" + url.PathEscape(f.ID)
	if f.Database != "" {
		address += "?database=" + url.QueryEscape(f.Database)
	}
	return address
}

// list is one page of the failures.
type list struct {
	Rows []components.Failure
	// Total counts those of all pages, Locked the ones that only wait for a lock.
	Total  int
	Locked int64
	// More reports that there are more than were looked at.
	More bool
	// Earlier and Later are the addresses of the pages beside this one; empty where there is none.
	Earlier, Later string
}

// narrow leaves what the address names.
func (v *view) narrow(at focus) {
	v.Focus = at
	if at.Kind != "" {
		v.Jobs = slices.DeleteFunc(v.Jobs, func(job jobView) bool { return job.Kind != at.Kind })
		v.Overview.Runs = slices.DeleteFunc(slices.Clone(v.Overview.Runs), func(run dbsqlc.RunsRecentRow) bool { return run.Kind != at.Kind })
	}
	if !at.Failures || at.ID != "" {
		return
	}
	for _, reason := range v.Reasons {
		if at.Reason != "" && reason.Key != at.Reason {
			continue
		}
		v.List.More = v.List.More || reason.More && !reason.Locked
		for _, failure := range reason.Failures {
			if at.shows(failure) {
				if reason.Locked {
					v.List.Locked++
				}
				v.List.Rows = append(v.List.Rows, failure)
			}
		}
	}
	v.List.Total = len(v.List.Rows)
	at.Number = min(at.Number, v.List.Total/perPage+2) // Behind the last page there is one that is empty.
	first := min((at.Number-1)*perPage, v.List.Total)
	last := min(first+perPage, v.List.Total)
	v.List.Rows = v.List.Rows[first:last]
	if first > 0 {
		v.List.Earlier = at.page(at.Number - 1)
	}
	if last < v.List.Total {
		v.List.Later = at.page(at.Number + 1)
	}
}

func (f focus) shows(failure components.Failure) bool {
	text := strings.ToLower(failure.Source + " " + failure.Database + " " + failure.What + " " + failure.Error)
	return strings.Contains(text, strings.ToLower(f.Query))
}

func (f focus) page(number int) string {
	query := url.Values{"page": {strconv.Itoa(number)}}
	for name, value := range map[string]string{"reason": f.Reason, "q": f.Query} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return "/failures?" + query.Encode()
}

// missing reports whether the address names a job or a row that is not there.
func (v *view) missing() bool {
	return v.Focus.Kind != "" && len(v.Jobs) == 0 ||
		v.Unread == nil && (v.Focus.ID != "" && v.List.Total == 0 || v.Focus.Deletion != 0 && v.Deletion == nil)
}

// attempt is when a row is tried next. Without a time and not given up that is now.
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

// Failed counts the ones that do not only wait for a lock.
func (l list) Failed() int64 { return int64(l.Total) - l.Locked }

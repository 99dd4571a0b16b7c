package page

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"sexton/internal/components"
	"sexton/internal/jobrun"
	"sexton/internal/operator"
	"sexton/internal/render"
)

// shownOldest limits the parent tables that are listed with their oldest tombstones.
// shownReasons limits the reasons of a card.
const shownOldest, shownReasons = 5, 2

// state is the state of a card or a row. It determines the color. If the databases of a
// job have different states, the job has the highest one.
type state int

const (
	idle state = iota
	working
	paused
	waiting
	failed
)

// String returns the state's class in the style sheet.
func (s state) String() string {
	return [...]string{"idle", "working", "paused", "waiting", "failed"}[s]
}

// view holds the data of the templates.
type view struct {
	Now      time.Time
	ReadOnly bool
	Version  string
	Notice   notice
	// Trouble is the reason why there is no reading newer than At. It is empty if the
	// reading is current.
	Trouble string
	At      time.Time
	Known   bool

	Headline headline
	Tables   []tableView
	Jobs     []jobView
	// Reasons are the reasons why rows fail. List holds the failed rows if the address
	// selects failures.
	Reasons  []operator.Reason
	List     list
	Focus    focus
	Overview operator.Overview
	// Deletion is the saved deletion that the address selects. Unread is the error if it
	// could not be read.
	Deletion *operator.Deletion
	Unread   error
	Spans    []stretch
	// Several reports that there are several databases, so that names of databases are
	// shown.
	Several bool
}

type headline struct {
	State state
	Title string
	Text  string
	// Held are the jobs that are paused, are waiting, or failed last time.
	Held []heldJob
}

type heldJob struct{ Kind, Why string }

// tableView is the card of a deletion table.
type tableView struct {
	components.Backlog

	State state
	Spark string
	// Why holds the most frequent reasons for failures of the table's rows.
	Why []operator.Reason
}

// jobView is a kind with its state in each database. It embeds the state in the first
// database.
type jobView struct {
	operator.JobState

	State state
	In    []jobIn
}

// jobIn is a kind in one database.
type jobIn struct {
	operator.JobState

	Now   time.Time
	State state
	// Alone reports that the job works in one database only, so that its name is omitted.
	Alone bool
}

// Ended returns the end of the last run, or its beginning if it is running.
func (j jobIn) Ended() *time.Time { return cmp.Or(j.LastEnded, j.LastRun) }

// newView reads all data and prepares it for the templates.
func (p *Page) newView(ctx context.Context, at focus) *view {
	read := p.overview.Get(ctx)
	v := &view{
		Now: time.Now(), ReadOnly: p.options.ReadOnly, Version: p.options.Version, At: read.at,
		Known:    !read.at.IsZero(),
		Overview: read.value, Spans: stretches(),
	}
	if read.err != nil {
		p.options.Logger.WarnContext(ctx, "page_outdated", "error", read.err)
		v.Trouble = read.err.Error()
	}
	series := p.history[stretches()[0].Name].Get(ctx).value
	v.Jobs = jobViews(v.Overview.Reading, v.Now)
	v.Reasons = v.Overview.Failures.Reasons()
	for _, table := range v.Overview.DeletionTables {
		shown := tableView{Backlog: table, State: v.tableState(table), Spark: spark(series, table, v.Now)}
		shown.Parents = shown.Parents[:min(len(shown.Parents), shownOldest)]
		for _, reason := range v.Reasons {
			of := (reason.Database == "" || reason.Database == table.Database) &&
				strings.HasPrefix(table.Unit, strings.TrimSuffix(reason.Source, "s"))
			if of && len(shown.Why) < shownReasons {
				shown.Why = append(shown.Why, reason)
			}
		}
		v.Tables = append(v.Tables, shown)
		v.Several = v.Several || table.Database != v.Overview.DeletionTables[0].Database
	}
	v.Headline = v.headline()
	v.narrow(at)
	if at.Deletion > 0 {
		v.Deletion, v.Unread = p.options.Source.Deletion(ctx, at.Deletion)
	}
	return v
}

// tableState returns the state of a table's card. If rows are due, it is the state of the
// job that processes the table.
func (v *view) tableState(t components.Backlog) state {
	switch {
	case t.Unreachable != "" || len(t.Undefined) > 0:
		return failed
	case t.Pending == 0:
		return idle
	case t.AllDeferred():
		// Deferred rows are retried without an operator, and failed rows are in the list
		// of failures.
		return idle
	}
	for _, job := range v.Jobs {
		for _, in := range job.In {
			if job.Job.DeletionTable == t.Table && in.Database == t.Database {
				return max(in.State, working)
			}
		}
	}
	return waiting
}

// Unit returns the noun for the rows that a kind processes, such as tombstone.
func (v *view) Unit(kind string) string {
	for _, job := range v.Jobs {
		if job.Kind == kind {
			return components.Unit(job.Job.DeletionTable)
		}
	}
	return "row"
}

// jobViews returns the kinds, in the order of the reading.
func jobViews(r operator.Reading, now time.Time) (views []jobView) {
	for _, job := range r.Jobs {
		in := jobIn{JobState: job, Now: now, State: jobState(job), Alone: len(job.Job.Databases) == 1}
		if len(views) == 0 || views[len(views)-1].Kind != job.Kind {
			views = append(views, jobView{JobState: job})
		}
		view := &views[len(views)-1]
		view.In, view.State = append(view.In, in), max(view.State, in.State)
	}
	return views
}

func jobState(job operator.JobState) state {
	switch {
	case job.Paused:
		return paused
	case job.Notable():
		return waiting
	case job.Running != nil:
		return working
	case job.LastOutcome != nil && *job.LastOutcome == string(jobrun.Failed):
		return failed
	}
	return idle
}

// headline summarizes the state of the installation, as a title and a text.
func (v *view) headline() headline {
	if v.Trouble != "" {
		return headline{State: failed, Title: "The state cannot be read", Text: "The data is out of date."}
	}
	var pending, deferred int64
	var more bool
	var oldest time.Duration
	var down []string
	for _, table := range v.Overview.DeletionTables {
		pending += table.Pending
		deferred += table.Deferred
		more = more || table.Capped
		oldest = max(oldest, table.Oldest())
		if table.Unreachable != "" && !slices.Contains(down, table.Database) {
			down = append(down, table.Database)
		}
	}
	backlog := render.Capped(pending, more) + " " + verb(pending, "row is pending", "rows are pending")
	// oldest is 0 if all rows are deferred or have no time.
	if oldest > 0 {
		backlog += ", the oldest for " + whole(oldest)
	}
	backlog += "."
	failing, moreFail := int64(0), false
	for _, reason := range v.Reasons {
		// Placeholders that the application keeps are not failures.
		if !reason.Locked && reason.Source != "placeholders" {
			failing += int64(len(reason.Failures))
			moreFail = moreFail || reason.More
		}
	}
	if failing > 0 {
		backlog += " " + render.Capped(failing, moreFail) + " failed."
	}
	held, runs := v.held()
	switch {
	case len(down) > 0:
		return headline{
			State: failed, Title: "Database " + strings.Join(down, ", ") + " cannot be reached",
			Text: "Jobs of other databases continue.",
		}
	case len(held) > 0 && runs > 0:
		return headline{State: working, Title: "Working", Text: backlog, Held: held}
	case len(held) > 0 && pending > 0:
		return headline{State: waiting, Title: "Work is waiting", Text: backlog, Held: held}
	case len(held) > 0:
		return headline{State: waiting, Title: "Nothing is pending", Held: held}
	case runs == 0 && pending > 0 && pending == deferred:
		if failing > 0 {
			return headline{State: waiting, Title: "Rows failed", Text: backlog}
		}
		return headline{State: idle, Title: "Nothing is due", Text: backlog + " All rows are deferred."}
	case runs > 0 || pending > 0:
		return headline{State: working, Title: "Working", Text: backlog}
	default:
		return headline{
			State: idle, Title: "Nothing is pending",
			Text: "All deletions are cleaned up. The next commit wakes a worker.",
		}
	}
}

// held returns the jobs that are paused, are waiting, or failed last time, and the number
// of running passes.
func (v *view) held() (held []heldJob, runs int) {
	for _, job := range v.Jobs {
		switch {
		case job.Paused:
			held = append(held, heldJob{job.Kind, "paused"})
		case job.State == waiting:
			held = append(held, heldJob{job.Kind, "waits"})
		case job.State == failed:
			held = append(held, heldJob{job.Kind, "failed last time"})
		}
		for _, in := range job.In {
			if in.Running != nil {
				runs++
			}
		}
	}
	return held, runs
}

// AllPaused reports whether each job is paused.
func (v *view) AllPaused() bool {
	return !slices.ContainsFunc(v.Jobs, func(job jobView) bool { return !job.Paused })
}

// failureList holds the reasons of failures that are retried, or of failures that were
// given up.
type failureList struct {
	Title   string
	Reasons []operator.Reason
}

// FailureLists returns a list of the failures that are retried and a list of those that
// were given up. It omits empty lists.
func (v *view) FailureLists() (lists []failureList) {
	for _, givenUp := range []bool{false, true} {
		list := failureList{Title: "To be retried"}
		if givenUp {
			list.Title = "Given up"
		}
		for _, reason := range v.Reasons {
			if reason.GivenUp == givenUp {
				list.Reasons = append(list.Reasons, reason)
			}
		}
		if len(list.Reasons) > 0 {
			lists = append(lists, list)
		}
	}
	return lists
}

func verb(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

package page

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"
)

// state is the sort of a card or a row, which gives its colour. The greater one comes first for an operator.
type state int

const (
	idle state = iota
	working
	paused
	waiting
	failed
)

// String is the state's class in the style sheet.
func (s state) String() string {
	return [...]string{"idle", "working", "paused", "waiting", "failed"}[s]
}

// view holds the data of the templates.
type view struct {
	Now      time.Time
	ReadOnly bool
	Version  string
	Notice   notice
	// Trouble says why there are no newer figures than those of At; empty where they are new.
	Trouble string
	At      time.Time
	Known   bool

	Headline headline
	Tables   []tableView
	Jobs     []jobView
	Failures []failureGroup
	Overview Overview
	Spans    []stretch
	// Several tells that there are several databases, which have to be told apart.
	Several bool
}

type headline struct {
	State state
	Title string
	Text  string
	// Held are the jobs that are kept from their work, and Lead what is said before them.
	Lead string
	Held []heldJob
}

type heldJob struct{ Kind, Why string }

// tableView is one card.
type tableView struct {
	Table

	State state
	Spark string
}

type jobView struct {
	Job

	State state
	Lanes []laneView
}

type laneView struct {
	Lane

	State state
	// Alone tells that the job works in one database only, which needs no name.
	Alone bool
}

// laneContext is the argument of the template of a lane.
type laneContext struct {
	Now  time.Time
	Job  jobView
	Lane laneView
}

// failureGroup are those of one source and database.
type failureGroup struct {
	Source   string
	Database string
	Failures []Failure
}

// newView reads and prepares everything.
func (p *Page) newView(ctx context.Context) *view {
	read := p.look(ctx)
	v := &view{
		Now: time.Now(), ReadOnly: p.options.ReadOnly, Version: p.options.Version, At: read.at, Known: !read.at.IsZero(),
		Overview: read.value, Spans: stretches(),
	}
	if read.err != nil {
		p.options.Logger.WarnContext(ctx, "page has no new figures", "error", read.err)
		v.Trouble = read.err.Error()
	}
	series := p.history[stretches()[0].Name].Get(ctx).value
	for _, table := range read.value.Tables {
		v.Tables = append(v.Tables, tableView{Table: table, State: table.state(read.value.Jobs), Spark: spark(series, table, v.Now)})
	}
	for _, job := range read.value.Jobs {
		v.Jobs = append(v.Jobs, newJobView(job))
	}
	for _, failure := range read.value.Failures {
		at := slices.IndexFunc(v.Failures, func(g failureGroup) bool { return g.Source == failure.Source && g.Database == failure.Database })
		if at < 0 {
			v.Failures = append(v.Failures, failureGroup{Source: failure.Source, Database: failure.Database})
			at = len(v.Failures) - 1
		}
		v.Failures[at].Failures = append(v.Failures[at].Failures, failure)
	}
	v.Several = slices.ContainsFunc(read.value.Tables, func(t Table) bool { return t.Database != read.value.Tables[0].Database })
	v.Headline = v.headline()
	return v
}

// state is that of the job that works the table off.
func (t Table) state(jobs []Job) state {
	switch {
	case t.Unreachable != "" || len(t.Undefined) > 0:
		return failed
	case t.Pending == 0:
		return idle
	case t.Deferred == t.Pending:
		return waiting
	}
	for _, job := range jobs {
		for _, lane := range job.Lanes {
			if job.Table == t.Name && lane.Database == t.Database {
				return max(lane.state(job.Paused), working)
			}
		}
	}
	return waiting
}

func newJobView(job Job) jobView {
	v := jobView{Job: job, State: idle}
	for _, lane := range job.Lanes {
		lane := laneView{Lane: lane, State: lane.state(job.Paused), Alone: len(job.Lanes) == 1}
		v.Lanes = append(v.Lanes, lane)
		v.State = max(v.State, lane.State)
	}
	return v
}

func (l Lane) state(isPaused bool) state {
	switch {
	case isPaused:
		return paused
	case l.WaitingFor != "":
		return waiting
	case l.Running != nil:
		return working
	case l.LastOutcome == "failed":
		return failed
	}
	return idle
}

// headline says in one sentence how things are.
func (v *view) headline() headline {
	if v.Trouble != "" {
		return headline{State: failed, Title: "The state cannot be read", Text: "What you see is old."}
	}
	var pending int64
	var more bool
	var oldest time.Duration
	var down []string
	for _, table := range v.Overview.Tables {
		pending += table.Pending
		more = more || table.Capped
		oldest = max(oldest, table.OldestAge)
		if table.Unreachable != "" && !slices.Contains(down, table.Database) {
			down = append(down, table.Database)
		}
	}
	backlog := capped(pending, more) + " " + verb(pending, "row waits", "rows wait")
	if oldest > 0 { // What is put off, and what has no time, has no age.
		backlog += ", the oldest for " + whole(oldest)
	}
	backlog += "."
	held, runs := v.held()
	switch {
	case len(down) > 0:
		return headline{State: failed, Title: "Database " + strings.Join(down, ", ") + " cannot be reached", Text: "The others go on."}
	case len(held) > 0 && runs > 0:
		return headline{State: working, Title: "Working", Text: backlog, Lead: "Kept from it:", Held: held}
	case len(held) > 0 && pending > 0:
		return headline{State: waiting, Title: "Work waits", Text: backlog, Lead: "Kept from it:", Held: held}
	case len(held) > 0:
		return headline{State: waiting, Title: "Nothing waits", Lead: "Yet look at", Held: held}
	case runs > 0 || pending > 0: // It works, or is about to.
		return headline{State: working, Title: "Working", Text: backlog}
	default:
		return headline{State: idle, Title: "Nothing waits", Text: "Everything that was deleted has been cleaned up after. The next commit wakes a worker."}
	}
}

// held says which jobs are kept from their work, and counts passes at work.
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
		for _, lane := range job.Lanes {
			if lane.Running != nil {
				runs++
			}
		}
	}
	return held, runs
}

func verb(n int64, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// humane replaces the times in a text, which are for machines, by the time of day and the distance.
func humane(now time.Time, text string) string {
	times := regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	return times.ReplaceAllStringFunc(text, func(written string) string {
		at, err := time.Parse(time.RFC3339, written)
		if err != nil {
			return written
		}
		format := "15:04:05 UTC"
		if now.Sub(at).Abs() > 12*time.Hour {
			format = "2006-01-02 15:04 UTC"
		}
		return at.UTC().Format(format) + " (" + momentAt(now, at).Relative + ")"
	})
}

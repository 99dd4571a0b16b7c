package groupdelete

import (
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
)

// Outcome is the outcome of a run.
type Outcome string

const (
	// Destroyed means that the group was deleted.
	Destroyed Outcome = "destroyed"
	// Unfinished means that the run ended before the group was deleted.
	Unfinished Outcome = "unfinished"
	// Stuck means that the run failed and has recorded the reason.
	Stuck Outcome = "stuck"
	// Gone means that the group did not exist.
	Gone Outcome = "gone"
	// Kept means that the group may not be deleted: it was restored, is not due, or the
	// user who scheduled it may not remove it.
	Kept Outcome = "kept"
)

// Stats are the statistics of one run.
type Stats struct {
	// Duty is the share of time during which a run works. It is reset at the end of the
	// run.
	pace.Duty

	GroupID dml.ID  `json:"group_id"`
	Outcome Outcome `json:"outcome"`
	// Reason is the reason for which the group is stuck or kept.
	Reason string `json:"reason,omitempty"`
	// Groups and Projects count deleted groups, including sub-groups, and projects.
	Groups   int64 `json:"groups"`
	Projects int64 `json:"projects"`
	// Latency counts destroyed groups by the time since they became due.
	Latency jobrun.Histogram `json:"latency_seconds,omitempty"`
	// Deleted counts deleted rows by table. Nullified counts changed rows by
	// table.column.
	Deleted   map[string]int64 `json:"deleted"`
	Nullified map[string]int64 `json:"nullified"`
	// Bots counts project bots that were queued for deletion.
	Bots int64 `json:"bots"`
	// Done counts the rows that this destruction has deleted in all runs. Total is the
	// estimate of all rows, made when the destruction began. RowsPerSecond is the speed
	// of this run. ETASeconds is the time that the remaining rows need at this speed.
	Done          int64    `json:"done"`
	Total         int64    `json:"total"`
	RowsPerSecond float64  `json:"rows_per_second"`
	ETASeconds    *float64 `json:"eta_seconds,omitempty"`
	// Batches counts transactions that change application rows.
	Batches int64 `json:"batches"`
	// Interrupted reports that the worker was stopped during the run.
	Interrupted bool                `json:"interrupted,omitempty"`
	Errors      []batch.FaultCounts `json:"errors"`
	// Step is the current step. It is reset at the end of the run. WaitingFor is the
	// reason for which the run waits, or empty.
	Step       string `json:"step,omitempty"`
	WaitingFor string `json:"waiting_for,omitempty"`
}

func newStats(groupID dml.ID) *Stats {
	return &Stats{
		GroupID: groupID, Deleted: map[string]int64{}, Nullified: map[string]int64{},
		Errors: []batch.FaultCounts{},
	}
}

// Changed reports whether the history gets a separate row for the run. Runs that changed
// nothing share one row.
func (s *Stats) Changed() bool {
	return s.Outcome != Gone || s.Groups > 0 || len(s.Deleted)+len(s.Nullified)+len(s.Errors) > 0
}

// Over reports whether the group needs no further run.
func (s *Stats) Over() bool { return s.Outcome == Destroyed || s.Outcome == Gone || s.Outcome == Kept }

func (s *Stats) fail(f batch.Fault) { s.Errors = batch.CountFault(s.Errors, f) }

// count counts n deleted rows of a table.
func (s *Stats) count(p *Plan, t *table, n int64) {
	if n == 0 {
		return
	}
	s.Deleted[t.Label()] += n
	s.Done += n
	switch t {
	case p.projects:
		s.Projects += n
	case p.groups.table:
		s.Groups += n
	}
}

// pace updates the speed and the remaining time. rows is the number of rows that the run
// has deleted, and took is the duration of the run.
func (s *Stats) pace(took time.Duration, rows int64) {
	s.Total = max(s.Total, s.Done)
	if took <= 0 || rows == 0 {
		return
	}
	s.RowsPerSecond = float64(rows) / took.Seconds()
	left := float64(s.Total-s.Done) / s.RowsPerSecond
	s.ETASeconds = &left
}

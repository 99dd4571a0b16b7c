package groupdelete

import (
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
)

// Outcome is how a run on a group ended.
type Outcome string

// The outcomes: the group is gone; there is more to do; something stands in its way,
// which is recorded; there was no such group; and it may not be destroyed, as it has been
// restored, is not due or has no requester who may remove it.
const (
	Destroyed  Outcome = "destroyed"
	Unfinished Outcome = "unfinished"
	Stuck      Outcome = "stuck"
	Gone       Outcome = "gone"
	Kept       Outcome = "kept"
)

// Stats are the statistics of one run.
type Stats struct {
	// Duty is the share of its time at which it works.
	pace.Duty

	GroupID dml.ID  `json:"group_id"`
	Outcome Outcome `json:"outcome"`
	// Reason says why the group is stuck or kept.
	Reason string `json:"reason,omitempty"`
	// Groups, sub-groups included, and Projects count the ones that are gone.
	Groups   int64 `json:"groups"`
	Projects int64 `json:"projects"`
	// Latency counts groups that a job named by the time since they fell due, or were to
	// go at once.
	Latency jobrun.Histogram `json:"latency_seconds,omitempty"`
	// Deleted are rows by table, Nullified those by table.column that refer to nothing
	// any more.
	Deleted   map[string]int64 `json:"deleted"`
	Nullified map[string]int64 `json:"nullified"`
	// Bots are users that passed to the queue of those who are deleted.
	Bots int64 `json:"bots"`
	// Done are the rows that this destruction has deleted so far, Total is an estimate of
	// all from its beginning, of which more may have come in. RowsPerSecond and
	// ETASeconds are of this run: its speed, and how long the rest will take at it; the
	// latter is absent as long as there is nothing to go by.
	Done          int64    `json:"done"`
	Total         int64    `json:"total"`
	RowsPerSecond float64  `json:"rows_per_second"`
	ETASeconds    *float64 `json:"eta_seconds,omitempty"`
	// Batches counts transactions that were there to change rows.
	Batches int64 `json:"batches"`
	// Interrupted reports that the run was asked to stop.
	Interrupted bool                `json:"interrupted,omitempty"`
	Errors      []batch.FaultCounts `json:"errors"`
	// Step names the present work of a run that has not ended, WaitingFor why it does
	// nothing at the moment.
	Step       string `json:"step,omitempty"`
	WaitingFor string `json:"waiting_for,omitempty"`
}

func newStats(groupID dml.ID) *Stats {
	return &Stats{
		GroupID: groupID, Deleted: map[string]int64{}, Nullified: map[string]int64{},
		Errors: []batch.FaultCounts{},
	}
}

// Changed reports whether the run did anything worth a line of its own in the history.
func (s *Stats) Changed() bool {
	return s.Outcome != Gone || s.Groups > 0 || len(s.Deleted)+len(s.Nullified)+len(s.Errors) > 0
}

// Over reports whether nothing is left to do for the group.
func (s *Stats) Over() bool { return s.Outcome == Destroyed || s.Outcome == Gone || s.Outcome == Kept }

func (s *Stats) fail(f batch.Fault) { s.Errors = batch.CountFault(s.Errors, f) }

// count notes rows that are gone.
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

// pace brings speed and prospects up to date after some time of the run, in which so many
// rows were deleted.
func (s *Stats) pace(took time.Duration, rows int64) {
	s.Total = max(s.Total, s.Done)
	if took <= 0 || rows == 0 {
		return
	}
	s.RowsPerSecond = float64(rows) / took.Seconds()
	left := float64(s.Total-s.Done) / s.RowsPerSecond
	s.ETASeconds = &left
}

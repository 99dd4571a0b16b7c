package ghostuser

import (
	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
)

// Stats are the statistics of one run.
type Stats struct {
	// Duty is the share of its time at which a run that has not ended works.
	pace.Duty

	// UsersProcessed counts users that were deleted, UsersFailed users that were put off
	// with an error, UsersUnfinished users that the run's end came before, UsersDropped
	// users that were taken out of the queue by others or did not exist any more.
	UsersProcessed  int64 `json:"users_processed"`
	UsersFailed     int64 `json:"users_failed"`
	UsersUnfinished int64 `json:"users_unfinished"`
	UsersDropped    int64 `json:"users_dropped"`
	// Latency counts deleted users by the time since they came into the queue.
	Latency jobrun.Histogram `json:"latency_seconds,omitempty"`
	// Moved, Deleted and Nullified are rows by table.column.
	Moved     map[string]int64 `json:"moved"`
	Deleted   map[string]int64 `json:"deleted"`
	Nullified map[string]int64 `json:"nullified"`
	// Duplicates are those among the deleted and nullified rows that the ghost user could
	// not have, as it had their like.
	Duplicates int64 `json:"duplicates"`
	// Batches counts transactions that were there to change rows.
	Batches int64 `json:"batches"`
	// OverLimit reports that due users are left, as a limit was met; Interrupted that
	// they are left as the run was asked to stop.
	OverLimit   bool                `json:"over_limit"`
	Interrupted bool                `json:"interrupted,omitempty"`
	Errors      []batch.FaultCounts `json:"errors"`
	// WaitingFor is why a run that has not ended does nothing at the moment.
	WaitingFor string `json:"waiting_for,omitempty"`
	// Held names the thing that the users that are left waited for last, where others
	// were in their way.
	Held string `json:"held,omitempty"`
	// Current is the user whose turn it is; absent at the end.
	Current *Current `json:"current,omitempty"`
}

// Current is how far the run has come with one user.
type Current struct {
	UserID dml.ID `json:"user_id"`
	// Moved, Deleted and Nullified count this run's rows.
	Moved     int64 `json:"moved"`
	Deleted   int64 `json:"deleted"`
	Nullified int64 `json:"nullified"`
	// Remaining is an estimate, 10,000 meaning that many or more; absent before the
	// user's first turn is over.
	Remaining *int64 `json:"remaining,omitempty"`
}

// Changed reports whether the run did anything worth a line of its own in the history.
func (s *Stats) Changed() bool {
	return s.UsersProcessed+s.UsersFailed+s.UsersUnfinished+s.UsersDropped > 0 || s.OverLimit || s.Interrupted ||
		len(s.Moved)+len(s.Deleted)+len(s.Nullified) > 0
}

// Outcome is how a user's part in a run ended.
type Outcome string

// The outcomes: the user is deleted; it is put off with an error; the run ended first; it
// did not exist any more and was taken out of the queue; another session has taken it
// out.
const (
	Destroyed  Outcome = "destroyed"
	Failed     Outcome = "failed"
	Unfinished Outcome = "unfinished"
	Gone       Outcome = "gone"
	Cancelled  Outcome = "cancelled"
)

// Item is one user of a run, for the log.
type Item struct {
	UserID     dml.ID
	HardDelete bool
	Outcome    Outcome
	// Moved, Deleted and Nullified count rows: of all runs where the user is destroyed,
	// else of this one.
	Moved, Deleted, Nullified int64
	// Table, SQLState, Message and Stack are set where the user has failed. Stack is the
	// server's.
	Table, SQLState, Message, Stack string
}

func newStats() *Stats {
	return &Stats{
		Moved: map[string]int64{}, Deleted: map[string]int64{}, Nullified: map[string]int64{},
		Errors: []batch.FaultCounts{},
	}
}

// count notes rows of a user that were changed.
func (s *Stats) count(u *user, do dml.Action, label string, rows int64, duplicates bool) {
	if rows == 0 {
		return
	}
	u.begun, u.waits = true, ""
	s.Current = &u.done
	switch do {
	case dml.Move:
		s.Moved[label] += rows
		u.done.Moved += rows
	case dml.Remove:
		s.Deleted[label] += rows
		u.done.Deleted += rows
	default:
		s.Nullified[label] += rows
		u.done.Nullified += rows
	}
	s.Batches++
	if duplicates {
		s.Duplicates += rows
	}
}

func (s *Stats) fail(f batch.Fault) { s.Errors = batch.CountFault(s.Errors, f) }

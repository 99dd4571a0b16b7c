package ghostuser

import (
	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
)

// Stats are the statistics of one run.
type Stats struct {
	// Duty is the share of time during which a run works. It is reset at the end of the
	// run.
	pace.Duty

	// UsersProcessed counts users that were deleted, UsersFailed users that were deferred
	// with an error, and UsersUnfinished users that the run did not finish. UsersDropped
	// counts users that another session removed from the queue or that did not exist.
	UsersProcessed  int64 `json:"users_processed"`
	UsersFailed     int64 `json:"users_failed"`
	UsersUnfinished int64 `json:"users_unfinished"`
	UsersDropped    int64 `json:"users_dropped"`
	// Latency counts deleted users by the time since they were queued.
	Latency jobrun.Histogram `json:"latency_seconds,omitempty"`
	// Moved, Deleted and Nullified count rows by table.column, such as issues.author_id.
	Moved     map[string]int64 `json:"moved"`
	Deleted   map[string]int64 `json:"deleted"`
	Nullified map[string]int64 `json:"nullified"`
	// Duplicates counts the deleted and nullified rows that were not moved because the
	// ghost user has an equal row.
	Duplicates int64 `json:"duplicates"`
	// Batches counts transactions that change application rows.
	Batches int64 `json:"batches"`
	// OverLimit reports that due users are left because the run reached a limit, and
	// Interrupted that they are left because the worker was stopped.
	OverLimit   bool                `json:"over_limit"`
	Interrupted bool                `json:"interrupted,omitempty"`
	Errors      []batch.FaultCounts `json:"errors"`
	// WaitingFor is the reason for which the run waits, or empty. It is reset at the end
	// of the run.
	WaitingFor string `json:"waiting_for,omitempty"`
	// Held describes the lock that an unfinished user was waiting for at the end of the
	// run.
	Held string `json:"held,omitempty"`
	// Current holds the counts of the user whose rows were changed last. It is nil after
	// the end of the run.
	Current *Current `json:"current,omitempty"`
}

// Current counts the rows of one user.
type Current struct {
	UserID dml.ID `json:"user_id"`
	// Moved, Deleted and Nullified count this run's rows.
	Moved     int64 `json:"moved"`
	Deleted   int64 `json:"deleted"`
	Nullified int64 `json:"nullified"`
	// Remaining is an estimate of at most 10,000 rows.
	Remaining *int64 `json:"remaining,omitempty"`
}

// Changed reports whether the history gets a separate row for the run. Runs that changed
// nothing share one row.
func (s *Stats) Changed() bool {
	return s.UsersProcessed+s.UsersFailed+s.UsersUnfinished+s.UsersDropped > 0 || s.OverLimit || s.Interrupted ||
		len(s.Moved)+len(s.Deleted)+len(s.Nullified) > 0
}

// Outcome is the outcome of a run for one user.
type Outcome string

const (
	// Destroyed means that the user was deleted.
	Destroyed Outcome = "destroyed"
	// Failed means that the user was deferred with an error.
	Failed Outcome = "failed"
	// Unfinished means that the run ended before the user was deleted.
	Unfinished Outcome = "unfinished"
	// Gone means that the user did not exist and was removed from the queue.
	Gone Outcome = "gone"
	// Cancelled means that another session removed the user from the queue.
	Cancelled Outcome = "cancelled"
)

// Item is one user of a run, for the log.
type Item struct {
	UserID     dml.ID
	HardDelete bool
	Outcome    Outcome
	// Moved, Deleted and Nullified count the rows of all runs if the user is destroyed,
	// and of this run otherwise.
	Moved, Deleted, Nullified int64
	// Table, SQLState, Message and Stack are set if the user has failed. Stack is from
	// the server.
	Table, SQLState, Message, Stack string
}

func newStats() *Stats {
	return &Stats{
		Moved: map[string]int64{}, Deleted: map[string]int64{}, Nullified: map[string]int64{},
		Errors: []batch.FaultCounts{},
	}
}

// count counts changed rows of a user.
func (s *Stats) count(u *user, do dml.Action, label string, rows int64, duplicates bool) {
	if rows == 0 {
		return
	}
	u.begun, u.lockReason = true, ""
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

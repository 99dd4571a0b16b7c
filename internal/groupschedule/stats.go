package groupschedule

import (
	"slices"
	"time"
)

// Outcome is what was decided about a group.
type Outcome string

// The outcomes: a job that destroys it was inserted; there is such a job; it was restored; it is gone, was restored or has
// lost its schedule meanwhile; nothing could be decided, and it is put off.
const (
	Enqueued Outcome = "enqueued"
	Waiting  Outcome = "waiting"
	Restored Outcome = "restored"
	Undue    Outcome = "undue"
	Failed   Outcome = "failed"
)

// Decision is what was decided about one group, for the log.
type Decision struct {
	GroupID int64
	// UserID is who scheduled the deletion; 0 where that is not known.
	UserID  int64
	Path    string
	Outcome Outcome
	// RunAt is when the destruction is to begin, for those that were enqueued.
	RunAt time.Time
	// Reason is why a group was restored: not_permitted, or user_missing.
	Reason string
	// SQLState, Message and Stack are set where nothing could be decided. Stack is the server's.
	SQLState, Message, Stack string
}

// Stats are the statistics of one pass.
type Stats struct {
	// Cutoff is the date before which a mark makes a group due; nil where there is no period, and nothing was done.
	Cutoff *time.Time `json:"cutoff"`
	// GroupsEnqueued counts groups that are to be destroyed, GroupsRestored those that nobody may remove any more who asked
	// for it, GroupsSkipped those with which others were faster, GroupsFailed those that are put off with an error.
	GroupsEnqueued int64 `json:"groups_enqueued"`
	GroupsRestored int64 `json:"groups_restored"`
	GroupsSkipped  int64 `json:"groups_skipped"`
	GroupsFailed   int64 `json:"groups_failed"`
	// OverLimit tells that due groups are left as the time was over, Interrupted that they are left as the pass was asked
	// to stop.
	OverLimit   bool          `json:"over_limit"`
	Interrupted bool          `json:"interrupted,omitempty"`
	Errors      []ErrorCounts `json:"errors"`
}

// ErrorCounts says how many groups one error put off.
type ErrorCounts struct {
	Table    string `json:"table"`
	SQLState string `json:"sqlstate"`
	Message  string `json:"message"`
	Count    int64  `json:"count"`
}

// Changed tells whether the pass did anything worth a line of its own in the history.
func (s *Stats) Changed() bool {
	return s.GroupsEnqueued+s.GroupsRestored+s.GroupsFailed > 0 || s.OverLimit || s.Interrupted
}

func (s *Stats) count(d Decision) {
	switch d.Outcome {
	case Enqueued:
		s.GroupsEnqueued++
	case Restored:
		s.GroupsRestored++
	case Failed:
		s.GroupsFailed++
		s.fail(d)
	default:
		s.GroupsSkipped++
	}
}

func (s *Stats) fail(d Decision) {
	// Messages can name single groups; a pass over thousands of them must not list them all.
	const most = 20
	at := slices.IndexFunc(s.Errors, func(e ErrorCounts) bool { return e.SQLState == d.SQLState && e.Message == d.Message })
	switch {
	case at >= 0:
	case len(s.Errors) == most:
		at = most - 1
	default:
		at = len(s.Errors)
		s.Errors = append(s.Errors, ErrorCounts{Table: "groups", SQLState: d.SQLState, Message: d.Message})
	}
	s.Errors[at].Count++
}

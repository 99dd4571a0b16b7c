package groupschedule

import (
	"time"

	"sexton/internal/fault"
)

// Outcome is the decision about a group.
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

// Decision is the decision about one group, for the log.
type Decision struct {
	GroupID int64
	// UserID is who scheduled the deletion; 0 where that is not known.
	UserID  int64
	Path    string
	Outcome Outcome
	// RunAt is when the destruction is to begin, for groups that were enqueued.
	RunAt time.Time
	// Reason is why a group was restored: not_permitted, or user_missing.
	Reason string
	// Fault is the reason why nothing could be decided, for failed groups.
	Fault fault.Fault
}

// Stats are the statistics of one pass.
type Stats struct {
	// Cutoff is the date before which a mark makes a group due; nil where there is no period, and nothing was done.
	Cutoff *time.Time `json:"cutoff"`
	// GroupsEnqueued counts groups that are to be destroyed, GroupsRestored groups whose requester may no longer
	// remove them, GroupsSkipped groups with which others were faster, GroupsFailed groups that are put off with an error.
	GroupsEnqueued int64 `json:"groups_enqueued"`
	GroupsRestored int64 `json:"groups_restored"`
	GroupsSkipped  int64 `json:"groups_skipped"`
	GroupsFailed   int64 `json:"groups_failed"`
	// OverLimit tells that due groups are left as the time was over, Interrupted that they are left as the pass was asked
	// to stop.
	OverLimit   bool           `json:"over_limit"`
	Interrupted bool           `json:"interrupted,omitempty"`
	Errors      []fault.Counts `json:"errors"`
}

// Changed reports whether the pass did anything worth a line of its own in the history.
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
		s.Errors = fault.Count(s.Errors, d.Fault)
	default:
		s.GroupsSkipped++
	}
}

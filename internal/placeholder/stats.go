package placeholder

import (
	"time"

	"sexton/internal/fault"
)

// Stats are the statistics of one run.
type Stats struct {
	// Scheduled counts the placeholders that were offered: each an attempt and a job.
	Scheduled int64 `json:"scheduled"`
	// Kept counts placeholders that a look at many found referenced: each an attempt without a job. References counts these by table.column.
	Kept       int64            `json:"kept"`
	References map[string]int64 `json:"references,omitempty"`
	// Counted counts attempts without a look, of placeholders that references keep.
	Counted int64 `json:"counted"`
	// FinalAttempts are those among all of them that will not be offered again.
	FinalAttempts int64 `json:"final_attempts"`
	// Waiting counts rows that were left as they are because a job for their user waits or runs already, Changed rows that
	// another session took or changed meanwhile.
	Waiting int64 `json:"waiting"`
	Changed int64 `json:"changed"`
	// Failed counts rows that the database refused to touch. No attempt was counted for them.
	Failed int64 `json:"failed"`
	// LastScheduledAt is the time of the run's last job; absent where there is none.
	LastScheduledAt *time.Time `json:"last_scheduled_at,omitempty"`
	// OverLimit tells that rows are left as the time was over, Interrupted that they are left as the run was asked to stop.
	OverLimit   bool           `json:"over_limit"`
	Interrupted bool           `json:"interrupted,omitempty"`
	Errors      []fault.Counts `json:"errors"`
}

// Item is one placeholder whose attempt was counted.
type Item struct {
	UserID int64
	// Attempt counts from 1. Final tells that it is the last one.
	Attempt     int64
	Final       bool
	ScheduledAt time.Time
	// Kept means that the attempt needed no job: the Blockers keep it, or, without any, nothing has looked.
	Kept     bool
	Blockers []Blocker
}

// Reason says what keeps it, in one line.
func (i Item) Reason() string { return reason(i.Blockers) }

// DeleteKind is the kind of the jobs that are inserted, one per placeholder, with the argument user_id. It is frozen.
const DeleteKind = "import_delete_placeholder_user"

// Rules say when a placeholder is offered.
type Rules struct {
	// MaxAttempts is how often; the last attempt is announced.
	MaxAttempts int
	// RetryPeriod has to be over, not just reached, since the attempt before.
	RetryPeriod time.Duration
}

// Reference is a column that keeps a placeholder alive while a row has its id there. A table is "table", in the database's
// own schema, or "schema.table".
type Reference struct {
	Table   string
	Columns []string
}

package retention

import (
	"sexton/internal/batch"
	"sexton/internal/pace"
)

// Stats are the statistics of one pass.
type Stats struct {
	// Duty is the share of its time that the pass works.
	pace.Duty

	// Deleted counts deleted rows by table. Nullified counts rows whose references were
	// changed, by table.column. Due counts the due rows of rules with dry_run, up to
	// 10,000.
	Deleted   map[string]int64 `json:"deleted"`
	Nullified map[string]int64 `json:"nullified"`
	Due       map[string]int64 `json:"due,omitempty"`
	// Kept counts due rows that could not be deleted, by rule. A leaf that could not be
	// read counts as one row.
	Kept map[string]int64 `json:"kept,omitempty"`
	// PartlyCleared counts rows that the application restored while rows below them were
	// deleted.
	PartlyCleared int64 `json:"partly_cleared,omitempty"`
	// Rules counts the rules whose due rows were all processed. Failed counts the rules
	// that left rows for a reason other than a lock. Failure names the first failed rule
	// and the reason.
	Rules   int64  `json:"rules"`
	Failed  int64  `json:"failed,omitempty"`
	Failure string `json:"-"`
	// Batches counts transactions that changed rows.
	Batches int64 `json:"batches"`
	// OverLimit reports that the runtime expired before all rules were processed.
	// Interrupted reports that the pass was stopped.
	OverLimit   bool                `json:"over_limit"`
	Interrupted bool                `json:"interrupted,omitempty"`
	Errors      []batch.FaultCounts `json:"errors"`
	// Rule is the rule that a running pass is processing. WaitingFor is the reason for
	// which the pass waits.
	Rule       string `json:"rule,omitempty"`
	WaitingFor string `json:"waiting_for,omitempty"`
	// Held is a text about the lock for which the pass last waited.
	Held string `json:"held_up_by,omitempty"`
}

func newStats() *Stats {
	return &Stats{
		Deleted: map[string]int64{}, Nullified: map[string]int64{}, Due: map[string]int64{}, Kept: map[string]int64{},
		Errors: []batch.FaultCounts{},
	}
}

// Changed reports whether the pass has changed rows or met errors.
func (s *Stats) Changed() bool { return s.Rows() > 0 || len(s.Errors) > 0 || s.PartlyCleared > 0 }

// Rows returns the number of deleted and changed rows.
func (s *Stats) Rows() (rows int64) {
	for _, counts := range []map[string]int64{s.Deleted, s.Nullified} {
		for _, n := range counts {
			rows += n
		}
	}
	return rows
}

package loosefk

import (
	"fmt"
	"math"
	"time"

	"sexton/internal/batch"
	"sexton/internal/drain"
	"sexton/internal/jobrun"
	"sexton/internal/pace"
)

// Limits are the limits at which a run ends. Deletes and Updates limit the rows of all
// child tables together. 0 stands for no limit.
type Limits struct {
	Deletes int
	Updates int
	Runtime time.Duration
}

// Stats are the statistics of one run.
type Stats struct {
	// Duty is the share of its time that a running pass works.
	pace.Duty

	// Connection is the name of the database.
	Connection string `json:"connection"`
	TurboMode  bool   `json:"turbo_mode"`
	Pace       string `json:"pace"`
	OverLimit  bool   `json:"over_limit"`
	// Interrupted reports that the run was stopped before it had finished, or that its
	// time was used up and the next run continues immediately.
	Interrupted        bool             `json:"interrupted,omitempty"`
	DeleteCount        int64            `json:"delete_count"`
	UpdateCount        int64            `json:"update_count"`
	DeleteCountByTable map[string]int64 `json:"delete_count_by_table"`
	UpdateCountByTable map[string]int64 `json:"update_count_by_table"`
	// Processed counts removed tombstones. Rescheduled counts deferred tombstones.
	Processed   int64 `json:"processed"`
	Rescheduled int64 `json:"rescheduled"`
	// Revived counts tombstones whose parent has a row again. Their children are kept.
	Revived int64 `json:"revived"`
	// RevivedKeys holds the first keys of revived tombstones, as table and key.
	RevivedKeys []string `json:"-"`
	// Confirmed counts rechecks of removed tombstones. LateChildren counts the rows that
	// rechecks found.
	Confirmed    int64 `json:"confirmed"`
	LateChildren int64 `json:"late_children"`
	// Latency counts removed tombstones by their age when they were removed.
	Latency jobrun.Histogram    `json:"latency_seconds,omitempty"`
	Errors  []batch.FaultCounts `json:"errors"`
	// ByParent counts tombstones by the label of their parent table.
	ByParent map[string]ParentCounts `json:"-"`
	// WaitingFor is the reason for which a running pass waits, or "".
	WaitingFor string `json:"waiting_for,omitempty"`
	// Held is the reason for which a run left tombstones: a lock of another session, or a
	// statement that takes too long.
	Held string `json:"held,omitempty"`
	// WaitingClass is the class of WaitingFor, for programs that count or compare
	// reasons.
	WaitingClass pace.WaitClass `json:"waiting_class,omitempty"`
}

// ParentCounts counts the tombstones of one parent table.
type ParentCounts struct {
	// Processed counts removed tombstones. Rescheduled counts deferred tombstones.
	// Incremented counts tombstones that got an attempt and are still due.
	Processed, Rescheduled, Incremented int64
	// Revived counts tombstones whose parent has a row again.
	Revived int64
}

// Changed reports whether the history should show the run: it changed rows or tombstones,
// had an error, or left due tombstones.
func (s *Stats) Changed() bool {
	return s.DeleteCount+s.UpdateCount+s.Processed+s.Rescheduled+s.Revived+s.LateChildren > 0 ||
		len(s.Errors) > 0 || s.OverLimit || s.Interrupted
}

func newStats(database, pace string) *Stats {
	return &Stats{
		Connection: database, Pace: pace, TurboMode: pace == "turbo",
		DeleteCountByTable: map[string]int64{}, UpdateCountByTable: map[string]int64{},
		Errors: []batch.FaultCounts{}, ByParent: map[string]ParentCounts{},
	}
}

// count adds more to the counts of a parent's tombstones and to the totals.
func (s *Stats) count(label string, more ParentCounts) {
	s.Processed += more.Processed
	s.Rescheduled += more.Rescheduled
	s.Revived += more.Revived
	sum := s.ByParent[label]
	sum.Processed += more.Processed
	sum.Rescheduled += more.Rescheduled
	sum.Incremented += more.Incremented
	sum.Revived += more.Revived
	s.ByParent[label] = sum
}

// mostRevivedKeys is the maximum number of revived keys in a run's log line.
const mostRevivedKeys = 5

// noteRevived adds keys of revived tombstones to RevivedKeys, up to mostRevivedKeys.
func (s *Stats) noteRevived(p *drain.Parent, tombstones []drain.Tombstone) {
	for _, t := range tombstones[:min(len(tombstones), mostRevivedKeys-len(s.RevivedKeys))] {
		s.RevivedKeys = append(s.RevivedKeys, p.Label()+" "+t.Key(p))
	}
}

// countRows adds the rows that the reference's statements have changed to the totals and
// to the count of the child table.
func (s *Stats) countRows(r *Reference, rows int64) {
	if rows == 0 {
		return
	}
	if r.Updates() {
		s.UpdateCount += rows
		s.UpdateCountByTable[r.Child.Label()] += rows
		return
	}
	s.DeleteCount += rows
	s.DeleteCountByTable[r.Child.Label()] += rows
}

// budget is the number of rows and the time that a run has left.
type budget struct {
	limits Limits
	stats  *Stats
	// until is the end of the run on the monotonic clock.
	until time.Time
}

func (b *budget) used() bool { return b.rowLimitReached() || !time.Now().Before(b.until) }

// rowLimitReached reports whether a limit of rows was reached.
func (b *budget) rowLimitReached() bool { return b.left(false) <= 0 || b.left(true) <= 0 }

// left returns how many rows a run may still update or delete.
func (b *budget) left(updates bool) int64 {
	limit, count := b.limits.Deletes, b.stats.DeleteCount
	if updates {
		limit, count = b.limits.Updates, b.stats.UpdateCount
	}
	if limit == 0 {
		return math.MaxInt64
	}
	return int64(limit) - count
}

// reason returns the limit that was reached, as an error message.
func (b *budget) reason() string {
	limit := b.limits.Runtime.String()
	switch {
	case b.left(false) <= 0:
		limit = fmt.Sprintf("%d deletes", b.limits.Deletes)
	case b.left(true) <= 0:
		limit = fmt.Sprintf("%d updates", b.limits.Updates)
	}
	return "not finished within the limit of one run (" + limit + ")"
}

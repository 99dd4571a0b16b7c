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

// Limits end a run. Rows are those of children, over all tables; 0 is no limit.
type Limits struct {
	Deletes int
	Updates int
	Runtime time.Duration
}

// Stats are the statistics of one run.
type Stats struct {
	// Duty is the share of its time at which a run that has not ended works.
	pace.Duty

	// Connection is the database.
	Connection string `json:"connection"`
	TurboMode  bool   `json:"turbo_mode"`
	Pace       string `json:"pace"`
	OverLimit  bool   `json:"over_limit"`
	// Interrupted reports that the run was asked to stop before it was through, or that its time was over and the
	// next one goes on at once.
	Interrupted        bool             `json:"interrupted,omitempty"`
	DeleteCount        int64            `json:"delete_count"`
	UpdateCount        int64            `json:"update_count"`
	DeleteCountByTable map[string]int64 `json:"delete_count_by_table"`
	UpdateCountByTable map[string]int64 `json:"update_count_by_table"`
	// Processed counts tombstones removed, Rescheduled those put off to a later time.
	Processed   int64 `json:"processed"`
	Rescheduled int64 `json:"rescheduled"`
	// Revived counts tombstones whose parents live, so that their children stay.
	Revived int64 `json:"revived"`
	// RevivedKeys are the first of them, as table and key.
	RevivedKeys []string `json:"-"`
	// Confirmed counts rechecks of removed tombstones, LateChildren the rows that they found.
	Confirmed    int64 `json:"confirmed"`
	LateChildren int64 `json:"late_children"`
	// Latency counts removed tombstones by their age at that time.
	Latency jobrun.Histogram    `json:"latency_seconds,omitempty"`
	Errors  []batch.FaultCounts `json:"errors"`
	// ByParent counts tombstones by the label of their parent table.
	ByParent map[string]ParentCounts `json:"-"`
	// WaitingFor is why a run that has not ended does nothing at the moment.
	WaitingFor string `json:"waiting_for,omitempty"`
	// Held is why a run left something undone that others were in the way of, or that takes too long.
	Held string `json:"held,omitempty"`
	// WaitingClass says of what sort that is, for readers that count and compare.
	WaitingClass pace.WaitClass `json:"waiting_class,omitempty"`
}

// ParentCounts are the tombstones of one parent table.
type ParentCounts struct {
	// Processed were removed, Rescheduled put off; Incremented failed and stay due.
	Processed, Rescheduled, Incremented int64
	// Revived have a parent that lives.
	Revived int64
}

// Changed reports whether the run did anything worth a line of its own in the history.
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

// count adds to the counts of a parent's tombstones.
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

// mostRevivedKeys is how many keys of parents that live a run's log line has.
const mostRevivedKeys = 5

// noteRevived notes the first keys of parents that live.
func (s *Stats) noteRevived(p *drain.Parent, tombstones []drain.Tombstone) {
	for _, t := range tombstones[:min(len(tombstones), mostRevivedKeys-len(s.RevivedKeys))] {
		s.RevivedKeys = append(s.RevivedKeys, p.Label()+" "+t.Key(p))
	}
}

func (s *Stats) clean(r *Reference, rows int64) {
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

func (s *Stats) fail(f batch.Fault) { s.Errors = batch.CountFault(s.Errors, f) }

// budget is the work that a run may still do.
type budget struct {
	limits Limits
	stats  *Stats
	until  time.Time // monotonic
}

func (b *budget) over() bool { return b.rowsOver() || !time.Now().Before(b.until) }

// rowsOver reports whether a limit of rows is met.
func (b *budget) rowsOver() bool { return b.left(false) <= 0 || b.left(true) <= 0 }

// left is how many rows a run may still update or delete.
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

// reason names the limit that was met.
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

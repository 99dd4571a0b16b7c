package loosefk

import (
	"fmt"
	"math"
	"time"

	"sexton/internal/batch"
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
	// Confirmed counts removed tombstones that a second look found without children, LateChildren tombstones that it
	// brought back, as a child had come late.
	Confirmed    int64 `json:"confirmed"`
	LateChildren int64 `json:"late_children"`
	// ConfirmedEarly are those of both kinds that were not waited for any longer.
	ConfirmedEarly int64 `json:"confirmed_early,omitempty"`
	// Latency counts removed tombstones by their age at that time.
	Latency jobrun.Histogram `json:"latency_seconds,omitempty"`
	// ConfirmBlind reports that sessions whose transactions cannot be seen were waited for by the grace time.
	ConfirmBlind bool                `json:"confirm_blind,omitempty"`
	Errors       []batch.FaultCounts `json:"errors"`
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
	return s.DeleteCount+s.UpdateCount+s.Processed+s.Rescheduled+s.Revived+s.LateChildren+s.ConfirmedEarly > 0 ||
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
func (s *Stats) count(parent *Parent, more ParentCounts) {
	s.Processed += more.Processed
	s.Rescheduled += more.Rescheduled
	s.Revived += more.Revived
	sum := s.ByParent[parent.Label()]
	sum.Processed += more.Processed
	sum.Rescheduled += more.Rescheduled
	sum.Incremented += more.Incremented
	sum.Revived += more.Revived
	s.ByParent[parent.Label()] = sum
}

// mostRevivedKeys is how many keys of parents that live a run's log line has.
const mostRevivedKeys = 5

// noteRevived notes the keys of the chunk's tombstones that have one of the ids.
func (s *Stats) noteRevived(c *chunk, ids map[int64]bool) {
	for _, t := range c.tombstones {
		if _, revived := ids[t.id]; revived && len(s.RevivedKeys) < mostRevivedKeys {
			s.RevivedKeys = append(s.RevivedKeys, c.parent.Label()+" "+t.keyText())
		}
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

// limited reports whether the run may only do so many rows of the reference's kind.
func (b *budget) limited(r *Reference) bool { return b.left(r.Updates()) < math.MaxInt64 }

// rows bounds one statement: by its own limit and by what is left.
func (b *budget) rows(r *Reference, limit int) int {
	return int(min(int64(limit), max(b.left(r.Updates()), 1)))
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

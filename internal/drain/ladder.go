package drain

import (
	"context"
	"time"

	"sexton/internal/batch"
	"sexton/internal/pace"
)

// Size is the number of rows of one sort of statement, found by trying.
type Size struct {
	rows float64
	// lost, if set, is the size at which a statement was lost to others' changes: from half of it on, growth is slow.
	lost float64
	// slow reports that a statement with the fewest rows has run into the target's timeout: its table takes long, whatever the size.
	slow  bool
	speed pace.Speed
}

// Rows returns the rows of the next statement. The first one has so many.
func (s *Size) Rows(first int) int {
	if s.rows == 0 {
		s.rows = float64(first)
	}
	return max(int(s.rows), 1)
}

// Learn steers by a statement that went through.
func (s *Size) Learn(by pace.Steer, rows int64, next float64, took time.Duration) {
	size := by.Learn(s.rows, rows, next, took)
	if s.lost > 0 && size > s.rows {
		size = min(size, max(slowGrowth*s.rows, s.lost/2))
	}
	if s.rows = size; size > s.lost {
		s.lost = 0
	}
	s.speed.Note(rows, took)
}

// slowGrowth is the growth from where a statement has been lost before.
const slowGrowth = 1.1

// Lost halves the next statements after one that was lost to what others changed meanwhile: the fewer its rows, the fewer of them others change.
func (s *Size) Lost(by pace.Steer) {
	s.lost, s.rows = s.rows, max(s.rows/2, by.Smallest)
}

// Slow is by how much its rows took longer lately than in good times.
func (s *Size) Slow() float64 { return s.speed.Slow() }

// TimedOut makes the next statements smaller than one with n rows, and reports whether they can be.
func (s *Size) TimedOut(by pace.Steer, n int) bool {
	if float64(n) <= by.Smallest {
		return false
	}
	s.rows = by.TimedOut(float64(n))
	return true
}

// mostBeaten is how many deadlocks and the like are tried again with the same rows.
const mostBeaten = 5

// Ladder is the way through rows for which a statement is tried again and again: smaller when it takes too long, without the rows that other
// sessions have locked, and around single rows that fail.
type Ladder struct {
	Size  *Size
	Steer pace.Steer
	// First is the number of rows to begin with.
	First int
	// Waits makes statements wait for rows that others have locked, as long as the session's limits allow.
	Waits bool
	// Splits, if set, reports whether an error comes of a single row, which is to be found.
	Splits func(error) bool
	// Skip tells statements to leave out rows that other sessions have locked.
	Skip bool

	// most bounds the rows of a statement while a row that fails is looked for; 0 is no bound.
	most, beaten int
}

// Rows returns the rows of the next statement.
func (l *Ladder) Rows() int {
	rows := l.Size.Rows(l.First)
	if l.most > 0 {
		rows = min(rows, l.most)
	}
	return rows
}

// Limits are the timeouts of the next statement. One that waits for others, or that cannot be made any smaller, gets all the time that the
// session's allow.
func (l *Ladder) Limits(all batch.Limits) batch.Limits {
	if l.Waits {
		return all
	}
	if !l.Size.slow {
		all = l.Steer.Limits(all)
	}
	return all.ShortWaits()
}

// Passed learns from a statement with so many rows that went through, and leaves others their share of the time.
func (r *Run) Passed(ctx context.Context, l *Ladder, rows int64, took time.Duration) {
	l.Size.Learn(r.Pace.Beside(l.Steer), rows, 0, took)
	l.most, l.beaten = min(2*l.most, LargestBatch), 0
	r.Progress(ctx)
	r.Pace.Breathe(ctx, took, l.Size.Slow())
}

// Again reports whether n rows whose statement failed are to be tried again, perhaps fewer at a time.
func (l *Ladder) Again(f batch.Fault, err error, n int, all batch.Limits) bool {
	switch {
	case f.Lock() && !l.Waits && !l.Skip:
		l.Skip = true
	case f.Verdict == batch.Conflict && l.beaten < mostBeaten:
		l.beaten++
	case f.Verdict == batch.Timeout && l.Size.TimedOut(l.Steer, n):
	case f.Verdict == batch.Timeout && !l.Waits && !l.Size.slow && l.Steer.Limits(all) != all:
		l.Size.slow = true
	case n > 1 && l.Splits != nil && l.Splits(err):
		l.most = (n + 1) / 2
	default:
		return false
	}
	return true
}

// Pieces climbs a ladder with n rows in their order: try does something to so many of them in one transaction. It returns how many are through, and
// Blocked with the error of those behind them that do not go, which is fatal or that of as few rows as may be.
func (r *Run) Pieces(
	ctx context.Context, n int, l *Ladder, try func(ctx context.Context, at, n int, limits batch.Limits) error,
) (at int, _ Result, _ batch.Fault, _ error) {
	for at < n {
		if r.Paused(ctx) {
			return at, Yielded, batch.Fault{}, nil
		}
		some := min(l.Rows(), n-at)
		limits := l.Limits(r.Session.Limits)
		judge := r.Watch(ctx, limits)
		err := try(ctx, at, some, limits)
		switch f := judge(err); {
		case err == nil:
			r.Passed(ctx, l, int64(some), r.Session.Took())
			at += some
		case f.Verdict == batch.Fatal:
			return at, Blocked, f, err
		case r.Pace.Ended():
			return at, Yielded, f, nil
		case !l.Again(f, err, some, r.Session.Limits):
			return at, Blocked, f, err
		}
	}
	return at, Finished, batch.Fault{}, nil
}

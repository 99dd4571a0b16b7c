package pace

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// PauseAfter is the pause after so many failures in a row, before work is tried again that others are in the way of.
func PauseAfter(failures int) time.Duration {
	switch failures {
	case 0, 1:
		return time.Second
	case 2:
		return 2 * time.Second
	case 3:
		return 5 * time.Second
	default:
		return 15 * time.Second
	}
}

// Blocked is work that cannot be done for now, which is no failure: others have locked its rows, or it takes too long beside
// other work. The zero value and nil block nothing.
type Blocked struct {
	// Failures count the tries in a row.
	Failures int
	// Reason says to people what is in the way; By is the virtual transaction that was seen there, if one was.
	Reason, By string

	until time.Time
}

// Again notes one more try in vain. While it waits already there was no further one: a turn may meet several locks.
func (b *Blocked) Again(reason, by string) {
	if b.Waits() {
		return
	}
	b.Failures++
	b.Reason, b.By, b.until = reason, by, time.Now().Add(PauseAfter(b.Failures))
}

// Waits reports that the next try is not due yet.
func (b *Blocked) Waits() bool { return b != nil && time.Now().Before(b.until) }

// Obstacles are the waits of a run. The zero value is ready to use.
type Obstacles struct {
	waits []*Blocked
	asked time.Time
}

// freeEvery is how often a run asks whether what was in its way is gone.
const freeEvery = 250 * time.Millisecond

// Add notes a wait.
func (o *Obstacles) Add(b *Blocked) {
	if !slices.Contains(o.waits, b) {
		o.waits = append(o.waits, b)
	}
}

// Reason says what the longest wait is for, and "" where there is none.
func (o *Obstacles) Reason() string {
	o.waits = slices.DeleteFunc(o.waits, func(b *Blocked) bool { return !b.Waits() })
	if len(o.waits) == 0 {
		return ""
	}
	return slices.MaxFunc(o.waits, func(a, b *Blocked) int { return cmp.Compare(a.Failures, b.Failures) }).Reason
}

// Free ends the waits for transactions that are over, which it asks now and then.
func (o *Obstacles) Free(ctx context.Context, over func(ctx context.Context, transaction string) (bool, error)) error {
	if o.Reason() == "" || time.Since(o.asked) < freeEvery {
		return nil
	}
	o.asked = time.Now()
	asked := map[string]bool{"": false}
	for _, b := range o.waits {
		gone, known := asked[b.By]
		if !known {
			var err error
			if gone, err = over(ctx, b.By); err != nil {
				return err
			}
			asked[b.By] = gone
		}
		if gone {
			b.Free()
		}
	}
	return nil
}

// idlePause is the pause of a run in which everything waits.
const idlePause = 100 * time.Millisecond

// Idle pauses for a moment, as all that is left of the run waits, and says for what.
func (r *Run) Idle(ctx context.Context, o *Obstacles, over func(ctx context.Context, transaction string) (bool, error)) error {
	r.Waits(ctx, WaitLock, o.Reason())
	r.Pause(ctx, idlePause)
	err := o.Free(ctx, over)
	if err != nil || o.Reason() == "" || r.Ended() {
		r.Waits(ctx, "", "")
	}
	return err
}

// Free makes the next try due.
func (b *Blocked) Free() { b.until = time.Time{} }

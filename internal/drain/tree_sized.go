package drain

import (
	"context"

	"sexton/internal/batch"
)

// Sized runs one statement on rows to which no row refers. do gets the number of rows
// and the limits of the statement. Sized starts with first rows, and adjusts the number
// for the next call with that name, up to most.
func (t *Tree) Sized(ctx context.Context, name string, first, most int,
	do func(n int, limits batch.Limits) error,
) (retry bool, _ error) {
	n := t.Sizes.get(name, first)
	err := do(n, t.limits(n))
	if err != nil {
		retry = batch.Judge(err).Verdict == batch.Timeout && n > 1 && !t.Pace.Ended()
		if retry {
			t.Sizes.shrink(name, n)
		}
		return retry, err
	}
	took := t.Session.Took()
	t.Sizes.learn(name, n, took, t.Pace.Shortened(t.Target), most)
	t.Pace.PauseAfterBatch(ctx, took)
	return false, nil
}

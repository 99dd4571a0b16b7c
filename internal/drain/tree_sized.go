package drain

import (
	"context"

	"sexton/internal/batch"
)

// Sized runs one statement on rows to which no row refers. It calls do with the number of
// rows and the limits of the statement. The first statement with a name gets first rows.
// Its duration adjusts the number of rows for the next one, up to most. retry reports
// that the statement timed out and should be tried with fewer rows.
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

package loosefk

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/definitions"
)

func TestBackOffGrowsPerPlaceUntilSuccess(t *testing.T) {
	t.Parallel()
	reference := &Reference{Definition: definitions.Definition{}, Child: Table{Schema: "public", Name: "children"}}
	at := task{reference: reference, leaf: Table{OID: 1}}
	elsewhere := task{reference: reference, leaf: Table{OID: 2}}
	r := &run{engine: &Engine{Adaptive: Adaptive{Target: time.Millisecond, Duty: 1}}, backOffs: map[place]time.Duration{}, breaker: newBreaker()}
	failed := func(code string) error {
		return &batch.StatementError{Index: 0, Err: &pgconn.PgError{Code: code, Severity: "ERROR", Message: "in the way"}}
	}
	pauses := func(at task, how pass, code string) time.Duration {
		began := time.Now()
		b := r.backOff(at, how, failed(code))
		if b.until.IsZero() {
			return 0
		}
		require.Contains(t, b.reason, "children, after: in the way")
		return b.until.Sub(began).Truncate(10 * time.Millisecond)
	}
	for _, want := range []int{10, 20, 40, 80, 160, 320, 640, 1000, 1000} {
		require.Equal(t, time.Duration(want)*time.Millisecond, pauses(at, skipping, "40P01"))
	}
	require.Equal(t, 10*time.Millisecond, pauses(elsewhere, direct, "55P03"), "another place has its own")
	require.Equal(t, 20*time.Millisecond, pauses(elsewhere, piecewise, "40001"))
	require.Zero(t, pauses(elsewhere, waiting, "55P03"), "the waiting pass has waited")
	require.Zero(t, pauses(elsewhere, direct, "57014"), "too slow, but nobody is in the way")
	require.Zero(t, pauses(elsewhere, direct, "23503"))

	delete(r.backOffs, at.place())
	require.Equal(t, 10*time.Millisecond, pauses(at, piecewise, "40P01"), "from the beginning after a success")
	require.Equal(t, 40*time.Millisecond, pauses(elsewhere, direct, "40P01"), "which was one of its own place alone")

	r.engine.Adaptive = Adaptive{}
	require.Zero(t, pauses(at, skipping, "40P01"), "other paces do as before")
}

package riverjobs

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/heartbeat"
	"sexton/internal/pulse"
	"sexton/internal/samples"
)

// counting counts the transactions of a pulse, and the statements in them.
type counting struct {
	pulse.Pool

	transactions, statements int
}

func (c *counting) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	c.transactions++
	c.statements += b.Len()
	return c.Pool.SendBatch(ctx, b)
}

// However many kinds a worker has, its jobs database is asked once every two seconds; River's leader adds 28 transactions a minute.
func TestAnIdleWorkerAsksThirtyTimesAMinute(t *testing.T) {
	t.Parallel()
	five := []string{
		"SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_PLACEHOLDER_USERS__ENABLED=true", "SEXTON_ADJOURNED_GROUPS__ENABLED=true",
		"SEXTON_EXTERNAL_DIFFS__ENABLED=true", "SEXTON_EXTERNAL_DIFFS__BUCKET=file://" + t.TempDir(),
	}
	for name, test := range map[string]struct {
		environ []string
		lanes   int
	}{
		"one kind": {nil, 1}, "five kinds": {five, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, test.environ...)
			heart := &heartbeat.Heart{DB: b.db.Connected, ClientID: "test", Logger: b.deps.Logger}
			b.deps.Ask = func(questions ...pulse.Question) { heart.Also = append(heart.Also, questions...) }
			lanes, ears := Lanes(b.deps)
			require.Len(t, lanes, test.lanes)
			require.Len(t, ears, 1)
			_, err := NewClient(b.deps, "test")
			require.NoError(t, err)
			sampler := &samples.Sampler{Jobs: "main", Tables: DeletionTables(b.deps.Config), Logger: b.deps.Logger}
			b.deps.Ask(sampler.Questions(b.db.Connected)...)

			every := map[time.Duration]int{}
			for _, q := range heart.Also {
				every[q.Every]++
			}
			require.Equal(t, map[time.Duration]int{
				0: 1, 8 * time.Second: test.lanes, samples.Every: 3, 30 * time.Second: 1, // The queues, lanes, samples, the ear.
			}, every)
			require.GreaterOrEqual(t, fetchPoll, 30*time.Second)

			idle := heart.Pulse()
			sent := &counting{Pool: idle.On}
			idle.On = sent
			require.Equal(t, pulse.Usual, idle.Period)
			for range int(time.Minute / idle.Period) {
				require.NoError(t, idle.Next(t.Context()))
			}
			require.Equal(t, 30, sent.transactions)
			const lockTimeouts, looks, beats, sampled = 30, 2 * 30, 2 * 15, 3 * 5 // No lane sleeps without its ear.
			require.Equal(t, lockTimeouts+looks+beats+sampled, sent.statements)
			require.Equal(t, [][]string{{"1"}}, b.db.Rows("SELECT count(DISTINCT taken_at) FROM sexton.samples"))
			require.True(t, heart.Alive())
		})
	}
}

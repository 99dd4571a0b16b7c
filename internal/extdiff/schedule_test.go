package extdiff_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
)

// schedule runs the scheduler once and returns the diffs that it handed on.
func (b *bundle) schedule(t *testing.T, rule extdiff.Rule, limit int) (*extdiff.Schedule, []int64) {
	t.Helper()
	ids := []int64{}
	s, end := b.scheduler(t, rule, limit, func(_ context.Context, _ pgx.Tx, found []int64) (int, error) {
		ids = append(ids, found...)
		return len(found), nil
	})
	stats := pgtest.Must(s.Run(t.Context()))(t)
	end()
	return stats, ids
}

func (b *bundle) scheduler(t *testing.T, rule extdiff.Rule, limit int, insert func(context.Context, pgx.Tx, []int64) (int, error)) (*extdiff.Scheduler, func()) {
	t.Helper()
	session, end := b.Session(t, "schedule_migrate_external_diffs_worker")
	return &extdiff.Scheduler{Conn: session.Conn, Names: dbtest.Names(), Fence: session.Fence, Rule: rule, Limit: limit, Insert: insert}, end
}

func (b *bundle) anotherRound() {
	b.Exec("UPDATE sexton.external_diff_cursors SET round_began_at = now() - interval '1 hour'")
}

func (b *bundle) isDue(t *testing.T, rule extdiff.Rule) bool {
	t.Helper()
	condition := rule.DueSQL(false)
	return pgtest.Scalar[bool](t, b.Database, dbtest.Names().Render("SELECT "+extdiff.RemovalDueSQL+" OR "+condition))
}

func TestTheBiggestDiffsAreHandedOnFirst(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	const kib = 1 << 10
	for id, size := range []int{1, 300 * kib, 5 * kib * kib, 2, 17 * kib * kib, 299 * kib, 3} {
		b.add(int64(id+1), file{path: "a", text: new(strings.Repeat("x", size/2))}, file{path: "b", text: new(strings.Repeat("x", size-size/2))}, file{path: "c"})
	}
	next := func(limit int) []int64 {
		ids := []int64{}
		s, end := b.scheduler(t, extdiff.Always, limit, func(_ context.Context, _ pgx.Tx, found []int64) (int, error) {
			ids = append(ids, found...)
			return len(found), nil
		})
		s.BySize = true
		stats := pgtest.Must(s.Run(t.Context()))(t) // It fills the ids.
		require.Equal(t, len(ids) == limit, stats.OverLimit)
		end()
		return ids
	}
	due := func() bool {
		condition := extdiff.Always.DueSQL(true)
		return pgtest.Scalar[bool](t, b.Database, dbtest.Names().Render("SELECT "+condition))
	}
	require.True(t, due())
	require.Equal(t, []int64{5}, next(1))
	require.Equal(t, []int64{3, 2}, next(2))
	require.True(t, due(), "smaller ones stand before the place where the run stopped")
	b.add(8, file{path: "a", text: new(strings.Repeat("x", 6*kib*kib))})
	require.Equal(t, []int64{6, 8, 1}, next(3), "one that came in behind the round is handed on whatever its size")
	require.Equal(t, []int64{4, 7}, next(9)[:2])
	require.False(t, due(), "what was handed on is due no more, moved or not")
	b.add(9, file{path: "a", text: new(strings.Repeat("x", 6*kib*kib))})
	require.True(t, due())
	require.Equal(t, []int64{9}, next(9))
	require.Empty(t, next(9), "the round is over")
	b.anotherRound()
	require.Equal(t, []int64{5, 3, 8, 9, 2, 6, 1, 4, 7}, next(10))
	_, ids := b.schedule(t, extdiff.Always, 10)
	require.Len(t, ids, 9, "the order of ids has a place of its own")
}

func TestScheduleGoesRoundAndRound(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	require.False(t, b.isDue(t, extdiff.Always))
	for id := int64(1); id <= 10; id++ {
		b.add(id, file{path: "a", text: new("a")})
	}
	b.Exec("UPDATE merge_request_diffs SET files_count = 0 WHERE id = 3")
	b.Exec("UPDATE merge_request_diffs SET files_count = NULL WHERE id = 4")
	b.Exec("UPDATE merge_request_diffs SET stored_externally = true WHERE id = 5")
	b.Exec("UPDATE merge_request_diffs SET stored_externally = false WHERE id = 6")
	require.True(t, b.isDue(t, extdiff.Always))

	stats, ids := b.schedule(t, extdiff.Always, 5)
	require.Equal(t, []int64{1, 2, 6, 7, 8}, ids)
	require.True(t, stats.OverLimit)
	stats, ids = b.schedule(t, extdiff.Always, 5)
	require.Equal(t, []int64{9, 10}, ids, "refused ids hold up nobody")
	require.False(t, stats.OverLimit)
	_, ids = b.schedule(t, extdiff.Always, 5)
	require.Empty(t, ids, "the round is over")
	require.False(t, b.isDue(t, extdiff.Always), "what was handed on is due no more, moved or not")
	b.add(11, file{path: "a", text: new("a")})
	require.True(t, b.isDue(t, extdiff.Always))
	_, ids = b.schedule(t, extdiff.Always, 5)
	require.Equal(t, []int64{11}, ids)

	b.anotherRound()
	_, ids = b.schedule(t, extdiff.Always, 100)
	require.Equal(t, []int64{1, 2, 6, 7, 8, 9, 10, 11}, ids, "each once")
	b.anotherRound()
	b.add(12, file{path: "a", text: new("a")})
	_, ids = b.schedule(t, extdiff.Always, 100)
	require.Equal(t, []int64{12}, ids)
	_, ids = b.schedule(t, extdiff.Always, 100)
	require.Equal(t, []int64{1, 2, 6, 7, 8, 9, 10, 11, 12}, ids, "new ones do not keep it from the old ones")
}

func TestScheduleForgetsWhatItCouldNotHandOn(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("a")})
	full := errors.New("the queue is full")
	s, end := b.scheduler(t, extdiff.Always, 0, func(context.Context, pgx.Tx, []int64) (int, error) { return 0, full })
	_, err := s.Run(t.Context())
	require.ErrorIs(t, err, full)
	end()
	require.True(t, b.isDue(t, extdiff.Always))
	_, ids := b.schedule(t, extdiff.Always, 0)
	require.Equal(t, []int64{1}, ids)
}

func TestScheduleWithALostLeaseHandsOnNothing(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("a")})
	s, _ := b.scheduler(t, extdiff.Always, 0, func(context.Context, pgx.Tx, []int64) (int, error) {
		return 0, errors.New("it was asked all the same")
	})
	b.Exec("UPDATE sexton.fences SET token = token + 1")
	_, err := s.Run(t.Context())
	require.ErrorContains(t, err, "lease lost: schedule_migrate_external_diffs_worker")
}

// Few of many are due: a run looks at windows of them.
func TestScheduleFindsTheFewThatAreDue(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.Exec(`
		INSERT INTO merge_request_diffs (merge_request_id, project_id, files_count) SELECT 7, 1, 1 FROM generate_series(1, 7000);
		UPDATE merge_requests SET latest_merge_request_diff_id = 3;
		INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch, state_id) VALUES (8, 1, 'title', 'b', 'main', 3);
		INSERT INTO merge_request_metrics (merge_request_id, merged_at) VALUES (8, now() - interval '30 days');
		UPDATE merge_request_diffs SET merge_request_id = 8 WHERE id IN (2500, 6999)`)
	stats, ids := b.schedule(t, extdiff.Outdated, 1000)
	require.Equal(t, []int64{1, 2, 2500, 6999}, ids)
	require.EqualValues(t, 7000, stats.Looked)
	require.False(t, b.isDue(t, extdiff.Outdated))
}

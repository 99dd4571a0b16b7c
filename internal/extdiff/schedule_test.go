package extdiff_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/extdiff"
	"sexton/internal/pgtest"
)

// schedule runs the scheduler once, and returns the diffs for which it inserted jobs.
func (b *bundle) schedule(t *testing.T, rule extdiff.Rule, limit int) (*extdiff.Schedule, []int64) {
	ids := []int64{}
	s, end := b.scheduler(t, rule, limit, func(_ context.Context, _ pgx.Tx, found []int64, _ time.Duration) (int,
		error,
	) {
		ids = append(ids, found...)
		return len(found), nil
	})
	stats := pgtest.Must(s.Run(t.Context()))(t)
	end()
	return stats, ids
}

func (b *bundle) scheduler(t *testing.T, rule extdiff.Rule, limit int,
	insert func(context.Context, pgx.Tx, []int64, time.Duration) (int, error),
) (*extdiff.Scheduler, func()) {
	session, end := b.Session(t, "schedule_migrate_external_diffs_worker")
	return &extdiff.Scheduler{
		Conn: session.Conn, Names: dbtest.Names(), Fence: session.Fence, Rule: rule, Limit: limit,
		Insert: insert,
	}, end
}

func (b *bundle) beginNewRound() {
	b.Exec("UPDATE sexton.external_diff_cursors SET round_began_at = now() - interval '1 hour'")
}

func (b *bundle) isDue(t *testing.T, rule extdiff.Rule) bool {
	condition := rule.DueSQL()
	return pgtest.Scalar[bool](t, b.Database, dbtest.Names().Render("SELECT "+extdiff.RemovalDueSQL+" OR "+condition))
}

func TestScheduleStartsNewRounds(t *testing.T) {
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
	require.Equal(t, []int64{9, 10}, ids, "the run continues after the last position")
	require.False(t, stats.OverLimit)
	_, ids = b.schedule(t, extdiff.Always, 5)
	require.Empty(t, ids, "the round has ended")
	require.False(t, b.isDue(t, extdiff.Always), "a diff with a job is not due, whether it has been moved or not")
	b.add(11, file{path: "a", text: new("a")})
	require.True(t, b.isDue(t, extdiff.Always))
	_, ids = b.schedule(t, extdiff.Always, 5)
	require.Equal(t, []int64{11}, ids)

	b.beginNewRound()
	_, ids = b.schedule(t, extdiff.Always, 100)
	require.Equal(t, []int64{1, 2, 6, 7, 8, 9, 10, 11}, ids, "each diff is scheduled once")
	b.beginNewRound()
	b.add(12, file{path: "a", text: new("a")})
	_, ids = b.schedule(t, extdiff.Always, 100)
	require.Equal(t, []int64{12}, ids)
	_, ids = b.schedule(t, extdiff.Always, 100)
	require.Equal(t, []int64{1, 2, 6, 7, 8, 9, 10, 11, 12}, ids, "a new diff does not delay the next round")
}

func TestScheduleKeepsPositionIfInsertFails(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("a")})
	full := errors.New("the queue is full")
	s, end := b.scheduler(t, extdiff.Always, 0, func(context.Context, pgx.Tx, []int64, time.Duration) (int,
		error,
	) {
		return 0, full
	})
	_, err := s.Run(t.Context())
	require.ErrorIs(t, err, full)
	end()
	require.True(t, b.isDue(t, extdiff.Always))
	_, ids := b.schedule(t, extdiff.Always, 0)
	require.Equal(t, []int64{1}, ids)
}

func TestScheduleWithLostLeaseInsertsNoJobs(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, file{path: "a", text: new("a")})
	s, _ := b.scheduler(t, extdiff.Always, 0, func(context.Context, pgx.Tx, []int64, time.Duration) (int, error) {
		return 0, errors.New("Insert was called without a lease")
	})
	b.Exec("UPDATE sexton.fences SET token = token + 1")
	_, err := s.Run(t.Context())
	require.ErrorContains(t, err, "lease lost: schedule_migrate_external_diffs_worker")
}

// If few of many diffs are due, one run reads several windows.
func TestScheduleReadsSeveralWindows(t *testing.T) {
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

// A diff whose files are locked does not delay the move of another diff.
func TestLockedDiffDelaysNoOther(t *testing.T) {
	t.Parallel()
	b := inFolder(t)
	b.add(1, threeFiles()...)
	b.add(2, threeFiles()...)
	b.engine.Limits.Lock, b.engine.Limits.Statement = 10*time.Minute, 10*time.Minute
	var claims atomic.Int64
	b.engine.Reached = func(p extdiff.Point) {
		if p == extdiff.PointClaimed {
			claims.Add(1)
		}
	}
	tx := pgtest.Begin(t, b.Pool())
	pgtest.Exec(t, tx, "SELECT FROM merge_request_diff_files WHERE merge_request_diff_id = 1 FOR UPDATE")
	ended := make(chan error, 2)
	move := func(id int64) { _, err := b.engine.Move(t.Context(), id); ended <- err }
	go move(1)
	b.waitFor(t, "diff 1 to wait for a lock",
		"EXISTS (SELECT FROM pg_locks WHERE NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))"+
			" OR EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')")
	go move(2)
	b.waitFor(t, "diff 2 to be moved", "EXISTS (SELECT FROM merge_request_diffs WHERE id = 2 AND stored_externally)")
	require.EqualValues(t, 2, claims.Load(), "diff 1 still has its first claim")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, <-ended)
	require.NoError(t, <-ended)
	require.Equal(t, "t", b.stored(1)[0][0])
}

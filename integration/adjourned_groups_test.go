package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

// testAdjournedGroups marks groups while two workers and a foreground pass are at it, of which one worker is killed in the
// middle: every group is passed on for its destruction once, 20 s after the one before, or restored.
func testAdjournedGroups(t *testing.T, p program) {
	t.Helper()
	s := p.site(t, pgtest.New(t).URL, onMain(`
loose_foreign_keys: {enabled: false}
adjourned_groups: {enabled: true, schedule: "0 0 1 1 *"}
http: {listen: ""}
`, sample.Schema()+`
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (7);
		INSERT INTO users (id, username, email, name, admin) SELECT n, 'user' || n, n || '@example.com', 'User ' || n, n = 1 FROM generate_series(1, 2) AS n;
		INSERT INTO groups (id, name, path) SELECT n, 'Group ' || n, 'group-' || n FROM generate_series(1, 600) AS n;`,
		// Nothing is destroyed here.
		`INSERT INTO sexton.job_kinds (kind, queue, cron, max_attempts, args, defaults)
		VALUES ('group_destroy', 'group_destroy', false, 25, '{"group_id": "bigint", "user_id": "bigint"}', '{}') ON CONFLICT DO NOTHING;
		INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ('group_destroy', now(), now())`))
	first, second := s.started(t, soonDead), s.started(t, soonDead)
	s.exec(t, "SELECT sexton.schedule_group_deletion(id, 1) FROM groups")
	// Every third was scheduled by somebody who may not remove it, every sixth by somebody who is gone.
	s.exec(t, `UPDATE group_deletion_schedules SET user_id = CASE WHEN group_id % 2 = 0 THEN 404 ELSE 2 END WHERE group_id % 3 = 0;
		UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - 8`)
	s.wait(t, time.Minute, "the first groups to be passed on", "EXISTS (SELECT FROM sexton.river_job WHERE kind = 'group_destroy')")
	require.NoError(t, first.cmd.Process.Kill())
	p.run(t, s.dir, s.url, 0, "job", "run", "adjourned_group_deletion")
	s.wait(t, time.Minute, "all groups to be decided about", "600 = (SELECT count(*) FROM sexton.river_job WHERE kind = 'group_destroy') + (SELECT count(*) FROM groups WHERE marked_for_deletion_on IS NULL)")
	second.stop(t)
	require.EqualValues(t, 400, s.count(t, "SELECT count(DISTINCT args ->> 'group_id') FROM sexton.river_job WHERE kind = 'group_destroy'"))
	require.EqualValues(t, 400, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE kind = 'group_destroy'"), "once each")
	require.EqualValues(t, 20, s.count(t, `SELECT min(gap)::bigint FROM (
		SELECT round(extract(epoch FROM scheduled_at - lag(scheduled_at) OVER (ORDER BY scheduled_at))) AS gap FROM sexton.river_job WHERE kind = 'group_destroy'
	) AS line`))
	require.EqualValues(t, 200, s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'group_restored' AND payload -> 'user_id' = 'null'"), "each is announced once")
	require.EqualValues(t, 100, s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'group_restored' AND payload ->> 'reason' = 'user_missing'"))
	require.EqualValues(t, 0, s.count(t, "SELECT count(*) FROM groups WHERE (marked_for_deletion_on IS NULL) <> (path = 'group-' || id)"))
	require.EqualValues(t, 0, s.count(t, "SELECT count(*) FROM sexton.group_deletion_failures"))
}

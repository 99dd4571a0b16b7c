package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

// testPlaceholderUsers deletes the groups of an import while two workers and foreground passes are at it, of which one worker
// is killed: placeholders that have written nothing go, the others stay with a reason, and nobody is tried twice.
func testPlaceholderUsers(t *testing.T, p program) {
	t.Helper()
	s := p.site(t, pgtest.New(t).URL, onMain(`
loose_foreign_keys: {enabled: false}
ghost_users: {enabled: true, schedule: "0 0 1 1 *"}
placeholder_users: {enabled: true, schedule: "0 0 1 1 *", spacing: 10ms}
http: {listen: ""}
`, sample.Schema()+`
		-- Each of the ten groups has ten placeholders; every fifth has written an issue, and every tenth is there twice.
		INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO groups (id, name, path) SELECT n, 'group ' || n, 'group' || n FROM generate_series(1, 12) AS n;
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 12, 'project', 'project');
		INSERT INTO users (id, username, email, name, user_type)
			SELECT n, 'p' || n, n || '@noreply.example.com', 'Placeholder ' || n, 15 FROM generate_series(1, 110) AS n;
		ALTER TABLE users ALTER id RESTART 1000;
		INSERT INTO issues (id, project_id, title, author_id) SELECT n, 1, 'imported', n FROM generate_series(5, 110, 5) AS n;
		INSERT INTO ci_pipelines (id, partition_id, project_id, user_id, ref, sha, status) SELECT n, 100, 1, n, 'main', 'x', 'success' FROM generate_series(1, 110) AS n;
		INSERT INTO import_placeholder_user_details (placeholder_user_id, namespace_id, organization_id)
			SELECT n, 1 + (n - 1) / 10, 1 FROM generate_series(1, 110) AS n
			UNION ALL SELECT n, 1 + (n - 1) / 10, 1 FROM generate_series(10, 110, 10) AS n;`, ""))
	first, second := s.started(t, soonDead), s.started(t, soonDead)

	// By the foreign key's action, by hand, and as rows that come in without an owner.
	s.exec(t, "DELETE FROM groups WHERE id <= 8")
	s.wait(t, time.Minute, "the first placeholder to be gone", "NOT EXISTS (SELECT FROM users WHERE id = 1)")
	leader := pgtest.Scalar[string](t, s.pool, "SELECT leader_id FROM sexton.river_leader")
	killed, left := first, second
	if strings.Contains(leader, fmt.Sprintf(":%d:", first.cmd.Process.Pid)) {
		killed, left = second, first // Another leader takes its time.
	}
	require.NoError(t, killed.cmd.Process.Kill())
	s.exec(t, "UPDATE import_placeholder_user_details SET namespace_id = NULL WHERE namespace_id = 9")
	s.exec(t, "INSERT INTO import_placeholder_user_details (placeholder_user_id, organization_id) SELECT n, 1 FROM generate_series(91, 100) AS n")
	s.exec(t, "DELETE FROM groups WHERE id = 10")
	p.run(t, s.dir, s.url, 0, "job", "run", "import_placeholder_user_cleanup")
	p.run(t, s.dir, s.url, 0, "job", "run", "import_delete_placeholder_user", "--args", `{"user_id": 42}`)
	p.run(t, s.dir, s.url, 0, "job", "run", "import_delete_placeholder_user", "--args", `{"user_id": 4711}`)
	s.wait(t, time.Minute, "all that may go to be gone", "NOT EXISTS (SELECT FROM users WHERE id <= 100 AND id % 5 > 0)")
	s.wait(t, time.Minute, "all others to be looked at once", "NOT EXISTS (SELECT FROM import_placeholder_user_details WHERE namespace_id IS NULL AND last_error IS NULL)")
	p.run(t, s.dir, s.url, 0, "job", "run", "import_placeholder_user_cleanup")
	s.wait(t, time.Minute, "all others to be looked at by each of their rows", "NOT EXISTS (SELECT FROM import_placeholder_user_details WHERE namespace_id IS NULL AND (last_error IS NULL OR deletion_attempts = 0))")
	s.wait(t, time.Minute, "all jobs to end", "NOT EXISTS (SELECT FROM sexton.river_job WHERE finalized_at IS NULL)")
	left.stop(t)

	require.EqualValues(t, 30, s.count(t, "SELECT count(*) FROM users WHERE user_type = 15"), "20 that wrote something, 10 with an owner")
	require.EqualValues(t, 22, s.count(t, "SELECT count(*) FROM issues"))
	require.Zero(t, s.count(t, "SELECT count(*) FROM issues JOIN users ON users.id = author_id WHERE user_type = 5"), "no author was lost")
	require.EqualValues(t, 80, s.count(t, "SELECT count(*) FROM ci_pipelines JOIN users ON users.id = user_id WHERE user_type = 5"), "contributions have passed")
	require.EqualValues(t, 80, s.count(t, "SELECT count(*) FROM sexton.events WHERE kind = 'user_destroyed'"), "each is announced once")
	require.Zero(t, s.count(t, `SELECT count(*) FROM import_placeholder_user_details
		WHERE namespace_id IS NULL AND last_error <> format('still referenced by issues.author_id (id %s)', placeholder_user_id)`))
	// Each row was tried once. Only users that could go needed a job, and each needed one.
	require.Zero(t, s.count(t, "SELECT count(*) FROM import_placeholder_user_details WHERE deletion_attempts <> CASE WHEN namespace_id IS NULL THEN 1 ELSE 0 END"))
	require.Zero(t, s.count(t, `SELECT count(*) FROM (
			SELECT args ->> 'user_id', count(*) FROM sexton.river_job WHERE kind = 'import_delete_placeholder_user' GROUP BY 1
		) AS job (user_id, jobs)
		WHERE jobs > 1 OR user_id::bigint % 5 = 0`))
	require.Zero(t, s.count(t, "SELECT count(*) FROM sexton.river_job WHERE state <> 'completed'"), "jobs that did not complete")
}

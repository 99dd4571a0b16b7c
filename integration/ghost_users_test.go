package integration

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

// testGhostUsers deletes users while two workers and a foreground pass are at it, of which one worker is killed in the middle:
// nothing that the users wrote is lost, and nothing of them is left.
func testGhostUsers(t *testing.T, p program) {
	t.Helper()
	d := pgtest.New(t)
	pool, err := pgxpool.New(t.Context(), d.URL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := workSite{program: p, url: d.URL, dir: t.TempDir(), pool: pool}
	// Small batches, so that there is a middle.
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "sexton.yaml"), []byte(`
databases: {main: {url: "${DATABASE_URL}"}}
loose_foreign_keys: {enabled: false}
ghost_users: {enabled: true, schedule: "0 0 1 1 *", batches: {move: 2}}
http: {listen: ""}
`), 0o600))
	s.exec(t, sample.Schema())
	s.exec(t, `
		INSERT INTO users (id, username, email, name) SELECT n, 'user' || n, n || '@example.com', 'User ' || n FROM generate_series(1, 20) AS n;
		INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
		INSERT INTO issues (project_id, title, author_id) SELECT 1, 'by user ' || n, n FROM generate_series(1, 20) AS n, generate_series(1, 40);
		INSERT INTO todos (user_id, author_id, target_type, target_id, action) SELECT n, n, 'Issue', 1, 1 FROM generate_series(1, 20) AS n;`)
	p.run(t, s.dir, s.url, 0, "migrate", "up")
	p.run(t, s.dir, s.url, 0, "triggers", "install")
	first, second := s.started(t), s.started(t)
	s.exec(t, "SELECT sexton.delete_user(id, 20, false) FROM users WHERE id <= 10")
	s.wait(t, time.Minute, "the first rows to be moved", "EXISTS (SELECT FROM issues JOIN users ON users.id = author_id WHERE user_type = 5)")
	require.NoError(t, first.cmd.Process.Kill())
	p.run(t, s.dir, s.url, 0, "job", "run", "users_migrate_records_to_ghost_user_in_batches")
	s.wait(t, time.Minute, "all ten users to be gone", "NOT EXISTS (SELECT FROM users WHERE id <= 10) AND NOT EXISTS (SELECT FROM users_ghost_user_migrations)")
	second.stop(t)
	require.EqualValues(t, 800, s.count(t, "SELECT count(*) FROM issues"), "what they wrote is kept")
	require.EqualValues(t, 400, s.count(t, "SELECT count(*) FROM issues JOIN users ON users.id = author_id WHERE user_type = 5"))
	require.EqualValues(t, 10, s.count(t, "SELECT count(*) FROM todos"))
	require.EqualValues(t, 10, s.count(t, "SELECT count(DISTINCT payload ->> 'user_id') FROM sexton.events WHERE kind = 'user_destroyed'"))
	require.EqualValues(t, 10, s.count(t, "SELECT count(*) FROM sexton.events"), "each is announced once")
	require.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM users WHERE user_type = 5"), "one ghost")
}

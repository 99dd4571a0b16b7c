package integration

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// One definition whose table is gone, and lists that do not fit, keep the worker from nothing else, and everybody is told.
func testRunHolds(t *testing.T, p program) {
	t.Helper()
	s := newWorkSite(t, p)
	s.exec(t, "CREATE TABLE others (id bigint PRIMARY KEY); CREATE TABLE gone (id bigint PRIMARY KEY, other_id bigint)")
	file := filepath.Join(s.dir, "loose_foreign_keys.yml")
	require.NoError(t, os.WriteFile(file, []byte(gatedDefinitions+"gone: [{table: others, column: other_id, on_delete: async_delete}]\n"), 0o600))
	p.run(t, s.dir, s.url, 0, "triggers", "install")
	s.exec(t, `CREATE TABLE users (id bigint PRIMARY KEY, username text UNIQUE, email text UNIQUE, name text, state text, user_type smallint,
		admin boolean NOT NULL DEFAULT false)`)
	p.environ = append([]string{"SEXTON_GHOST_USERS__ENABLED=true"}, p.environ...)
	s.program = p
	p.run(t, s.dir, s.url, 0, "migrate", "up")
	s.exec(t, "INSERT INTO others VALUES (1); DROP TABLE gone; DELETE FROM others; DELETE FROM parents WHERE id = 1")

	w := s.started(t)
	w.logged(t, "child table public.gone does not exist")
	s.wait(t, time.Minute, "the other parent", `NOT EXISTS (SELECT FROM children WHERE parent_id = 1)
		AND NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.parents')`)
	require.EqualValues(t, 1, s.count(t, "SELECT count(*) FROM loose_foreign_keys_deleted_records WHERE fully_qualified_table_name = 'public.others'"))
	s.wait(t, time.Minute, "what is held in the worker's row", `EXISTS (SELECT FROM sexton.clients, unnest(held) AS h WHERE h LIKE 'loose_foreign_keys_cleanup/main: %gone%')
		AND EXISTS (SELECT FROM sexton.clients, unnest(held) AS h WHERE h LIKE 'users_migrate_records_to_ghost_user_in_batches/main: %')`)
	status := p.run(t, s.dir, s.url, 0, "status")
	require.Contains(t, status, "a configuration that fits the database: ")
	require.Contains(t, status, "child table public.gone does not exist")
	p.run(t, s.dir, s.url, 5, "doctor")

	s.exec(t, "CREATE TABLE gone (id bigint PRIMARY KEY, other_id bigint); UPDATE loose_foreign_keys_deleted_records SET consume_after = now()")
	p.run(t, s.dir, s.url, 0, "job", "enqueue", kind)
	s.wait(t, time.Minute, "the parent that was held", "NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
	w.stop(t)
}

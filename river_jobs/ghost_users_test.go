package riverjobs

import (
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/dbtest"
	"sexton/internal/listen"
	"sexton/internal/pgtest"
)

// ghostBundle is the reference application with Ada (1), who wrote an issue, and what jobs need to work on it.
func ghostBundle(t *testing.T) bundle {
	t.Helper()
	return application(t, `
		INSERT INTO users (id, username, email, name) VALUES (1, 'ada', 'ada@example.com', 'Ada'), (2, 'ben', 'ben@example.com', 'Ben');
		INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
		INSERT INTO projects (id, group_id, name, path, creator_id) VALUES (1, 1, 'project', 'project', 1);
		INSERT INTO issues (id, project_id, title, author_id, updated_by_id) VALUES (1, 1, 'by Ada', 1, 1), (2, 1, 'by Ben', 2, 2);`, "SEXTON_GHOST_USERS__ENABLED=true")
}

func TestGhostUsersWorker(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.db.Exec("INSERT INTO sexton.job_kinds (kind, queue, cron, max_attempts, args, defaults) VALUES ($1, $1, true, 1, '{}', '{}') ON CONFLICT DO NOTHING", GhostUsers)
	require.Equal(t, listen.Due{}, b.due(t, GhostUsers))
	require.True(t, pgtest.Scalar[bool](t, b.db.Database, "SELECT sexton.delete_user(1, 2, false)"))
	require.True(t, b.due(t, GhostUsers).Now)
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, MigrateRecordsToGhostUserArgs{}).Kind)
	require.Equal(t, [][]string{{"1", "ghost", "NULL"}, {"2", "ben", "2"}},
		b.db.Rows("SELECT issues.id, users.username, issues.updated_by_id FROM issues JOIN users ON users.id = issues.author_id ORDER BY issues.id"))
	require.Empty(t, b.db.Rows("SELECT FROM users WHERE id = 1"))
	require.Equal(t, [][]string{{"done", "1"}}, b.db.Rows("SELECT outcome, stats ->> 'users_processed' FROM sexton.runs WHERE changed"))
	require.Contains(t, b.log.String(), "msg=user_processed")
	require.Contains(t, b.log.String(), "user_id=1")
	require.Equal(t, listen.Due{}, b.due(t, GhostUsers))
	require.Equal(t, river.EventKindJobCompleted, b.workOne(t, MigrateRecordsToGhostUserArgs{}).Kind)
	require.Len(t, b.db.Rows("SELECT FROM users"), 2, "the second run changes nothing")
}

func TestGhostUsersAreDueByTheirTime(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.db.Exec("INSERT INTO users_ghost_user_migrations (user_id, consume_after, created_at, updated_at) VALUES (1, now() + interval '1 hour', now(), now())")
	due := b.due(t, GhostUsers)
	require.False(t, due.Now)
	require.InDelta(t, 3600, due.In.Seconds(), 60)
	b.db.Exec("UPDATE users_ghost_user_migrations SET consume_after = now()")
	require.True(t, b.due(t, GhostUsers).Now)
	b.db.Exec("INSERT INTO sexton.river_queue (name, updated_at, paused_at) VALUES ($1, now(), now())", GhostUsers)
	require.False(t, b.due(t, GhostUsers).Now, "paused")
}

func TestGhostListsAreCheckedWhereTheyStand(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	c := configuration(t, "SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_GHOST_USERS__MOVE=[{table: isues, columns: [author_id]}]")
	_, found, err := CheckGhostUsers(t.Context(), c, db.Connected, db.Pool())
	require.NoError(t, err)
	require.ErrorContains(t, found.Err(), "SEXTON_GHOST_USERS__MOVE[0].table")
	_, found, err = CheckGhostUsers(t.Context(), configuration(t, "SEXTON_GHOST_USERS__ENABLED=true"), db.Connected, db.Pool())
	require.NoError(t, err)
	require.Empty(t, found, "the default lists fit the reference application")
}

func TestGhostUsersHaveOneDatabase(t *testing.T) {
	t.Parallel()
	c := &config.Config{Databases: []config.Database{{Name: "main"}, {Name: "ci"}}, Jobs: config.Jobs{Database: "ci"}, GhostUsers: config.GhostUsers{Enabled: true}}
	jobs := Jobs(c)
	require.Len(t, jobs, 1)
	require.Equal(t, []string{"ci"}, jobs[0].Databases)
}

// A kind that fails as a whole is left alone by the wake-ups, longer each time, until a pass succeeds.
func TestGhostUsersBackOff(t *testing.T) {
	t.Parallel()
	b := ghostBundle(t)
	b.deps.Config = configuration(t, "SEXTON_GHOST_USERS__ENABLED=true", "SEXTON_GHOST_USERS__MOVE=[{table: isues, columns: [author_id]}]")
	b.db.Exec("SELECT sexton.delete_user(1, 2, false)")
	lane := ghostUsers(b.deps.Config).lane(b.deps, b.db.Connected)
	_, err := run(t.Context(), b.deps, MigrateRecordsToGhostUserArgs{})
	require.ErrorContains(t, err, "table isues does not exist")
	require.Greater(t, pgtest.Must(lane.Work(t.Context(), b.db.Connected.Pool, 0))(t), failedRetry)
	require.Empty(t, b.db.Rows("SELECT FROM sexton.river_job"), "no job while the pause lasts")

	b.deps.Config = configuration(t, "SEXTON_GHOST_USERS__ENABLED=true")
	b.ran(t, MigrateRecordsToGhostUserArgs{})
	require.Zero(t, b.deps.Bindings.ghosts.wait(time.Now()))
}

package groupschedule_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/groupschedule"
	"sexton/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// spacing is the configuration's default.
const spacing = 20 * time.Second

const leaseKey = "adjourned_group_deletion_worker"

// application has the users admin (1), ada (2), ben (3), carla (4) and the groups root
// (10), child (11) and grandchild (12), one below the other, beside another root, other
// (20). Ada owns the child. The period is 30 days.
const application = `
INSERT INTO application_settings (deletion_adjourned_period) VALUES (30);
INSERT INTO users (id, username, email, name, admin) SELECT id, name, name || '@example.com', name, id = 1
FROM (VALUES (1, 'admin'), (2, 'ada'), (3, 'ben'), (4, 'carla')) AS people (id, name);
INSERT INTO groups (id, parent_id, name, path) VALUES
	(10, NULL, 'Root', 'root'), (11, 10, 'Child', 'child'), (12, 11, 'Grandchild', 'grandchild'), (20, NULL, 'Other', 'other');
INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (2, 'Namespace', 11, 50);
INSERT INTO sexton.job_kinds (kind, queue, cron, max_attempts, args, defaults)
VALUES ('group_destroy', 'group_destroy', false, 25, '{"group_id": "bigint", "user_id": "bigint"}', '{}');`

// site is one database with the application.
type site struct{ *dbtest.DB }

func setup(t *testing.T, statements ...string) site {
	s := site{dbtest.Reference(t)}
	s.Exec(application)
	for _, statement := range statements {
		s.Exec(statement)
	}
	return s
}

// pass runs one, and gives the lease back.
func (s site) pass(t *testing.T) (stats *groupschedule.Stats) {
	s.passWith(t, func(e *groupschedule.Engine) {
		stats = pgtest.Must(e.Run(t.Context()))(t)
	})
	return stats
}

func (s site) passWith(t *testing.T, work func(*groupschedule.Engine)) {
	session, end := s.Session(t, leaseKey)
	work(&groupschedule.Engine{Spacing: spacing, Session: session})
	end()
}

// ask calls a door and returns what it says.
func (s site) ask(t *testing.T, door string, group, user any) bool {
	return pgtest.Scalar[bool](t, s.Database, "SELECT sexton."+door+"($1, $2)", group, user)
}

// scheduled has a user schedule the deletion of groups, as if that had been so many days
// ago.
func (s site) scheduled(t *testing.T, user any, days int, groups ...int64) {
	for _, group := range groups {
		s.ask(t, "schedule_group_deletion", group, user)
	}
	s.age(days, groups...)
}

// refused calls a door that refuses.
func (s site) refused(t *testing.T, door string, group, user any, code, message string) {
	_, err := s.Pool().Exec(t.Context(), "SELECT sexton."+door+"($1, $2)", group, user)
	requireState(t, err, code, message)
}

func requireState(t *testing.T, err error, code, message string) {
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, code, pgErr.Code, pgErr.Message)
	require.Equal(t, message, pgErr.Message)
}

// age moves marks back, as if so many days had gone by since.
func (s site) age(days int, groups ...int64) {
	s.Exec("UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - $1::int WHERE id = ANY ($2)", days,
		groups)
	s.Exec("UPDATE group_deletion_schedules SET marked_for_deletion_on = marked_for_deletion_on - $1::int WHERE group_id = ANY ($2)", days, groups)
}

// groups returns id, path and how many days ago each marked group was marked, with who
// scheduled it.
func (s site) marked() [][]string {
	return s.Rows(`SELECT id, path, (now() AT TIME ZONE 'UTC')::date - groups.marked_for_deletion_on, user_id
		FROM groups FULL JOIN group_deletion_schedules ON group_id = id
		WHERE groups.marked_for_deletion_on IS NOT NULL OR group_id IS NOT NULL ORDER BY id`)
}

// jobs returns the destructions: group, user and seconds after the first.
func (s site) jobs() [][]string {
	return s.Rows(`SELECT args ->> 'group_id', args ->> 'user_id', extract(epoch FROM scheduled_at - min(scheduled_at) OVER ())::int, state
		FROM sexton.river_job WHERE kind = 'group_destroy' ORDER BY scheduled_at, id`)
}

// events returns kind, group and user, in their order.
func (s site) events() [][]string {
	return s.Rows(`SELECT kind, payload ->> 'group_id', coalesce(payload ->> 'user_id', ''), coalesce(payload ->> 'reason', '') FROM sexton.events ORDER BY id`)
}

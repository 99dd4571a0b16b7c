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

// spacing is the default spacing of the configuration.
const spacing = 20 * time.Second

const leaseKey = "adjourned_group_deletion_worker"

// application creates the users admin (1), ada (2), ben (3) and carla (4), the nested
// groups root (10), child (11) and grandchild (12), and the group other (20). Ada owns
// the child. The period is 30 days.
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

// pass runs one pass and releases the lease.
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

// call calls an SQL function of schema sexton with a group and a user, and returns its
// result.
func (s site) call(t *testing.T, function string, group, user any) bool {
	return pgtest.Scalar[bool](t, s.Database, "SELECT sexton."+function+"($1, $2)", group, user)
}

// schedule schedules the deletion of groups on behalf of a user, as of the given number
// of days ago.
func (s site) schedule(t *testing.T, user any, days int, groups ...int64) {
	for _, group := range groups {
		s.call(t, "schedule_group_deletion", group, user)
	}
	s.ageMarks(days, groups...)
}

// requireRefusal calls an SQL function of schema sexton, and requires an error with this
// SQLSTATE and message.
func (s site) requireRefusal(t *testing.T, function string, group, user any, code, message string) {
	_, err := s.Pool().Exec(t.Context(), "SELECT sexton."+function+"($1, $2)", group, user)
	requireState(t, err, code, message)
}

func requireState(t *testing.T, err error, code, message string) {
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, code, pgErr.Code, pgErr.Message)
	require.Equal(t, message, pgErr.Message)
}

// ageMarks moves the marks of groups back by the given number of days.
func (s site) ageMarks(days int, groups ...int64) {
	s.Exec("UPDATE groups SET marked_for_deletion_on = marked_for_deletion_on - $1::int WHERE id = ANY ($2)", days,
		groups)
	s.Exec("UPDATE group_deletion_schedules SET marked_for_deletion_on = marked_for_deletion_on - $1::int WHERE group_id = ANY ($2)", days, groups)
}

// marked returns the id, the path, the age of the mark in days and the scheduling user of
// each marked or scheduled group.
func (s site) marked() [][]string {
	return s.Rows(`SELECT id, path, (now() AT TIME ZONE 'UTC')::date - groups.marked_for_deletion_on, user_id
		FROM groups FULL JOIN group_deletion_schedules ON group_id = id
		WHERE groups.marked_for_deletion_on IS NOT NULL OR group_id IS NOT NULL ORDER BY id`)
}

// jobs returns the jobs that destroy groups: the group, the user, the seconds between the
// first job's time and the job's time, and the state.
func (s site) jobs() [][]string {
	return s.Rows(`SELECT args ->> 'group_id', args ->> 'user_id', extract(epoch FROM scheduled_at - min(scheduled_at) OVER ())::int, state
		FROM sexton.river_job WHERE kind = 'group_destroy' ORDER BY scheduled_at, id`)
}

// events returns the kind, group, user and reason of all events, the oldest first.
func (s site) events() [][]string {
	return s.Rows(`SELECT kind, payload ->> 'group_id', coalesce(payload ->> 'user_id', ''), coalesce(payload ->> 'reason', '') FROM sexton.events ORDER BY id`)
}

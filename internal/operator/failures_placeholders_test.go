package operator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/audittrail"
	"sexton/internal/component"
	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbtest"
	"sexton/internal/installation"
	"sexton/internal/pgtest"
)

func TestPlaceholdersThatAreKeptStandOnThePage(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	c := &config.Config{}
	c.PlaceholderUsers.Enabled, c.PlaceholderUsers.MaxAttempts, c.PlaceholderUsers.RetryPeriod = true, 15, 48*time.Hour
	c.Jobs.Schema, c.Jobs.Database = "sexton", "main"
	c.Databases = []config.Database{{Name: "main"}}
	all := &installation.Connections{Config: c, Databases: []database.Database{db.Connected}}
	db.Exec(`
		INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
		INSERT INTO users (id, username, email, name, user_type)
			SELECT id, 'p' || id, id || '@noreply.example.com', 'Placeholder ' || id, 15 FROM generate_series(11, 14) AS id;
		INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at, last_error)
		VALUES (1, 11, 1, 15, now() - interval '9 days', 'kept by a note'), (2, 12, 1, 3, now() - interval '1 day', 'kept by an issue'),
			(3, 13, 1, 14, now() - interval '1 hour', 'kept by a snippet'), (4, 14, 1, 0, NULL, NULL)`)
	source := sourceOf(t, all, "placeholders")

	failures, more, err := source.List(t.Context(), all, 2)
	require.NoError(t, err)
	require.True(t, more)
	require.Equal(t, component.Failure{
		Source: "placeholders", ID: "11", What: "placeholder user 11", Error: "kept by a note", Attempts: 15, GivenUp: true,
	}, failures[0])
	require.Equal(t, "placeholder user 13", failures[1].What)
	require.WithinDuration(t, time.Now().Add(47*time.Hour), failures[1].Next, time.Minute)

	retry := func(id string) (string, error) {
		return RetryFailures(t.Context(), all, component.Retry{Source: "placeholders", ID: id}, audittrail.Entry{Actor: "ann"})
	}
	said := pgtest.Must(retry("11"))(t)
	require.Equal(t, "placeholder user 11: due now", said)
	const left = "SELECT count(*) FROM import_placeholder_user_details WHERE deletion_attempts > 0"
	require.EqualValues(t, 2, pgtest.Scalar[int64](t, db.Database, left))
	said = pgtest.Must(retry(""))(t)
	require.Equal(t, "2 placeholder users to be tried now", said, "the first one is due already")
	require.Zero(t, pgtest.Scalar[int64](t, db.Database, left))

	var refused *component.RefusedError
	_, err = retry("4711")
	require.ErrorAs(t, err, &refused)
	_, err = retry("x")
	require.ErrorAs(t, err, &refused)
	require.Equal(t, [][]string{{"placeholders 11"}, {"all placeholders"}, {"placeholders 4711"}}, db.Rows("SELECT target FROM sexton.audit ORDER BY id"))
}

// sourceOf is one source of failures.
func sourceOf(t *testing.T, all *installation.Connections, name string) *component.Failures {
	t.Helper()
	for _, source := range sources(all) {
		if source.Name == name {
			return source
		}
	}
	require.Fail(t, "no such source", name)
	return nil
}

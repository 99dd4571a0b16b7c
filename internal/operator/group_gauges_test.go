package operator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/dbtest"
	"sexton/internal/installation"
	riverjobs "sexton/river_jobs"
)

func TestGroupsAreMeasured(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	c := &config.Config{Databases: []config.Database{{Name: "main"}}}
	c.AdjournedGroups.Enabled, c.AdjournedGroups.Schedule = true, "0 2 * * *"
	c.Jobs.Schema, c.Jobs.Database = "sexton", "main"
	s := observedSite{all: &installation.Connections{Config: c}, noted: &riverjobs.Bindings{}}
	s.all.Databases = append(s.all.Databases, db.Connected)
	db.Exec(`
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (30);
		INSERT INTO groups (id, name, path, marked_for_deletion_on)
			SELECT n, n, n, (now() AT TIME ZONE 'UTC')::date - CASE WHEN n < 4 THEN 33 ELSE 3 END FROM generate_series(1, 10) AS n;
		INSERT INTO group_deletion_schedules SELECT id, 1, marked_for_deletion_on FROM groups WHERE id < 9;
		INSERT INTO sexton.group_destructions (group_id, user_id, attempts) VALUES (1, 1, 4), (2, 1, 5);
		INSERT INTO sexton.group_deletion_failures (group_id, last_error, retry_at) VALUES (3, 'kept', now() + interval '1 hour');`)
	values := s.read(t)
	for metric, want := range map[string]float64{
		"sexton_scrape_complete main":                                1,
		"sexton_backlog_rows main group_deletion_schedules":          3,
		"sexton_backlog_deferred_rows main group_deletion_schedules": 1,
		"sexton_groups_adjourned main":                               5,
		"sexton_groups_destroying main":                              2,
		"sexton_groups_stuck main":                                   1,
		"sexton_groups_unscheduled main":                             2,
	} {
		require.InDelta(t, want, values[metric], 0, metric)
	}
	// Marked 33 days ago, they fell due 31 days later.
	age := values["sexton_backlog_oldest_age_seconds main group_deletion_schedules"]
	require.GreaterOrEqual(t, age, 2*86400.0)
	require.Less(t, age, 3*86400.0)
}

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

// testMultiTicks lets each of three databases have missed its ticks by years: each makes up for them with a tick in a minute
// that is its own.
func testMultiTicks(t *testing.T, p program) {
	t.Helper()
	s := newMultiSite(t, p, layout{jobs: "ci"})
	fresh := s.jobs.start(t, nil)
	s.jobs.wait(t, time.Minute, "the schedules to be entered", "(SELECT count(*) FROM sexton.schedules) = 3")
	fresh.stop(t)
	s.jobs.exec(t, "UPDATE sexton.schedules SET last_tick = '2019-12-31 12:00:00+00'")
	late := s.jobs.start(t, nil)
	s.jobs.wait(t, time.Minute, "a job for each database",
		"(SELECT count(DISTINCT args ->> 'database') FROM sexton.river_job WHERE state = 'completed') = 3")
	late.stop(t)
	require.Zero(t, s.jobs.count(t, "SELECT count(*) FROM sexton.schedules WHERE last_tick < now() - interval '4 minutes'"), "ticks that are still missed")
	for index, at := range s.places() {
		require.Equal(t, int64(index), s.jobs.count(t,
			"SELECT (extract(epoch FROM last_tick) / 60)::bigint % 3 FROM sexton.schedules WHERE database = $1", at.name), "turn of %s", at.name)
	}
	s.settled(t)
}

// testMultiBroken breaks a definition in ci under a worker that is a role of its own there. The tombstones of its parent
// wait and say why; others do not. After mending a retry is enough. The same worker sees one break after the other.
func testMultiBroken(t *testing.T, p program) {
	t.Helper()
	changes := map[string]struct{ breaks, mends, reason string }{
		"table dropped": {
			breaks: "CREATE TABLE kept AS TABLE badges; DROP TABLE badges",
			mends:  `ALTER TABLE kept RENAME TO badges; CREATE INDEX ON badges (parent_id); GRANT SELECT, UPDATE ON badges TO worker`,
			reason: "badges",
		},
		"column renamed": {
			breaks: "ALTER TABLE badges RENAME parent_id TO owner_id",
			mends:  "ALTER TABLE badges RENAME owner_id TO parent_id",
			reason: "parent_id",
		},
		"privilege revoked": {
			breaks: "REVOKE UPDATE ON badges FROM worker",
			mends:  "GRANT UPDATE ON badges TO worker",
			reason: "may not clean up table \"Ci\".badges",
		},
	}
	ci := pgtest.New(t)
	s := newMultiSite(t, p, layout{urls: map[string]string{"ci": ci.URL}})
	role := ci.CreateRole()
	inCI := func(sql string) {
		s.ci.exec(t, strings.ReplaceAll(sql, "TO worker", "TO "+pgx.Identifier{role}.Sanitize()))
	}
	s.grant(t, role)
	w := s.started(t, "SEXTON_DATABASES__CI__URL="+ci.AsRole(role))
	s.deleteParents(t, "id = 40")
	s.cleaned(t)
	parents, scans := 0, 320
	for name, change := range changes {
		t.Log(name)
		inCI(strings.ReplaceAll(change.breaks, "FROM worker", "FROM "+pgx.Identifier{role}.Sanitize()))
		s.deleteParents(t, fmt.Sprintf("id > %d AND id <= %d", parents, parents+5))
		s.deleteScans(t, fmt.Sprintf("id > %d", scans-20))
		parents, scans = parents+5, scans-20
		s.main.wait(t, time.Minute, "tombstones to be put off", `5 = (SELECT count(*) FROM loose_foreign_keys_deleted_records
			WHERE consume_after > clock_timestamp() AND last_error IS NOT NULL)`)
		_, _, reason := s.main.waitingTombstones(t, "parents")
		require.Contains(t, reason, change.reason)
		require.Contains(t, s.run(t, 0, "tombstones", "list", "--failed"), change.reason)
		for _, at := range []*home{&s.ci, &s.sec} {
			at.wait(t, soon, "tombstones of "+at.name+" to be worked off", "NOT EXISTS (SELECT FROM loose_foreign_keys_deleted_records)")
		}

		inCI(change.mends)
		s.run(t, 0, "tombstones", "retry", "--all")
		s.cleaned(t)
	}
	w.stop(t)
	s.settled(t)
}

// grant gives a role in ci what the program prints for a worker there.
func (s *multiSite) grant(t *testing.T, role string) {
	t.Helper()
	_, grants, found := strings.Cut(
		s.run(t, 0, "migrate", "up", "--print-grants", "--application", role, "--worker", role, "--viewer", role), "-- database ci\n")
	require.True(t, found)
	grants, _, _ = strings.Cut(grants, "-- database sec\n")
	quoted := pgx.Identifier{role}.Sanitize()
	s.ci.exec(t, grants)
	s.ci.exec(t, `GRANT USAGE ON SCHEMA "Ci" TO `+quoted+`; GRANT SELECT, UPDATE, DELETE ON builds, badges TO `+quoted)
}

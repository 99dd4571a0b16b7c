package clitest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

// LeaseKey is the lease key of Kind.
const LeaseKey = "loose_foreign_keys/cleanup_worker:main"

// Orphans returns the number of issues whose project has been deleted.
func (s *Site) Orphans() int64 {
	s.Tb.Helper()
	return pgtest.Scalar[int64](s.Tb, s.Database,
		"SELECT count(*) FROM issues WHERE project_id NOT IN (SELECT id FROM projects)")
}

// Pause pauses the queue of Kind.
func (s *Site) Pause() {
	s.Tb.Helper()
	s.Exec("INSERT INTO sexton.river_queue (name, created_at, updated_at, paused_at, metadata) VALUES ($1, now(), now(), '2026-01-02T03:04:05Z', '{}')", Kind)
}

// HoldLease inserts the lease LeaseKey with another worker as holder.
func (s *Site) HoldLease() {
	s.Tb.Helper()
	s.Exec(`INSERT INTO sexton.leases (key, token, holder, acquired_at, expires_at) 
		VALUES ($1, 7, 'host:1:abc', '2026-01-02T03:04:05Z', '2099-01-02T03:04:05Z')`, LeaseKey)
}

// LogLines decodes the log lines on standard error, which must be JSON. It removes their
// times.
func (r Result) LogLines(t *testing.T) []map[string]any {
	var lines []map[string]any
	for line := range strings.Lines(r.Stderr) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		require.Regexp(t, `^\d{4}-`, entry["time"])
		delete(entry, "time")
		lines = append(lines, entry)
	}
	return lines
}

// GroupSite returns the reference application with the job that deletes groups. User 1 is
// an administrator, user 2 owns the group 11 below group 10, and user 3 owns nothing.
func GroupSite(t *testing.T) *Site {
	s := Prepared(t, exampleapp.Schema()+`
		INSERT INTO application_settings (deletion_adjourned_period) VALUES (30);
		INSERT INTO users (id, username, email, name, admin) VALUES
			(1, 'admin', 'admin@example.com', 'Admin', true), (2, 'ada', 'ada@example.com', 'Ada', false),
			(3, 'ben', 'ben@example.com', 'Ben', false);
		INSERT INTO groups (id, parent_id, name, path) VALUES
			(10, NULL, 'Root', 'root'), (11, 10, 'Child', 'child'), (20, NULL, 'Other', 'other');
		INSERT INTO members (user_id, source_type, source_id, access_level) VALUES (2, 'Namespace', 11, 50);`,
		"loose_foreign_keys: {enabled: false}\nadjourned_groups: {enabled: true}\n")
	s.Exec(`INSERT INTO sexton.job_kinds (kind, queue, cron, max_attempts, args, defaults)
		VALUES ('group_destroy', 'group_destroy', false, 25, '{"group_id": "bigint", "user_id": "bigint"}', '{}') ON CONFLICT DO NOTHING`)
	return s
}

// ScheduleKind and MoveKind are the kinds of the jobs that move diffs.
const (
	ScheduleKind = "schedule_migrate_external_diffs"
	MoveKind     = "migrate_external_diff"
)

// DiffSite returns the reference application with the merge request 7 and its diffs 1 and
// 2. The jobs move diffs to the returned folder.
func DiffSite(t *testing.T) (s *Site, folder string) {
	folder = t.TempDir()
	const settings = "loose_foreign_keys: {enabled: false}\nexternal_diffs: {enabled: true, bucket: \"file://%s\"}\n"
	s = Prepared(t, exampleapp.Schema()+`
		INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'project', 'project');
		INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch)
			VALUES (7, 1, 'title', 'branch', 'main');
		INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count)
			VALUES (1, 7, 1, 2), (2, 7, 1, 3);
		INSERT INTO merge_request_diff_files (
			merge_request_diff_id, relative_order, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, "binary", diff
		) VALUES
			(1, 0, false, false, false, false, '0', '0', 'b', false, E'-b\n+B\n'),
			(1, 1, false, false, false, false, '0', '0', 'a', true, 'AAE='),
			(2, 0, false, false, false, false, '0', '0', 'b', false, 'x')`, fmt.Sprintf(settings, "/nowhere"))
	s.Configure(s.URL, fmt.Sprintf(settings, folder))
	return s, folder
}

// RequireRefused requires that each command fails with the exit code and changes nothing.
// Standard error must have exactly one line for each wanted text, in any order, and
// standard output must be empty.
func (s *Site) RequireRefused(t *testing.T, code int, commands [][]string, wants ...string) {
	before := s.Snapshot()
	for _, args := range commands {
		r := s.Run(args...)
		require.Equal(t, code, r.Code, "sexton %v: %s%s", args, r.Stdout, r.Stderr)
		require.Empty(t, r.Stdout, "sexton %v", args)
		for _, want := range wants {
			require.Contains(t, r.Stderr, strings.ReplaceAll(want, "DIR", s.Dir), "sexton %v", args)
		}
		require.Equal(t, len(wants), strings.Count("\n"+r.Stderr, "\nsexton: "), "sexton %v: %s", args, r.Stderr)
	}
	require.Equal(t, before, s.Snapshot(), "the commands changed the database")
}

// ChangedURL returns the URL of the site's database after change has been applied.
func (s *Site) ChangedURL(change func(u *url.URL)) string {
	s.Tb.Helper()
	u := pgtest.Must(url.Parse(s.URL))(s.Tb)
	change(u)
	return u.String()
}

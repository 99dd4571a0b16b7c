package integration

import (
	"compress/gzip"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

// testUpgrade restores a dump of an older release with work of all kinds, migrates, and has a worker finish the work.
func testUpgrade(t *testing.T, p program) {
	t.Helper()
	file := pgtest.Must(os.Open("../internal/migrate/testdata/waiting.sql.gz"))(t)
	defer file.Close()
	dump := pgtest.Must(io.ReadAll(pgtest.Must(gzip.NewReader(file))(t)))(t)
	p.environ = append(slices.Clone(p.environ), "BUCKET=file://"+t.TempDir())
	s := p.site(t, "", onMain(`
ghost_users: {enabled: true}
placeholder_users: {enabled: true, spacing: 0s}
adjourned_groups: {enabled: true, spacing: 0s}
external_diffs: {enabled: true, bucket: "${BUCKET}"}
`, string(dump), "").defining(sample.Definitions()))
	waiting := map[string]string{
		"tombstones": "loose_foreign_keys_deleted_records", "parents to be rechecked": "sexton.swept", "users": "users_ghost_user_migrations",
		"placeholders": "import_placeholder_user_details", "groups": "group_deletion_schedules", "destructions": "sexton.group_destructions",
		"failures": "sexton.group_deletion_failures", "diffs": "(SELECT FROM merge_request_diffs WHERE stored_externally IS NOT TRUE)",
		"objects": "sexton.external_diff_removals",
	}
	for what, table := range waiting {
		require.NotZero(t, s.count(t, "SELECT count(*) FROM "+table+" AS t"), what)
	}
	worker := s.started(t, loopback)
	for _, kind := range []string{"adjourned_group_deletion", "import_placeholder_user_cleanup", "schedule_migrate_external_diffs"} {
		p.run(t, s.dir, s.url, 0, "job", "enqueue", kind)
	}
	// At one moment: the end of one kind of work leaves tombstones.
	var done []string
	for _, table := range waiting {
		done = append(done, "NOT EXISTS (SELECT FROM "+table+" AS t)")
	}
	s.wait(t, time.Minute, "all work to be done", strings.Join(done, " AND "))
	require.Zero(t, s.count(t, "SELECT count(*) FROM notes WHERE noteable_id > 4"), "children of deleted issues")
	require.Zero(t, s.count(t, "SELECT count(*) FROM users WHERE id IN (1, 11, 12)"), "users and placeholders")
	require.Zero(t, s.count(t, "SELECT count(*) FROM groups WHERE id IN (2, 3)"), "groups")
	worker.stop(t)
}

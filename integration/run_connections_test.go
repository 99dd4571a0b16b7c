package integration

import (
	"testing"
	"time"

	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

// testRunConnections counts the connections of a worker that has nothing to do.
func testRunConnections(t *testing.T, p program) {
	t.Helper()
	s := p.site(t, pgtest.New(t).URL, onMain(`
loose_foreign_keys: {definitions: [loose_foreign_keys.yml]}
ghost_users: {enabled: true}
placeholder_users: {enabled: true}
adjourned_groups: {enabled: true}
external_diffs: {enabled: true, bucket: "file://`+t.TempDir()+`"}
`, sample.Schema(), "").defining("notes:\n  - {table: issues, column: noteable_id, on_delete: async_delete}\n"))
	const few = "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'sexton%') <= $1"

	five := s.started(t, loopback)
	readyWorker(t, five.httpAddress(t), "")
	s.wait(t, 90*time.Second, "five kinds to need few connections", few, 9)
	five.stop(t)

	one := s.started(t, loopback, "SEXTON_GHOST_USERS__ENABLED=false", "SEXTON_PLACEHOLDER_USERS__ENABLED=false",
		"SEXTON_ADJOURNED_GROUPS__ENABLED=false", "SEXTON_EXTERNAL_DIFFS__ENABLED=false")
	readyWorker(t, one.httpAddress(t), "")
	s.wait(t, 90*time.Second, "one kind to need few connections", few, 4)
	one.stop(t)
}

package integration

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/exampleapp"
	"sexton/internal/pgtest"
)

var thaw = flag.Bool("thaw", false, "write the files in testdata/frozen")

// frozenWork inserts work of all five components. Some of it is deferred, failed or given
// up.
const frozenWork = `
	INSERT INTO application_settings (deletion_adjourned_period) VALUES (7);
	INSERT INTO organizations (id, name, path) VALUES (1, 'o', 'o');
	INSERT INTO users (id, username, email, name) VALUES (1, 'ada', 'ada@example.com', 'Ada'), (2, 'ben', 'ben@example.com', 'Ben'), (3, 'cy', 'cy@example.com', 'Cy');
	INSERT INTO groups (id, name, path) VALUES (1, 'group', 'group'), (2, 'other', 'other'), (3, 'third', 'third');
	INSERT INTO projects (id, group_id, name, path) SELECT id, 1, 'p' || id, 'p' || id FROM generate_series(1, 4) AS id;
	INSERT INTO issues (id, project_id, title, author_id) SELECT id, 1, 'by Ada', 1 FROM generate_series(1, 5) AS id;
	INSERT INTO notes (id, noteable_type, noteable_id, note) SELECT id, 'Issue', id, 'n' FROM generate_series(1, 5) AS id;
	INSERT INTO loose_foreign_keys_deleted_records (id, fully_qualified_table_name, primary_key_value, created_at, consume_after, cleanup_attempts, last_error)
		VALUES (1, 'public.issues', 9, now() - interval '1 hour', now(), 0, NULL), (2, 'public.gone', 1, now(), '2100-01-01', 3, 'cannot be deleted');
	SELECT setval(pg_get_serial_sequence('loose_foreign_keys_deleted_records', 'id'), 2);
	INSERT INTO users_ghost_user_migrations (user_id, consume_after, attempts, last_error)
		VALUES (1, now(), 0, NULL), (3, '2100-01-02', 2, 'kept by a row');
	INSERT INTO users (id, username, email, name, user_type) SELECT id, 'p' || id, id || '@x.com', '', 15 FROM generate_series(11, 13) AS id;
	INSERT INTO import_placeholder_user_details (id, placeholder_user_id, organization_id, deletion_attempts, last_deletion_attempt_at, last_error)
		VALUES (1, 11, 1, 0, NULL, NULL), (2, 12, 1, 15, '2026-01-01', 'kept by a note'), (3, 13, 1, 3, '2100-01-01', 'kept by an issue');
	UPDATE groups SET marked_for_deletion_on = '2026-01-01' WHERE id IN (2, 3);
	INSERT INTO group_deletion_schedules (group_id, user_id, marked_for_deletion_on) VALUES (2, 2, '2026-01-01'), (3, 2, '2026-01-01');
	INSERT INTO sexton.group_deletion_failures (group_id, attempts, last_error, retry_at) VALUES (3, 3, 'cannot be decided', '2100-01-02');
	INSERT INTO merge_requests (id, target_project_id, title, source_branch, target_branch) VALUES (7, 1, 'title', 'branch', 'main');
	INSERT INTO merge_request_diffs (id, merge_request_id, project_id, files_count) SELECT id, 7, 1, 1 FROM generate_series(1, 2) AS id;
	INSERT INTO merge_request_diff_files (merge_request_diff_id, relative_order, new_file, renamed_file, deleted_file, too_large, a_mode, b_mode, old_path, "binary", diff)
		VALUES (1, 0, false, false, false, false, '0', '0', 'b', false, 'x'), (2, 0, false, false, false, false, '0', '0', 'b', true, '%');
	INSERT INTO sexton.external_diff_removals (diff_id, key, not_before, attempts, last_error) VALUES (8, 'a', now(), 0, NULL), (9, 'b', '2100-01-02', 2, 'gone away');
	SELECT sexton.enqueue('migrate_external_diff', '{"diff_id": 1}')`

// testFrozen compares the program's output for one database with files. If a change is
// intended, the command `go test ./integration -run TestProgram/frozen_output -args
// -thaw` writes the files.
func testFrozen(t *testing.T, p program) {
	p.environ = append(slices.Clone(p.environ), "BUCKET=file://"+t.TempDir())
	s := p.site(t, "", mainSetup(`
ghost_users: {enabled: true}
placeholder_users: {enabled: true}
adjourned_groups: {enabled: true}
external_diffs: {enabled: true, bucket: "${BUCKET}"}
`, exampleapp.Schema(), frozenWork).withDefinitions("notes:\n  - {table: issues, column: noteable_id, on_delete: async_delete}\n"))
	compare := func(code int, name string, args ...string) {
		requireFrozen(t, name+".json", s.maskDocument(t, s.program.run(t, s.dir, s.url, code, append(args, "--json")...)))
	}
	compare(0, "job_list", "job", "list")
	compare(0, "status", "status")
	compare(0, "plan", "plan")
	compare(5, "doctor", "doctor")
	compare(0, "failures", "failures", "list")

	var kinds []struct {
		Kind     string
		Schedule string
	}
	require.NoError(t, json.Unmarshal([]byte(s.program.run(t, s.dir, s.url, 0, "job", "list", "--json")), &kinds))
	for _, job := range kinds {
		s.program.run(t, s.dir, s.url, 0, "pause", job.Kind, "--reason", "frozen")
	}
	worker := s.startWorker(t, loopback)
	address := worker.httpAddress(t)
	requireFrozen(t, "ready.json", s.maskDocument(t, waitReady(t, address)))
	_, metrics := httpGet(t.Context(), address, "/metrics")
	requireFrozen(t, "metrics.txt", maskMetrics(metrics))
	worker.stop(t)
	for _, job := range kinds {
		s.program.run(t, s.dir, s.url, 0, "resume", job.Kind)
		if job.Schedule != "" {
			compare(0, "run_"+job.Kind, "job", "run", job.Kind)
		}
	}
}

// requireFrozen compares a text with its file.
func requireFrozen(t *testing.T, name, text string) {
	path := filepath.Join("testdata", "frozen", name)
	if *thaw {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	require.Equal(t, string(pgtest.Must(os.ReadFile(path))(t)), text, "%s; if the change is intended, run the test with -args -thaw", path)
}

var (
	frozenTime   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	frozenActor  = regexp.MustCompile(`paused by \S+`)
	frozenNumber = regexp.MustCompile(`(_seconds|^confirmed$|^pages$|^run_id|^token|^cost|bytes|^duration|_ms|_mib)$`)
	// serverChecks are the checks of doctor whose results depend on the server.
	serverChecks = []string{
		"version", "recovery", "listen", "statistics", "transactions", "prepared_transactions", "settings",
		"search_path", "superusers",
		"connections",
	}
)

// maskDocument returns a JSON document with placeholders for times, ages and values that
// depend on the machine.
func (s workSite) maskDocument(t *testing.T, text string) string {
	var document any
	require.NoError(t, json.Unmarshal([]byte(text), &document), text)
	var mask func(key string, value any) any
	mask = func(key string, value any) any {
		switch v := value.(type) {
		case map[string]any:
			if key == "roles" {
				return "ROLES"
			}
			if frozenNumber.MatchString(key) {
				return "NUMBER" // The bins of a histogram depend on the machine.
			}
			for k, inner := range v {
				v[k] = mask(k, inner)
			}
			if slices.Contains(serverChecks, fmt.Sprint(v["check"])) && v["result"] != nil {
				v["result"] = "any"
			}
		case []any:
			v = slices.DeleteFunc(v, func(one any) bool {
				finding, ok := one.(map[string]any)
				return ok && finding["result"] == nil && slices.Contains(serverChecks, fmt.Sprint(finding["check"]))
			})
			for i := range v {
				v[i] = mask(key, v[i])
			}
			return v
		case float64:
			if frozenNumber.MatchString(key) {
				return "NUMBER"
			}
		case string:
			if key == "node" {
				// The node of a plan is masked, because it depends on the planner's
				// statistics.
				return "NODE"
			}
			v = frozenTime.ReplaceAllString(strings.ReplaceAll(v, s.dir, "DIR"), "TIME")
			return frozenActor.ReplaceAllString(v, "paused by ACTOR")
		}
		return value
	}
	return string(pgtest.Must(json.MarshalIndent(mask("", document), "", "  "))(t)) + "\n"
}

// maskMetrics returns the program's own metrics. It masks each value that does not depend
// on the database alone.
func maskMetrics(text string) string {
	keep := regexp.MustCompile(`^sexton_(backlog_(rows|capped|deferred|confirming|undefined|given)|groups_|paused|waiting|queue_jobs|up|scrape_complete|workers|running)`)
	var lines []string
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE "), " ")
		if !strings.HasPrefix(name, "sexton_") || strings.HasPrefix(name, "sexton_replica") ||
			strings.HasPrefix(name, "sexton_build_info{") ||
			strings.Contains(name, "_bucket{") {
			continue
		}
		if end := strings.LastIndex(line, " "); !strings.HasPrefix(line, "#") && !keep.MatchString(line) {
			line = line[:end] + " NUMBER\n"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

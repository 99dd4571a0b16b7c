package app_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
)

const leaseKey = "loose_foreign_keys/cleanup_worker:main"

// orphans counts issues whose project is gone.
func (s *site) orphans() int64 {
	s.tb.Helper()
	return pgtest.Scalar[int64](s.tb, s.Database, "SELECT count(*) FROM issues WHERE project_id NOT IN (SELECT id FROM projects)")
}

func (s *site) pause() {
	s.tb.Helper()
	s.Exec("INSERT INTO sexton.river_queue (name, created_at, updated_at, paused_at, metadata) VALUES ($1, now(), now(), '2026-01-02T03:04:05Z', '{}')", kind)
}

func (s *site) holdLease() {
	s.tb.Helper()
	s.Exec("INSERT INTO sexton.leases (key, token, holder, acquired_at, expires_at) VALUES ($1, 7, 'host:1:abc', '2026-01-02T03:04:05Z', '2099-01-02T03:04:05Z')", leaseKey)
}

// logged decodes the log lines on standard error, one object each.
func (r result) logged(t *testing.T) []map[string]any {
	t.Helper()
	var lines []map[string]any
	for line := range strings.Lines(r.stderr) {
		var entry map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		require.Regexp(t, `^\d{4}-`, entry["time"])
		delete(entry, "time")
		lines = append(lines, entry)
	}
	return lines
}

func TestJobRunPrintsWhatItDid(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.Exec("DELETE FROM projects WHERE id <= 3")
	require.EqualValues(t, 30, s.orphans())

	r := s.run("job", "run", kind)
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, kind+` on main: done
  tombstones 3 processed, 0 put off
  deleted    30 rows: issues 30
  updated    0 rows
`, r.stdout)
	require.Zero(t, s.orphans())
	require.EqualValues(t, 70, pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM issues"))
	lines := r.logged(t)
	require.Len(t, lines, 2)
	for i, message := range []string{"run_started", "run_ended"} {
		require.Equal(t, message, lines[i]["msg"])
		require.Equal(t, kind, lines[i]["kind"])
		require.Equal(t, "main", lines[i]["database"])
	}

	require.Contains(t, s.ok("job", "run", kind, "--args", `{"database": "main"}`), "tombstones 0 processed", "a second run changes nothing")
	require.Contains(t, s.ok("job", "run", kind, "--args", `{}`, "--database", "main"), "tombstones 0 processed")
}

func TestJobRunJSON(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.Exec("DELETE FROM projects WHERE id = 1")
	document := s.json(0, "job", "run", kind)
	stats := map[string]any{
		"connection": "main", "turbo_mode": false, "pace": "adaptive", "over_limit": false,
		"delete_count": 10.0, "update_count": 0.0,
		"delete_count_by_table": map[string]any{"issues": 10.0}, "update_count_by_table": map[string]any{},
		"processed": 1.0, "rescheduled": 0.0, "revived": 0.0, "confirmed": 1.0, "late_children": 0.0, "errors": []any{},
	}
	want := map[string]any{"kind": kind, "run_id": 1.0, "database": "main", "outcome": "done", "stats": stats}
	maps.Copy(want, stats)
	require.Equal(t, want, document)
	require.Equal(t, [][]string{{kind, "main", "done", "NULL", "t"}}, s.Rows("SELECT kind, database, outcome, error, ended_at IS NOT NULL FROM sexton.runs"))
}

func TestJobRunOverLimit(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.environ = append(s.environ, "SEXTON_DATABASES__MAIN__PACE=turbo", "SEXTON_DATABASES__MAIN__LIMITS__DELETES=5")
	s.Exec("DELETE FROM projects WHERE id = 1")
	document, ok := s.json(0, "job", "run", kind).(map[string]any)
	require.True(t, ok)
	require.Equal(t, "over_limit", document["outcome"])
	require.Equal(t, true, document["over_limit"])
	require.Equal(t, true, document["turbo_mode"])
	require.Equal(t, "turbo", document["pace"])
	require.EqualValues(t, 5, document["delete_count"])
	require.EqualValues(t, 5, s.orphans())
}

func TestJobRunShowsErrorsOfSingleTables(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.Exec(`
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON issues FOR EACH ROW EXECUTE FUNCTION refuse();
		DELETE FROM projects WHERE id = 1;`)
	r := s.run("job", "run", kind)
	require.Zero(t, r.code, "a table that refuses its deletes does not fail the run")
	require.Contains(t, r.stdout, "tombstones 0 processed")
	require.Contains(t, r.stdout, "  error      issues: SQLSTATE P0001: not this one (1 time)\n")
	require.Contains(t, s.ok("status"), "issues: SQLSTATE P0001: not this one (1 time)")

	document, ok := s.json(0, "job", "run", kind).(map[string]any)
	require.True(t, ok)
	require.Equal(t, []any{map[string]any{"table": "issues", "sqlstate": "P0001", "message": "not this one", "count": 1.0}}, document["errors"])
}

func TestJobRunOnPausedQueue(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.Exec("DELETE FROM projects WHERE id = 1")
	s.pause()
	before := s.snapshot()

	reason := "paused since 2026-01-02T03:04:05Z; --force runs it all the same"
	require.Equal(t, kind+" on main: skipped\n  because    "+reason+"\n", s.ok("job", "run", kind))
	require.Equal(t, map[string]any{
		"kind": kind, "run_id": 0.0, "database": "main", "outcome": "skipped", "reason": reason, "stats": map[string]any{},
	}, s.json(0, "job", "run", kind))
	require.Equal(t, before, s.snapshot())

	require.Contains(t, s.ok("job", "run", kind, "--force"), "deleted    10 rows: issues 10")
	require.Equal(t, [][]string{{"t"}}, s.Rows("SELECT paused_at IS NOT NULL FROM sexton.river_queue"), "it stays paused")
}

func TestJobRunWhileLeaseIsTaken(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.Exec("DELETE FROM projects WHERE id = 1")
	s.holdLease()

	r := s.run("job", "run", kind, "--json")
	require.Zero(t, r.code)
	require.JSONEq(t, `{
		"kind": "loose_foreign_keys_cleanup", "run_id": 1, "database": "main", "outcome": "skipped", "holder": "host:1:abc",
		"reason": "lease loose_foreign_keys/cleanup_worker:main is held by host:1:abc until 2099-01-02T03:04:05Z", "stats": {}
	}`, r.stdout)
	require.Equal(t, []map[string]any{{
		"level": "ERROR", "msg": "failed to obtain lock", "error": "FailedToObtainLockError", "kind": kind, "database": "main", "run_id": 1.0,
		"key": leaseKey, "holder": "host:1:abc", "expires_at": "2099-01-02T03:04:05Z",
	}}, r.logged(t), "one line and no more")
	require.EqualValues(t, 10, s.orphans())
	require.Equal(t, [][]string{{"7", "host:1:abc"}}, s.Rows("SELECT token, holder FROM sexton.leases"))
	require.Equal(t, [][]string{{"skipped", "NULL"}}, s.Rows("SELECT outcome, error FROM sexton.runs"))
	require.Contains(t, s.ok("job", "run", kind), "because    lease "+leaseKey+" is held by host:1:abc until 2099-01-02T03:04:05Z")
}

func TestJobRunThatFails(t *testing.T) {
	t.Parallel()
	s := installed(t)
	s.Exec("DELETE FROM projects WHERE id = 1")
	// Nobody can raise a fence any more, so nobody can begin.
	s.Exec("ALTER TABLE sexton.fences ADD CONSTRAINT broken CHECK (token < 0) NOT VALID")

	r := s.run("job", "run", kind, "--json")
	require.Equal(t, 1, r.code)
	var document struct {
		Kind, Database, Outcome, Error string
		RunID                          int64 `json:"run_id"`
		Stats                          map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &document))
	require.Equal(t, "failed", document.Outcome)
	require.Positive(t, document.RunID, "the history has it")
	require.Contains(t, document.Error, `violates check constraint "broken"`)
	require.Empty(t, document.Stats)
	lines := strings.Split(strings.TrimSpace(r.stderr), "\n")
	require.Len(t, lines, 2, r.stderr)
	require.Contains(t, lines[0], `"msg":"run_failed"`)
	require.Contains(t, lines[0], `"sqlstate":"23514"`)
	require.Equal(t, "sexton: run of loose_foreign_keys_cleanup failed: "+document.Error, lines[1])

	require.Equal(t, [][]string{{"failed", document.Error}}, s.Rows("SELECT outcome, error FROM sexton.runs"))
	require.Empty(t, s.Rows("SELECT FROM sexton.leases WHERE expires_at > clock_timestamp()"), "no lease is held")
	status := s.run("status")
	require.Contains(t, status.stdout, "failed")
	require.Contains(t, status.stdout, `violates check constraint "broken"`)
	require.Equal(t, kind+" on main: failed\n", s.run("job", "run", kind).stdout)

	s.Exec("ALTER TABLE sexton.fences DROP CONSTRAINT broken")
	require.Contains(t, s.ok("job", "run", kind), "deleted    10 rows")
}

// With --json a pass that cannot begin is a failed one, for whoever reads the output.
func TestJobRunPrintsErrorsAsJSON(t *testing.T) {
	t.Parallel()
	s := installed(t)
	for _, args := range [][]string{{"nothing"}, {kind, "--database", "nowhere"}, {kind, "--args", "{"}, {}} {
		r := s.run(append([]string{"job", "run", "--json"}, args...)...)
		require.Equal(t, 2, r.code, args)
		var document struct{ Kind, Outcome, Error string }
		require.NoError(t, json.Unmarshal([]byte(r.stdout), &document), args)
		require.Equal(t, "failed", document.Outcome)
		require.Equal(t, strings.Join(args[:min(1, len(args))], ""), document.Kind)
		require.Equal(t, "sexton: "+document.Error+"\n", strings.SplitAfter(r.stderr, "\n")[0])
		require.Empty(t, s.run(append([]string{"job", "run"}, args...)...).stdout)
	}
}

func TestJobList(t *testing.T) {
	t.Parallel()
	s := installed(t)
	listed := s.ok("job", "list")
	require.Regexp(t, `^KIND +DATABASE +SCHEDULE +LAST RUN +OUTCOME\n`+kind+` +main +\* \* \* \* \* +never +-\n$`, listed)

	entry := map[string]any{
		"kind": kind, "queue": kind, "database": "main", "schedule": "* * * * *",
		"summary": "deletes or changes the children of deleted parents", "last_run": nil, "last_outcome": nil,
	}
	require.Equal(t, []any{entry}, s.json(0, "job", "list"))

	s.ok("job", "run", kind)
	jobs, ok := s.json(0, "job", "list").([]any)
	require.True(t, ok)
	entry, ok = jobs[0].(map[string]any)
	require.True(t, ok)
	require.Equal(t, "done", entry["last_outcome"])
	require.NotNil(t, entry["last_run"])
	require.Regexp(t, kind+` +main +\* \* \* \* \* +\d+s ago +done\n$`, s.ok("job", "list"))
}

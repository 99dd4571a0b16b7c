package jobs_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

func TestJobRunPrintsTheReport(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("DELETE FROM projects WHERE id <= 3")
	require.EqualValues(t, 30, s.Orphans())

	r := s.Run("job", "run", clitest.Kind)
	require.Zero(t, r.Code, r.Stderr)
	require.Equal(t, clitest.Kind+` on main: done
  tombstones 3 processed, 0 deferred
  deleted    30 rows: issues 30
  updated    0 rows
`, r.Stdout)
	require.Zero(t, s.Orphans())
	require.EqualValues(t, 70, pgtest.Scalar[int64](t, s.Database, "SELECT count(*) FROM issues"))
	lines := r.LogLines(t)
	require.Len(t, lines, 2)
	for i, message := range []string{"run_started", "run_ended"} {
		require.Equal(t, message, lines[i]["msg"])
		require.Equal(t, clitest.Kind, lines[i]["kind"])
		require.Equal(t, "main", lines[i]["database"])
	}

	require.Contains(t, s.OK("job", "run", clitest.Kind, "--args", `{"database": "main"}`), "tombstones 0 processed",
		"a second run changes nothing")
	require.Contains(t, s.OK("job", "run", clitest.Kind, "--args", `{}`, "--database", "main"),
		"tombstones 0 processed")
}

func TestJobRunOverLimit(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Environ = append(s.Environ, "SEXTON_DATABASES__MAIN__PACE=turbo", "SEXTON_DATABASES__MAIN__LIMITS__DELETES=5")
	s.Exec("DELETE FROM projects WHERE id = 1")
	document, ok := s.JSON(0, "job", "run", clitest.Kind).(map[string]any)
	require.True(t, ok)
	require.Equal(t, "over_limit", document["outcome"])
	require.Equal(t, true, document["over_limit"])
	require.Equal(t, true, document["turbo_mode"])
	require.Equal(t, "turbo", document["pace"])
	require.EqualValues(t, 5, document["delete_count"])
	require.EqualValues(t, 5, s.Orphans())
}

func TestJobRunShowsErrorsOfSingleTables(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`
		CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON issues FOR EACH ROW EXECUTE FUNCTION refuse();
		DELETE FROM projects WHERE id = 1;`)
	r := s.Run("job", "run", clitest.Kind)
	require.Zero(t, r.Code, "an error of one table does not fail the run")
	require.Contains(t, r.Stdout, "tombstones 0 processed")
	require.Contains(t, r.Stdout, "  error      issues: SQLSTATE P0001: not this one (1 time)\n")
	require.Contains(t, s.OK("status"), "issues: SQLSTATE P0001: not this one (1 time)")

	document, ok := s.JSON(0, "job", "run", clitest.Kind).(map[string]any)
	require.True(t, ok)
	require.Equal(t, []any{map[string]any{
		"table": "issues", "sqlstate": "P0001", "message": "not this one",
		"count": 1.0,
	}}, document["errors"])
}

// If jobs.statement_timeout is above its default, the lease is extended, so that a
// statement of 6 s does not lose it.
func TestJobRunWithASlowStatement(t *testing.T) {
	t.Parallel()
	if !pgtest.Long {
		t.Skip("NOT RUN: it takes 6 s, use -tags long")
	}
	s := clitest.Installed(t)
	s.Environ = append(s.Environ, "SEXTON_JOBS__STATEMENT_TIMEOUT=30s")
	s.Exec(`
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(6); RETURN OLD; END $$;
		CREATE TRIGGER slow BEFORE DELETE ON issues FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION slow();
		UPDATE issues SET project_id = 1 WHERE id = 1;
		DELETE FROM projects WHERE id = 1`)
	orphans := s.Orphans()
	r := s.Run("job", "run", clitest.Kind)
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stdout, fmt.Sprintf("deleted    %d rows", orphans), "%s", r.Stderr)
	require.Contains(t, r.Stdout, "tombstones 1 processed", "%s", r.Stderr)
}

func TestJobRunOnPausedQueue(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("DELETE FROM projects WHERE id = 1")
	s.Pause()
	before := s.Snapshot()

	reason := "paused since 2026-01-02T03:04:05Z; --force runs it anyway"
	require.Equal(t, clitest.Kind+" on main: skipped\n  reason     "+reason+"\n", s.OK("job", "run", clitest.Kind))
	require.Equal(t, map[string]any{
		"kind": clitest.Kind, "run_id": 0.0, "database": "main", "outcome": "skipped", "reason": reason,
		"stats": map[string]any{},
	}, s.JSON(0, "job", "run", clitest.Kind))
	require.Equal(t, before, s.Snapshot())

	require.Contains(t, s.OK("job", "run", clitest.Kind, "--force"), "deleted    10 rows: issues 10")
	require.Equal(t, [][]string{{"t"}}, s.Rows("SELECT paused_at IS NOT NULL FROM sexton.river_queue"),
		"--force does not end the pause")
}

func TestJobRunWhileLeaseIsTaken(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("DELETE FROM projects WHERE id = 1")
	s.HoldLease()

	r := s.Run("job", "run", clitest.Kind, "--json")
	require.Zero(t, r.Code)
	require.JSONEq(t, `{
		"kind": "loose_foreign_keys_cleanup", "run_id": 1, "database": "main", "outcome": "skipped", "holder": "host:1:abc",
		"reason": "lease loose_foreign_keys/cleanup_worker:main is held by host:1:abc until 2099-01-02T03:04:05Z", "stats": {}
	}`, r.Stdout)
	require.Equal(t, []map[string]any{{
		"level": "ERROR", "msg": "failed to obtain lock", "error": "FailedToObtainLockError", "kind": clitest.Kind,
		"database": "main", "run_id": 1.0,
		"key": clitest.LeaseKey, "holder": "host:1:abc", "expires_at": "2099-01-02T03:04:05Z",
	}}, r.LogLines(t), "exactly one log line")
	require.EqualValues(t, 10, s.Orphans())
	require.Equal(t, [][]string{{"7", "host:1:abc"}}, s.Rows("SELECT token, holder FROM sexton.leases"))
	require.Equal(t, [][]string{{"skipped", "NULL"}}, s.Rows("SELECT outcome, error FROM sexton.runs"))
	require.Contains(t, s.OK("job", "run", clitest.Kind),
		"reason     lease "+clitest.LeaseKey+" is held by host:1:abc until 2099-01-02T03:04:05Z")
}

func TestJobRunThatFails(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("DELETE FROM projects WHERE id = 1")
	// The constraint makes runs fail, because a run begins by increasing the fencing
	// token.
	s.Exec("ALTER TABLE sexton.fences ADD CONSTRAINT broken CHECK (token < 0) NOT VALID")

	r := s.Run("job", "run", clitest.Kind, "--json")
	require.Equal(t, 1, r.Code)
	var document struct {
		Kind, Database, Outcome, Error string
		RunID                          int64 `json:"run_id"`
		Stats                          map[string]any
	}
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &document))
	require.Equal(t, "failed", document.Outcome)
	require.Positive(t, document.RunID, "the run is in the history")
	require.Contains(t, document.Error, `violates check constraint "broken"`)
	require.Empty(t, document.Stats)
	lines := strings.Split(strings.TrimSpace(r.Stderr), "\n")
	require.Len(t, lines, 2, r.Stderr)
	require.Contains(t, lines[0], `"msg":"run_failed"`)
	require.Contains(t, lines[0], `"sqlstate":"23514"`)
	require.Equal(t, "sexton: run of loose_foreign_keys_cleanup failed: "+document.Error, lines[1])

	require.Equal(t, [][]string{{"failed", document.Error}}, s.Rows("SELECT outcome, error FROM sexton.runs"))
	require.Empty(t, s.Rows("SELECT FROM sexton.leases WHERE expires_at > clock_timestamp()"), "no lease is held")
	status := s.Run("status")
	require.Contains(t, status.Stdout, "failed")
	require.Contains(t, status.Stdout, `violates check constraint "broken"`)
	require.Equal(t, clitest.Kind+" on main: failed\n", s.Run("job", "run", clitest.Kind).Stdout)

	s.Exec("ALTER TABLE sexton.fences DROP CONSTRAINT broken")
	require.Contains(t, s.OK("job", "run", clitest.Kind), "deleted    10 rows")
}

// `job run` warns of functions of another release, as a worker does at its start.
func TestJobRunWarnsOfFunctionsOfAnotherRelease(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("CREATE OR REPLACE FUNCTION sexton.session_name(fence_key text) RETURNS text LANGUAGE sql AS 'SELECT fence_key'")
	r := s.Run("job", "run", "loose_foreign_keys_cleanup")
	require.Zero(t, r.Code, r.Stderr)
	require.Contains(t, r.Stderr,
		"component base: its functions are from another release; run `sexton migrate up` of the newest release")
}

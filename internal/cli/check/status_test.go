package check_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
)

func TestStatusShowsBacklogLeaseAndRunningJob(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("DELETE FROM projects WHERE id <= 3")
	s.Exec("UPDATE loose_foreign_keys_deleted_records SET created_at = now() - interval '1 hour'")
	s.HoldLease()

	table, job, leases := s.StatusOf()
	require.EqualValues(t, 3, table["pending"])
	require.InDelta(t, 3600, table["oldest_age_seconds"], 60)
	require.EqualValues(t, 0, table["deferred"])
	require.Equal(t, []any{map[string]any{
		"key": clitest.LeaseKey, "holder": "host:1:abc", "token": 7.0,
		"acquired_at": "2026-01-02T03:04:05Z", "expires_at": "2099-01-02T03:04:05Z", "alive": false,
	}}, leases)
	require.Equal(t, "lease held by host:1:abc until 2099-01-02T03:04:05Z", job["waiting_for"])

	shown := s.OK("status")
	require.Regexp(t, `loose_foreign_keys_deleted_records +main +3 +1h0m\d+s +0 +0\n`, shown)
	require.Regexp(t, `LEASE +HOLDER +ALIVE +EXPIRES\n`+clitest.LeaseKey+` +host:1:abc +false +2099-01-02T03:04:05Z\n`, shown)

	s.Exec(`INSERT INTO sexton.runs (kind, database, holder, started_at, stats)
		VALUES ($1, 'main', 'host:1:abc', now() - interval '200 seconds', '{"processed": 1, "delete_count_by_table": {"issues": 400000}}')`, clitest.Kind)
	_, job, _ = s.StatusOf()
	require.Nil(t, job["running"], "the run has no running worker")
	require.Equal(t, "lease held by host:1:abc until 2099-01-02T03:04:05Z", job["waiting_for"])

	insertClient(s, "host:1:abc")
	_, job, _ = s.StatusOf()
	running, _ := job["running"].(map[string]any)
	require.Equal(t, []string{"holder", "rows", "rows_per_second", "run_id", "seconds_left", "started_at", "stats"},
		slices.Sorted(maps.Keys(running)))
	require.Equal(t, []any{"host:1:abc", 400_000.0}, []any{running["holder"], running["rows"]})
	require.Nil(t, job["waiting_for"])
	require.Regexp(t,
		`(?m)^RUNNING +FOR +ROWS +ROWS/S +TIME LEFT +HOW\nloose_foreign_keys_cleanup +\dm\d+s +400,000 +[12],\d{3} +about \d+m\d+s +-$`, s.OK("status"))

	s.Exec(`UPDATE sexton.runs SET stats = '{"delete_count": 5, "waiting_for": "replica r1 12 s behind"}'`)
	_, job, _ = s.StatusOf()
	require.Equal(t, "replica r1 12 s behind", job["waiting_for"], "the run records what it waits for")
	require.Regexp(t, `\nWAITING +FOR\n\S+ +replica r1 12 s behind\n\ncron`, s.OK("status"))

	s.Exec("UPDATE sexton.clients SET seen_at = now() - interval '16 seconds'")
	_, job, _ = s.StatusOf()
	require.Nil(t, job["running"], "the worker has sent no heartbeat for 16 s")
	require.Contains(t, job["waiting_for"], "lease held by", "the record of a dead run is ignored")
}

func TestStatusShowsWhatJobsWaitFor(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec("INSERT INTO sexton.clients (client_id, host, pid, deaf) VALUES ('host:1:abc', 'host', 1, $1)",
		[]string{clitest.Kind + "/main"})
	require.Contains(t, s.OK("status"), "the next poll of host:1:abc: notifications do not reach it")
	s.Exec("UPDATE sexton.clients SET reload_error = $1", "sexton.yaml:1: no such key")
	require.Regexp(t, `(?m)^host:1:abc +host +sexton.yaml:1: no such key$`, s.OK("status"))
	requireFindings(s, 5, "workers",
		"warning | host:1:abc on host | the worker refused its changed configuration and continues with the old one: "+
			"sexton.yaml:1: no such key | correct the files and send SIGHUP",
		"warning | host:1:abc | notifications do not reach this worker. It polls every second for "+clitest.Kind+
			"/main | "+
			"set listen_url to a direct connection without a pooler")
	s.Exec("DELETE FROM sexton.clients; DELETE FROM projects WHERE id <= 3")
	s.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + interval '1 hour' WHERE primary_key_value > 1")
	table, job, _ := s.StatusOf()
	require.EqualValues(t, 2, table["deferred"])
	require.Equal(t, "a worker: none is running (start one with sexton run)", job["waiting_for"],
		"one tombstone is due")

	s.Exec("UPDATE loose_foreign_keys_deleted_records SET consume_after = now() + interval '1 hour'")
	_, job, _ = s.StatusOf()
	require.Contains(t, job["waiting_for"], "3 tombstones deferred, the first until ")
	s.Exec("DELETE FROM loose_foreign_keys_deleted_records WHERE primary_key_value > 1")
	for _, each := range []struct{ set, want, why string }{
		{"consume_after = '2100-01-02 03:04:05Z'", "1 tombstone deferred until 2100-01-02T03:04:05Z", ""},
		{
			"last_error = 'builds: no answer'",
			"1 tombstone deferred until 2100-01-02T03:04:05Z, after: builds: no answer",
			"",
		},
		{"consume_after = 'infinity'", "1 tombstone deferred, after: builds: no answer", "no time is printed"},
	} {
		s.Exec("UPDATE loose_foreign_keys_deleted_records SET " + each.set)
		require.Contains(t, s.OK("status"), each.want, each.why)
	}

	s.Exec("ALTER DATABASE " + s.Name + " SET default_transaction_read_only = on")
	require.Contains(t, s.OK("status"), "database main accepts no writes: default_transaction_read_only is on")
	s.Exec("ALTER DATABASE " + s.Name + " RESET default_transaction_read_only")

	s.Pause()
	_, job, _ = s.StatusOf()
	require.Equal(t, true, job["paused"])
	require.Equal(t, "paused since 2026-01-02T03:04:05Z", job["waiting_for"], "a pause has precedence over other reasons")
}

func TestStatusCountsBacklog(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`INSERT INTO loose_foreign_keys_deleted_records (primary_key_value, fully_qualified_table_name)
		SELECT id, 'public.projects' FROM generate_series(1, 10000) AS id`)
	table, _, _ := s.StatusOf()
	require.EqualValues(t, 10_000, table["pending"])
	require.Equal(t, false, table["capped"])

	s.Exec("INSERT INTO loose_foreign_keys_deleted_records (primary_key_value, fully_qualified_table_name) VALUES (0, 'public.projects')")
	table, _, _ = s.StatusOf()
	require.EqualValues(t, 10_000, table["pending"])
	require.Equal(t, true, table["capped"])
	require.Regexp(t, `loose_foreign_keys_deleted_records +main +10,000\+ +\d+s +0 +0\n`, s.OK("status"))

	// The count of a parent's tombstones is capped at 1,000.
	s.Exec(`DELETE FROM loose_foreign_keys_deleted_records;
		INSERT INTO loose_foreign_keys_deleted_records (primary_key_value, fully_qualified_table_name, created_at)
		SELECT id, 'public.projects', now() - interval '1 minute' FROM generate_series(1, 1001) AS id
		UNION ALL SELECT 1, 'public.users', now() - interval '2 hours'`)
	table, _, _ = s.StatusOf()
	parents, ok := table["parents"].([]any)
	require.True(t, ok)
	require.Len(t, parents, 2)
	require.Subset(t, parents[0], map[string]any{"parent": "public.users", "pending": 1.0}, "the parent with the oldest tombstone is first")
	require.InDelta(t, 7200, parents[0].(map[string]any)["oldest_age_seconds"], 60)
	require.Subset(t, parents[1], map[string]any{"parent": "public.projects", "pending": 1000.0, "capped": true})
	require.Regexp(t,
		`(?m)^PARENT +DATABASE +PENDING +OLDEST\npublic\.users +main +1 +2h0m.*\npublic\.projects +main +1,000\+ +1m`,
		s.OK("status"))

	// Removed tombstones that will be rechecked do not count as pending.
	s.Exec(`DELETE FROM loose_foreign_keys_deleted_records; INSERT INTO sexton.swept (database, parent, integer_keys, text_keys) VALUES
		('main', 'public.projects', '{1,2}', NULL), ('main', 'public.tags', NULL, '{a}'), ('other', 'public.projects', '{4}', NULL)`)
	table, job, _ := s.StatusOf()
	require.EqualValues(t, 3, table["confirming"])
	require.EqualValues(t, 0, table["pending"])
	require.Nil(t, job["waiting_for"])
	require.Regexp(t, `loose_foreign_keys_deleted_records +main +0 +- +0 +3\n`, s.OK("status"))
	require.NotContains(t, s.OK("migrate", "down"), "pending")
}

// insertClient inserts the heartbeat of a running worker.
func insertClient(s *clitest.Site, client string) {
	s.Tb.Helper()
	s.Exec("INSERT INTO sexton.clients (client_id, host, pid, started_at, seen_at) VALUES ($1, 'host', 1, now(), now())", client)
}

func TestStatusAfterALimitedRun(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	insertClient(s, "host:1:abc")
	s.Exec("DELETE FROM projects WHERE id <= 3")
	s.Exec("INSERT INTO sexton.schedules (kind, database, last_tick) VALUES ($1, 'main', now() - interval '10 seconds')", clitest.Kind)
	s.Exec(`INSERT INTO sexton.runs (kind, database, holder, ended_at, outcome, changed, stats)
		VALUES ($1, 'main', 'host:1:abc', now(), 'over_limit', true, '{"over_limit": true}')`, clitest.Kind)
	_, job, _ := s.StatusOf()
	require.Regexp(t, `^the next tick of its schedule at \S+:00Z: this run has reached its limits$`,
		job["waiting_for"])

	s.Exec("UPDATE sexton.schedules SET last_tick = now() + interval '1 second'")
	_, job, _ = s.StatusOf()
	require.Nil(t, job["waiting_for"], "a new tick has been inserted")
}

// Only the schedules of the leader's configuration get ticks. status and doctor report
// the schedules that other workers have and the leader lacks.
func TestSchedulesThatTheLeaderLacks(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	s.Exec(`INSERT INTO sexton.clients (client_id, host, pid, schedules) VALUES
		('a', 'host', 1, '{loose_foreign_keys_cleanup/main}'), ('b', 'host', 2, '{loose_foreign_keys_cleanup/main,adjourned_group_deletion/main}'),
		('c', 'host', 3, '{adjourned_group_deletion/main}'), ('d', 'host', 4, '{schedule_migrate_external_diffs/main}')`)
	s.Exec("UPDATE sexton.clients SET seen_at = now() - interval '1 hour' WHERE client_id = 'd'")
	cronWithLeader := func(client string) map[string]any {
		s.Exec("DELETE FROM sexton.river_leader")
		s.Exec("INSERT INTO sexton.river_leader (elected_at, expires_at, leader_id) VALUES (now(), now() + interval '1 hour', $1)", client)
		return s.JSON(0, "status").(map[string]any)["cron"].(map[string]any)
	}
	require.Nil(t, cronWithLeader("b")["unled"], "the leader has all schedules of running workers")
	require.Equal(t, []any{map[string]any{
		"kind": "adjourned_group_deletion", "database": "main",
		"workers": []any{"b", "c"},
	}}, cronWithLeader("a")["unled"])
	const warning = "adjourned_group_deletion of main has no ticks: the leader's configuration lacks it (configured in b, c)"
	require.Contains(t, s.OK("status"), "\n"+warning+"\n")
	requireFindings(s, 5, "cron", "warning | adjourned_group_deletion | "+warning+
		" | give all workers the same enabled components and databases; until then only commits start the job")
	require.Nil(t, cronWithLeader("somebody")["unled"], "the leader has no heartbeat, so its schedules are unknown")
}

func TestMain(m *testing.M) { clitest.Main(m) }

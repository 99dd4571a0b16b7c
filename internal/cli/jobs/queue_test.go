package jobs_test

import (
	"encoding/json"
	"os/user"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
	"sexton/triggers"
)

func TestEnqueue(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	require.Equal(t, clitest.Kind+": job 1\n", s.OK("job", "enqueue", clitest.Kind))
	require.Equal(t, map[string]any{"kind": clitest.Kind, "job_id": 1.0}, s.JSON(0, "job", "enqueue", clitest.Kind),
		"the existing job is returned")
	require.Equal(t, clitest.Kind+": job 1\n", s.OK("job", "enqueue", clitest.Kind, "--args", `{"database": "main"}`),
		"the arguments are the default")
	require.Equal(t, [][]string{{"1", clitest.Kind, "available", `{"database": "main"}`}},
		s.Rows("SELECT id, queue, state, args FROM sexton.river_job"))
}

func TestEnqueueWithWrongArguments(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	before := s.Snapshot()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{}, "sexton job enqueue needs the KIND of one job"},
		{[]string{clitest.Kind, clitest.Kind}, "sexton job enqueue needs the KIND of one job"},
		{[]string{"cleanup"}, `no job of kind "cleanup" is enabled (enabled: loose_foreign_keys_cleanup)`},
		{[]string{clitest.Kind, "--args", "main"}, "--args main is not JSON"},
		{[]string{clitest.Kind, "--args", "null"}, "the arguments must be a JSON object, not null"},
		{[]string{clitest.Kind, "--args", "[]"}, "the arguments must be a JSON object, not array"},
		{
			[]string{clitest.Kind, "--args", `{"db": "main"}`},
			`there is no argument "db" (Arguments: database text (default "main").)`,
		},
		{[]string{clitest.Kind, "--args", `{"database": "zz"}`}, `no database "zz" is configured (configured: main)`},
		{[]string{clitest.Kind, "--args", `{"database": 1}`}, `argument "database" must be text, not 1`},
	} {
		r := s.Run(append([]string{"job", "enqueue"}, test.args...)...)
		require.Equal(t, 2, r.Code, "%v: %s", test.args, r.Stderr)
		require.Empty(t, r.Stdout, test.args)
		require.Contains(t, r.Stderr, test.want, test.args)
		require.Contains(t, r.Stderr, `Run "sexton job enqueue --help" for usage.`, test.args)
	}
	require.Equal(t, before, s.Snapshot())
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	current := pgtest.Must(user.Current())(t)

	// River has no row for the queue yet, because no worker has run.
	require.Empty(t, s.Rows("SELECT FROM sexton.river_queue"))
	require.Equal(t, clitest.Kind+": paused\n", s.OK("pause", clitest.Kind, "--reason", "long backup"))
	var note struct {
		Pause struct{ Actor, Reason, At string } `json:"sexton_pause"`
	}
	require.NoError(t, json.Unmarshal([]byte(pgtest.Scalar[string](t, s.Database,
		"SELECT metadata::text FROM sexton.river_queue WHERE name = $1", clitest.Kind)), &note))
	require.Equal(t, current.Username, note.Pause.Actor)
	require.Equal(t, "long backup", note.Pause.Reason)
	require.Regexp(t, `^\d{4}-.*Z$`, note.Pause.At)

	_, job, _ := s.StatusOf()
	require.Equal(t, true, job["paused"])
	reason := "paused by " + regexp.QuoteMeta(current.Username) + ` since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: long backup`
	require.Regexp(t, "^"+reason+"$", job["waiting_for"])
	require.Regexp(t, reason, s.OK("status"))
	require.Regexp(t, reason+"; --force runs it anyway", s.OK("job", "run", clitest.Kind))

	require.Equal(t, clitest.Kind+": paused\n", s.OK("pause", clitest.Kind), "a second pause replaces the reason")
	require.Equal(t, [][]string{{"pause", clitest.Kind, "long backup", ""}, {"pause", clitest.Kind, "", ""}},
		s.Rows("SELECT action, target, reason, remote FROM sexton.audit WHERE actor <> '' ORDER BY id"))
	_, job, _ = s.StatusOf()
	require.Regexp(t, "^paused by "+regexp.QuoteMeta(current.Username)+` since [^ ]*Z$`, job["waiting_for"])

	s.Exec(`UPDATE sexton.river_queue SET metadata = jsonb_set(metadata, '{sexton_pause,actor}', '"ann"')`)
	require.Regexp(t, "^"+clitest.Kind+": is already paused by ann since [^ ]*Z; the earlier note is kept\n$",
		s.OK("pause", clitest.Kind, "--reason", "migration"), "a pause by another actor is kept")
	kept, ok := s.JSON(0, "pause", clitest.Kind, "--reason", "migration").(map[string]any)
	require.True(t, ok)
	require.Equal(t, "ann", kept["actor"])
	_, job, _ = s.StatusOf()
	require.Regexp(t, "^paused by ann since [^ ]*Z$", job["waiting_for"])

	require.Regexp(t,
		"^"+clitest.Kind+`: job \d+ waits because the kind is paused by ann since [^ ]*Z \(sexton resume `+clitest.Kind+
			`\)\n$`, s.OK("job", "enqueue", clitest.Kind))
	require.Regexp(t, "^paused by ann", s.JSON(0, "job", "enqueue", clitest.Kind).(map[string]any)["waiting_for"])
	require.Equal(t, clitest.Kind+": resumed\n", s.OK("resume", clitest.Kind))
	_, job, _ = s.StatusOf()
	require.Equal(t, false, job["paused"])
	require.Nil(t, job["waiting_for"])
	require.Equal(t, clitest.Kind+": was not paused; its workers were woken\n", s.OK("resume", clitest.Kind),
		"a second resume only wakes the workers")

	// Other clients of River pause a queue without writing Sexton's note about the actor.
	// Such a pause is not attributed to the actor of an earlier note.
	s.Exec("UPDATE sexton.river_queue SET paused_at = '2026-01-02T03:04:05Z'")
	_, job, _ = s.StatusOf()
	require.Equal(t, "paused since 2026-01-02T03:04:05Z", job["waiting_for"])
}

func TestPauseAll(t *testing.T) {
	t.Parallel()
	s := clitest.GroupSite(t)
	s.OK("pause", "group_destroy", "--reason", "earlier")
	s.Exec(`UPDATE sexton.river_queue SET metadata = jsonb_set(metadata, '{sexton_pause,actor}', '"ann"')`)
	require.Regexp(t,
		`(?s)^adjourned_group_deletion: paused\ngroup_destroy: is already paused by ann since [^ ]*Z: earlier; the earlier note is kept\n$`, s.OK("pause", "--all", "--reason", "incident"))
	require.Equal(t, [][]string{{"adjourned_group_deletion"}, {"group_destroy"}},
		s.Rows("SELECT name FROM sexton.river_queue WHERE paused_at IS NOT NULL ORDER BY 1"))
	require.Equal(t, "adjourned_group_deletion: resumed\ngroup_destroy: resumed\n", s.OK("resume", "--all"))
	require.Len(t, s.JSON(0, "pause", "--all"), 2)
	for _, args := range [][]string{{"pause"}, {"pause", ""}, {"pause", "--all", "group_destroy"}, {"resume"}} {
		r := s.Run(args...)
		require.Equal(t, 2, r.Code)
		require.Contains(t, r.Stderr,
			"needs either the KIND of one job, such as loose_foreign_keys_cleanup, or --all; sexton job list shows the kinds")
	}
}

// If one kind cannot be paused, `pause --all` reports it and pauses the other kinds.
func TestPauseAllWithAKindThatCannotBePaused(t *testing.T) {
	t.Parallel()
	s := clitest.GroupSite(t)
	s.Exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not this one'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON sexton.river_queue FOR EACH ROW WHEN (NEW.name = 'adjourned_group_deletion') EXECUTE FUNCTION refuse()`)
	r := s.Run("pause", "--all")
	require.Equal(t, 1, r.Code)
	require.Equal(t, "group_destroy: paused\n", r.Stdout)
	require.Contains(t, r.Stderr, "adjourned_group_deletion is unchanged: ")
	require.Contains(t, r.Stderr, "not this one")
	require.NotContains(t, r.Stderr, "group_destroy")
	r = s.Run("pause", "adjourned_group_deletion", "--json")
	require.Equal(t, 1, r.Code)
	require.Empty(t, r.Stdout)
}

func TestResumeBeforeAnyWorkerRan(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	require.Equal(t, clitest.Kind+": was not paused; its workers were woken\n", s.OK("resume", clitest.Kind))
	require.Equal(t, [][]string{{clitest.Kind, "NULL"}}, s.Rows("SELECT name, paused_at FROM sexton.river_queue"))
}

func TestPauseAndResumeWithWrongArguments(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	before := s.Snapshot()
	for _, command := range []string{"pause", "resume"} {
		for _, test := range []struct {
			args []string
			want string
		}{
			{[]string{}, "sexton " + command + " needs either the KIND of one job"},
			{[]string{clitest.Kind, clitest.Kind}, "sexton " + command + " needs either the KIND of one job"},
			{[]string{"cleanup"}, `no job of kind "cleanup" is enabled`},
			{[]string{clitest.Kind, "--because"}, "unknown flag: --because"},
		} {
			r := s.Run(append([]string{command}, test.args...)...)
			require.Equal(t, 2, r.Code, "%s %v: %s", command, test.args, r.Stderr)
			require.Empty(t, r.Stdout)
			require.Contains(t, r.Stderr, test.want)
			require.Equal(t, 2, strings.Count(r.Stderr, "\n"), r.Stderr)
		}
	}
	require.Equal(t, before, s.Snapshot())
}

func TestStatusShowsTheHolderOfTheAwakeLock(t *testing.T) {
	t.Parallel()
	s := clitest.Installed(t)
	key1, key2 := triggers.AwakeKey(clitest.Kind)
	for _, take := range []string{"pg_advisory_lock", "pg_advisory_lock_shared"} {
		conn := pgtest.Must(s.Pool().Acquire(t.Context()))(t)
		pgtest.Exec(t, conn, "SET application_name = 'sexton worker'")
		pgtest.Exec(t, conn, "SELECT "+take+"($1, $2)", key1, key2)
		_, job, _ := s.StatusOf()
		require.Nil(t, job["waiting_for"], "a worker is not reported")

		pgtest.Exec(t, conn, "SET application_name = 'psql'")
		pid := pgtest.Scalar[string](t, s.Database,
			"SELECT pid::text FROM pg_locks WHERE locktype = 'advisory' AND objid = $1::bigint::oid "+
				"AND database = (SELECT oid FROM pg_database WHERE datname = current_database())", int64(uint32(key2)))
		want := "awake lock held by pid " + pid + " (psql)"
		_, job, _ = s.StatusOf()
		require.Equal(t, want, job["waiting_for"])
		require.Contains(t, s.OK("status"), want)

		pgtest.Exec(t, conn, "SELECT pg_advisory_unlock_all()")
		conn.Release()
		_, job, _ = s.StatusOf()
		require.Nil(t, job["waiting_for"])
	}
}

const diffsLease = "schedule_migrate_external_diffs_worker"

// If a foreground run was killed, its lease of two hours does not delay the next run,
// because its client sends no heartbeats.
func TestLeaseOfAKilledForegroundRun(t *testing.T) {
	t.Parallel()
	s, _ := clitest.DiffSite(t)
	s.Exec(`INSERT INTO sexton.clients (client_id, host, pid, seen_at, foreground) VALUES ('host:1:dead', 'host', 1, now() - interval '1 hour', true);
		INSERT INTO sexton.leases (key, token, holder, acquired_at, expires_at) VALUES ($$` + diffsLease + `$$, 7, 'host:1:dead', now(), now() + interval '2 h')`)
	require.Regexp(t, diffsLease+` +host:1:dead +false +`, s.OK("status"))
	require.Equal(t, "done", s.JSON(0, "job", "run", clitest.ScheduleKind).(map[string]any)["outcome"])
	require.Empty(t, s.Rows("SELECT FROM sexton.clients"), "no client remains")
	require.NotContains(t, s.OK("status"), "LEASE")
}

// A foreground run sends heartbeats, but does not count as a worker.
func TestForegroundRunSendsHeartbeats(t *testing.T) {
	t.Parallel()
	s, _ := clitest.DiffSite(t)
	tx := pgtest.Begin(t, s.Pool(), "LOCK TABLE sexton.external_diff_cursors")
	ended := make(chan clitest.Result, 1)
	go func() { ended <- s.Run("job", "run", clitest.ScheduleKind, "--json") }()
	pgtest.Await(t, s.Pool(), "the run to acquire the lease",
		"SELECT EXISTS (SELECT FROM sexton.leases JOIN sexton.clients ON client_id = holder WHERE foreground)")
	require.Regexp(t, diffsLease+` +\S+ +true +`, s.OK("status"))
	require.Contains(t, s.Run("doctor").Stdout, "no worker is running")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 0, (<-ended).Code)
	require.Empty(t, s.Rows("SELECT FROM sexton.clients"))
}

func TestMain(m *testing.M) { clitest.Main(m) }

package app_test

import (
	"encoding/json"
	"os/user"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

func TestEnqueue(t *testing.T) {
	t.Parallel()
	s := installed(t)
	require.Equal(t, kind+": job 1\n", s.ok("job", "enqueue", kind))
	require.Equal(t, map[string]any{"kind": kind, "job_id": 1.0}, s.json(0, "job", "enqueue", kind), "the job that is there")
	require.Equal(t, kind+": job 1\n", s.ok("job", "enqueue", kind, "--args", `{"database": "main"}`), "what the default says")
	require.Equal(t, [][]string{{"1", kind, "available", `{"database": "main"}`}},
		s.Rows("SELECT id, queue, state, args FROM sexton.river_job"))
}

func TestEnqueueWithWrongArguments(t *testing.T) {
	t.Parallel()
	s := installed(t)
	before := s.snapshot()
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{}, "sexton job enqueue needs the KIND of one job"},
		{[]string{kind, kind}, "sexton job enqueue needs the KIND of one job"},
		{[]string{"cleanup"}, `no job of kind "cleanup" is enabled; there is loose_foreign_keys_cleanup`},
		{[]string{kind, "--args", "main"}, "--args main is not JSON"},
		{[]string{kind, "--args", "null"}, "the arguments must be a JSON object, not null"},
		{[]string{kind, "--args", "[]"}, "the arguments must be a JSON object, not array"},
		{[]string{kind, "--args", `{"db": "main"}`}, `there is no argument "db" (Arguments: database text (default "main").)`},
		{[]string{kind, "--args", `{"database": "zz"}`}, `no database "zz" is configured; there is main`},
		{[]string{kind, "--args", `{"database": 1}`}, `argument "database" must be text, not 1`},
	} {
		r := s.run(append([]string{"job", "enqueue"}, test.args...)...)
		require.Equal(t, 2, r.code, "%v: %s", test.args, r.stderr)
		require.Empty(t, r.stdout, test.args)
		require.Contains(t, r.stderr, test.want, test.args)
		require.Contains(t, r.stderr, `Run "sexton job enqueue --help" for what it takes.`, test.args)
	}
	require.Equal(t, before, s.snapshot())
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	s := installed(t)
	current, err := user.Current()
	require.NoError(t, err)

	// No worker has run, so River does not know the queue yet.
	require.Empty(t, s.Rows("SELECT FROM sexton.river_queue"))
	require.Equal(t, kind+": paused\n", s.ok("pause", kind, "--reason", "long backup"))
	var note struct {
		Pause struct{ Actor, Reason, At string } `json:"sexton_pause"`
	}
	require.NoError(t, json.Unmarshal([]byte(pgtest.Scalar[string](t, s.Database, "SELECT metadata::text FROM sexton.river_queue WHERE name = $1", kind)), &note))
	require.Equal(t, current.Username, note.Pause.Actor)
	require.Equal(t, "long backup", note.Pause.Reason)
	require.Regexp(t, `^\d{4}-.*Z$`, note.Pause.At)

	_, job, _ := s.statusOf()
	require.Equal(t, true, job["paused"])
	reason := "paused by " + regexp.QuoteMeta(current.Username) + ` since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: long backup`
	require.Regexp(t, "^"+reason+"$", job["waiting_for"])
	require.Regexp(t, reason, s.ok("status"))
	require.Regexp(t, reason+"; --force runs it all the same", s.ok("job", "run", kind))

	require.Equal(t, kind+": paused\n", s.ok("pause", kind), "again, without a reason")
	require.Equal(t, [][]string{{"pause", kind, "long backup", ""}, {"pause", kind, "", ""}},
		s.Rows("SELECT action, target, reason, remote FROM sexton.audit WHERE actor <> '' ORDER BY id"))
	_, job, _ = s.statusOf()
	require.Regexp(t, "^paused by "+regexp.QuoteMeta(current.Username)+` since [^ ]*Z$`, job["waiting_for"])

	s.Exec(`UPDATE sexton.river_queue SET metadata = jsonb_set(metadata, '{sexton_pause,actor}', '"ann"')`)
	require.Regexp(t, "^"+kind+": is paused by ann since [^ ]*Z already; that note stays\n$", s.ok("pause", kind, "--reason", "migration"), "hers, by somebody else")
	held, ok := s.json(0, "pause", kind, "--reason", "migration").(map[string]any)
	require.True(t, ok)
	require.Equal(t, "ann", held["actor"])
	_, job, _ = s.statusOf()
	require.Regexp(t, "^paused by ann since [^ ]*Z$", job["waiting_for"])

	require.Equal(t, kind+": resumed\n", s.ok("resume", kind))
	_, job, _ = s.statusOf()
	require.Equal(t, false, job["paused"])
	require.Nil(t, job["waiting_for"])
	require.Equal(t, kind+": resumed\n", s.ok("resume", kind), "once more does no harm")

	// Paused by other means, it is not the former person's doing.
	s.Exec("UPDATE sexton.river_queue SET paused_at = '2026-01-02T03:04:05Z'")
	_, job, _ = s.statusOf()
	require.Equal(t, "paused since 2026-01-02T03:04:05Z", job["waiting_for"])
}

func TestResumeBeforeAnyWorkerRan(t *testing.T) {
	t.Parallel()
	s := installed(t)
	require.Equal(t, kind+": resumed\n", s.ok("resume", kind))
	require.Equal(t, [][]string{{kind, "NULL"}}, s.Rows("SELECT name, paused_at FROM sexton.river_queue"))
}

func TestPauseAndResumeWithJSON(t *testing.T) {
	t.Parallel()
	s := installed(t)
	current, err := user.Current()
	require.NoError(t, err)
	paused, ok := s.json(0, "pause", kind, "--reason", "why not").(map[string]any)
	require.True(t, ok)
	require.Regexp(t, `^\d{4}-.*Z$`, paused["at"])
	delete(paused, "at")
	require.Equal(t, map[string]any{"kind": kind, "paused": true, "actor": current.Username, "reason": "why not"}, paused)
	require.Equal(t, map[string]any{"kind": kind, "paused": false}, s.json(0, "resume", kind))
}

func TestPauseAndResumeWithWrongArguments(t *testing.T) {
	t.Parallel()
	s := installed(t)
	before := s.snapshot()
	for _, command := range []string{"pause", "resume"} {
		for _, test := range []struct {
			args []string
			want string
		}{
			{[]string{}, "sexton " + command + " needs the KIND of one job"},
			{[]string{kind, kind}, "sexton " + command + " needs the KIND of one job"},
			{[]string{"cleanup"}, `no job of kind "cleanup" is enabled`},
			{[]string{kind, "--because"}, "unknown flag: --because"},
		} {
			r := s.run(append([]string{command}, test.args...)...)
			require.Equal(t, 2, r.code, "%s %v: %s", command, test.args, r.stderr)
			require.Empty(t, r.stdout)
			require.Contains(t, r.stderr, test.want)
			require.Equal(t, 2, strings.Count(r.stderr, "\n"), r.stderr)
		}
	}
	require.Equal(t, before, s.snapshot())
}

func TestQueueCommandsBeforeTheSchema(t *testing.T) {
	t.Parallel()
	s := plain(t)
	for _, args := range [][]string{{"pause", kind}, {"resume", kind}, {"job", "enqueue", kind}, {"run"}} {
		r := s.run(args...)
		require.Equal(t, 3, r.code, "%v: %s", args, r.stderr)
		require.Empty(t, r.stdout)
	}
}

func TestStatusNamesWhoHoldsTheAwakeLock(t *testing.T) {
	t.Parallel()
	s := installed(t)
	key1, key2 := triggers.AwakeKey("sexton", kind)
	for _, take := range []string{"pg_advisory_lock", "pg_advisory_lock_shared"} {
		conn, err := s.Pool().Acquire(t.Context())
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "SET application_name = 'sexton worker'")
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "SELECT "+take+"($1, $2)", key1, key2)
		require.NoError(t, err)
		_, job, _ := s.statusOf()
		require.Nil(t, job["waiting_for"], "a worker may have it")

		_, err = conn.Exec(t.Context(), "SET application_name = 'psql'")
		require.NoError(t, err)
		pid := pgtest.Scalar[string](t, s.Database, "SELECT pid::text FROM pg_locks WHERE locktype = 'advisory' AND objid = $1::bigint::oid", int64(uint32(key2)))
		want := "awake lock held by pid " + pid + " (psql)"
		_, job, _ = s.statusOf()
		require.Equal(t, want, job["waiting_for"])
		require.Contains(t, s.ok("status"), want)

		_, err = conn.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
		require.NoError(t, err)
		conn.Release()
		_, job, _ = s.statusOf()
		require.Nil(t, job["waiting_for"])
	}
}

package triggers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

func TestTruncatePolicies(t *testing.T) {
	t.Parallel()
	all := []string{"public.parents 1", "public.parents 2", "public.parents 3", "public.parents 4", "public.parents 5"}
	tests := map[string]struct {
		policy  triggers.Policy
		setting string
		state   string
		want    []string
	}{
		"reject is the default":        {"", "", "SX002", []string{}},
		"reject":                       {triggers.Reject, "", "SX002", []string{}},
		"capture":                      {triggers.Capture, "", "", all},
		"ignore":                       {triggers.Ignore, "", "", []string{}},
		"the session ignores":          {triggers.Reject, "SET sexton.truncate = 'ignore'", "", []string{}},
		"the session captures":         {triggers.Reject, "SET sexton.truncate = 'capture'", "", all},
		"the session rejects":          {triggers.Ignore, "SET sexton.truncate = 'reject'", "SX002", []string{}},
		"the session resets":           {triggers.Ignore, "SET sexton.truncate = ''", "", []string{}},
		"the session says nonsense":    {triggers.Ignore, "SET sexton.truncate = 'maybe'", "22023", []string{}},
		"ignored for the replica role": {triggers.Reject, "SET session_replication_role = replica", "SX002", []string{}},
	}
	b := setup(t)
	for name, test := range tests {
		t.Log(name)
		b.cfg.Truncate = test.policy
		b.fresh(parents, id("parents"))
		require.Empty(t, b.status(id("parents")))
		conn := b.connect(b.URL)
		pgtest.Exec(t, conn, test.setting)
		_, err := conn.Exec(t.Context(), "TRUNCATE parents")
		if test.state == "" {
			require.NoError(t, err)
		} else {
			require.NotEmpty(t, requireState(t, err, test.state).Hint)
		}
		require.Equal(t, test.want, b.tombstones())
	}
}

func TestTruncateErrorSaysHowToGoOn(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.install(id("parents"))
	_, err := b.Pool().Exec(t.Context(), "TRUNCATE parents")
	pgErr := requireState(t, err, "SX002")
	require.Equal(t, "truncate of public.parents is refused: its deletions are tracked", pgErr.Message)
	require.Contains(t, pgErr.Hint, "SET sexton.truncate = 'ignore'")
}

func TestTruncateReachesTheParentByCascade(t *testing.T) {
	t.Parallel()
	b := setup(t, parents, "CREATE TABLE owners (id int PRIMARY KEY); ALTER TABLE parents ADD owner int REFERENCES owners")
	b.install(id("parents"))
	_, err := b.Pool().Exec(t.Context(), "TRUNCATE owners CASCADE")
	requireState(t, err, "SX002")
}

func TestCaptureRollsBackWithTheTruncate(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.cfg.Truncate = triggers.Capture
	b.install(id("parents"))
	b.Exec("BEGIN; TRUNCATE parents; ROLLBACK")
	require.Empty(t, b.tombstones())
}

// The rows of an older snapshot are not the rows that TRUNCATE removes.
func TestCaptureRefusesOldSnapshots(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.cfg.Truncate = triggers.Capture
	b.install(id("parents"))
	for _, level := range []string{"REPEATABLE READ", "SERIALIZABLE"} {
		t.Log(level)
		_, err := b.Pool().Exec(t.Context(), "BEGIN ISOLATION LEVEL "+level+"; TRUNCATE parents; COMMIT")
		requireState(t, err, "SX002")
	}
}

func TestCaptureOfPartitionsRecordsEachRowOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.cfg.Truncate = triggers.Capture
	for statement, want := range map[string][]string{
		"TRUNCATE events":         {"public.events 1", "public.events 2", "public.events 11", "public.events 12"},
		"TRUNCATE events_low":     {"public.events 1", "public.events 2"},
		"TRUNCATE events_high":    {"public.events 11", "public.events 12"},
		"TRUNCATE events_high_11": {"public.events 11"},
	} {
		b.fresh(partitioned, id("events"))
		b.Exec(statement)
		require.Equal(t, want, b.tombstones(), statement)
	}
}

func TestCaptureKeepsTextKeysReadable(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE days (id date); INSERT INTO days VALUES ('2026-02-01'), (NULL)")
	b.cfg.Truncate = triggers.Capture
	b.install(id("days"))
	pgtest.Exec(t, b.connect(b.URL), "SET DateStyle = 'German'; TRUNCATE days")
	require.Equal(t, []string{"public.days 2026-02-01"}, b.tombstones())
}

// A trigger that an older version has installed calls the function of this one, until its table could be locked.
func TestTruncateUnderATriggerOfAnOlderVersion(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.install(id("parents"))
	function := b.Rows(`SELECT tgfoid::regproc::text FROM pg_trigger WHERE tgname = 'sexton_truncate' AND tgrelid = 'parents'::regclass`)[0][0]
	b.Exec("CREATE OR REPLACE TRIGGER sexton_truncate BEFORE TRUNCATE ON parents FOR EACH STATEMENT EXECUTE FUNCTION " +
		function + "('public.parents', 'id', 'reject', 'bigint')")
	for _, setting := range []string{"", "capture"} {
		conn := b.connect(b.URL)
		pgtest.Exec(t, conn, "SELECT set_config('sexton.truncate', $1, false)", setting)
		_, err := conn.Exec(t.Context(), "TRUNCATE parents")
		require.Equal(t, "Run: sexton triggers install", requireState(t, err, "SX002").Hint)
	}
	conn := b.connect(b.URL)
	pgtest.Exec(t, conn, "SET sexton.truncate = 'ignore'; TRUNCATE parents")
	b.Exec("INSERT INTO parents VALUES (1)")
	b.install(id("parents"))
	pgtest.Exec(t, conn, "SET sexton.truncate = 'capture'; TRUNCATE parents")
	require.Equal(t, []string{"public.parents 1"}, b.tombstones())
}

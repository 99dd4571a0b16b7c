package triggers_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgtest"
	"sexton/triggers"
)

func TestTruncatePolicies(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		policy  triggers.Policy
		setting string
		state   string
	}{
		"reject is the default":         {"", "", "SX002"},
		"reject":                        {triggers.Reject, "", "SX002"},
		"ignore":                        {triggers.Ignore, "", ""},
		"the session ignores":           {triggers.Reject, "SET sexton.truncate = 'ignore'", ""},
		"the session rejects":           {triggers.Ignore, "SET sexton.truncate = 'reject'", "SX002"},
		"the session resets":            {triggers.Ignore, "SET sexton.truncate = ''", ""},
		"the session has a wrong value": {triggers.Ignore, "SET sexton.truncate = 'maybe'", "22023"},
		"ignored for the replica role":  {triggers.Reject, "SET session_replication_role = replica", "SX002"},
	}
	b := setup(t)
	for name, test := range tests {
		t.Log(name)
		b.cfg.Truncate = test.policy
		b.recreate(parents, id("parents"))
		require.Empty(t, b.status(id("parents")))
		conn := b.connect(b.URL)
		pgtest.Exec(t, conn, test.setting)
		_, err := conn.Exec(t.Context(), "TRUNCATE parents")
		if test.state == "" {
			require.NoError(t, err)
		} else {
			require.NotEmpty(t, requireState(t, err, test.state).Hint)
		}
		require.Empty(t, b.tombstones())
	}
}

func TestTruncateErrorHasAHint(t *testing.T) {
	t.Parallel()
	b := setup(t, parents)
	b.install(id("parents"))
	_, err := b.Pool().Exec(t.Context(), "TRUNCATE parents")
	pgErr := requireState(t, err, "SX002")
	require.Equal(t, "truncate of public.parents is refused: its deletions are tracked", pgErr.Message)
	require.Contains(t, pgErr.Hint, "SET sexton.truncate = 'ignore'")
}

func TestTruncateCascadeToAParent(t *testing.T) {
	t.Parallel()
	b := setup(t, parents,
		"CREATE TABLE owners (id int PRIMARY KEY); ALTER TABLE parents ADD owner int REFERENCES owners")
	b.install(id("parents"))
	_, err := b.Pool().Exec(t.Context(), "TRUNCATE owners CASCADE")
	requireState(t, err, "SX002")
}

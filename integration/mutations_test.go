package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mutation is one change to a source file that makes tests fail.
type mutation struct {
	name     string
	file     string
	old, new string
	// message is a regular expression that matches the output of the failing test.
	message string
	// suite is the set of tests that must fail.
	suite suite
}

// suite is a set of tests of one package with flags, so that they always run the same
// cases.
type suite struct {
	folder, run, flags string
}

func mutations() []mutation {
	engine := suite{
		"./integration", "^(TestDifferential|TestFenceStopsFormerHolder)$/^integer_keys$",
		"-rapid.seed=2 -rapid.checks=30 -rapid.shrinktime=0s -rapid.nofailfile",
	}
	wakeUps := suite{
		folder: "./internal/listen",
		run:    "^TestBarrierWaitsForWriters$/^READ_COMMITTED$/^open$|^TestStress$",
	}
	rechecks := suite{folder: "./internal/loosefk", run: "^TestLateChildOfAnOlderTransaction$"}
	return []mutation{
		{
			name: "tombstones removed although children were left out",
			file: "internal/drain/dml/edge_statements.go",
			old:  "e.Restrictions(\"child\", args) + e.Attached(leaf, args)\n",
			new:  "e.Restrictions(\"child\", args) + e.Attached(leaf, args) + \" AND false\"\n",
			// A late child that is found but never deleted is rechecked until the run
			// reaches its time limit.
			message: differs + "|a run was over_limit",
			suite:   engine,
		},
		{
			name: "without the fence",
			file: "sql/functions/base/begin_batch.sql",
			old:  "IF found_token IS DISTINCT FROM fence_token THEN", new: "IF false THEN",
			message: "a run must fail after another worker has taken its lease",
			suite:   engine,
		},
		withoutMemory(engine),
		{
			name: "rechecked while older transactions are open",
			file: "internal/loosefk/queries/recheck.sql", old: "least(open.began, known.horizon)",
			new:     "'infinity'::pg_catalog.timestamptz",
			message: differs,
			suite:   engine,
		},
		{
			name: "rechecked while transactions are prepared",
			file: "internal/loosefk/queries/recheck.sql", old: "WHERE prepared.database =",
			new:     "WHERE prepared.database <>",
			message: differs,
			suite:   engine,
		},
		{
			name: "without the recheck",
			file: "internal/loosefk/source.go", old: "	if !s.recheckDue {\n",
			new:     "	if true || !s.recheckDue {\n",
			message: "keys that have not been rechecked",
			suite:   rechecks,
		},
		{
			name: "a plain sleep instead of the barrier",
			file: "internal/listen/barrier.go", old: "return len(b.writers) == 0, err\n",
			new:     "_, _ = b.session.conn.Exec(ctx, \"SELECT pg_sleep(0.05)\")\n\treturn true, err\n",
			message: "wake-up lost",
			suite:   wakeUps,
		},
	}
}

// differs is the failure message of the comparison with native foreign keys.
const differs = "rows differ from what native foreign keys leave"

// withoutMemory returns a mutation with which the worker does not record removed
// tombstones, so that it does not recheck them.
func withoutMemory(s suite) mutation {
	return mutation{
		name: "removed tombstones are not remembered",
		file: "internal/loosefk/source.go", old: "WHERE NOT removed.lives AND (",
		new:     "WHERE false AND NOT removed.lives AND (",
		message: differs,
		suite:   s,
	}
}

// TestMutationsApply requires that the old text of each mutation occurs exactly once in
// its file. TestMutations, which runs the mutations, takes long.
func TestMutationsApply(t *testing.T) {
	t.Parallel()
	for _, m := range mutations() {
		m.mutated(t, "..")
	}
}

// mutated returns the text of the file with the change applied.
func (m mutation) mutated(t *testing.T, root string) string {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), m.old), "occurrences in %s of the text that the mutation %q changes", m.file,
		m.name)
	return strings.Replace(string(text), m.old, m.new, 1)
}

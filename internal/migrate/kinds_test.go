package migrate_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

func TestUpWritesTheKinds(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	kinds := func() [][]string {
		return d.Rows("SELECT kind, queue, args, defaults, cron, max_attempts FROM sexton.job_kinds ORDER BY kind")
	}
	db.Kinds = []migrate.Kind{
		{
			Kind: "sweep", Queue: "sweep", Args: map[string]string{"database": migrate.Text, "deep": migrate.Boolean},
			Defaults: map[string]any{"database": `m"ain`, "deep": false}, Cron: true, MaxAttempts: 1,
		},
		{
			Kind: "remove", Queue: "slow", Args: map[string]string{"id": migrate.Bigint, "size": migrate.Bigint},
			Defaults: map[string]any{"size": int64(math.MaxInt64), "id": -1}, MaxAttempts: math.MaxInt16,
		},
		{Kind: "tidy", Queue: "slow", MaxAttempts: 3},
	}
	up(t, db)
	require.Equal(t, [][]string{
		{"remove", "slow", `{"id": "bigint", "size": "bigint"}`, `{"id": -1, "size": 9223372036854775807}`, "f", "32767"},
		{"sweep", "sweep", `{"deep": "boolean", "database": "text"}`, `{"deep": false, "database": "m\"ain"}`, "t", "1"},
		{"tidy", "slow", `{}`, `{}`, "f", "3"},
	}, kinds())

	versions := func() [][]string { return d.Rows("SELECT kind, xmin FROM sexton.job_kinds ORDER BY kind") }
	before := versions()
	up(t, db)
	require.Equal(t, before, versions(), "the second run wrote nothing")

	db.Kinds = []migrate.Kind{db.Kinds[2], db.Kinds[0], {Kind: "new", Queue: "new", MaxAttempts: 1}}
	db.Kinds[0].MaxAttempts = 4
	up(t, db)
	require.Equal(t, [][]string{
		{"new", "new", `{}`, `{}`, "f", "1"},
		{"sweep", "sweep", `{"deep": "boolean", "database": "text"}`, `{"deep": false, "database": "m\"ain"}`, "t", "1"},
		{"tidy", "slow", `{}`, `{}`, "f", "4"},
	}, kinds())
	require.Equal(t, before[1], versions()[1], "a kind that stayed the same is not written")

	db.Kinds = nil
	up(t, db)
	require.Empty(t, kinds())
}

func TestKindsAreForTheJobsDatabaseOnly(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	db.Jobs = false
	db.Kinds = []migrate.Kind{{Kind: "tidy", Queue: "tidy", MaxAttempts: 1}}
	up(t, db)
	require.False(t, pgtest.Scalar[bool](t, d, "SELECT to_regclass('sexton.job_kinds') IS NOT NULL"))
}

func TestUpRefusesKindsThatNobodyCouldEnqueue(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	db := everything(t, d)
	before := catalogue(d)
	db.Kinds = []migrate.Kind{
		{Kind: "", Queue: strings.Repeat("ü", 128), MaxAttempts: 1},
		{
			Kind: "bad", Queue: "bad", MaxAttempts: 40000, Args: map[string]string{"Upper": migrate.Text, "n": "int4", "size": migrate.Bigint},
			Defaults: map[string]any{"size": "big", "other": 1},
		},
		{Kind: "bad", Queue: "bad", MaxAttempts: 0},
	}
	_, err := migrate.Up(t.Context(), pgtest.Logger(t), db)
	for _, message := range []string{
		`job kind "": its name has 0 characters, not 1 to 127`,
		`job kind "": its queue's name has 128 characters, not 1 to 127`,
		`job kind "bad": it has 40000 attempts, not 1 to 32767`,
		`job kind "bad": the name of argument "Upper" is not made of a-z, 0-9 and _`,
		`job kind "bad": argument "n" has the type "int4", not text, bigint or boolean`,
		`job kind "bad": the default of argument "size" is big (string), not bigint`,
		`job kind "bad": there is a default for "other", which is no argument`,
		`job kind "bad": it is there twice`,
		`job kind "bad": it has 0 attempts, not 1 to 32767`,
	} {
		require.ErrorContains(t, err, message, "all problems come at once")
	}
	require.Equal(t, before, catalogue(d), "nothing changed")
}

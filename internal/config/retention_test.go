package config_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/config"
	"sexton/internal/pgtest"
)

func loadRules(t *testing.T, rules string) (*config.Config, error) {
	path := filepath.Join(t.TempDir(), "sexton.yaml")
	require.NoError(t, os.WriteFile(path, []byte("retention:\n  enabled: true\n  rules:\n"+rules), 0o600))
	return config.Load(config.Options{Path: path, DatabaseURL: "postgres://nobody@nowhere.invalid/none"})
}

func TestRetentionRules(t *testing.T) {
	t.Parallel()
	c := pgtest.Must(loadRules(t, `
    - {table: a, column: at, keep: 90d}
    - {table: b, column: at, keep: 0s, event: true}
    - {table: c, column: at, keep: 12h, unit: ms, event: [key], dry_run: true, conditions: [{column: state, value: done}]}
`))(t)
	require.True(t, c.Has("retention"))
	require.Equal(t, []config.Age{config.Age(90 * 24 * time.Hour), 0, config.Age(12 * time.Hour)},
		[]config.Age{c.Retention.Rules[0].Keep, c.Retention.Rules[1].Keep, c.Retention.Rules[2].Keep})
	require.NotNil(t, c.Retention.Rules[1].Event)
	require.Equal(t, "main", c.Retention.Rules[1].Database)
	again := pgtest.Must(config.Age(90 * 24 * time.Hour).MarshalText())(t)
	require.Equal(t, "90d", string(again))
	for rule, want := range map[string]string{
		"{table: a, column: at}":                            "sexton.yaml:4:7: retention.rules[0].keep",
		"{table: a, column: at, keep: 90}":                  "sexton.yaml:4:36: retention.rules[0].keep: must be a number of days or a duration",
		"{table: a, column: at, keep: -1d}":                 "retention.rules[0].keep: must be a number of days or a duration",
		"{table: a, column: at, keep: 40000d}":              "retention.rules[0].keep: must be a number of days or a duration",
		"{table: a, column: at, keep: 9999999999999h}":      "retention.rules[0].keep: must be a number of days or a duration",
		"{table: a, column: at, keep: 1d, database: ci}":    "retention.rules[0].database: is not a configured database (the databases are main)",
		"{table: a, column: at, keep: 1d, unit: us}":        "retention.rules[0].unit: must be s or ms",
		"{table: a, column: at, keep: 1d, older: 1}":        "retention.rules[0].older: unknown key",
		"{table: a, column: at, keep: 1d, dry_run: \"no\"}": "retention.rules[0].dry_run: must be true or false",
	} {
		_, err := loadRules(t, "    - "+rule+"\n")
		require.ErrorContains(t, err, want, rule)
	}
}

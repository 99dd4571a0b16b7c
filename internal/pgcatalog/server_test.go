package pgcatalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
)

func TestUntested(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]problem.Severity{
		"9.6.24": problem.Error, "13.22": problem.Error, "14.0": "", "18.4 (Debian 18.4-1)": "", "19beta1": problem.Warning, "20devel": problem.Warning, "": "",
	} {
		found := pgcatalog.Untested(version)
		require.Equal(t, want, found.Severity, version)
		if want != "" {
			require.Contains(t, found.String(), version)
		}
	}
}

package check_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/config"
	"sexton/internal/installation"
	"sexton/internal/pgtest"
	riverjobs "sexton/river_jobs"
)

// The error of a retention rule is recorded under the rule's database, which need not be
// the jobs database.
func TestNoteHeldNamesTheDatabaseOfARule(t *testing.T) {
	t.Parallel()
	s := clitest.InstalledTwoDatabases(t, "main")
	s.Environ = append(s.Environ, "SEXTON_RETENTION__ENABLED=true",
		"SEXTON_RETENTION__RULES=[{table: builds, database: ci, column: expires_at, keep: 1d}]")
	s.OK("migrate", "up")
	c := pgtest.Must(config.Load(config.Options{Path: s.Path("sexton.yaml"), Environ: s.Environ}))(t)
	all := pgtest.Must(installation.ReadFiles(c).BindForWork(t.Context(), c, true))(t)
	t.Cleanup(all.Close)
	bindings := &riverjobs.Bindings{}
	all.NoteHeld(t.Context(), bindings, slog.New(slog.DiscardHandler))
	require.Equal(t, []string{
		"retention_cleanup/ci: SEXTON_RETENTION__RULES[0].column: table builds has no column expires_at (correct the name)",
	}, bindings.Held())
}

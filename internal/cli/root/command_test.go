package root

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/problem"
)

// everyCommand calls do for each command that a person can see.
func everyCommand(do func(cmd *cobra.Command)) {
	a := &cli.Env{}
	root := newCommand(a)
	root.InitDefaultHelpCmd()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		do(cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(root)
}

func TestTheCommandsAreThose(t *testing.T) {
	t.Parallel()
	var paths []string
	everyCommand(func(cmd *cobra.Command) { paths = append(paths, strings.TrimPrefix(cmd.CommandPath(), "sexton")) })
	require.ElementsMatch(t, []string{
		"", " help", " version", " status", " plan", " doctor", " run", " demo", " pause", " resume", " lease", " lease list", " lease release",
		" bench", " bench diffs", " bench drain", " bench ghost", " bench group", " bench idle", " bench latency", " bench notify", " bench scale", " bench trigger",
		" config", " config check", " config show",
		" job", " job list", " job run", " job enqueue",
		" migrate", " migrate up", " migrate status", " migrate down",
		" audit", " tombstones", " tombstones clear", " tombstones drop", " tombstones list", " tombstones move", " tombstones retry", " user", " user delete", " user cancel",
		" placeholders", " placeholders list", " placeholders retry", " failures", " failures list", " failures retry",
		" group", " group schedule", " group cancel", " group delete", " group list",
		" diffs", " diffs show", " diffs verify", " diffs move", " diffs restore", " diffs adopt", " diffs release",
		" triggers", " triggers install", " triggers status", " triggers uninstall",
		" completion", " completion bash", " completion zsh", " completion fish", " completion powershell",
	}, paths)
}

func TestEveryHelpHasAnExample(t *testing.T) {
	t.Parallel()
	everyCommand(func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		var stdout, stderr bytes.Buffer
		require.Zero(t, Main(append([]string{}, append(path, "--help")...), nil, &stdout, &stderr), path)
		require.Empty(t, stderr.String(), path)
		_, examples, found := strings.Cut(stdout.String(), "\nExamples:\n")
		require.True(t, found, "%v shows no example:\n%s", path, stdout.String())
		example, _, _ := strings.Cut(examples, "\n\n")
		require.Contains(t, example, strings.Join(append([]string{"sexton"}, path...), " "), "the example of %v shows another command", path)
		for _, flag := range []string{"--config FILE", "--database-url URL"} {
			require.Contains(t, stdout.String(), flag, path)
		}
		require.NotEmpty(t, cmd.Short, path)
		require.NotContains(t, cmd.Short, "\n", path)
	})
}

func TestReportingCommandsTakeJSON(t *testing.T) {
	t.Parallel()
	everyCommand(func(cmd *cobra.Command) {
		silent := cmd.HasSubCommands() || cmd.Name() == "help" || cmd.CommandPath() == "sexton run" || cmd.HasParent() && cmd.Parent().Name() == "completion"
		require.Equal(t, !silent, cmd.Flags().Lookup("json") != nil, cmd.CommandPath())
	})
}

// A pass can fail over what would have another exit code before it began.
func TestFailedRunExitsWithFailure(t *testing.T) {
	t.Parallel()
	var found problem.List
	found.Errorf(problem.Position{File: "a.yml", Line: 2, Column: 5}, "issues[0].table", "gone")
	for _, cause := range []error{found.Err(), &database.UnreachableError{Database: "main", Reason: "gone", Fix: "bring it back"}} {
		var stderr bytes.Buffer
		a := &cli.Env{Stderr: &stderr}
		require.Equal(t, cli.ExitFailure, a.Exit(nil, &cli.FailedRunError{Kind: "some_kind", Cause: cause}))
		require.Equal(t, "sexton: run of some_kind failed: "+cause.Error()+"\n", stderr.String())
	}
}

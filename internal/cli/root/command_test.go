package root

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/operator"
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
		" bench", " bench diffs", " bench drain", " bench ghost", " bench group", " bench idle", " bench latency", " bench notify", " bench scale", " bench trigger", " bench undo", " bench workers",
		" init", " definitions", " definitions foreign-keys", " config", " config check", " config schema", " config show",
		" job", " job list", " job run", " job enqueue",
		" migrate", " migrate up", " migrate status", " migrate down",
		" audit", " tombstones", " tombstones clear", " tombstones drop", " tombstones list", " tombstones move", " tombstones retry", " user", " user delete", " user cancel",
		" placeholders", " placeholders list", " placeholders retry", " failures", " failures list", " failures retry",
		" group", " group schedule", " group cancel", " group delete", " group list",
		" diffs", " diffs show", " diffs verify", " diffs move", " diffs restore", " diffs adopt", " diffs release",
		" undo", " undo list", " undo show", " undo forget",
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
		silent := cmd.HasSubCommands() && cmd.Name() != "undo" || cmd.Name() == "help" || cmd.CommandPath() == "sexton run" || cmd.HasParent() && cmd.Parent().Name() == "completion"
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
		require.Equal(t, cli.ExitFailure, a.Exit(nil, cli.FailedRun("some_kind", cause)))
		require.Equal(t, "sexton: run of some_kind failed: "+cause.Error()+"\n", stderr.String())
	}
}

// documents are the texts of all documents, by their path from here.
func documents(t *testing.T) map[string]string {
	files, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	texts := map[string]string{}
	for _, file := range append(files, "../../../README.md", "../../../CONTRIBUTING.md", "../../../SECURITY.md") {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		texts[file] = string(text)
	}
	return texts
}

// Commands in the middle of a sentence are not run, but they and their flags are there.
func TestCommandsInDocumentsExist(t *testing.T) {
	t.Parallel()
	inText := regexp.MustCompile("`sexton ([^`]+)`|(?m)^ *sexton (.+)$")
	for file, text := range documents(t) {
		for _, match := range inText.FindAllStringSubmatch(text, -1) {
			command := match[1] + match[2]
			for _, end := range []string{"|", ";", "#", " ("} {
				command, _, _ = strings.Cut(command, end)
			}
			cmd := newCommand(&cli.Env{})
			cmd.InitDefaultHelpCmd()
			for word := range strings.FieldsSeq(command) {
				if sub := subcommand(cmd, word); sub != nil {
					cmd = sub
					continue
				}
				name, flag := strings.CutPrefix(word, "--")
				require.True(t, flag || cmd.HasParent() && (!cmd.HasSubCommands() || cmd.Name() == "undo"), "%s: sexton %s: %s has no command %s", file, command, cmd.CommandPath(), word)
				if name, _, _ = strings.Cut(name, "="); flag && name != "help" {
					require.True(t, cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil || cmd.Root().Flags().Lookup(name) != nil,
						"%s: sexton %s: %s has no flag --%s", file, command, cmd.CommandPath(), name)
				}
			}
		}
	}
}

func subcommand(of *cobra.Command, name string) *cobra.Command {
	for _, sub := range of.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}

// What a job may wait for is a short list, which people look up by its words.
func TestDocumentsHaveTheReasonsToWait(t *testing.T) {
	t.Parallel()
	var want []string
	for _, class := range operator.WaitClasses() {
		want = append(want, string(class))
	}
	_, table, found := strings.Cut(documents(t)["../../../docs/troubleshooting.md"], "\n| word |")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	var words []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
		words = append(words, row[1])
	}
	require.Equal(t, want, words)
}

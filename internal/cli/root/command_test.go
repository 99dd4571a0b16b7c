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
	"sexton/internal/problem"
)

// The exit code of a failed run is 1, even if the same error would have another exit code
// before the run.
func TestFailedRunExitsWithFailure(t *testing.T) {
	t.Parallel()
	var found problem.List
	found.Errorf(problem.Position{File: "a.yml", Line: 2, Column: 5}, "issues[0].table", "gone")
	for _, cause := range []error{found.Err(), &database.UnreachableError{
		Database: "main", Reason: "gone",
		Fix: "start it",
	}} {
		var stderr bytes.Buffer
		a := &cli.Env{Stderr: &stderr}
		require.Equal(t, cli.ExitFailure, a.Exit(nil, cli.FailedRun("some_kind", cause)))
		require.Equal(t, "sexton: run of some_kind failed: "+cause.Error()+"\n", stderr.String())
	}
}

// documents returns the content of all documents by path.
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

// The commands and flags that documents mention in the text exist. Other tests run the
// commands in code blocks.
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
			cmd.InitDefaultCompletionCmd()
			for word := range strings.FieldsSeq(command) {
				if sub := subcommand(cmd, word); sub != nil {
					cmd = sub
					continue
				}
				name, flag := strings.CutPrefix(word, "--")
				require.True(t, flag || cmd.HasParent() && (!cmd.HasSubCommands() || cmd.Name() == "undo"),
					"%s: sexton %s: %s has no command %s", file, command, cmd.CommandPath(), word)
				if name, _, _ = strings.Cut(name, "="); flag && name != "help" {
					require.True(t, cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil ||
						cmd.Root().Flags().Lookup(name) != nil,
						"%s: sexton %s: %s has no flag --%s", file, command, cmd.CommandPath(), name)
				}
			}
		}
	}
}

// No line of a help text is longer than 100 columns.
func TestHelpFitsATerminal(t *testing.T) {
	t.Parallel()
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Long + "\n" + cmd.UsageString()) {
			require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), 100, "%s: %s", cmd.CommandPath(), line)
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newCommand(&cli.Env{}))
}

func subcommand(of *cobra.Command, name string) *cobra.Command {
	for _, sub := range of.Commands() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}

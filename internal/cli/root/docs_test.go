package root

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"sexton/internal/cli"
	"sexton/internal/operator"
)

// documents are README.md and those of docs, by their path from here.
func documents(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../../docs/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	texts := map[string]string{}
	for _, file := range append(files, "../../../README.md") {
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
				require.True(t, flag || cmd.HasParent() && !cmd.HasSubCommands(), "%s: sexton %s: %s has no command %s", file, command, cmd.CommandPath(), word)
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
	all := documents(t)
	for file, title := range map[string]string{"../../../docs/jobs.md": "| word |", "../../../docs/metrics.md": "| reason |"} {
		_, table, found := strings.Cut(all[file], "\n"+title)
		require.True(t, found, file)
		table, _, _ = strings.Cut(table, "\n\n")
		var words []string
		for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1) {
			words = append(words, row[1])
		}
		require.Equal(t, want, words, file)
	}
}

package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sexton/internal/problem"
)

// group is a command that only holds others: without one of them it is wrong usage.
func group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s needs one of %s", cmd.CommandPath(), listed(commandNames(cmd)))
			}
			return unknownCommand(cmd, args[0])
		},
		// Without it cobra would show the help instead of asking Args.
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(commands...)
	return cmd
}

func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

func unknownCommand(cmd *cobra.Command, word string) error {
	names := commandNames(cmd)
	if len(names) == 0 {
		return fmt.Errorf("%s has no command %q", cmd.CommandPath(), word)
	}
	return fmt.Errorf("%s has no command %q; there are %s%s", cmd.CommandPath(), word, listed(names), meant(word, names))
}

// noArguments is for commands that take flags only.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no argument, not %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// flagError adds the flags that there are to what is wrong with one.
func flagError(cmd *cobra.Command, err error) error {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	said := err.Error()
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		said = fmt.Sprintf("--%s needs %s", missing.GetFlag().Name, valueOf(missing.GetFlag()))
	} else if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		said = fmt.Sprintf("--%s needs %s, not %q", wrong.GetFlag().Name, valueOf(wrong.GetFlag()), wrong.GetValue())
	}
	return fmt.Errorf("%s; %s takes %s", said, cmd.CommandPath(), listed(names))
}

// exclusive has a command refuse several of these flags at once.
func exclusive(cmd *cobra.Command, names ...string) {
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		var set []string
		for _, name := range names {
			if cmd.Flags().Changed(name) {
				set = append(set, "--"+name)
			}
		}
		if len(set) > 1 {
			return fmt.Errorf("%s takes only one of %s", cmd.CommandPath(), listed(set))
		}
		return args(cmd, given)
	}
}

// valueOf says in words which values a flag takes.
func valueOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "int64Slice", "intSlice":
		return "whole numbers"
	case "float64":
		return "a number"
	case "duration":
		return "a time such as 1m30s"
	case "bool":
		return "true or false"
	default:
		return "a value"
	}
}

// helpCommand replaces cobra's own, which takes an unknown command for a success.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show what a command does and takes",
		Example: "  sexton help job run",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return commandNames(target), cobra.ShellCompDirectiveNoFileComp
		},
		// In Args, since an unknown command is wrong usage.
		Args: func(cmd *cobra.Command, args []string) error {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(target, rest[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			target, _, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			target.InitDefaultHelpFlag()
			return target.Help()
		},
	}
}

// completionCommand prints the scripts that cobra generates.
func completionCommand() *cobra.Command {
	shell := func(name, example string, generate func(cmd *cobra.Command) error) *cobra.Command {
		return &cobra.Command{
			Use: name, Short: "Print the script for " + name, Example: example, Args: noArguments,
			RunE: func(cmd *cobra.Command, _ []string) error { return generate(cmd) },
		}
	}
	return group("completion", "Print a script that completes commands in a shell", "  source <(sexton completion bash)",
		shell("bash", "  source <(sexton completion bash)\n  sexton completion bash > /etc/bash_completion.d/sexton",
			func(cmd *cobra.Command) error { return cmd.Root().GenBashCompletionV2(cmd.OutOrStdout(), true) }),
		shell("zsh", "  sexton completion zsh > \"${fpath[1]}/_sexton\"",
			func(cmd *cobra.Command) error { return cmd.Root().GenZshCompletion(cmd.OutOrStdout()) }),
		shell("fish", "  sexton completion fish > ~/.config/fish/completions/sexton.fish",
			func(cmd *cobra.Command) error { return cmd.Root().GenFishCompletion(cmd.OutOrStdout(), true) }),
		shell("powershell", "  sexton completion powershell | Out-String | Invoke-Expression",
			func(cmd *cobra.Command) error { return cmd.Root().GenPowerShellCompletionWithDesc(cmd.OutOrStdout()) }),
	)
}

// listed joins names for a sentence.
func listed(names []string) string { return strings.Join(names, ", ") }

// meant asks for the one of several names that word was probably meant to be.
func meant(word string, names []string) string {
	if near := problem.Nearest(word, names); near != "" && len(names) > 1 {
		return "; did you mean " + near + "?"
	}
	return ""
}

// counted renders "1 trigger", "2 triggers".
func counted[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

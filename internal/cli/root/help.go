package root

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/installation"
	"sexton/internal/words"
)

// helpCommand replaces cobra's own, which takes an unknown command for a success.
func helpCommand() *cobra.Command {
	const topic = "exit-codes"
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Show what a command does and takes, or the exit codes",
		Example: "  sexton help job run\n  sexton help " + topic,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			names := cli.CommandNames(target)
			if len(args) == 0 {
				names = append(names, topic)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		// In Args, since an unknown command is wrong usage.
		Args: func(cmd *cobra.Command, args []string) error {
			if slices.Equal(args, []string{topic}) {
				return nil
			}
			target, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return cli.UnknownCommand(target, rest[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if slices.Equal(args, []string{topic}) {
				_, err := io.WriteString(cmd.OutOrStdout(), cli.ExitCodes)
				return err
			}
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
			Use: name, Short: "Print the script for " + name, Example: example, Args: cli.NoArguments,
			RunE: func(cmd *cobra.Command, _ []string) error { return generate(cmd) },
		}
	}
	return cli.Group("completion", "Print a script that completes commands in a shell", "  source <(sexton completion bash)",
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

// completeValues has the flags --database and --table of all commands complete to what the configuration and its definitions name.
func completeValues(env *cli.Env, cmd *cobra.Command) {
	ofAudit := cmd.Name() == "audit" // It looks at children.
	for flag, names := range map[string]func(*config.Config) []string{"database": (*config.Config).DatabaseNames, "table": tables(ofAudit)} {
		if cmd.Flags().Lookup(flag) == nil {
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			env.WithoutURL = true
			c, err := env.LoadConfig()
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names(c), cobra.ShellCompDirectiveNoFileComp
		})
	}
	for _, sub := range cmd.Commands() {
		completeValues(env, sub)
	}
}

// tables are the parents, or the children, of the definitions that can be read.
func tables(children bool) func(*config.Config) []string {
	return func(c *config.Config) (names []string) {
		defs, _ := installation.LoadDefinitions(c)
		for _, d := range defs {
			name := d.Parent
			if children {
				name = d.Child
			}
			names = append(names, name.String())
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
}

// flagError adds the flags that there are to what is wrong with one.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if removed := cli.Removed(cmd, "--"+unknown.GetSpecifiedName()); removed != nil {
			return removed
		}
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	said := err.Error()
	if missing, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		said = fmt.Sprintf("--%s needs %s", missing.GetFlag().Name, valueOf(missing.GetFlag()))
	} else if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		said = fmt.Sprintf("--%s needs %s, not %q", wrong.GetFlag().Name, valueOf(wrong.GetFlag()), wrong.GetValue())
	}
	return fmt.Errorf("%s; %s takes %s", said, cmd.CommandPath(), words.Listed(names))
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

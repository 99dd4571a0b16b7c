package root

import (
	"cmp"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sexton/internal/cli"
	"sexton/internal/config"
	"sexton/internal/installation"
)

// exitCodes is the topic of "sexton help exit-codes".
func exitCodes() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "The exit codes of all commands", Long: cli.ExitCodes}
}

// completeValues has the flags --database and --table of all commands complete to what the configuration and its definitions name.
func completeValues(env *cli.Env, cmd *cobra.Command) {
	for flag, names := range map[string]func(*config.Config) []string{"database": (*config.Config).DatabaseNames, "table": children} {
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

// children are the child tables of the definitions that can be read.
func children(c *config.Config) (names []string) {
	defs, _ := installation.LoadDefinitions(c)
	for _, d := range defs {
		names = append(names, d.Child.String())
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// flagError returns what to do instead of a removed flag, and other errors as they are.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return cmp.Or(cli.Removed(cmd, "--"+unknown.GetSpecifiedName()), err)
	}
	return err
}

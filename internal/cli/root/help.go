package root

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sexton/internal/cli"
)

// exitCodes is the topic of "sexton help exit-codes".
func exitCodes() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "The exit codes of all commands", Long: cli.ExitCodes}
}

// flagError returns what to do instead of a removed flag or of the removed command before
// it, and other errors as they are.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return cmp.Or(cli.Removed(cmd, "--"+unknown.GetSpecifiedName()), cli.Removed(cmd, cmd.Flags().Arg(0)), err)
	}
	return err
}

package cli

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

// Group returns a command that requires one of the given subcommands.
func Group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s needs a subcommand", cmd.CommandPath())
			}
			return cobra.NoArgs(cmd, args)
		},
		// Without RunE, cobra would print the help instead of calling Args.
		// DisableFlagsInUseLine removes the usage line of the command: see newCommand in
		// package root.
		RunE:                  func(*cobra.Command, []string) error { return nil },
		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(commands...)
	return cmd
}

// OneID parses the only argument of a command as an ID and stores it in id. noun is the
// name of the object in errors, such as "diff".
func OneID(id *int64, noun string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return fmt.Errorf("%s needs the ID of one %s", cmd.CommandPath(), noun)
		}
		parsed, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || parsed < 1 {
			return fmt.Errorf("%q is not the ID of a %s", args[0], noun)
		}
		*id = parsed
		return nil
	}
}

// Limit adds the flag --limit with the default 100 and returns its value.
func Limit(cmd *cobra.Command, help string) *int {
	limit := cmd.Flags().Int("limit", 100, help)
	CheckFlags(cmd, func() error {
		if *limit < 1 {
			return fmt.Errorf("--limit %d must be at least 1", *limit)
		}
		return nil
	})
	return limit
}

// CheckFlags makes cmd call check before it validates its arguments.
func CheckFlags(cmd *cobra.Command, check func() error) {
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := check(); err != nil {
			return err
		}
		return args(cmd, given)
	}
}

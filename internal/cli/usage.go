package cli

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
)

// Group is a command that only holds others: without one of them it is wrong usage.
func Group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s needs a command", cmd.CommandPath())
			}
			return cmp.Or(Removed(cmd, args[0]), cobra.NoArgs(cmd, args))
		},
		// Without it cobra would show the help instead of asking Args. Its usage has no
		// line for the command alone.
		RunE:                  func(*cobra.Command, []string) error { return nil },
		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(commands...)
	return cmd
}

// Removed returns an error that says what to do instead of a removed command or flag
// below a command, or nil.
func Removed(cmd *cobra.Command, word string) error {
	const (
		defaults = "the worker has the default configuration"
		bench    = "there are drain, latency, notify and idle"
		failed   = "failures list and failures retry handle the failed ones, status counts the others"
		grants   = "use sexton grants, for roles that exist"
		move     = "copy the objects with a tool of the store and set external_diff_store of the rows"
	)
	fix, removed := map[string]string{
		"sexton placeholders":                     failed,
		"sexton tombstones":                       failed,
		"sexton bench drain --duty":               defaults,
		"sexton bench drain --foreground":         "run pgbench while it runs, with --database-url",
		"sexton bench drain --pace":               defaults,
		"sexton audit --batch":                    "the size of its statements follows from their times",
		"sexton bench diffs":                      bench,
		"sexton bench ghost":                      bench,
		"sexton bench group":                      bench,
		"sexton bench scale":                      bench,
		"sexton bench trigger":                    bench,
		"sexton bench undo":                       bench,
		"sexton bench workers":                    bench,
		"sexton demo --keep":                      "run the worker on your own database, as docs/getting-started.md shows",
		"sexton diffs move":                       move,
		"sexton diffs --to":                       move,
		"sexton diffs adopt --other":              "there is one store, external_diffs.bucket",
		"sexton diffs verify --remove-dangling":   "use --remove",
		"sexton migrate up --dry-run":             "migrate status lists what is missing",
		"sexton triggers install --dry-run":       "triggers status lists what is missing",
		"sexton triggers install --event-trigger": "run triggers install after new partitions",
		"sexton migrate up --print-grants":        grants,
		"sexton migrate up --grant":               grants + ", with --apply",
		"sexton migrate up --tables":              grants + ": they include the application's tables",
		"sexton migrate up --application":         grants + ": --app",
		"sexton migrate up --worker":              grants,
		"sexton migrate up --viewer":              grants,
	}[cmd.CommandPath()+" "+word]
	if !removed {
		return nil
	}
	return fmt.Errorf("%s %s was removed: %s", cmd.CommandPath(), word, fix)
}

// OneID reads the id of one row, which noun names, from the arguments of a command.
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

// Limit adds --limit, which is 100 by default, with the help of a command.
func Limit(cmd *cobra.Command, help string) *int {
	limit := cmd.Flags().Int("limit", 100, help)
	Demand(cmd, func() error {
		if *limit < 1 {
			return fmt.Errorf("--limit %d must be at least 1", *limit)
		}
		return nil
	})
	return limit
}

// Demand has a command look at its flags before its arguments.
func Demand(cmd *cobra.Command, check func() error) {
	args := cmd.Args
	cmd.Args = func(cmd *cobra.Command, given []string) error {
		if err := check(); err != nil {
			return err
		}
		return args(cmd, given)
	}
}

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

// allSets is the value of --set that selects all data sets.
const allSets = "all"

func benchDrainCommand(env *cli.Env) *cobra.Command {
	o := DrainOptions{}
	var set string
	var limit float64
	cmd := measuring(env, "drain --set slow --connections 8",
		"Compare the speed of Sexton with one statement and native cascades",
		`Deletes parents and measures how fast their children are deleted: by runs of Sexton, by one DELETE
joined to the tombstones, and by ON DELETE CASCADE or SET NULL. Each measurement uses a new copy of
the same data, and then checks that exactly the expected rows were deleted.

Data sets:
  wide       10,000 parents with 100 children each
  fanout     2,000 parents with 50 children each in each of 20 tables
  skew       one parent with a million children, and 1,000 parents with 10 children each
  nullify    like wide, with three more indexes; references are set to NULL
  slow       a trigger delays the deletion of each child by 20 ms; counts the rows that are
             deleted in a fixed time, and compares with one connection
  retention  a retention rule deletes a million old rows and keeps 100,000 new ones; compares
             with one DELETE`,
		func(ctx context.Context) (*Report, error) {
			o.Sets = []string{set}
			if set == allSets {
				o.Sets = DrainSets()
			}
			o.Limit = seconds(limit)
			return onCluster(ctx, env, ServerSettings(), func(g *Cluster) (*Report, error) {
				// Check this first, because inserting the rows takes long.
				if _, err := g.config(g.AdminURL, Definitions, connections(o.Connections)...); err != nil {
					return nil, err
				}
				return o.Drain(ctx, g)
			})
		})
	choices := append(DrainSets(), allSets)
	cmd.Flags().StringVar(&set, "set", allSets, "data set `NAME`: "+strings.Join(choices, ", "))
	cmd.Flags().Float64Var(&o.Scale, "scale", 1, "`FRACTION` of the full size")
	cmd.Flags().IntVar(&o.Rounds, "rounds", 3, "number of rounds, `N`; results are medians")
	cmd.Flags().IntVar(&o.Connections, "connections", 0,
		"number of sessions per run, `N` (default: loose_foreign_keys.connections)")
	cmd.Flags().Float64Var(&limit, "seconds", 10, "time limit for the data set slow in `SECONDS`")
	cli.CheckFlags(cmd, func() error {
		if !slices.Contains(choices, set) {
			return fmt.Errorf("--set must be one of %s", strings.Join(choices, ", "))
		}
		if limit < 1 {
			return errors.New("--seconds must be at least 1")
		}
		return nil
	})
	return cmd
}

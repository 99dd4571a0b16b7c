package root

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
)

func versionCommand(env *cli.Env) *cobra.Command {
	return env.JSONCommand(&cobra.Command{
		Use:     "version",
		Short:   "Print the versions of Sexton, Go, River and the schema",
		Example: "  sexton version --json",
	}, func(_ context.Context, _ []string) error {
		v := cli.ReadVersions()
		return env.Print(v, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "sexton %s (%s, river %s)\n", v.Version, v.Go, v.River)
			for _, component := range v.Schema {
				_, _ = fmt.Fprintf(w, "schema %s %d\n", component.Component, component.Version)
			}
		})
	})
}

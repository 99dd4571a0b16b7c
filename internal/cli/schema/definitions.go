package schema

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/installation"
)

func definitionsCommand(env *cli.Env) *cobra.Command {
	return cli.Group("definitions", "Print foreign keys that replace the definitions",
		"  sexton definitions foreign-keys", foreignKeysCommand(env))
}

// wayBack is the entry of one definition in `sexton definitions foreign-keys --json`.
type wayBack struct {
	Database   string   `json:"database"`
	Definition string   `json:"definition"`
	Add        []string `json:"add"`
	Validate   []string `json:"validate"`
	Reason     string   `json:"reason,omitempty"`
}

func foreignKeysCommand(env *cli.Env) *cobra.Command {
	return env.JSONCommand(&cobra.Command{
		Use:   "foreign-keys",
		Short: "Print a foreign key for each definition, in safe steps",
		Long: `Prints SQL that replaces each definition with a foreign key, to stop using Sexton. It changes
nothing. The constraints are first added NOT VALID, so that they apply to new rows. When all
tombstones are processed and "sexton audit" finds nothing, the existing rows are validated. Each
constraint has the name and the options of the foreign key that "sexton init" replaced.`,
		Example: "  sexton definitions foreign-keys\n  sexton definitions foreign-keys > foreign-keys.sql",
	}, func(ctx context.Context, _ []string) error {
		return env.WithBound(ctx, "", installation.Bind, func(all *installation.Bound) error {
			ways := []wayBack{}
			for _, db := range all.Databases {
				taken := map[string]bool{}
				for _, parent := range all.Parents[db.Name] {
					for _, reference := range parent.References {
						way := wayBack{
							Database: db.Name, Definition: reference.Definition.Key, Add: []string{},
							Validate: []string{},
						}
						if add, validate, reason := WayBack(parent, reference, taken); reason == "" {
							way.Add, way.Validate = add, validate
						} else {
							way.Reason = reason
						}
						ways = append(ways, way)
					}
				}
			}
			return env.Print(ways, func(w io.Writer) { printWayBack(w, ways) })
		})
	})
}

func printWayBack(w io.Writer, ways []wayBack) {
	printf := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	printf("-- 1. Add the keys for new rows. A statement that waits longer than 2 s for a lock fails: run it again\nSET lock_timeout = '2s';")
	for _, way := range ways {
		if way.Reason != "" {
			printf("-- %s, %s is kept: %s", way.Database, way.Definition, way.Reason)
			continue
		}
		printf("-- %s, %s\n%s", way.Database, way.Definition, strings.Join(way.Add, "\n"))
	}
	printf("\n-- 2. Wait until `sexton status` shows no tombstones and `sexton audit` exits 0; `sexton audit --repair` cleans up orphans\n")
	printf("-- 3. Validate the existing rows")
	for _, way := range ways {
		if len(way.Validate) > 0 {
			printf("%s", strings.Join(way.Validate, "\n"))
		}
	}
	printf("\n-- 4. Remove the definitions, and run `sexton triggers install`, which prints how to remove surplus triggers")
}

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
	return cli.Group("definitions", "Print the foreign keys that the definitions stand for: the way back",
		"  sexton definitions foreign-keys", foreignKeysCommand(env))
}

// wayBack is one definition in `sexton definitions foreign-keys --json`.
type wayBack struct {
	Database   string   `json:"database"`
	Definition string   `json:"definition"`
	Add        []string `json:"add"`
	Validate   []string `json:"validate"`
	Reason     string   `json:"reason,omitempty"`
}

func foreignKeysCommand(env *cli.Env) *cobra.Command {
	return env.Reports(&cobra.Command{
		Use:   "foreign-keys",
		Short: "Print a foreign key for each definition, in safe steps",
		Long: `Prints SQL that puts a foreign key in the place of each definition. It changes nothing. The keys come first and hold from
then on; once the tombstones are done and "sexton audit" finds nothing, the rows that were there before are checked.
The key constraint of a definition has the name and the options of the foreign key that "sexton init" replaced.`,
		Example: "  sexton definitions foreign-keys\n  sexton definitions foreign-keys > way-back.sql",
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
	said := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	said("-- 1. The keys hold for what comes. What waits longer than 2 s for a lock fails: repeat it\nSET lock_timeout = '2s';")
	for _, way := range ways {
		if way.Reason != "" {
			said("-- %s, %s stays: %s", way.Database, way.Definition, way.Reason)
			continue
		}
		said("-- %s, %s\n%s", way.Database, way.Definition, strings.Join(way.Add, "\n"))
	}
	said("\n-- 2. Wait until `sexton status` shows no tombstones and `sexton audit` ends with 0; `sexton audit --repair` has orphans cleaned up\n")
	said("-- 3. The rows that were there before")
	for _, way := range ways {
		if len(way.Validate) > 0 {
			said("%s", strings.Join(way.Validate, "\n"))
		}
	}
	said("\n-- 4. Remove the definitions, and run `sexton triggers install`, which says how surplus triggers go")
}

package schema

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/definitions"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/render"
)

// rightsBlock is the SQL that one role has to run in a database, an entry of `sexton
// grants --json`.
type rightsBlock struct {
	Database string `json:"database"`
	// Role is that of the connection if it may run the statements; empty for a superuser.
	Role string `json:"role"`
	// Optional marks statements without which the work is done, too.
	Optional   bool     `json:"optional"`
	Statements []string `json:"statements"`
}

func grantsCommand(env *cli.Env) *cobra.Command {
	var roles migrate.Roles
	var name string
	var apply, check bool
	cmd := env.Reports(&cobra.Command{
		Use:   "grants",
		Short: "Print, grant or check the rights of the worker's, the application's and the viewer's role",
		Long: `Prints SQL that grants existing roles what they lack: on Sexton's objects, and for the worker on the application's tables that the configuration
names, on their partitions, and by default privileges on partitions that are created later. There is one block per role that has to run
it. With --apply it runs the block of its own role and prints the others, and exits with 7 if one is left. With --check it exits with 5 if rights
are missing. Optional statements are comments. Run it after each upgrade, and after changes of definitions.`,
		Example: "  sexton grants --worker sexton_worker --app app\n  sexton grants --worker sexton_worker --app app --apply",
	}, func(ctx context.Context, _ []string) error {
		if roles == (migrate.Roles{}) {
			return cli.Usage(errors.New("name at least one role: --worker, --app or --viewer"))
		}
		return env.WithAll(ctx, func(all *installation.Connections) error {
			if name != "" {
				if _, err := cli.ChooseDatabase(all.Config, name); err != nil {
					return err
				}
			}
			defs, err := installation.LoadDefinitions(all.Config)
			if err == nil {
				err = all.CheckSchemas(ctx)
			}
			if err != nil {
				return err
			}
			blocks, needed, applied := []rightsBlock{}, false, ""
			for _, db := range all.Schemas() {
				if name != "" && name != db.Name {
					continue
				}
				lacks, done, err := db.Grant(ctx, env.Logger(all.Config), roles, tableGrants(all, db.Name, defs), apply)
				if err != nil {
					return err
				}
				if done > 0 {
					applied += fmt.Sprintf("-- database %s, applied: %s\n", db.Name, render.Counted(done, "statement"))
				}
				for _, lack := range lacks {
					needed = needed || !lack.Optional
					if n := len(blocks); n == 0 || blocks[n-1].Database != db.Name || blocks[n-1].Role != lack.Runner ||
						blocks[n-1].Optional != lack.Optional {
						blocks = append(blocks, rightsBlock{
							Database: db.Name, Role: lack.Runner,
							Optional: lack.Optional,
						})
					}
					last := &blocks[len(blocks)-1]
					last.Statements = append(last.Statements, lack.Statement)
				}
			}
			err = env.Print(blocks, func(w io.Writer) {
				_, _ = io.WriteString(w, applied)
				printRights(w, blocks)
			})
			switch {
			case err == nil && needed && check:
				return cli.ErrFindings
			case err == nil && needed && apply:
				return cli.ErrRights
			}
			return err
		})
	})
	cmd.Flags().StringVar(&name, "database", "", "`NAME` of one database (default: all)")
	cmd.Flags().StringVar(&roles.Worker, "worker", "", "the `ROLE` of sexton run")
	cmd.Flags().StringVar(&roles.Application, "app", "", "the application's `ROLE`")
	cmd.Flags().StringVar(&roles.Viewer, "viewer", "", "a `ROLE` that reads state and history")
	cmd.Flags().BoolVar(&apply, "apply", false, "run the statements that this role may run")
	cmd.Flags().BoolVar(&check, "check", false, "exit with 5 if rights are missing")
	cmd.MarkFlagsMutuallyExclusive("apply", "check")
	return cmd
}

// tableGrants are the application's tables of a database that the worker works on.
func tableGrants(all *installation.Connections, name string, defs []definitions.Definition) []migrate.TableGrant {
	for _, settings := range all.Config.Databases {
		if settings.Name == name {
			return components.Grants(components.Granting{Config: all.Config, Database: settings, Definitions: defs})
		}
	}
	return nil
}

func printRights(w io.Writer, blocks []rightsBlock) {
	if len(blocks) == 0 {
		_, _ = fmt.Fprintln(w, "-- no rights are missing")
	}
	// A line end in a role's name would end the comment, and psql would run the rest.
	lineEnds := strings.NewReplacer("\n", " ", "\r", " ")
	for _, block := range blocks {
		role := "role " + block.Role
		if block.Role == "" {
			role = "a superuser"
		}
		if block.Optional {
			role += ", optional"
		}
		_, _ = fmt.Fprintf(w, "-- database %s, to be run by %s\n", block.Database, lineEnds.Replace(role))
		for _, statement := range block.Statements {
			if block.Optional {
				statement = "-- " + lineEnds.Replace(statement)
			}
			_, _ = fmt.Fprintln(w, statement)
		}
	}
}

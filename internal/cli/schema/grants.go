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

// grantBlock holds the SQL statements that one role must run in a database. It is an
// entry of `sexton grants --json`.
type grantBlock struct {
	Database string `json:"database"`
	// Role is the role that may run the statements. It is empty if only a superuser may
	// run them.
	Role string `json:"role"`
	// Optional reports whether Sexton also works without the statements.
	Optional   bool     `json:"optional"`
	Statements []string `json:"statements"`
}

func grantsCommand(env *cli.Env) *cobra.Command {
	var roles migrate.Roles
	var name string
	var apply, check bool
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "grants",
		Short: "Print, apply or check the privileges of the worker, application and viewer roles",
		Long: `Prints the GRANT statements that existing roles lack: on Sexton's objects and, for the worker, on
the application tables in the configuration and their partitions, with default privileges for later
partitions. The statements are grouped by the role that must run them. Optional statements are
comments.

--apply runs the statements that the connected role may run, prints the others, and exits 7 if any
is left. --check exits 5 if privileges are missing. Run it after each upgrade and each change of
the definitions.`,
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
			if privilege, ok := errors.AsType[*migrate.PrivilegeError](err); ok {
				privilege.Grant = "this command as a role that may, such as the one that ran `sexton migrate up`"
			}
			if err != nil {
				return err
			}
			blocks, needed, applied := []grantBlock{}, false, ""
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
						blocks = append(blocks, grantBlock{
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
				printGrants(w, blocks)
			})
			switch {
			case err == nil && needed && check:
				return cli.ErrFindings
			case err == nil && needed && apply:
				return cli.ErrPrivileges
			}
			return err
		})
	})
	cmd.Flags().StringVar(&name, "database", "", "`NAME` of the database (default: all)")
	cmd.Flags().StringVar(&roles.Worker, "worker", "", "`ROLE` of the worker")
	cmd.Flags().StringVar(&roles.Application, "app", "", "`ROLE` of the application")
	cmd.Flags().StringVar(&roles.Viewer, "viewer", "", "`ROLE` that reads state and history")
	cmd.Flags().BoolVar(&apply, "apply", false, "run the statements that the connected role may run")
	cmd.Flags().BoolVar(&check, "check", false, "exit 5 if privileges are missing")
	cmd.MarkFlagsMutuallyExclusive("apply", "check")
	return cmd
}

// tableGrants returns the privileges that the worker needs on the application tables of a
// database.
func tableGrants(all *installation.Connections, name string, defs []definitions.Definition) []migrate.TableGrant {
	for _, settings := range all.Config.Databases {
		if settings.Name == name {
			return components.Grants(components.Granting{Config: all.Config, Database: settings, Definitions: defs})
		}
	}
	return nil
}

func printGrants(w io.Writer, blocks []grantBlock) {
	if len(blocks) == 0 {
		_, _ = fmt.Fprintln(w, "-- no privileges are missing")
	}
	// Line breaks in the name of a role are replaced by spaces. Otherwise, psql would run
	// the part of the name after the line break as SQL.
	lineEnds := strings.NewReplacer("\n", " ", "\r", " ")
	for _, block := range blocks {
		role := "role " + block.Role
		if block.Role == "" {
			role = "a superuser"
		}
		if block.Optional {
			role += ", optional"
		}
		_, _ = fmt.Fprintf(w, "-- database %s, run as %s\n", block.Database, lineEnds.Replace(role))
		for _, statement := range block.Statements {
			if block.Optional {
				statement = "-- " + lineEnds.Replace(statement)
			}
			_, _ = fmt.Fprintln(w, statement)
		}
	}
}

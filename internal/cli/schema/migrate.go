package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/definitions"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

func migrateCommand(env *cli.Env) *cobra.Command {
	return cli.Group("migrate", "Install or remove Sexton's own tables", "  sexton migrate up\n  sexton migrate status",
		migrateUpCommand(env), migrateStatusCommand(env), migrateDownCommand(env))
}

func migrateUpCommand(env *cli.Env) *cobra.Command {
	var printed, granted, tables bool
	var roles migrate.Roles
	cmd := env.Reports(&cobra.Command{
		Use:   "up",
		Short: "Install what is missing and bring it to this version",
		Long: `Installs the tables of every enabled component, River's included. It may be run again at any time,
and from several machines at once. Application tables are not touched.`,
		Example: "  sexton migrate up\n  sexton migrate up --print-grants | psql \"$DATABASE_URL\"\n" +
			"  sexton migrate up --print-grants --tables --worker deleter",
	}, func(ctx context.Context, _ []string) error {
		if printed {
			return printGrants(env, roles, tables)
		}
		if tables && !granted {
			return cli.Usage(errors.New("--tables needs --grant or --print-grants"))
		}
		var statements map[string]string
		if granted {
			var err error
			if statements, err = grantSQL(env, roles, tables); err != nil {
				return err
			}
		}
		return migrateEach(ctx, env, nil, func(all *installation.Connections, db migrate.Database) (migrate.Report, error) {
			if db.Jobs && (db.Users.Table != "" || db.Groups.Table != "") {
				found, err := all.CheckShapes(ctx, nil)
				if err = cmp.Or(err, found.Err()); err != nil {
					return migrate.Report{}, err
				}
			}
			report, err := migrate.Up(ctx, env.Logger(all.Config), db)
			if err == nil && granted {
				err = grant(ctx, env, db, statements[db.Name])
			}
			return report, placed(all, err)
		})
	})
	cmd.Flags().BoolVar(&granted, "grant", false, "afterwards run the statements that --print-grants prints")
	cmd.Flags().BoolVar(&printed, "print-grants", false, "print SQL that creates roles for application, worker and viewer with their grants; change nothing")
	cmd.Flags().BoolVar(&tables, "tables", false, "with --grant or --print-grants, grant the worker also what it needs on the application's tables")
	cmd.Flags().StringVar(&roles.Application, "application", "sexton_app", "the application's `ROLE` in the grants")
	cmd.Flags().StringVar(&roles.Worker, "worker", "sexton_worker", "the worker's `ROLE` in the grants")
	cmd.Flags().StringVar(&roles.Viewer, "viewer", "sexton_viewer", "the viewer's `ROLE` in the grants")
	cmd.MarkFlagsMutuallyExclusive("print-grants", "grant")
	return cmd
}

// placed adds their places in the file to findings.
func placed(all *installation.Connections, err error) error {
	if found, listed := errors.AsType[problem.List](err); listed {
		return riverjobs.Placed(all.Config, found)
	}
	return err
}

func migrateDownCommand(env *cli.Env) *cobra.Command {
	var force bool
	cmd := env.Reports(&cobra.Command{
		Use:   "down",
		Short: "Remove everything that Sexton created, triggers included",
		Long: `Removes the schema sexton with everything in it, the triggers, and in the application's schema the tables, columns
and indexes whose comment begins with "Sexton:", from every database. It refuses while work is pending or deletions
are kept for undo in one of them. It does not bring foreign keys back: "sexton definitions foreign-keys" prints them.`,
		Example: "  sexton migrate down",
	}, func(ctx context.Context, _ []string) error {
		refuse := func(all *installation.Connections, db migrate.Database) error {
			return migrate.CheckDown(ctx, env.Logger(all.Config), db, force)
		}
		return migrateEach(ctx, env, refuse, func(all *installation.Connections, db migrate.Database) (migrate.Report, error) {
			return migrate.Down(ctx, env.Logger(all.Config), db, force)
		})
	})
	cmd.Flags().BoolVar(&force, "force", false, "remove although work is pending or deletions are kept for undo")
	return cmd
}

// migrateEach runs one step in every database, unless one of them refuses, and prints what it did.
func migrateEach(
	ctx context.Context, env *cli.Env, refuse func(*installation.Connections, migrate.Database) error,
	step func(*installation.Connections, migrate.Database) (migrate.Report, error),
) error {
	return env.WithAll(ctx, func(all *installation.Connections) error {
		schemas := all.Schemas()
		if refuse != nil && len(schemas) > 1 {
			for _, db := range schemas {
				if err := refuse(all, db); err != nil {
					return err
				}
			}
		}
		reports := []migrate.Report{}
		for _, db := range schemas {
			report, err := step(all, db)
			if err != nil {
				return err
			}
			reports = append(reports, report)
		}
		return env.Print(reports, func(w io.Writer) {
			for _, report := range reports {
				printMigrated(w, report)
			}
		})
	})
}

func printMigrated(w io.Writer, report migrate.Report) {
	said := func(format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s: %s\n", report.Database, fmt.Sprintf(format, args...))
	}
	if len(report.Components) == 0 {
		said("nothing is installed")
		return
	}
	words.Table(w, "DATABASE\tCOMPONENT\tFROM\tTO", report.Components, func(c migrate.ComponentReport) []any {
		return []any{report.Database, c.Component, c.From, c.To}
	})
	if report.Triggers != nil {
		said("%s removed", words.Counted(len(report.Triggers.Triggers), "trigger"))
	}
	if report.Owner != nil && len(report.Owner.Todo) > 0 {
		said("all is installed. Functions run with the rights of role %s, which lacks some that this role may not grant. "+
			"Run as a role that may:\n  %s;", report.Owner.Role, strings.Join(report.Owner.Todo, ";\n  "))
	}
}

// databaseStatus is one entry of `sexton migrate status --json`.
type databaseStatus struct {
	Database   string                    `json:"database"`
	Components []migrate.ComponentStatus `json:"components"`
}

func migrateStatusCommand(env *cli.Env) *cobra.Command {
	return env.Reports(&cobra.Command{
		Use:     "status",
		Short:   "Compare the schema versions with this binary's; exits 3 where they differ",
		Example: "  sexton migrate status --json",
	}, func(ctx context.Context, _ []string) error {
		return env.WithAll(ctx, func(all *installation.Connections) error {
			statuses := []databaseStatus{}
			for _, db := range all.Schemas() {
				components, err := migrate.Status(ctx, db)
				if err != nil {
					return err
				}
				statuses = append(statuses, databaseStatus{Database: db.Name, Components: components})
			}
			if err := env.Print(statuses, func(w io.Writer) { printMigrateStatus(w, statuses) }); err != nil {
				return err
			}
			return all.CheckSchemas(ctx)
		})
	})
}

func printMigrateStatus(w io.Writer, statuses []databaseStatus) {
	words.Heading(w, "DATABASE\tCOMPONENT\tINSTALLED\tTHIS BINARY\tPENDING\tFUNCTIONS")
	for _, status := range statuses {
		words.Rows(w, status.Components, func(c migrate.ComponentStatus) []any {
			functions := "this release's"
			switch {
			case c.FunctionsDiffer:
				functions = "another release's"
			case !c.Enabled || c.Current == 0:
				functions = "-"
			}
			return []any{status.Database, c.Component, c.Current, c.Latest, len(c.Pending), functions}
		})
	}
}

// grantSQL returns the statements for the roles, by database.
func grantSQL(env *cli.Env, roles migrate.Roles, tables bool) (map[string]string, error) {
	if err := roles.Check(); err != nil {
		return nil, cli.Usage(err)
	}
	c, err := env.LoadConfig()
	if err != nil {
		return nil, err
	}
	var defs []definitions.Definition
	if tables {
		if defs, err = installation.LoadDefinitions(c); err != nil {
			return nil, err
		}
	}
	statements := map[string]string{}
	for _, settings := range c.Databases {
		sql := migrate.GrantRoles(migrate.Database{
			Name: settings.Name, TrackedSchema: settings.Schema,
			Jobs: settings.Name == c.Jobs.Database, Components: c.ComponentsIn(settings.Name),
			Users: riverjobs.TableOfUsers(c), Groups: riverjobs.TableOfGroups(c),
		}, roles)
		if tables {
			onTables, err := migrate.GrantTables(components.Grants(components.Granting{Config: c, Database: settings, Definitions: defs}), roles.Worker)
			if err != nil {
				return nil, err
			}
			sql += "\n" + onTables
		}
		statements[settings.Name] = sql
	}
	return statements, nil
}

func printGrants(env *cli.Env, roles migrate.Roles, tables bool) error {
	statements, err := grantSQL(env, roles, tables)
	if err != nil {
		return err
	}
	c, err := env.LoadConfig()
	if err != nil {
		return err
	}
	for _, settings := range c.Databases {
		env.Printf("-- database %s\n%s", settings.Name, statements[settings.Name])
	}
	return nil
}

// grant runs the statements in one transaction. The server's warnings name what the role may not grant.
func grant(ctx context.Context, env *cli.Env, db migrate.Database, statements string) (err error) {
	settings := db.Conn.Copy()
	settings.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.SeverityUnlocalized == "WARNING" {
			env.Warn(fmt.Sprintf("database %s: %s", db.Name, notice.Message))
		}
	}
	conn, err := pgx.ConnectConfig(ctx, settings)
	if err != nil {
		return fmt.Errorf("grant in database %s: %w", db.Name, err)
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	_, err = conn.PgConn().Exec(ctx, "SET LOCAL lock_timeout = '2s';\n"+statements).ReadAll()
	return problem.Doing(err, "grant in database %s", db.Name)
}

package schema

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

func migrateCommand(env *cli.Env) *cobra.Command {
	return cli.Group("migrate", "Install, compare or remove Sexton's tables", "  sexton migrate up\n  sexton migrate status",
		migrateUpCommand(env), migrateStatusCommand(env), migrateDownCommand(env))
}

func migrateUpCommand(env *cli.Env) *cobra.Command {
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "up",
		Short: "Install or upgrade Sexton's tables and functions",
		Long: `Installs the tables of every enabled component, including River's, or upgrades them to this
version. It is safe to run again, and from several machines at once. It does not change rows or
triggers of application tables. The role that owns Sexton's functions (jobs.owner) receives
privileges on some application tables. If the connected role may not create that role or grant
these privileges, the command prints the SQL for a role that may, and exits 7. Run "sexton grants"
next.`,
		Example: "  sexton migrate up",
	}, func(ctx context.Context, _ []string) error {
		return migrateEach(ctx, env, nil, func(all *installation.Connections, db migrate.Database) (migrate.Report,
			error,
		) {
			if db.Jobs && (db.Users.Table != "" || db.Groups.Table != "") {
				found, err := all.CheckShapes(ctx, nil)
				if err = cmp.Or(err, found.Err()); err != nil {
					return migrate.Report{}, err
				}
			}
			report, err := migrate.Up(ctx, env.Logger(all.Config), db)
			return report, addPositions(all, err)
		})
	})
	return cmd
}

// addPositions adds the positions in the configuration file to the problems in err.
func addPositions(all *installation.Connections, err error) error {
	if found, listed := errors.AsType[problem.List](err); listed {
		return riverjobs.Placed(all.Config, found)
	}
	return err
}

func migrateDownCommand(env *cli.Env) *cobra.Command {
	var force bool
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "down",
		Short: "Remove everything that Sexton created, including triggers",
		Long: `Removes from every database the schema "sexton", the triggers, and in the application's schema the
tables, columns and indexes with a comment that begins with "Sexton:". It refuses if a database has
pending work or deletions kept for undo. It does not restore foreign keys: "sexton definitions
foreign-keys" prints them.`,
		Example: "  sexton migrate down",
	}, func(ctx context.Context, _ []string) error {
		refuse := func(all *installation.Connections, db migrate.Database) error {
			return migrate.CheckDown(ctx, env.Logger(all.Config), db, force)
		}
		return migrateEach(ctx, env, refuse, func(all *installation.Connections, db migrate.Database) (migrate.Report,
			error,
		) {
			return migrate.Down(ctx, env.Logger(all.Config), db, force)
		})
	})
	cmd.Flags().BoolVar(&force, "force", false, "remove even if work is pending or deletions are kept for undo")
	return cmd
}

// migrateEach runs step in each database and prints the reports. With several databases,
// it first calls refuse for each, and runs no step if refuse returns an error.
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
		err := env.Print(reports, func(w io.Writer) {
			for _, report := range reports {
				printMigrated(w, report)
			}
		})
		if err == nil && slices.ContainsFunc(reports, func(r migrate.Report) bool {
			return r.Owner != nil &&
				len(r.Owner.Todo) > 0
		}) {
			return cli.ErrPrivileges
		}
		return err
	})
}

func printMigrated(w io.Writer, report migrate.Report) {
	printf := func(format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s: %s\n", report.Database, fmt.Sprintf(format, args...))
	}
	if len(report.Components) == 0 {
		printf("nothing is installed")
		return
	}
	render.Table(w, "DATABASE\tCOMPONENT\tFROM\tTO", report.Components, func(c migrate.ComponentReport) []any {
		return []any{report.Database, c.Component, c.From, c.To}
	})
	if report.Triggers != nil {
		printf("%s removed", render.Counted(len(report.Triggers.Triggers), "trigger"))
	}
	if report.Owner != nil && len(report.Owner.Todo) > 0 {
		printf("installed. Functions run as role %s, which lacks privileges that the connected role may not grant. "+
			"Run as a role that may grant them:\n  %s;", report.Owner.Role, strings.Join(report.Owner.Todo, ";\n  "))
	}
}

// databaseStatus is the entry of one database in `sexton migrate status --json`.
type databaseStatus struct {
	Database   string                    `json:"database"`
	Components []migrate.ComponentStatus `json:"components"`
}

func migrateStatusCommand(env *cli.Env) *cobra.Command {
	return env.JSONCommand(&cobra.Command{
		Use:     "status",
		Short:   "Compare the installed schema versions with this binary; exits 3 if they differ",
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
	type component struct {
		migrate.ComponentStatus

		database string
	}
	var all []component
	for _, status := range statuses {
		for _, c := range status.Components {
			all = append(all, component{c, status.Database})
		}
	}
	render.Table(w, "DATABASE\tCOMPONENT\tINSTALLED\tTHIS BINARY\tPENDING\tFUNCTIONS", all, func(c component) []any {
		functions := "this release's"
		switch {
		case c.FunctionsDiffer:
			functions = "another release's"
		case !c.Enabled || c.Current == 0:
			functions = "-"
		}
		return []any{c.database, c.Component, c.Current, c.Latest, len(c.Pending), functions}
	})
}

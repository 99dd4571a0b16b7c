package app

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/definitions"
	"sexton/internal/migrate"
)

func (a *app) migrateCommand() *cobra.Command {
	return group("migrate", "Install or remove Sexton's own tables", "  sexton migrate up\n  sexton migrate status",
		a.migrateUpCommand(), a.migrateStatusCommand(), a.migrateDownCommand())
}

func (a *app) migrateUpCommand() *cobra.Command {
	var grants, tables bool
	var roles migrate.Roles
	cmd := a.reports(&cobra.Command{
		Use:   "up",
		Short: "Install what is missing and bring it to this version",
		Long: `Installs the tables of every enabled component, River's included. It may be run again at any time,
and from several machines at once. Application tables are not touched.`,
		Example: "  sexton migrate up\n  sexton migrate up --print-grants | psql \"$DATABASE_URL\"\n" +
			"  sexton migrate up --print-grants --tables --worker deleter",
		Args: noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if grants {
				return a.printGrants(roles, tables)
			}
			if tables {
				return usageError{errors.New("--tables needs --print-grants")}
			}
			return a.migrateEach(cmd, nil, func(all *connections, db migrate.Database) (migrate.Report, error) {
				return migrate.Up(cmd.Context(), a.logger(all.config), db)
			})
		}),
	})
	cmd.Flags().BoolVar(&grants, "print-grants", false, "print SQL that creates roles for application, worker and viewer with their grants, and change nothing")
	cmd.Flags().BoolVar(&tables, "tables", false, "with --print-grants, grant the worker also what it needs on the application's tables")
	cmd.Flags().StringVar(&roles.Application, "application", "sexton_app", "the application's `ROLE` in --print-grants")
	cmd.Flags().StringVar(&roles.Worker, "worker", "sexton_worker", "the worker's `ROLE` in --print-grants")
	cmd.Flags().StringVar(&roles.Viewer, "viewer", "sexton_viewer", "the viewer's `ROLE` in --print-grants")
	return cmd
}

func (a *app) migrateDownCommand() *cobra.Command {
	var force bool
	cmd := a.reports(&cobra.Command{
		Use:   "down",
		Short: "Remove everything that Sexton created, triggers included",
		Long: `Removes what Sexton created and nothing else, from every database. It refuses while tombstones are pending in
one of them, because the children they stand for would be forgotten.`,
		Example: "  sexton migrate down",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			refuse := func(all *connections, db migrate.Database) error {
				return migrate.CheckDown(cmd.Context(), a.logger(all.config), db, force)
			}
			return a.migrateEach(cmd, refuse, func(all *connections, db migrate.Database) (migrate.Report, error) {
				return migrate.Down(cmd.Context(), a.logger(all.config), db, force)
			})
		}),
	})
	cmd.Flags().BoolVar(&force, "force", false, "remove although work is pending, and leave the children as orphans")
	return cmd
}

// migrateEach runs one step in every database, unless one of them refuses, and prints what it did.
func (a *app) migrateEach(
	cmd *cobra.Command, refuse func(*connections, migrate.Database) error, step func(*connections, migrate.Database) (migrate.Report, error),
) error {
	all, err := a.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer all.close()
	if refuse != nil && len(all.databases) > 1 {
		for _, db := range all.schemas() {
			if err := refuse(all, db); err != nil {
				return err
			}
		}
	}
	reports := []migrate.Report{}
	for _, db := range all.schemas() {
		report, err := step(all, db)
		if err != nil {
			return err
		}
		reports = append(reports, report)
	}
	if a.json {
		return a.printJSON(reports)
	}
	return a.printMigrated(all, reports)
}

func (a *app) printMigrated(all *connections, reports []migrate.Report) error {
	for _, report := range reports {
		if len(report.Components) == 0 {
			a.printf("%s: nothing is installed\n", report.Database)
			continue
		}
		err := a.table(func(w io.Writer) {
			_, _ = fmt.Fprintln(w, "DATABASE\tCOMPONENT\tFROM\tTO")
			for _, c := range report.Components {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\n", report.Database, c.Component, c.From, c.To)
			}
		})
		if err != nil {
			return err
		}
		if report.Triggers != nil {
			a.printf("%s: %s removed\n", report.Database, counted(len(report.Triggers.Triggers), "trigger"))
		}
		if report.Owner != nil && len(report.Owner.Todo) > 0 {
			a.printf("%s: Sexton's functions are to run with the rights of role %s alone. Have a role run that may, and this command again:\n  %s;\n",
				report.Database, report.Owner.Role, strings.Join(report.Owner.Todo, ";\n  "))
		}
		if report.SchemaKept {
			a.printf("%s: schema %s is kept, as it holds objects that Sexton did not create\n", report.Database, all.config.Jobs.Schema)
		}
	}
	return nil
}

// databaseStatus is one entry of `sexton migrate status --json`.
type databaseStatus struct {
	Database   string                    `json:"database"`
	Components []migrate.ComponentStatus `json:"components"`
}

func (a *app) migrateStatusCommand() *cobra.Command {
	return a.reports(&cobra.Command{
		Use:     "status",
		Short:   "Compare the schema versions with this binary's; exits 3 where they differ",
		Example: "  sexton migrate status --json",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			all, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer all.close()
			statuses := []databaseStatus{}
			for _, db := range all.schemas() {
				components, err := migrate.Status(cmd.Context(), db)
				if err != nil {
					return err
				}
				statuses = append(statuses, databaseStatus{Database: db.Name, Components: components})
			}
			if err := a.printMigrateStatus(statuses); err != nil {
				return err
			}
			return all.checkSchemas(cmd.Context())
		}),
	})
}

func (a *app) printMigrateStatus(statuses []databaseStatus) error {
	if a.json {
		return a.printJSON(statuses)
	}
	return a.table(func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "DATABASE\tCOMPONENT\tINSTALLED\tTHIS BINARY\tPENDING")
		for _, status := range statuses {
			for _, c := range status.Components {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", status.Database, c.Component, c.Current, c.Latest, len(c.Pending))
			}
		}
	})
}

// printGrants needs no connection: the statements are the same for every server.
func (a *app) printGrants(roles migrate.Roles, tables bool) error {
	if err := roles.Check(); err != nil {
		return usageError{err}
	}
	c, err := a.loadConfig()
	if err != nil {
		return err
	}
	var defs []definitions.Definition
	if tables {
		if defs, err = loadDefinitions(c); err != nil {
			return err
		}
	}
	for _, settings := range c.Databases {
		a.printf("-- database %s\n%s", settings.Name, migrate.GrantRoles(migrate.Database{
			Name: settings.Name, JobsSchema: c.Jobs.Schema, TrackedSchema: settings.Schema,
			Jobs: settings.Name == c.Jobs.Database, Components: c.ComponentsIn(settings.Name),
		}, roles))
		if !tables {
			continue
		}
		printed, err := migrate.GrantTables(grantedTables(c, settings, defs), roles.Worker)
		if err != nil {
			return err
		}
		a.printf("\n%s", printed)
	}
	return nil
}

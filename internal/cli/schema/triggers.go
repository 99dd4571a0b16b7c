package schema

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

func triggersCommand(env *cli.Env) *cobra.Command {
	return cli.Group("triggers", "Install, compare or remove the triggers on tracked tables", "  sexton triggers install\n  sexton triggers status --json",
		triggersInstallCommand(env), triggersStatusCommand(env), triggersUninstallCommand(env))
}

func triggersInstallCommand(env *cli.Env) *cobra.Command {
	var sameKey, eventTrigger bool
	cmd := env.Reports(&cobra.Command{
		Use:   "install",
		Short: "Install what the definitions need",
		Long: `Puts a tracking trigger on every parent named in the definitions, and on each of its partitions. A table
whose triggers are as they should be is not locked. It may be run again at any time.

It also makes these definitions, and the lists of the other jobs, the installed generation: from then on a worker that has
read others leaves the job alone until it reads these, or these are replaced by another install. Rows that were deleted
before are not recorded for definitions that are new; sexton audit --repair finds the children that they have left.

Where the key column of a parent has been renamed, or has another type, deletions go on being recorded; install renews
the triggers, and converts tombstones that wait. Where the key is another column now, tombstones that wait carry the values
of the one before: install refuses, unless --same-key says that the values are the same (as after two columns were swapped).

Partitions that are created later get their triggers from the worker, within a pass, if it may put triggers on them. With
--event-trigger the command that creates or attaches one does it itself. Only a superuser may create an event trigger: for another
role, the SQL is printed. It never fails the command; what it cannot do is a warning there. --event-trigger=false removes it.`,
		Example: "  sexton triggers install\n  sexton triggers install --event-trigger\n  sexton triggers install --same-key",
		Args:    cli.NoArguments,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			all, err := bindTracked(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer all.Close()
			reports, err := installation.InstallTriggers(cmd.Context(), all, func(cfg *triggers.Config) {
				cfg.SameKey = sameKey
				if cmd.Flags().Changed("event-trigger") {
					cfg.EventTrigger = &eventTrigger
				}
			})
			if err != nil {
				return err
			}
			return printInstalled(env, reports)
		}),
	})
	cmd.Flags().BoolVar(&sameKey, "same-key", false, "a key that is another column now has the same values: tombstones that wait fit")
	cmd.Flags().BoolVar(&eventTrigger, "event-trigger", false, "put triggers on new partitions by an event trigger, which a superuser has to create")
	return cmd
}

func triggersUninstallCommand(env *cli.Env) *cobra.Command {
	return env.Reports(&cobra.Command{
		Use:     "uninstall",
		Short:   "Remove all of Sexton's triggers and their functions",
		Long:    "Removes every trigger that belongs to this installation. Deletions are not recorded from then on; tombstones stay.",
		Example: "  sexton triggers uninstall",
		Args:    cli.NoArguments,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			all, err := env.Connect(cmd.Context())
			if err != nil {
				return err
			}
			defer all.Close()
			reports := []installation.TriggerReport{}
			for _, db := range all.Databases {
				cfg, _ := riverjobs.Tracking(all.Config, db, nil)
				err := installation.OnConnection(cmd.Context(), db, func(conn *pgx.Conn) error {
					report, err := triggers.Uninstall(cmd.Context(), conn, cfg)
					reports = append(reports, installation.TriggerReport{Database: db.Name, Report: report})
					return err
				})
				if err != nil {
					return err
				}
			}
			if env.JSON {
				return env.PrintJSON(reports)
			}
			for _, report := range reports {
				env.Printf("%s: %s removed\n", report.Database, words.Counted(len(report.Triggers), "trigger"))
			}
			return nil
		}),
	})
}

// databaseFindings is one entry of `sexton triggers status --json`.
type databaseFindings struct {
	Database string             `json:"database"`
	Findings []triggers.Finding `json:"findings"`
}

func triggersStatusCommand(env *cli.Env) *cobra.Command {
	return env.Reports(&cobra.Command{
		Use:   "status",
		Short: "Compare the database with the definitions; exits 5 on drift",
		Long: `Reports triggers that are missing, surplus, altered or disabled, and whether the installed generation of definitions and
lists is that of these files. "plain" is no drift: the trigger works, but not under session_replication_role = replica,
because the table has another owner.`,
		Example: "  sexton triggers status",
		Args:    cli.NoArguments,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			all, err := bindTracked(cmd.Context(), env)
			if err != nil {
				return err
			}
			defer all.Close()
			compared := []databaseFindings{}
			drift := false
			err = all.OnTracked(cmd.Context(), func(db database.Database, conn *pgx.Conn, cfg triggers.Config, parents []triggers.Parent) error {
				findings, err := triggers.Status(cmd.Context(), conn, cfg, parents)
				if err != nil {
					return err
				}
				differs, err := installation.GenerationFindings(cmd.Context(), db, all.Generations())
				if err != nil {
					return err
				}
				findings = append(findings, differs...)
				drift = drift || slices.ContainsFunc(findings, triggers.Finding.Drift)
				compared = append(compared, databaseFindings{Database: db.Name, Findings: findings})
				return nil
			})
			if err != nil {
				return err
			}
			if err := printFindings(env, compared); err != nil {
				return err
			}
			if drift {
				return cli.ErrFindings
			}
			return nil
		}),
	})
}

// bindTracked binds the definitions to all databases, and shows what in them is only worth a warning.
func bindTracked(ctx context.Context, env *cli.Env) (*installation.Bound, error) {
	c, err := env.LoadConfig()
	if err != nil {
		return nil, err
	}
	all, err := installation.Bind(ctx, c)
	if err != nil {
		return nil, err
	}
	warnings := components.WithoutIndexes(all.Warnings)
	for _, db := range all.Databases {
		missing, err := components.MissingIndexes(ctx, all.Connections, db, all.Parents)
		if err != nil {
			all.Close()
			return nil, err
		}
		warnings.Add(missing...)
	}
	for _, p := range warnings {
		_, _ = fmt.Fprintln(env.Stderr, "sexton: warning:", p)
	}
	return all, nil
}

func printInstalled(env *cli.Env, reports []installation.TriggerReport) error {
	if env.JSON {
		return env.PrintJSON(reports)
	}
	for _, report := range reports {
		for _, change := range report.Triggers {
			env.Printf("%s: %s %s on %s\n", report.Database, change.Action, change.Trigger, cmp.Or(change.Table, "new partitions"))
		}
		for _, finding := range report.Surplus {
			env.Printf("%s: %s on %s is %s: %s\n", report.Database, finding.Trigger, finding.Table, finding.Kind, finding.Fix)
		}
		env.Printf("%s: %s changed, %d as they should be\n", report.Database, words.Counted(len(report.Triggers), "trigger"), report.Unchanged)
		for _, moved := range report.Generations {
			env.Printf("%s: %s\n", report.Database, moved)
		}
		if len(report.Audit) > 0 {
			env.Printf("%s: parents that were deleted before are not recorded for %s: sexton audit finds the children that they have left, "+
				"sexton audit --repair has them cleaned up\n", report.Database, namely(report.Audit))
		}
	}
	return nil
}

func printFindings(env *cli.Env, all []databaseFindings) error {
	return env.Print(all, func(w io.Writer) {
		for _, one := range all {
			if len(one.Findings) == 0 {
				_, _ = fmt.Fprintf(w, "%s: all triggers are as the definitions need them\n", one.Database)
			}
			for _, f := range one.Findings {
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", one.Database, f.Kind, f.Table, f.Trigger, f.Detail, f.Fix)
			}
		}
	})
}

// shownTables is how many tables one line names.
const shownTables = 10

// namely lists tables, and says how many more there are.
func namely(tables []string) string {
	if more := len(tables) - shownTables; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(tables[:shownTables], ", "), more)
	}
	return strings.Join(tables, ", ")
}

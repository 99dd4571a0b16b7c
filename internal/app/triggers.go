package app

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"sexton/internal/database"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

func (a *app) triggersCommand() *cobra.Command {
	return group("triggers", "Install, compare or remove the triggers on tracked tables", "  sexton triggers install\n  sexton triggers status --json",
		a.triggersInstallCommand(), a.triggersStatusCommand(), a.triggersUninstallCommand())
}

// triggerReport is one entry of `sexton triggers install --json` and `uninstall --json`.
type triggerReport struct {
	Database        string `json:"database"`
	triggers.Report        //nolint:embeddedstructfieldcheck // the order is that of the document
	// Audit are the child tables with definitions that were not installed before: rows of theirs may have lost their parent unrecorded.
	Audit []string `json:"audit,omitempty"`
	// Generations are the ones that the installation moved, in the report of the jobs database.
	Generations []riverjobs.Moved `json:"generations,omitempty"`
}

func (a *app) triggersInstallCommand() *cobra.Command {
	var sameKey, eventTrigger bool
	cmd := a.reports(&cobra.Command{
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
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			all, err := a.bindTracked(cmd.Context())
			if err != nil {
				return err
			}
			defer all.close()
			reports, err := installTriggers(cmd.Context(), all, func(cfg *triggers.Config) {
				cfg.SameKey = sameKey
				if cmd.Flags().Changed("event-trigger") {
					cfg.EventTrigger = &eventTrigger
				}
			})
			if err != nil {
				return err
			}
			return a.printInstalled(reports)
		}),
	})
	cmd.Flags().BoolVar(&sameKey, "same-key", false, "a key that is another column now has the same values: tombstones that wait fit")
	cmd.Flags().BoolVar(&eventTrigger, "event-trigger", false, "put triggers on new partitions by an event trigger, which a superuser has to create")
	return cmd
}

func (a *app) triggersUninstallCommand() *cobra.Command {
	return a.reports(&cobra.Command{
		Use:     "uninstall",
		Short:   "Remove all of Sexton's triggers and their functions",
		Long:    "Removes every trigger that belongs to this installation. Deletions are not recorded from then on; tombstones stay.",
		Example: "  sexton triggers uninstall",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			all, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer all.close()
			reports := []triggerReport{}
			for _, db := range all.databases {
				cfg, _ := riverjobs.Tracking(all.config, db, nil)
				err := onConnection(cmd.Context(), db, func(conn *pgx.Conn) error {
					report, err := triggers.Uninstall(cmd.Context(), conn, cfg)
					reports = append(reports, triggerReport{Database: db.Name, Report: report})
					return err
				})
				if err != nil {
					return err
				}
			}
			if a.json {
				return a.printJSON(reports)
			}
			for _, report := range reports {
				a.printf("%s: %s removed\n", report.Database, counted(len(report.Triggers), "trigger"))
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

func (a *app) triggersStatusCommand() *cobra.Command {
	return a.reports(&cobra.Command{
		Use:   "status",
		Short: "Compare the database with the definitions; exits 5 on drift",
		Long: `Reports triggers that are missing, surplus, altered or disabled, and whether the installed generation of definitions and
lists is that of these files. "plain" is no drift: the trigger works, but not under session_replication_role = replica,
because the table has another owner.`,
		Example: "  sexton triggers status",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			all, err := a.bindTracked(cmd.Context())
			if err != nil {
				return err
			}
			defer all.close()
			compared := []databaseFindings{}
			drift := false
			err = all.onTracked(cmd.Context(), func(db database.Database, conn *pgx.Conn, cfg triggers.Config, parents []triggers.Parent) error {
				findings, err := triggers.Status(cmd.Context(), conn, cfg, parents)
				if err != nil {
					return err
				}
				differs, err := generationFindings(cmd.Context(), db, all.generations())
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
			if err := a.printFindings(compared); err != nil {
				return err
			}
			if drift {
				return errFindings
			}
			return nil
		}),
	})
}

// bindTracked binds the definitions to all databases, and shows what in them is only worth a warning.
func (a *app) bindTracked(ctx context.Context) (*bound, error) {
	c, err := a.loadConfig()
	if err != nil {
		return nil, err
	}
	all, err := bind(ctx, c)
	if err != nil {
		return nil, err
	}
	warnings := withoutIndexes(all.warnings)
	for _, db := range all.databases {
		missing, err := missingIndexes(ctx, all.connections, db, all.parents)
		if err != nil {
			all.close()
			return nil, err
		}
		warnings.Add(missing...)
	}
	for _, p := range warnings {
		_, _ = fmt.Fprintln(a.stderr, "sexton: warning:", p)
	}
	return all, nil
}

// onTracked calls do for every database with what its definitions need.
func (b *bound) onTracked(ctx context.Context, do func(database.Database, *pgx.Conn, triggers.Config, []triggers.Parent) error) error {
	for _, db := range b.databases {
		cfg, tracked := riverjobs.Tracking(b.config, db, b.parents[db.Name])
		if err := onConnection(ctx, db, func(conn *pgx.Conn) error { return do(db, conn, cfg, tracked) }); err != nil {
			return err
		}
	}
	return nil
}

// generationFindings says where other definitions or lists are installed than the files have.
func generationFindings(ctx context.Context, db database.Database, generations []riverjobs.Generation) ([]triggers.Finding, error) {
	differs, err := riverjobs.CompareGenerations(ctx, db, generations)
	var found []triggers.Finding
	for _, kind := range slices.Sorted(maps.Keys(differs)) {
		found = append(found, triggers.Finding{
			Kind: triggers.Altered, Trigger: "definitions of " + kind, Detail: differs[kind],
			Fix: "run `sexton triggers install` with the files that are to hold",
		})
	}
	return found, err
}

func onConnection(ctx context.Context, db database.Database, do func(*pgx.Conn) error) error {
	conn, err := db.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to database %s: %w", db.Name, err)
	}
	defer conn.Release()
	return do(conn.Conn())
}

func (a *app) printInstalled(reports []triggerReport) error {
	if a.json {
		return a.printJSON(reports)
	}
	for _, report := range reports {
		for _, change := range report.Triggers {
			a.printf("%s: %s %s on %s\n", report.Database, change.Action, change.Trigger, cmp.Or(change.Table, "new partitions"))
		}
		for _, finding := range report.Surplus {
			a.printf("%s: %s on %s is %s: %s\n", report.Database, finding.Trigger, finding.Table, finding.Kind, finding.Fix)
		}
		a.printf("%s: %s changed, %d as they should be\n", report.Database, counted(len(report.Triggers), "trigger"), report.Unchanged)
		for _, moved := range report.Generations {
			a.printf("%s: %s\n", report.Database, moved)
		}
		if len(report.Audit) > 0 {
			a.printf("%s: parents that were deleted before are not recorded for %s: sexton audit finds the children that they have left, "+
				"sexton audit --repair has them cleaned up\n", report.Database, namely(report.Audit))
		}
	}
	return nil
}

func (a *app) printFindings(all []databaseFindings) error {
	if a.json {
		return a.printJSON(all)
	}
	return a.table(func(w io.Writer) {
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

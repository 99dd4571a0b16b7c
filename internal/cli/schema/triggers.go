package schema

import (
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
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

func triggersCommand(env *cli.Env) *cobra.Command {
	return cli.Group("triggers", "Install, compare or remove the triggers on parent tables",
		"  sexton triggers install\n  sexton triggers status --json",
		triggersInstallCommand(env), triggersStatusCommand(env), triggersUninstallCommand(env))
}

func triggersInstallCommand(env *cli.Env) *cobra.Command {
	var sameKey bool
	cmd := env.JSONCommand(&cobra.Command{
		Use:   "install",
		Short: "Install the triggers that the definitions need",
		Long: `Installs a trigger on every parent table in the definitions and on each of its partitions. A table
whose triggers are up to date is not locked. It is safe to run again.

It then records the definitions and the lists of the other jobs as the installed generation. A
worker that loaded different files does not run these jobs until it reloads the installed files, or
until this command is run with its files.

Rows that were deleted earlier are not recorded for new definitions. "sexton audit --repair" finds
their children.

If the key column of a parent was renamed or has another type, run install to renew the triggers.
Until then, deletions are still recorded. If the key is a different column now, pending tombstones
have the values of the old column, and install refuses. --same-key confirms that both columns have
the same values, for example after two columns were swapped.

A new partition gets its triggers from the next run of a worker whose role has TRIGGER on it, or
from install. Until then, a DELETE that names the partition is not recorded.`,
		Example: "  sexton triggers install\n  sexton triggers install --same-key",
	}, func(ctx context.Context, _ []string) error {
		set := func(cfg *triggers.Config) { cfg.SameKey, cfg.Waits = sameKey, warnOfLock(env) }
		return onTracked(ctx, env, func(all *installation.Bound) error {
			reports, err := installation.InstallTriggers(ctx, all, set)
			if err != nil {
				return err
			}
			return env.Print(reports, func(w io.Writer) {
				for _, report := range reports {
					printInstalled(w, report)
				}
			})
		})
	})
	cmd.Flags().BoolVar(&sameKey, "same-key", false,
		"confirm that a changed key column has the values of the old one")
	return cmd
}

// warnOfLock returns a function that prints a warning about a lock for which the command
// waits.
func warnOfLock(env *cli.Env) func(lock, holders string) {
	return func(lock, holders string) { env.Warn("waiting for " + lock + ", held by " + holders) }
}

func triggersUninstallCommand(env *cli.Env) *cobra.Command {
	return env.JSONCommand(&cobra.Command{
		Use:     "uninstall",
		Short:   "Remove Sexton's triggers and their functions",
		Long:    `Removes all triggers of this installation. Deletions are no longer recorded. Tombstones are kept.`,
		Example: "  sexton triggers uninstall",
	}, func(ctx context.Context, _ []string) error {
		return env.WithAll(ctx, func(all *installation.Connections) error {
			reports := []installation.TriggerReport{}
			for _, db := range all.Databases {
				cfg, _ := riverjobs.Tracking(all.Config, db, nil)
				cfg.Waits = warnOfLock(env)
				err := installation.OnConnection(ctx, db, func(conn *pgx.Conn) error {
					report, err := triggers.Uninstall(ctx, conn, cfg)
					reports = append(reports, installation.TriggerReport{Database: db.Name, Report: report})
					return err
				})
				if err != nil {
					return err
				}
			}
			return env.Print(reports, func(w io.Writer) {
				for _, report := range reports {
					_, _ = fmt.Fprintf(w, "%s: %s removed\n", report.Database,
						render.Counted(len(report.Triggers), "trigger"))
				}
			})
		})
	})
}

// databaseFindings is the entry of one database in `sexton triggers status --json`.
type databaseFindings struct {
	Database string             `json:"database"`
	Findings []triggers.Finding `json:"findings"`
}

func triggersStatusCommand(env *cli.Env) *cobra.Command {
	return env.JSONCommand(&cobra.Command{
		Use:   "status",
		Short: "Compare the triggers with the definitions; exits 5 if they differ",
		Long: `Reports missing, surplus, altered and disabled triggers, and whether the installed generation
matches these files. "plain" is not a difference: the trigger works, but not under
session_replication_role = replica, because another role owns the table.`,
		Example: "  sexton triggers status",
	}, func(ctx context.Context, _ []string) error {
		return onTracked(ctx, env, func(all *installation.Bound) error { return compareTriggers(ctx, env, all) })
	})
}

func compareTriggers(ctx context.Context, env *cli.Env, all *installation.Bound) error {
	compared := []databaseFindings{}
	drift := false
	err := all.OnTracked(ctx, func(db database.Database, conn *pgx.Conn, cfg triggers.Config,
		parents []triggers.Parent,
	) error {
		findings, err := triggers.Status(ctx, conn, cfg, parents)
		if err != nil {
			return err
		}
		differs, err := installation.GenerationFindings(ctx, db, all.Generations())
		findings = append(findings, differs...)
		drift = drift || slices.ContainsFunc(findings, triggers.Finding.Drift)
		compared = append(compared, databaseFindings{Database: db.Name, Findings: findings})
		return err
	})
	if err != nil {
		return err
	}
	err = env.Print(compared, func(w io.Writer) {
		for _, one := range compared {
			if len(one.Findings) == 0 {
				_, _ = fmt.Fprintf(w, "%s: all triggers match the definitions\n", one.Database)
			}
			render.Table(w, "", one.Findings, func(f triggers.Finding) []any {
				return []any{one.Database, f.Kind, f.Table, f.Trigger, f.Detail, f.Fix}
			})
		}
	})
	if err == nil && drift {
		return cli.ErrFindings
	}
	return err
}

// onTracked connects to all databases, prints warnings about definitions and missing
// indexes, and calls do.
func onTracked(ctx context.Context, env *cli.Env, do func(*installation.Bound) error) error {
	return env.WithBound(ctx, "", installation.Bind, func(all *installation.Bound) error {
		warnings := components.WithoutIndexes(all.Warnings)
		for _, db := range all.Databases {
			missing, err := components.MissingIndexes(ctx, all.Connections, db, all.Parents)
			if err != nil {
				return err
			}
			warnings.Add(missing...)
		}
		for _, p := range warnings {
			env.Warn(p)
		}
		return do(all)
	})
}

func printInstalled(w io.Writer, report installation.TriggerReport) {
	printf := func(format string, args ...any) {
		_, _ = fmt.Fprintf(w, "%s: %s\n", report.Database, fmt.Sprintf(format, args...))
	}
	for _, change := range report.Triggers {
		printf("%s %s on %s", change.Action, change.Trigger, change.Table)
	}
	for _, finding := range report.Surplus {
		printf("%s on %s is %s: %s", finding.Trigger, finding.Table, finding.Kind, finding.Fix)
	}
	printf("%s changed, %d unchanged", render.Counted(len(report.Triggers), "trigger"), report.Unchanged)
	for _, moved := range report.Generations {
		printf("%s", moved)
	}
	if len(report.Audit) > 0 {
		printf("parents that were deleted earlier are not recorded for %s: sexton audit finds their children, "+
			"sexton audit --repair cleans them up", shortList(report.Audit))
	}
}

// shownTables is the maximum number of tables in one line of output.
const shownTables = 10

// shortList returns the names of at most shownTables tables, and the number of the
// remaining tables.
func shortList(tables []string) string {
	if more := len(tables) - shownTables; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(tables[:shownTables], ", "), more)
	}
	return strings.Join(tables, ", ")
}

package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/operator"
	"sexton/internal/render"
	"sexton/internal/undo"
	riverjobs "sexton/river_jobs"
)

const undoHelp = `Restores a deletion that loose_foreign_keys.undo kept: the parents, all rows that were deleted with
them, and the values that were set to NULL or changed. It runs one transaction per database. Workers
wait until it ends.

A row whose key is in use again, or whose other parent does not exist, is reported and not restored,
and the exit code is 6. No other row is changed. Undo deletions in reverse order: a row that a later
deletion changed is reported with "undo deletion N first". Run the command again to restore what is
missing.

The application's triggers do not fire if the role may set session_replication_role, unless
loose_foreign_keys.undo.fire_triggers is set. --dry-run runs the same transactions and rolls them
back. It needs that privilege, and workers wait for it as well. "sexton undo list" prints the IDs.`

func undoCommand(env *cli.Env) *cobra.Command {
	var id int64
	var dryRun bool
	cmd := onUndo(env, &cobra.Command{
		Use: "undo ID", Short: "Restore a deletion with all rows that were deleted or changed with it", Long: undoHelp,
		Example: "  sexton undo list\n  sexton undo 4711000000042 --dry-run\n  sexton undo 4711000000042",
		Args:    cli.OneID(&id, "deletion"),
	}, func(ctx context.Context, all *installation.Bound, _ *undo.Engine) (err error) {
		var report *undo.Report
		restore := func(engine *undo.Engine) error {
			report, err = engine.Restore(ctx, id, dryRun)
			return err
		}
		action := "undo"
		if dryRun {
			action = "undo --dry-run"
		}
		err = changeKept(ctx, env, all, id, action, restore)
		if report == nil || err != nil && dryRun {
			return err
		}
		if err == nil && report.LeftRows > 0 {
			err = cli.ErrRowsLeft
		}
		// After an error, also print the rows that were restored in other databases.
		return errors.Join(err, env.Print(report, func(w io.Writer) { printRestored(w, report) }))
	})
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "report which rows would be restored and which would not, and roll back")
	cmd.AddCommand(undoListCommand(env), undoShowCommand(env), undoForgetCommand(env))
	return cmd
}

func printRestored(w io.Writer, report *undo.Report) {
	text := "restored"
	if report.DryRun {
		text = "would be restored"
	}
	_, _ = fmt.Fprintf(w, "%s %s\n", render.Counted(report.Restored, "row"), text)
	if report.Unit != nil {
		printTables(w, report.Unit)
	}
	if report.Triggers {
		_, _ = fmt.Fprintln(w,
			"the application's triggers fired: the role may not set session_replication_role, or fire_triggers is on")
	}
	for _, note := range report.Notes {
		_, _ = fmt.Fprintln(w, note)
	}
	if report.LeftRows > 0 {
		_, _ = fmt.Fprintf(w, "\n%s left:\n", render.Counted(report.LeftRows, "row"))
		render.List(w, "", "DATABASE\tTABLE\tKEY\tREASON", report.Left,
			func(l undo.Left) []any { return []any{l.Database, l.Table, l.Key, l.Reason} })
	}
}

func printTables(w io.Writer, unit *undo.Unit) {
	render.List(w, "", "DATABASE\tTABLE\tACTION\tROWS\tRESTORED\tNOT KEPT", unit.Tables, func(t undo.TableRows) []any {
		return []any{t.Database, t.Table, t.Action, t.Rows, t.Restored, t.LeftOut}
	})
}

func undoListCommand(env *cli.Env) *cobra.Command {
	var limit *int
	cmd := onUndo(env, &cobra.Command{
		Use: "list", Short: "List the newest kept deletions",
		Long: `Lists kept deletions, one per DELETE of parents, the newest first: time, table, keys, number of
rows so far, and when they expire. A deletion is incomplete if some of its rows were not kept. Rows
that a batch deleted for several deletions are counted for each. "sexton undo show" separates them.`,
		Example: "  sexton undo list\n  sexton undo list --limit 5 --json",
	}, func(ctx context.Context, all *installation.Bound, engine *undo.Engine) error {
		units, err := engine.List(ctx, *limit)
		if err != nil {
			return err
		}
		document := struct {
			unreachable

			Deletions []*undo.Unit `json:"deletions"`
		}{unreachableOf(env, all), units}
		return env.Print(document, func(w io.Writer) {
			render.List(w, "no deletion is kept", "ID\tDELETED\tDATABASE\tTABLE\tKEYS\tROWS\tSTATE\tUNTIL", units,
				func(u *undo.Unit) []any {
					var rows int64
					for _, t := range u.Tables {
						rows += t.Rows
					}
					counted := strconv.FormatInt(rows, 10)
					if u.Shared {
						counted = "at most " + counted
					}
					return []any{
						u.ID, u.DeletedAt.UTC().Format(time.RFC3339), u.Database, u.Table, render.Listed(u.Keys),
						counted,
						stateOf(u), u.Until.Format(time.RFC3339),
					}
				})
		})
	})
	limit = cli.Limit(cmd, "list at most `N` deletions")
	return cmd
}

// stateOf returns the text for the state of a deletion.
func stateOf(u *undo.Unit) string {
	if u.Waiting {
		return u.State + ", still running"
	}
	return u.State
}

func undoShowCommand(env *cli.Env) *cobra.Command {
	var id int64
	return onUndo(env, &cobra.Command{
		Use: "show ID", Short: "Show the rows of a kept deletion", Example: "  sexton undo show 4711000000042",
		Args: cli.OneID(&id, "deletion"),
	}, func(ctx context.Context, all *installation.Bound, engine *undo.Engine) error {
		unit, err := engine.Show(ctx, id)
		if err != nil {
			return err
		}
		document := struct {
			*undo.Unit
			unreachable
		}{unit, unreachableOf(env, all)}
		return env.Print(document, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "%s deleted from %s (%s) at %s, key %s: %s, kept until %s\n", unit.Actor, unit.Table,
				unit.Database,
				unit.DeletedAt.UTC().Format(time.RFC3339), render.Listed(unit.Keys), stateOf(unit),
				unit.Until.Format(time.RFC3339))
			printTables(w, unit)
		})
	})
}

func undoForgetCommand(env *cli.Env) *cobra.Command {
	var id int64
	return onUndo(env, &cobra.Command{
		Use: "forget ID", Short: "Discard a kept deletion permanently",
		Example: "  sexton undo forget 4711000000042", Args: cli.OneID(&id, "deletion"),
	}, func(ctx context.Context, all *installation.Bound, _ *undo.Engine) (err error) {
		var rows int64
		if err := changeKept(ctx, env, all, id, "forget", func(engine *undo.Engine) error {
			rows, err = engine.Forget(ctx, id)
			return err
		}); err != nil {
			return err
		}
		document := struct {
			ID   int64 `json:"id"`
			Rows int64 `json:"rows"`
		}{id, rows}
		return env.Print(document, func(w io.Writer) {
			_,
				_ = fmt.Fprintf(w, "%s forgotten\n", render.Counted(rows, "row"))
		})
	})
}

// unreachable lists the databases that cannot be reached. Their saved deletions and rows
// are left out of the output.
type unreachable struct {
	Unreachable []string `json:"unreachable"`
}

func unreachableOf(env *cli.Env, all *installation.Bound) unreachable {
	down := append([]string{}, all.DownNames()...)
	if len(down) > 0 {
		_, _ = fmt.Fprintf(env.Stderr, "database %s cannot be reached: its kept deletions are left out\n",
			strings.Join(down, ", "))
	}
	return unreachable{down}
}

func changeKept(ctx context.Context, env *cli.Env, all *installation.Bound, id int64, action string,
	do func(*undo.Engine) error,
) error {
	return operator.ChangeKept(ctx, all, id, database.Change{Actor: installation.Actor(), Action: action},
		env.Logger(all.Config), do)
}

// onUndo makes cmd call do with the bound definitions and the undo engine.
func onUndo(env *cli.Env, cmd *cobra.Command, do func(context.Context, *installation.Bound,
	*undo.Engine) error,
) *cobra.Command {
	return env.JSONCommand(cmd, func(ctx context.Context, _ []string) error {
		return env.WithBound(ctx, riverjobs.LooseForeignKeys, installation.BindUsable,
			func(all *installation.Bound) error {
				engine, err := operator.UndoEngine(ctx, all, "")
				if err == nil {
					err = all.CheckSchemas(ctx)
				}
				if err != nil {
					return err
				}
				return do(ctx, all, engine)
			})
	})
}

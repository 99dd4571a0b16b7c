package records

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/audittrail"
	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/problem"
	"sexton/internal/undo"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

const undoHelp = `Puts back the rows of a deletion that loose_foreign_keys.undo kept: the parents, all that went with them, and the values
that were set to NULL or changed. What the workers have not deleted yet is stopped first.

A row whose key has been taken since, or whose other parent has gone, is named and stays deleted; nothing that is there is
changed. The command may be interrupted and given again; a second one changes nothing more. The application's triggers
do not fire where the role may set session_replication_role, unless loose_foreign_keys.undo.fire_triggers says otherwise.`

func undoCommand(env *cli.Env) *cobra.Command {
	var id int64
	var dryRun bool
	cmd := onUndo(env, &cobra.Command{
		Use: "undo ID", Short: "Take a deletion back with everything that went with it", Long: undoHelp,
		Example: "  sexton undo list\n  sexton undo 4711000000042 --dry-run\n  sexton undo 4711000000042",
		Args:    cli.OneID(&id, "deletion"),
	}, func(ctx context.Context, on *undoing) error {
		if err := on.all.Complete(); err != nil {
			return err
		}
		if !dryRun {
			if err := on.record(ctx, "undo", id); err != nil {
				return err
			}
		}
		report, err := on.engine.Restore(ctx, id, dryRun)
		if err != nil {
			return err
		}
		return env.Print(report, func(w io.Writer) { printRestored(w, report) })
	})
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only tell what would come back")
	cmd.AddCommand(undoListCommand(env), undoShowCommand(env), undoForgetCommand(env))
	return cmd
}

func printRestored(w io.Writer, report *undo.Report) {
	said := "restored"
	if report.DryRun {
		said = "would be restored"
	}
	_, _ = fmt.Fprintf(w, "%s %s\n", words.Counted(report.Restored, "row"), said)
	printTables(w, report.Unit)
	if report.Triggers {
		_, _ = fmt.Fprintln(w, "the application's triggers fire for them: the role may not set session_replication_role, or fire_triggers is on")
	}
	for _, note := range report.Notes {
		_, _ = fmt.Fprintln(w, note)
	}
	if report.LeftRows > 0 {
		_, _ = fmt.Fprintf(w, "\n%s left:\n", words.Counted(report.LeftRows, "row"))
		words.List(w, "", "DATABASE\tTABLE\tKEY\tREASON", report.Left, func(l undo.Left) []any { return []any{l.Database, l.Table, l.Key, l.Reason} })
	}
}

func printTables(w io.Writer, unit *undo.Unit) {
	words.List(w, "", "DATABASE\tTABLE\tACTION\tROWS\tRESTORED\tNOT KEPT", unit.Tables, func(t undo.TableRows) []any {
		return []any{t.Database, t.Table, t.Action, t.Rows, t.Restored, t.LeftOut}
	})
}

func undoListCommand(env *cli.Env) *cobra.Command {
	var limit *int
	cmd := onUndo(env, &cobra.Command{
		Use: "list", Short: "List the newest deletions that are kept",
		Long: `Lists deletions, one per DELETE of parents, the newest first: when, of which table and keys, how many rows went with it so far,
and until when they are kept. A deletion is incomplete where rows of it were not kept.`,
		Example: "  sexton undo list\n  sexton undo list --limit 5 --json",
	}, func(ctx context.Context, on *undoing) error {
		units, err := on.engine.List(ctx, *limit)
		if err != nil {
			return err
		}
		return env.Print(units, func(w io.Writer) {
			words.List(w, "no deletion is kept", "ID\tDELETED\tDATABASE\tTABLE\tKEYS\tROWS\tSTATE\tUNTIL", units, func(u *undo.Unit) []any {
				var rows int64
				for _, t := range u.Tables {
					rows += t.Rows
				}
				return []any{
					u.ID, u.DeletedAt.UTC().Format(time.RFC3339), u.Database, u.Table, words.Listed(u.Keys), rows, stateOf(u), u.Until.Format(time.RFC3339),
				}
			})
		})
	})
	limit = cli.Limit(cmd, "list `N` at most")
	return cmd
}

// stateOf is the state of a deletion for people.
func stateOf(u *undo.Unit) string {
	if u.Waiting {
		return u.State + ", still running"
	}
	return u.State
}

func undoShowCommand(env *cli.Env) *cobra.Command {
	var id int64
	return onUndo(env, &cobra.Command{
		Use: "show ID", Short: "Show what went with one deletion", Example: "  sexton undo show 4711000000042", Args: cli.OneID(&id, "deletion"),
	}, func(ctx context.Context, on *undoing) error {
		unit, err := on.engine.Show(ctx, id)
		if err != nil {
			return err
		}
		return env.Print(unit, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "%s deleted from %s (%s) at %s, key %s: %s, kept until %s\n", unit.Actor, unit.Table, unit.Database,
				unit.DeletedAt.UTC().Format(time.RFC3339), words.Listed(unit.Keys), stateOf(unit), unit.Until.Format(time.RFC3339))
			printTables(w, unit)
		})
	})
}

func undoForgetCommand(env *cli.Env) *cobra.Command {
	var id int64
	return onUndo(env, &cobra.Command{
		Use: "forget ID", Short: "Remove what is kept of one deletion, for good",
		Example: "  sexton undo forget 4711000000042", Args: cli.OneID(&id, "deletion"),
	}, func(ctx context.Context, on *undoing) error {
		if err := on.all.Complete(); err != nil {
			return err
		}
		if err := on.record(ctx, "forget", id); err != nil {
			return err
		}
		rows, err := on.engine.Forget(ctx, id)
		if err != nil {
			return err
		}
		document := struct {
			ID   int64 `json:"id"`
			Rows int64 `json:"rows"`
		}{id, rows}
		return env.Print(document, func(w io.Writer) { _, _ = fmt.Fprintf(w, "%s forgotten\n", words.Counted(rows, "row")) })
	})
}

// undoing has the databases and the engine of a command about kept deletions.
type undoing struct {
	all    *installation.Bound
	engine *undo.Engine
}

func (on *undoing) record(ctx context.Context, action string, id int64) error {
	entry := audittrail.Entry{Actor: installation.Actor(), Action: action, Target: "deletion " + strconv.FormatInt(id, 10)}
	return audittrail.Record(ctx, on.all.Jobs(), on.all.Jobs().Pool, entry)
}

// onUndo completes a command about kept deletions.
func onUndo(env *cli.Env, cmd *cobra.Command, do func(context.Context, *undoing) error) *cobra.Command {
	return env.Reports(cmd, func(ctx context.Context, _ []string) error {
		return env.WithBound(ctx, riverjobs.LooseForeignKeys, installation.BindReachable, func(all *installation.Bound) error {
			settings := all.Config.LooseForeignKeys.Undo
			there, err := keeping(ctx, all)
			if err != nil {
				return err
			}
			if !settings.On() && len(there) == 0 {
				return problem.List{{
					Severity: problem.Error, Key: "loose_foreign_keys.undo.keep", Message: "is 0s, so that no deletion is kept",
					Fix: "set it to 72h, say, run `sexton migrate up` and `sexton triggers install`, and start the workers anew",
				}}
			}
			if err := all.CheckSchemas(ctx); err != nil {
				return err
			}
			id := installation.Holder()
			stop, err := installation.Beat(ctx, all.Connections, id, env.Logger(all.Config))
			if err != nil {
				return err
			}
			defer stop()
			on := &undoing{all: all, engine: &undo.Engine{
				Databases: there, Parents: all.Parents, Keep: settings.Keep, FireTriggers: settings.FireTriggers,
				Leases: all.Leases(id), Key: riverjobs.LooseForeignKeysLease, StatementTimeout: 30 * time.Second, LockTimeout: 10 * time.Second,
			}}
			return do(ctx, on)
		})
	})
}

// keeping are the databases that are there, and have a table of kept deletions once undo is switched off.
func keeping(ctx context.Context, all *installation.Bound) (there []database.Database, _ error) {
	for _, db := range all.Databases {
		if all.Down[db.Name] != nil {
			continue
		}
		kept := all.Config.LooseForeignKeys.Undo.On()
		if !kept {
			var err error
			if kept, err = undo.Keeps(ctx, db); err != nil {
				return nil, err
			}
		}
		if kept {
			there = append(there, db)
		}
	}
	return there, nil
}

package check

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/components"
	"sexton/internal/definitions"
	"sexton/internal/installation"
	"sexton/internal/loosefk/plan"
	"sexton/internal/operator"
	"sexton/internal/problem"
	"sexton/internal/render"
)

func planCommand(env *cli.Env) *cobra.Command {
	return env.JSONCommand(&cobra.Command{
		Use:   "plan",
		Short: "Preview the next runs: rows, access paths and missing indexes",
		Long: `For each definition, shows the pending tombstones, the rows that a run would delete or change now,
and how Postgres finds them. Then prints CREATE INDEX CONCURRENTLY for each index without which a
deletion reads a complete table, including indexes for native foreign keys below the children.
Counts stop at a limit, shown as "10,000+". If deletions are kept, lists what "sexton undo" would
not restore.

For each other enabled job, shows the number of due rows, its next run, when the next row is due,
and why the job waits.

It changes nothing: it reads in READ ONLY transactions of at most a few seconds. If a child is in a
different database than its parent, its database is shown in brackets: create its indexes there. If
a database cannot be reached, the plan covers the other databases, and the exit code is 4.`,
		Example: "  sexton plan\n  sexton plan --json | jq -r '.[].definitions[].missing_indexes[].create' | sort -u\n" +
			"  sexton plan --json | jq '.[].jobs[]? | {kind, due, waiting_for}'",
	}, func(ctx context.Context, _ []string) error {
		return env.WithBound(ctx, "", installation.BindReachable, func(all *installation.Bound) error {
			for _, p := range all.Warnings {
				if !indexWarning(p) {
					env.Warn(p)
				}
			}
			plans, err := operator.Plan(ctx, all)
			if err != nil {
				return err
			}
			err = env.Print(plans, func(w io.Writer) {
				for i, one := range plans {
					if i > 0 {
						_, _ = fmt.Fprintln(w)
					}
					printPlan(w, one)
				}
			})
			return cmp.Or(err, all.Complete())
		})
	})
}

// indexWarning reports whether a warning is about a missing index on a child column. Only
// these warnings have a key that ends with ".column". The plan prints missing indexes
// itself, with more detail.
func indexWarning(p problem.Problem) bool { return strings.HasSuffix(p.Key, ".column") }

func printPlan(w io.Writer, planned operator.PlannedDatabase) {
	if planned.Result == nil {
		_, _ = fmt.Fprintf(w, "%s: cannot be reached\n", planned.Database)
		return
	}
	if len(planned.Definitions) > 0 {
		render.Table(w, "CHILD\tCOLUMN\tPARENT\tACTION\tDUE\tDEFERRED\tROWS\tPLAN\tTHEN", planned.Definitions,
			func(d plan.Definition) []any {
				// PendingCapped is true if the count of due or of deferred tombstones was
				// capped, but does not record which. Each count that has reached the cap
				// is printed as capped.
				capped := func(n int64) string {
					return render.Capped(n, d.PendingCapped && n >= components.PendingCap)
				}
				return []any{
					cli.ChildText(d.Child, d.ChildDatabase), d.Column, d.Parent, d.Action, capped(d.Due),
					capped(d.Deferred),
					render.Capped(d.Rows, d.RowsCapped), accessText(d.Access), followOnText(d.Then),
				}
			})
		_, _ = fmt.Fprintln(w)
	}
	t := planned.Totals
	_, _ = fmt.Fprintf(w, "%s: %s, %s%s due and %d deferred, %s%s to delete and %d to change, %s\n",
		planned.Database, render.Counted(t.Definitions, "definition"),
		render.AtLeast(t.PendingCapped), render.Counted(t.Due, "tombstone"), t.Deferred, render.AtLeast(t.RowsCapped),
		render.Counted(t.DeleteRows, "row"),
		t.UpdateRows, missingText(t.MissingIndexes))
	for _, d := range planned.Definitions {
		for _, finding := range d.Findings {
			_, _ = fmt.Fprintf(w, "%s.%s: %s\n", d.Child, d.Column, finding)
		}
	}
	printMissing(w, planned.Definitions)
	for _, loss := range planned.Uncovered {
		_, _ = fmt.Fprintf(w, "%s: %s\n", loss.Object, loss.Message)
	}
	render.List(w, "", "\nJOB\tDUE NOW\tNEXT RUN\tNEXT DUE\tWAITS FOR", planned.Jobs,
		func(job operator.PlannedJob) []any {
			due := job.Text()
			if job.Error != "" {
				due = job.Error
			}
			return []any{job.Kind, due, job.NextRun, job.NextDueAt, job.WaitingFor}
		})
	for _, job := range planned.Jobs {
		if job.Details != nil {
			job.Details.Print(w)
		}
	}
}

// printMissing prints a CREATE INDEX statement for each missing index, without
// duplicates. The reason is an SQL comment, so that psql can run the output.
func printMissing(w io.Writer, planned []plan.Definition) {
	type index struct{ database, create string }
	printed := map[index]bool{}
	for _, d := range planned {
		for _, missing := range d.MissingIndexes {
			one := index{d.ChildDatabase, missing.Create}
			if printed[one] {
				continue
			}
			printed[one] = true
			place := missing.Table
			if one.database != "" {
				place = "in database " + one.database + ", " + place
			}
			// Line breaks are replaced by spaces, because a line break in a name would
			// end the SQL comment.
			_, _ = fmt.Fprintf(w, "\n-- %s: %s\n%s\n", place,
				strings.NewReplacer("\n", " ", "\r", " ").Replace(missing.Why), missing.Create)
		}
	}
}

func accessText(access plan.AccessPath) string {
	switch {
	case access.Node == "":
		return "-"
	case access.Index == "":
		return access.Node + " on " + access.Table
	default:
		return access.Node + " using " + access.Index
	}
}

func followOnText(then []plan.Named) string {
	if len(then) == 0 {
		return "-"
	}
	names := make([]string, len(then))
	for i, next := range then {
		names[i] = cli.ChildText(next.Child+"."+next.Column, next.ChildDatabase)
		if next.Action != definitions.Delete {
			names[i] += " (" + string(next.Action) + ")"
		}
	}
	return render.Listed(names)
}

func missingText(n int) string {
	switch n {
	case 0:
		return "no index missing"
	case 1:
		return "1 index missing"
	default:
		return fmt.Sprintf("%d indexes missing", n)
	}
}

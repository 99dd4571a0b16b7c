package check

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/component"
	"sexton/internal/definitions"
	"sexton/internal/installation"
	"sexton/internal/loosefk/dryrun"
	"sexton/internal/operator"
	"sexton/internal/problem"
	"sexton/internal/words"
)

func planCommand(env *cli.Env) *cobra.Command {
	return env.Reports(&cobra.Command{
		Use:   "plan",
		Short: "Show what a pass would do now, how, and which indexes are missing; changes nothing",
		Long: `Per definition of loose foreign keys: the tombstones that wait, the rows that a pass would delete or change for tombstones that are
due, and how Postgres finds them. Below that, a CREATE INDEX CONCURRENTLY for each index without which deletions
read whole tables, including indexes for the real foreign keys below the children. Counts stop at a cap, shown
as "10000+". Per other enabled job: what it may take now, by the predicate that wakes it, its next run, when something
falls due, and why it waits. All of it is counted in READ ONLY transactions of a few seconds at most. A child in another database than
its parent has that database's name in brackets, and its indexes are to be created there. Where a database cannot be
reached, the plan is for the others, and the exit code is 4.`,
		Example: "  sexton plan\n  sexton plan --json | jq -r '.[].definitions[].missing_indexes[].create' | sort -u\n" +
			"  sexton plan --json | jq '.[].jobs[]? | {kind, due, waiting_for}'",
		Args: cli.NoArguments,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			c, err := env.LoadConfig()
			if err != nil {
				return err
			}
			all, err := installation.BindReachable(cmd.Context(), c)
			if err != nil {
				return err
			}
			defer all.Close()
			for _, p := range all.Warnings {
				if !indexWarning(p) {
					_, _ = fmt.Fprintln(env.Stderr, "sexton: warning:", p)
				}
			}
			plans, err := operator.Plan(cmd.Context(), all)
			if err != nil {
				return err
			}
			if env.JSON {
				err = env.PrintJSON(plans)
			} else {
				err = printPlans(env, plans)
			}
			return cmp.Or(err, all.Complete())
		}),
	})
}

// indexWarning reports whether a finding is about the index of a child's column, which the plan itself looks at
// more closely: it is the only warning about that key.
func indexWarning(p problem.Problem) bool { return strings.HasSuffix(p.Key, ".column") }

// WithoutIndexes leaves out what missingIndexes says, knowing partitions and what is below a child.
func WithoutIndexes(problems problem.List) (others problem.List) {
	for _, p := range problems {
		if !strings.HasPrefix(p.Fix, "CREATE INDEX ") && !strings.HasPrefix(p.Fix, "index each partition") {
			others.Add(p)
		}
	}
	return others
}

func printPlans(env *cli.Env, plans []operator.PlannedDatabase) error {
	for i, plan := range plans {
		if i > 0 {
			env.Printf("\n")
		}
		if err := printPlan(env, plan); err != nil {
			return err
		}
	}
	return nil
}

func printPlan(env *cli.Env, plan operator.PlannedDatabase) error {
	if plan.Result == nil {
		env.Printf("%s: cannot be reached\n", plan.Database)
		return nil
	}
	if len(plan.Definitions) > 0 {
		err := env.Table(func(w io.Writer) {
			_, _ = fmt.Fprintln(w, "CHILD\tCOLUMN\tPARENT\tACTION\tDUE\tPUT OFF\tROWS\tPLAN\tTHEN")
			for _, d := range plan.Definitions {
				// A cap of one of the two counts cannot be told from one of the other: both show it where they reach it.
				_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cli.ChildText(d.Child, d.ChildDatabase), d.Column, d.Parent, d.Action,
					capped(d.Due, d.PendingCapped && d.Due >= component.PendingCap), capped(d.Deferred, d.PendingCapped && d.Deferred >= component.PendingCap),
					capped(d.Rows, d.RowsCapped), accessText(d.Access), followOnText(d.Then))
			}
		})
		if err != nil {
			return err
		}
		env.Printf("\n")
	}
	t := plan.Totals
	env.Printf("%s: %s, %s%s due and %d put off, %s%s to delete and %d to change, %s\n", plan.Database, words.Counted(t.Definitions, "definition"),
		words.AtLeast(t.PendingCapped), words.Counted(t.Due, "tombstone"), t.Deferred, words.AtLeast(t.RowsCapped), words.Counted(t.DeleteRows, "row"),
		t.UpdateRows, missingText(t.MissingIndexes))
	for _, d := range plan.Definitions {
		for _, finding := range d.Findings {
			env.Printf("%s.%s: %s\n", d.Child, d.Column, finding)
		}
	}
	printMissing(env, plan.Definitions)
	return printPlannedJobs(env, plan.Jobs)
}

// printMissing prints each missing index once, with its reason as an SQL comment, so that all of it can be
// handed to psql.
func printMissing(env *cli.Env, planned []dryrun.Definition) {
	type index struct{ database, create string }
	var printed []index
	for _, d := range planned {
		for _, missing := range d.MissingIndexes {
			one := index{d.ChildDatabase, missing.Create}
			if slices.Contains(printed, one) {
				continue
			}
			printed = append(printed, one)
			place := missing.Table
			if one.database != "" {
				place = "in database " + one.database + ", " + place
			}
			// A name may hold a line break, which would end the comment.
			env.Printf("\n-- %s: %s\n%s\n", place, strings.NewReplacer("\n", " ", "\r", " ").Replace(missing.Why), missing.Create)
		}
	}
}

func capped(n int64, more bool) string {
	if more {
		return fmt.Sprintf("%d+", n)
	}
	return fmt.Sprint(n)
}

func accessText(access dryrun.AccessPath) string {
	switch {
	case access.Node == "":
		return "-"
	case access.Index == "":
		return access.Node + " on " + access.Table
	default:
		return access.Node + " using " + access.Index
	}
}

func followOnText(then []dryrun.FollowOn) string {
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
	return words.Listed(names)
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

func printPlannedJobs(env *cli.Env, jobs []operator.PlannedJob) error {
	if len(jobs) == 0 {
		return nil
	}
	env.Printf("\n")
	return env.Table(func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "JOB\tDUE NOW\tNEXT RUN\tNEXT DUE\tWAITS FOR")
		for _, job := range jobs {
			due := job.Text()
			if job.Error != "" {
				due = words.Cell(&job.Error)
			}
			_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", job.Kind, due, words.Moment(job.NextRun), words.Moment(job.NextDueAt), words.Cell(job.WaitingFor))
		}
	})
}

package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/audittrail"
	"sexton/internal/database"
	"sexton/internal/loosefk"
	riverjobs "sexton/river_jobs"
)

// relocation moves the waiting tombstones of one parent to another one, or, where to is empty, drops them.
type relocation struct {
	from, to scope
	yes      bool
}

// relocatedReport is one database's entry of `sexton tombstones move --json` and `drop --json`.
type relocatedReport struct {
	Database string `json:"database"`
	Table    string `json:"table"`
	// To is the parent that has them now; empty where they were dropped.
	To                string `json:"to,omitempty"`
	loosefk.Relocated        //nolint:embeddedstructfieldcheck // the order is that of the document
}

func (a *app) tombstonesMoveCommand() *cobra.Command {
	var r relocation
	cmd := a.reports(&cobra.Command{
		Use:   "move",
		Short: "Give the waiting tombstones of a renamed parent to the table that it is now",
		Long: `Tombstones name their parent. Where it was renamed, split or replaced while some wait, those go on under a name that no
definition has, or that another table has now. This gives them to the table that has the children's keys, due now, with their
attempts set to 0. The definitions have to name that table as the parent, and its key has to be the same one.`,
		Example: "  sexton tombstones move --table old_projects --to projects\n  sexton tombstones move --table old_projects --to projects --yes --json",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if r.from.table == "" || r.to.table == "" {
				return usageError{fmt.Errorf("%s needs --table and --to", cmd.CommandPath())}
			}
			return a.relocate(cmd, r)
		}),
	})
	r.from.flags(cmd, "`PARENT` that the tombstones name now, as in definitions")
	cmd.Flags().StringVar(&r.to.table, "to", "", "`PARENT` that they are to name, as in definitions")
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) tombstonesDropCommand() *cobra.Command {
	var r relocation
	cmd := a.reports(&cobra.Command{
		Use:   "drop",
		Short: "Forget the waiting tombstones of a parent: the children of its deleted rows stay",
		Long: `Removes the waiting tombstones of one parent, such as a table that is gone with all its children. Children that are there stay
for good; "sexton audit" finds them as long as a definition names the parent.`,
		Example: "  sexton tombstones drop --table old_projects\n  sexton tombstones drop --table old_projects --yes --json",
		Args:    noArguments,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if r.from.table == "" {
				return usageError{fmt.Errorf("%s needs --table", cmd.CommandPath())}
			}
			return a.relocate(cmd, r)
		}),
	})
	r.from.flags(cmd, "`PARENT` whose tombstones to drop, as in definitions")
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do not ask")
	return cmd
}

// planned is the work of a relocation in one database.
type planned struct {
	db       database.Database
	from, to string
	waiting  int
}

func (a *app) relocate(cmd *cobra.Command, r relocation) error {
	ctx := cmd.Context()
	for _, s := range []scope{r.from, r.to} {
		if _, err := s.name(); err != nil {
			return err
		}
	}
	all, _, err := a.connectForJob(ctx, riverjobs.LooseForeignKeysCleanupArgs{}.Kind())
	if err != nil {
		return err
	}
	defer all.close()
	plans, err := r.plan(ctx, all)
	if err != nil {
		return err
	}
	what := "drop all waiting tombstones of " + r.from.table
	if r.to.table != "" {
		what = fmt.Sprintf("move all waiting tombstones of %s to %s", r.from.table, r.to.table)
	}
	if len(plans) > 0 && !r.yes {
		if err := a.confirmed(cmd, what, plans); err != nil {
			return err
		}
	}
	action, _, _ := strings.Cut(what, " ")
	entry := audittrail.Entry{Actor: actor(), Action: action, Target: strings.TrimPrefix(what, action+" all waiting ")}
	if len(plans) > 0 {
		if err := audittrail.Record(ctx, all.jobs(), all.jobs().Pool, entry); err != nil {
			return err
		}
	}
	reports := []relocatedReport{}
	for _, plan := range plans {
		var result loosefk.Relocated
		var failed error
		if plan.to == "" {
			result, failed = tombstonesOf(all, plan.db).Drop(ctx, plan.from)
		} else {
			result, failed = tombstonesOf(all, plan.db).Move(ctx, plan.from, plan.to)
		}
		// Also beside an error: what has been changed has been changed.
		a.logger(all.config).InfoContext(ctx, "tombstones relocated", "database", plan.db.Name, "actor", actor(), "action", action,
			"table", plan.from, "to", plan.to, "changed", result.Changed, "busy", result.Busy)
		if failed != nil {
			return fmt.Errorf("database %s: %w", plan.db.Name, failed)
		}
		reports = append(reports, relocatedReport{Database: plan.db.Name, Table: plan.from, To: plan.to, Relocated: result})
	}
	return a.printRelocated(reports, action)
}

// plan looks for what waits, database by database.
func (r relocation) plan(ctx context.Context, all *connections) ([]planned, error) {
	databases, err := r.from.chosen(all)
	if err != nil {
		return nil, err
	}
	var plans []planned
	for _, db := range databases {
		plan := planned{db: db}
		if plan.from, err = r.from.in(ctx, db); err != nil {
			return nil, err
		}
		if plan.waiting, err = tombstonesOf(all, db).Count(ctx, plan.from, pendingCap); err != nil {
			return nil, err
		}
		if plan.waiting == 0 {
			continue
		}
		if r.to.table != "" {
			wanted, err := r.to.in(ctx, db)
			if err != nil {
				return nil, err
			}
			if plan.to, err = tombstonesOf(all, db).Table(ctx, wanted); err != nil {
				return nil, err
			}
			if plan.to == "" {
				return nil, usageError{fmt.Errorf("--to %s: database %s has no table %s", r.to.table, db.Name, wanted)}
			}
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

// confirmed asks, and returns an error unless the answer is yes.
func (a *app) confirmed(cmd *cobra.Command, what string, plans []planned) error {
	for _, plan := range plans {
		least := ""
		if plan.waiting >= pendingCap {
			least = "at least "
		}
		_, _ = fmt.Fprintf(a.stderr, "%s: %s%s of %s\n", plan.db.Name, least, counted(plan.waiting, "waiting tombstone"), plan.from)
	}
	_, _ = fmt.Fprintf(a.stderr, "%s? [y/N] ", strings.ToUpper(what[:1])+what[1:])
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	return usageError{errors.New("not confirmed, nothing was changed: answer y, or give --yes")}
}

func (a *app) printRelocated(reports []relocatedReport, action string) error {
	if a.json {
		return a.printJSON(reports)
	}
	if len(reports) == 0 {
		a.printf("no tombstone waits\n")
	}
	for _, r := range reports {
		done := "dropped"
		if action == "move" {
			done = "moved to " + r.To
		}
		a.printf("%s: %s of %s %s", r.Database, counted(r.Changed, "tombstone"), r.Table, done)
		if r.Busy > 0 {
			a.printf(", %d busy: a worker has them in hand", r.Busy)
		}
		a.printf("\n")
	}
	return nil
}

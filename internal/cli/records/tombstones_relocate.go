package records

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/component"
	"sexton/internal/installation"
	"sexton/internal/lease"
	"sexton/internal/loosefk"
	"sexton/internal/words"
)

// relocation moves the waiting tombstones of one parent to another one, or, where to is empty, drops them.
type relocation struct {
	from, to cli.Scope
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

func tombstonesMoveCommand(env *cli.Env) *cobra.Command {
	var r relocation
	var cmd *cobra.Command
	cmd = onTombstones(env, &r.from, &cobra.Command{
		Use:   "move",
		Short: "Give the waiting tombstones of a renamed parent to the table that it is now",
		Long: `Tombstones name their parent. Where it was renamed, split or replaced while some wait, those go on under a name that no
definition has, or that another table has now. This gives them to the table that has the children's keys, due now, with their
attempts set to 0. The definitions have to name that table as the parent, and its key has to be the same one.`,
		Example: "  sexton tombstones move --table old_projects --to projects\n  sexton tombstones move --table old_projects --to projects --yes --json",
	}, func(ctx context.Context, on tombstones) error { return on.relocate(ctx, cmd, r) })
	cli.Demand(cmd, func() error {
		if r.from.Table == "" || r.to.Table == "" {
			return fmt.Errorf("%s needs --table and --to", cmd.CommandPath())
		}
		_, err := r.to.Name()
		return err
	})
	r.from.Flags(cmd, "`PARENT` that the tombstones name now, as in definitions")
	cmd.Flags().StringVar(&r.to.Table, "to", "", "`PARENT` that they are to name, as in definitions")
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do not ask")
	return cmd
}

func tombstonesDropCommand(env *cli.Env) *cobra.Command {
	var r relocation
	var cmd *cobra.Command
	cmd = onTombstones(env, &r.from, &cobra.Command{
		Use:   "drop",
		Short: "Forget the waiting tombstones of a parent: the children of its deleted rows stay",
		Long: `Removes the waiting tombstones of one parent, such as a table that is gone with all its children. Children that are there stay
for good; "sexton audit" finds them as long as a definition names the parent.`,
		Example: "  sexton tombstones drop --table old_projects\n  sexton tombstones drop --table old_projects --yes --json",
	}, func(ctx context.Context, on tombstones) error { return on.relocate(ctx, cmd, r) })
	cli.Demand(cmd, func() error {
		if r.from.Table == "" {
			return fmt.Errorf("%s needs --table", cmd.CommandPath())
		}
		return nil
	})
	r.from.Flags(cmd, "`PARENT` whose tombstones to drop, as in definitions")
	cmd.Flags().BoolVar(&r.yes, "yes", false, "do not ask")
	return cmd
}

// planned is the work of a relocation in one database.
type planned struct {
	database string
	queue    loosefk.Tombstones
	from, to string
	waiting  int64
}

func (on tombstones) relocate(ctx context.Context, cmd *cobra.Command, r relocation) error {
	plans, err := on.planned(ctx, r)
	if err != nil {
		return err
	}
	action, target := "drop", "tombstones of "+r.from.Table
	if r.to.Table != "" {
		action, target = "move", target+" to "+r.to.Table
	}
	if len(plans) > 0 && !r.yes {
		if err := on.confirmed(cmd, action+" all waiting "+target, plans); err != nil {
			return err
		}
	}
	if len(plans) > 0 {
		if err := on.notUndone(ctx, plans); err != nil {
			return err
		}
		if err := on.record(ctx, action, target); err != nil {
			return err
		}
	}
	reports := []relocatedReport{}
	for _, plan := range plans {
		var result loosefk.Relocated
		var failed error
		if plan.to == "" {
			result, failed = plan.queue.Drop(ctx, plan.from)
		} else {
			result, failed = plan.queue.Move(ctx, plan.from, plan.to)
		}
		// Also beside an error: what has been changed has been changed.
		on.log(plan.database).InfoContext(ctx, "tombstones relocated", "action", action,
			"table", plan.from, "to", plan.to, "changed", result.Changed, "busy", result.Busy)
		if failed != nil {
			return fmt.Errorf("database %s: %w", plan.database, failed)
		}
		reports = append(reports, relocatedReport{Database: plan.database, Table: plan.from, To: plan.to, Relocated: result})
	}
	return on.Print(reports, func(w io.Writer) {
		if len(reports) == 0 {
			_, _ = fmt.Fprintln(w, "no tombstone waits")
		}
		for _, r := range reports {
			done := "dropped"
			if r.To != "" {
				done = "moved to " + r.To
			}
			_, _ = fmt.Fprintf(w, "%s: %s of %s %s%s\n", r.Database, words.Counted(r.Changed, "tombstone"), r.Table, done, busyText(r.Busy))
		}
	})
}

// notUndone returns an error while a deletion is taken back: it works under the lease of the queue, as a pass does, and would be ended as one.
func (on tombstones) notUndone(ctx context.Context, plans []planned) error {
	held, err := on.all.Jobs().Queries().LeasesHeld(ctx, 0)
	if err != nil {
		return fmt.Errorf("look who works on tombstones: %w", err)
	}
	for _, one := range held {
		at := slices.IndexFunc(plans, func(plan planned) bool { return plan.queue.Lease == one.Key })
		if at >= 0 && lease.ByUndo(one.Holder) {
			return fmt.Errorf("database %s: a deletion is being taken back or forgotten (%s): try again when that has ended", plans[at].database, one.Holder)
		}
	}
	return nil
}

// planned looks for what waits, database by database.
func (on tombstones) planned(ctx context.Context, r relocation) (plans []planned, _ error) {
	for _, db := range on.databases {
		plan := planned{database: db.Name, queue: installation.TombstonesOf(on.all, db)}
		var err error
		if plan.from, err = on.In(ctx, db); err != nil {
			return nil, err
		}
		if plan.waiting, err = plan.queue.Count(ctx, plan.from, component.PendingCap); err != nil {
			return nil, err
		}
		if plan.waiting == 0 {
			continue
		}
		if r.to.Table != "" {
			wanted, err := r.to.In(ctx, db)
			if err != nil {
				return nil, err
			}
			if plan.to, err = plan.queue.Table(ctx, wanted); err != nil {
				return nil, err
			}
			if plan.to == "" {
				return nil, cli.Usage(fmt.Errorf("--to %s: database %s has no table %s", r.to.Table, db.Name, wanted))
			}
		}
		plans = append(plans, plan)
	}
	return plans, nil
}

// confirmed asks, and returns an error unless the answer is yes.
func (on tombstones) confirmed(cmd *cobra.Command, what string, plans []planned) error {
	for _, plan := range plans {
		least := words.AtLeast(plan.waiting >= component.PendingCap)
		_, _ = fmt.Fprintf(on.Stderr, "%s: %s%s of %s\n", plan.database, least, words.Counted(plan.waiting, "waiting tombstone"), plan.from)
	}
	_, _ = fmt.Fprintf(on.Stderr, "%s? [y/N] ", strings.ToUpper(what[:1])+what[1:])
	answer, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
		return nil
	}
	return cli.Usage(errors.New("not confirmed, nothing was changed: answer y, or give --yes"))
}

package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/words"
	riverjobs "sexton/river_jobs"
)

func tombstonesCommand(env *cli.Env) *cobra.Command {
	return cli.Group("tombstones", "Look at the waiting tombstones, or have failed ones tried again",
		"  sexton tombstones list --failed\n  sexton tombstones retry --all",
		tombstonesListCommand(env), tombstonesRetryCommand(env))
}

// listedTombstone is one entry of `sexton tombstones list --json`.
type listedTombstone struct {
	Database                 string `json:"database"`
	loosefk.PendingTombstone        //nolint:embeddedstructfieldcheck // the order is that of the document
}

// tombstonesDocument is the output of `sexton tombstones list --json`.
type tombstonesDocument struct {
	Tombstones []listedTombstone `json:"tombstones"`
	// More counts the tombstones that the limit left out; where MoreCapped is true there are at least as many.
	More       int64 `json:"more"`
	MoreCapped bool  `json:"more_capped"`
}

func tombstonesListCommand(env *cli.Env) *cobra.Command {
	var s cli.Scope
	var failedOnly bool
	var limit *int
	cmd := onTombstones(env, &s, &cobra.Command{
		Use:   "list",
		Short: "List waiting tombstones, failed ones first",
		Long: `Lists tombstones, one per deleted row whose children are still to be cleaned up: first the failed ones, with their
attempts and the last reason, then the others, by parent and in the order in which they are worked off. From its
third failure on a tombstone is put off, by 5 minutes at first and an hour at most; "sexton tombstones retry" has it
tried at once. After a retry the last reason stays until the next attempt.`,
		Example: "  sexton tombstones list --failed\n  sexton tombstones list --table projects --limit 10 --json",
	}, func(ctx context.Context, on tombstones) error { return on.list(ctx, failedOnly, *limit) })
	s.Flags(cmd, "`PARENT` whose tombstones to list, named as in definitions")
	cmd.Flags().BoolVar(&failedOnly, "failed", false, "only failed tombstones")
	limit = cli.Limit(cmd, "list `N` at most")
	return cmd
}

// tombstones are the queues that a command is about.
type tombstones struct {
	*cli.Env
	*cli.Scope
	all       *installation.Connections
	databases []database.Database
}

// onTombstones completes a command about tombstones.
func onTombstones(env *cli.Env, s *cli.Scope, cmd *cobra.Command, do func(context.Context, tombstones) error) *cobra.Command {
	return env.Reports(cmd, func(ctx context.Context, _ []string) error {
		if _, err := s.Name(); err != nil {
			return err
		}
		return env.With(ctx, riverjobs.LooseForeignKeys, func(all *installation.Connections) error {
			databases, err := s.Chosen(all)
			if err != nil {
				return err
			}
			return do(ctx, tombstones{env, s, all, databases})
		})
	})
}

// each calls do with the queue of each database, and the name of the parent there.
func (on tombstones) each(ctx context.Context, do func(database, parent string, queue loosefk.Tombstones) error) error {
	for _, db := range on.databases {
		parent, err := on.In(ctx, db)
		if err != nil {
			return err
		}
		if err := do(db.Name, parent, installation.TombstonesOf(on.all, db)); err != nil {
			return fmt.Errorf("database %s: %w", db.Name, err)
		}
	}
	return nil
}

// record writes into the audit trail what is about to be changed.
func (on tombstones) record(ctx context.Context, action, target string) error {
	return on.all.Record(ctx, database.Change{Actor: installation.Actor(), Action: action, Target: target})
}

// log tells of a change.
func (on tombstones) log(database string) *slog.Logger {
	return on.Logger(on.all.Config).With("database", database, "actor", installation.Actor())
}

func (on tombstones) list(ctx context.Context, failedOnly bool, limit int) error {
	document := tombstonesDocument{Tombstones: []listedTombstone{}}
	err := on.each(ctx, func(database, parent string, queue loosefk.Tombstones) error {
		list, err := queue.List(ctx, loosefk.ListOptions{Parent: parent, FailedOnly: failedOnly, Limit: limit})
		fit := min(len(list.Tombstones), limit-len(document.Tombstones))
		for _, one := range list.Tombstones[:fit] {
			document.Tombstones = append(document.Tombstones, listedTombstone{Database: database, PendingTombstone: one})
		}
		document.More += list.More + int64(len(list.Tombstones)-fit)
		document.MoreCapped = document.MoreCapped || list.Capped
		return err
	})
	if err != nil {
		return err
	}
	noun := "tombstone"
	if failedOnly {
		noun = "failed tombstone"
	}
	return on.Print(document, func(w io.Writer) {
		const heading = "ID\tDATABASE\tTABLE\tKEY\tAGE\tATTEMPTS\tDUE\tLAST ERROR"
		words.List(w, "no "+noun+" waits", heading, document.Tombstones, func(t listedTombstone) []any {
			due := "now"
			if t.Deferred {
				due = words.Instant(t.ConsumeAfter)
			}
			age := words.Span(time.Duration(t.AgeSeconds * float64(time.Second)))
			return []any{t.ID, t.Database, t.Table, &t.Key, age, t.Attempts, due, t.LastError}
		})
		if document.More > 0 {
			_, _ = fmt.Fprintf(w, "and %s%s more\n", words.AtLeast(document.MoreCapped), words.Counted(document.More, noun))
		}
	})
}

// retryReport is one database's entry of `sexton tombstones retry --json`.
type retryReport struct {
	Database        string `json:"database"`
	loosefk.Retried        //nolint:embeddedstructfieldcheck // the order is that of the document
}

func tombstonesRetryCommand(env *cli.Env) *cobra.Command {
	var s cli.Scope
	var ids []int64
	var everything bool
	cmd := onTombstones(env, &s, &cobra.Command{
		Use:   "retry",
		Short: "Have failed tombstones tried again now",
		Long: `Makes failed tombstones due at once, with their attempts set to 0, and wakes the workers. Tombstones that did not fail
stay as they are, so that doing it twice changes nothing more. A tombstone that a worker has in hand is left alone and
counted as busy. The reason of the last failure stays until the next attempt.`,
		Example: "  sexton tombstones retry --id 4711 --id 4712\n  sexton tombstones retry --table projects\n  sexton tombstones retry --all",
	}, func(ctx context.Context, on tombstones) error { return on.retry(ctx, ids) })
	cli.Demand(cmd, func() error {
		given := 0
		for _, one := range []bool{len(ids) > 0, s.Table != "", everything} {
			if one {
				given++
			}
		}
		if given != 1 {
			return fmt.Errorf("%s needs one of --id, --table and --all", cmd.CommandPath())
		}
		return nil
	})
	s.Flags(cmd, "`PARENT` whose failed tombstones to try again, named as in definitions")
	cmd.Flags().Int64SliceVar(&ids, "id", nil, "`ID` of a tombstone, as list shows it; may be given several times")
	cmd.Flags().BoolVar(&everything, "all", false, "all failed tombstones")
	return cmd
}

func (on tombstones) retry(ctx context.Context, ids []int64) error {
	if len(ids) > 0 && len(on.databases) > 1 {
		return cli.Usage(errors.New("--id needs --database: each database numbers its own tombstones"))
	}
	if err := on.record(ctx, "retry", on.target(ids)); err != nil {
		return err
	}
	reports := []retryReport{}
	var unknown []int64
	err := on.each(ctx, func(database, parent string, queue loosefk.Tombstones) error {
		result, err := queue.Retry(ctx, loosefk.RetryOptions{Parent: parent, IDs: ids})
		// Also beside an error: what has been changed has been changed.
		on.log(database).InfoContext(ctx, "tombstones retried", "table", parent, "ids", ids, "retried", result.Retried, "busy", result.Busy)
		unknown = append(unknown, result.Unknown...)
		reports = append(reports, retryReport{Database: database, Retried: result})
		return err
	})
	if err != nil {
		return err
	}
	err = on.Print(reports, func(w io.Writer) {
		for _, r := range reports {
			said := words.Counted(r.Retried.Retried, "failed tombstone") + " due now"
			if r.Due > 0 {
				said += fmt.Sprintf(", %d due already", r.Due)
			}
			_, _ = fmt.Fprintf(w, "%s: %s%s\n", r.Database, said, busyText(r.Busy))
		}
	})
	if err == nil && len(unknown) > 0 {
		err = fmt.Errorf("no waiting tombstone has the id %s", listed(unknown))
	}
	return err
}

// busyText says how many tombstones were left alone.
func busyText(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d busy: a worker has them in hand", n)
}

func listed(ids []int64) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ", "), "[]")
}

// target says what a change is about, as the page does.
func (on tombstones) target(ids []int64) string {
	text := "all tombstones"
	switch {
	case len(ids) > 0:
		text = "tombstones " + listed(ids)
	case on.Table != "":
		text = "tombstones of parent " + on.Table
	}
	if on.Database != "" {
		text += " of " + on.Database
	}
	return text
}

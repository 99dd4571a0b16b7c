package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/loosefk"
	"sexton/internal/words"
)

// revivedTombstone is one entry of `sexton tombstones list --revived --json`.
type revivedTombstone struct {
	Database                 string `json:"database"`
	loosefk.RevivedTombstone        //nolint:embeddedstructfieldcheck // the order is that of the document
}

// revivedDocument is its output; More counts what the limit left out.
type revivedDocument struct {
	Tombstones []revivedTombstone `json:"tombstones"`
	More       int64              `json:"more"`
}

func (on tombstones) listRevived(ctx context.Context, limit int) error {
	document := revivedDocument{Tombstones: []revivedTombstone{}}
	err := on.each(ctx, func(database, parent string, queue loosefk.Tombstones) error {
		list, more, err := queue.Revived(ctx, parent, limit)
		fit := min(len(list), limit-len(document.Tombstones))
		for _, one := range list[:fit] {
			document.Tombstones = append(document.Tombstones, revivedTombstone{Database: database, RevivedTombstone: one})
		}
		document.More += more + int64(len(list)-fit)
		return err
	})
	if err != nil {
		return err
	}
	return on.Print(document, func(w io.Writer) {
		words.List(w, "no tombstone is revived", "ID\tDATABASE\tTABLE\tKEY\tDELETED\tREVIVED", document.Tombstones, func(t revivedTombstone) []any {
			return []any{t.ID, t.Database, t.Table, &t.Key, t.DeletedAt, t.SettledAt}
		})
		if document.More > 0 {
			_, _ = fmt.Fprintf(w, "and %s more\n", words.Counted(document.More, "revived tombstone"))
		}
	})
}

// clearReport is the output of `sexton tombstones clear --json`.
type clearReport struct {
	Database string  `json:"database"`
	Cleared  []int64 `json:"cleared"`
}

func tombstonesClearCommand(env *cli.Env) *cobra.Command {
	var s cli.Scope
	var ids []int64
	cmd := onTombstones(env, &s, &cobra.Command{
		Use:   "clear ID...",
		Short: "Clean up after revived tombstones although their rows live",
		Long: `Makes revived tombstones due again, and has their children cleaned up whether the row lives or not: those of the old row
and those of the new one, as they cannot be told apart. "sexton tombstones list --revived" shows the ids.`,
		Example: "  sexton tombstones clear 4711\n  sexton tombstones clear 4711 4712 --database main",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s needs the ID of a revived tombstone; sexton tombstones list --revived shows them", cmd.CommandPath())
			}
			for _, arg := range args {
				id, err := strconv.ParseInt(arg, 10, 64)
				if err != nil {
					return fmt.Errorf("%q is no id of a tombstone: it must be a whole number", arg)
				}
				ids = append(ids, id)
			}
			return nil
		},
	}, func(ctx context.Context, on tombstones) error { return on.clear(ctx, ids) })
	cmd.Flags().StringVar(&s.Database, "database", "", "`NAME` of the configured database that the ids are from")
	return cmd
}

func (on tombstones) clear(ctx context.Context, ids []int64) error {
	if len(on.databases) > 1 {
		return cli.Usage(errors.New("tombstones clear needs --database: each database numbers its own tombstones"))
	}
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	if err := on.record(ctx, "clear", on.target(ids)); err != nil {
		return err
	}
	return on.each(ctx, func(database, _ string, queue loosefk.Tombstones) error {
		unknown, err := queue.Clear(ctx, ids)
		if err != nil {
			return err
		}
		report := clearReport{Database: database, Cleared: slices.DeleteFunc(ids, func(id int64) bool { return slices.Contains(unknown, id) })}
		on.log(database).InfoContext(ctx, "tombstones cleared", "ids", report.Cleared)
		err = on.Say(report, "%s: %s due now\n", database, words.Counted(int64(len(report.Cleared)), "revived tombstone"))
		if err == nil && len(unknown) > 0 {
			err = fmt.Errorf("no revived tombstone has the id %s", listed(unknown))
		}
		return err
	})
}

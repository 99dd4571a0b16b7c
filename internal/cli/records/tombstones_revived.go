package records

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"sexton/internal/audittrail"
	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/installation"
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

func listRevived(ctx context.Context, env *cli.Env, all *installation.Connections, databases []database.Database, s cli.Scope, limit int) error {
	document := revivedDocument{Tombstones: []revivedTombstone{}}
	for _, db := range databases {
		parent, err := s.In(ctx, db)
		if err != nil {
			return err
		}
		list, more, err := installation.TombstonesOf(all, db).Revived(ctx, parent, limit)
		if err != nil {
			return fmt.Errorf("database %s: %w", db.Name, err)
		}
		fit := min(len(list), limit-len(document.Tombstones))
		for _, one := range list[:fit] {
			document.Tombstones = append(document.Tombstones, revivedTombstone{Database: db.Name, RevivedTombstone: one})
		}
		document.More += more + int64(len(list)-fit)
	}
	return env.Print(document, func(w io.Writer) {
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
	var name string
	cmd := env.Reports(&cobra.Command{
		Use:   "clear ID...",
		Short: "Clean up after revived tombstones although their rows live",
		Long: `Makes revived tombstones due again, and has their children cleaned up whether the row lives or not: those of the old row
and those of the new one, as they cannot be told apart. "sexton tombstones list --revived" shows the ids.`,
		Example: "  sexton tombstones clear 4711\n  sexton tombstones clear 4711 4712 --database main",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("%s needs the ID of a revived tombstone; sexton tombstones list --revived shows them", cmd.CommandPath())
			}
			return nil
		},
		RunE: env.Run(func(cmd *cobra.Command, args []string) error {
			ids := make([]int64, len(args))
			for i, arg := range args {
				id, err := strconv.ParseInt(arg, 10, 64)
				if err != nil {
					return cli.Usage(fmt.Errorf("%q is no id of a tombstone: it must be a whole number", arg))
				}
				ids[i] = id
			}
			s := cli.Scope{Database: name}
			return onTombstones(cmd.Context(), env, s, func(all *installation.Connections, databases []database.Database) error {
				return tombstonesClear(cmd.Context(), env, all, databases, s, ids)
			})
		}),
	})
	cmd.Flags().StringVar(&name, "database", "", "`NAME` of the configured database that the ids are from")
	return cmd
}

func tombstonesClear(ctx context.Context, env *cli.Env, all *installation.Connections, databases []database.Database, s cli.Scope, ids []int64) error {
	if len(databases) > 1 {
		return cli.Usage(errors.New("tombstones clear needs --database: each database numbers its own tombstones"))
	}
	db := databases[0]
	ids = slices.Compact(slices.Sorted(slices.Values(ids)))
	entry := audittrail.Entry{Actor: installation.Actor(), Action: "clear", Target: retried(&s, ids)}
	if err := audittrail.Record(ctx, all.Jobs(), all.Jobs().Pool, entry); err != nil {
		return err
	}
	unknown, err := installation.TombstonesOf(all, db).Clear(ctx, ids)
	if err != nil {
		return fmt.Errorf("database %s: %w", db.Name, err)
	}
	report := clearReport{Database: db.Name, Cleared: slices.DeleteFunc(ids, func(id int64) bool { return slices.Contains(unknown, id) })}
	env.Logger(all.Config).InfoContext(ctx, "tombstones cleared", "database", db.Name, "actor", installation.Actor(), "ids", report.Cleared)
	err = env.Say(report, "%s: %s due now\n", db.Name, words.Counted(int64(len(report.Cleared)), "revived tombstone"))
	if err == nil && len(unknown) > 0 {
		err = fmt.Errorf("no revived tombstone has the id %s", listed(unknown))
	}
	return err
}

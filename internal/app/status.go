package app

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sexton/internal/cli"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/extdiff"
	"sexton/internal/ghostuser"
	"sexton/internal/installation"
	"sexton/internal/loosefk"
	"sexton/internal/placeholder"
	riverjobs "sexton/river_jobs"
)

// statusDocument is the output of `sexton status --json`.
type statusDocument struct {
	DeletionTables []deletionTable `json:"deletion_tables"`
	Leases         []HeldLease     `json:"leases"`
	Jobs           []JobState      `json:"jobs"`
	// Cron is null where no worker follows the schedules.
	Cron *cronLeader `json:"cron"`
}

// deletionTable is the backlog of one table in which deletion work waits.
type deletionTable struct {
	Table    string `json:"table"`
	Database string `json:"database"`
	// Pending stops counting at the cap; Capped tells that there are more.
	Pending          int64   `json:"pending"`
	Capped           bool    `json:"capped"`
	OldestAgeSeconds float64 `json:"oldest_age_seconds"`
	Deferred         int64   `json:"deferred"`
	// DeferredUntil is when the first of the deferred ones falls due.
	DeferredUntil *time.Time `json:"deferred_until,omitempty"`
	// DeferredReason is why that one was put off.
	DeferredReason string `json:"deferred_reason,omitempty"`
	// Parents are the parents with tombstones, the oldest first, at most shownParents.
	Parents []parentBacklog `json:"parents,omitempty"`
	// Undefined are parents with tombstones that no definition names: nothing will ever work them off.
	Undefined []string `json:"undefined,omitempty"`
	// Confirming counts parents that are cleaned up after and wait for a second look, until every transaction that
	// was open then has ended. They are no backlog.
	Confirming int64 `json:"confirming"`
	// Users are the first that are to be deleted, with what has been done for them.
	Users []ghostuser.Waiting `json:"users,omitempty"`
	// GivenUp counts rows that will not be tried any more; absent for tables whose rows are never given up. It stops at the cap.
	GivenUp *int64 `json:"given_up,omitempty"`
	// Placeholders are the first that something keeps, with what that is.
	Placeholders []placeholder.Placeholder `json:"placeholders,omitempty"`
	// Groups is the backlog of groups to be deleted.
	Groups *groupBacklog `json:"groups,omitempty"`
	// Diffs is the backlog of diffs to be moved to object storage, with bytes and reasons.
	Diffs *extdiff.Backlog `json:"diffs,omitempty"`
	// Disabled is the configuration key that has to be true for anybody to work this off.
	Disabled string `json:"disabled,omitempty"`
	// Unreachable is why nothing is known of the database.
	Unreachable string `json:"unreachable,omitempty"`
}

// HeldLease is a lease that is held.
type HeldLease struct {
	Key        string    `json:"key"`
	Holder     string    `json:"holder"`
	Token      int64     `json:"token"`
	AcquiredAt time.Time `json:"acquired_at"`
	ExpiresAt  time.Time `json:"expires_at"`
	// Alive reports that the holder has beaten lately.
	Alive bool `json:"alive"`
}

// PendingCap bounds the counting of a backlog; ten thousand is a backlog by any measure.
const PendingCap = 10_000

// tombstoneTable is the deletion table of the loose foreign keys.
const tombstoneTable = "loose_foreign_keys_deleted_records"

// ghostQueue is the one of the users, of which status shows the first few.
const (
	ghostQueue = "users_ghost_user_migrations"
	shownUsers = 10
)

// StatusCommand is the command status.
func StatusCommand(env *cli.Env) *cobra.Command {
	return env.Reports(&cobra.Command{
		Use:     "status",
		Short:   "Show backlog, leases, last runs and why something waits",
		Example: "  sexton status\n  sexton status --json | jq '.deletion_tables[].pending'",
		Args:    cli.NoArguments,
		RunE: env.Run(func(cmd *cobra.Command, _ []string) error {
			all, err := env.ConnectReachable(cmd.Context())
			if err != nil {
				return err
			}
			defer all.Close()
			if err := all.CheckSchemas(cmd.Context()); err != nil {
				return err
			}
			document, err := readStatus(cmd.Context(), all, func(ctx context.Context, db database.Database) ([]string, error) {
				return definedParents(ctx, all, db)
			})
			if err != nil {
				return err
			}
			if env.JSON {
				return env.PrintJSON(document)
			}
			return printStatus(env, document)
		}),
	})
}

// readStatus asks defined for the parents that definitions name, where a database has tombstones at all. It may
// return nil where that cannot be told.
func readStatus(
	ctx context.Context, all *installation.Connections, defined func(context.Context, database.Database) ([]string, error),
) (statusDocument, error) {
	document := statusDocument{Leases: []HeldLease{}, Jobs: []JobState{}}
	var err error
	if document.DeletionTables, err = readTables(ctx, all, defined); err != nil {
		return document, err
	}
	if document.Leases, err = ReadLeases(ctx, all.Jobs(), all.Config.Jobs.Silence); err != nil {
		return document, err
	}
	if document.Jobs, err = JobStates(ctx, all); err != nil {
		return document, err
	}
	for i := range document.Jobs {
		document.Jobs[i].explain(document)
	}
	document.Cron, err = readCronLeader(ctx, all.Jobs(), all.Config.Jobs.Silence)
	return document, err
}

// readTables reads the backlogs of all deletion tables.
func readTables(
	ctx context.Context, all *installation.Connections, defined func(context.Context, database.Database) ([]string, error),
) ([]deletionTable, error) {
	tables := []deletionTable{}
	if all.Config.LooseForeignKeys.Enabled {
		for _, db := range all.Databases {
			if err := all.Down[db.Name]; err != nil {
				tables = append(tables, deletionTable{
					Table: tombstoneTable, Database: db.Name, Unreachable: err.Error(),
				})
				continue
			}
			table, err := readTombstones(ctx, db, defined)
			if err != nil {
				return nil, err
			}
			tables = append(tables, table)
		}
	}
	if all.Config.GhostUsers.Enabled {
		table, err := readGhostQueue(ctx, all.Jobs())
		if err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	if all.Config.PlaceholderUsers.Enabled {
		table, err := readPlaceholders(ctx, all, all.Jobs())
		if err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	if all.Config.AdjournedGroups.Enabled {
		table, err := readGroupSchedules(ctx, all.Jobs())
		if err != nil {
			return nil, err
		}
		tables = append(tables, table)
	}
	if all.Config.ExternalDiffs.Enabled {
		found, err := readDiffs(ctx, all.Jobs())
		if err != nil {
			return nil, err
		}
		tables = append(tables, found...)
	} else {
		found, err := readUnattended(ctx, all.Jobs())
		if err != nil {
			return nil, err
		}
		tables = append(tables, found...)
	}
	return tables, nil
}

// readTombstones reads the backlog of the loose foreign keys in one database, a bounded part of it.
func readTombstones(ctx context.Context, db database.Database, defined func(context.Context, database.Database) ([]string, error)) (deletionTable, error) {
	table := deletionTable{Table: tombstoneTable, Database: db.Name}
	parents, err := db.Queries().TombstoneParents(ctx)
	if err != nil {
		return table, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	backlog, err := loosefk.ReadWaiting(ctx, db.Pool, db.Names)
	if err != nil {
		return table, fmt.Errorf("read backlog of database %s: %w", db.Name, err)
	}
	confirming, err := db.Queries().SweptKeys(ctx, dbsqlc.SweptKeysParams{Database: db.Name, Cap: PendingCap})
	if err != nil {
		return table, fmt.Errorf("read what is to be confirmed in database %s: %w", db.Name, err)
	}
	if len(parents) > 0 {
		names, err := defined(ctx, db)
		if err != nil {
			return table, err
		}
		if names != nil {
			table.Undefined = slices.DeleteFunc(slices.Clone(parents), func(name string) bool { return slices.Contains(names, name) })
		}
	}
	if table.Parents, err = readParents(ctx, db, parents); err != nil {
		return table, err
	}
	table.Pending, table.Capped, table.OldestAgeSeconds = backlog.Pending, backlog.Capped, backlog.OldestAge.Seconds()
	table.Deferred, table.DeferredUntil, table.DeferredReason = backlog.Deferred, backlog.DeferredUntil, backlog.DeferredReason
	table.Confirming = min(confirming, PendingCap)
	return table, nil
}

// ReadLeases lists the leases that are held.
func ReadLeases(ctx context.Context, jobs database.Database, silence time.Duration) ([]HeldLease, error) {
	rows, err := jobs.Queries().LeasesHeld(ctx, silence.Seconds())
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	leases := make([]HeldLease, len(rows))
	for i, l := range rows {
		leases[i] = HeldLease{Key: l.Key, Holder: l.Holder, Token: l.Token, AcquiredAt: l.AcquiredAt, ExpiresAt: l.ExpiresAt, Alive: l.Alive}
	}
	return leases, nil
}

// definedParents are the parents that definitions name. Definitions that cannot be read give nil, which is for
// other commands to say.
func definedParents(ctx context.Context, all *installation.Connections, db database.Database) ([]string, error) {
	defs, err := installation.LoadDefinitions(all.Config)
	if err != nil {
		return nil, nil //nolint:nilerr // see above
	}
	parents, _, err := loosefk.Resolve(ctx, all.Sites(), defs)
	if err != nil {
		return nil, err
	}
	return riverjobs.Recorded(parents[db.Name]), nil
}

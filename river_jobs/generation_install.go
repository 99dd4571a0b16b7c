package riverjobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
	"sexton/internal/dbsqlc"
)

// installLockTimeout is how long an installation waits for batches of an earlier generation, which hold their fence until they commit.
// One that hangs is ended by the server after 10 s.
const installLockTimeout = "20s"

// InstallGenerations makes the generations those that are installed, in every database, and returns which of their entries the last
// installation did not have. From its commit in a database on, no batch of another generation commits there.
//
// No transaction spans databases. While some of them have the one generation and some the other, passes that need both wait. The
// jobs database comes last: an installation that breaks off before is found undone by the next one, which then says the same.
func InstallGenerations(ctx context.Context, jobs database.Database, databases []database.Database, generations []Generation) (map[string]bool, error) {
	added := map[string]bool{}
	for _, g := range generations {
		before, err := jobs.Queries().GenerationRead(ctx, g.Kind)
		if err != nil {
			return nil, fmt.Errorf("read what is installed of %s: %w", g.Kind, err)
		}
		for _, entry := range g.Entries {
			if len(before) == 0 || !slices.Contains(before[0].Entries, entry) {
				added[entry] = true
			}
		}
	}
	var ordered []database.Database
	for _, db := range databases {
		if db.Name != jobs.Name {
			ordered = append(ordered, db)
		}
	}
	for _, db := range append(ordered, jobs) {
		err := pgx.BeginTxFunc(ctx, db.Pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return installGenerations(ctx, tx, db, db.Name == jobs.Name, generations)
		})
		if err != nil {
			return nil, fmt.Errorf("install definitions in database %s: %w; until then their jobs wait: run `sexton triggers install` again",
				db.Name, err)
		}
	}
	return added, nil
}

func installGenerations(ctx context.Context, tx pgx.Tx, db database.Database, described bool, generations []Generation) error {
	if _, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('lock_timeout', $1, true)", installLockTimeout); err != nil {
		return err
	}
	queries := db.Names.Queries(tx)
	for _, g := range generations {
		if !slices.Contains(g.Databases, db.Name) {
			continue
		}
		if _, err := queries.FencesInstall(ctx, dbsqlc.FencesInstallParams{Keys: g.Keys, Prefix: g.Prefix, Digest: g.Digest}); err != nil {
			return fmt.Errorf("move the generation of %s: %w", g.Kind, err)
		}
		if !described {
			continue
		}
		if err := queries.GenerationInstall(ctx, dbsqlc.GenerationInstallParams{Kind: g.Kind, Digest: g.Digest, Entries: g.Entries}); err != nil {
			return fmt.Errorf("describe the generation of %s: %w", g.Kind, err)
		}
	}
	return nil
}

// CompareGenerations says by kind how what a database has installed differs from the generations; a kind that is missing fits.
func CompareGenerations(ctx context.Context, db database.Database, generations []Generation) (map[string]string, error) {
	differs := map[string]string{}
	for _, g := range generations {
		if !slices.Contains(g.Databases, db.Name) {
			continue
		}
		rows, err := db.Queries().FenceDigests(ctx, g.Keys)
		if err != nil {
			return nil, fmt.Errorf("read which definitions are installed in database %s: %w", db.Name, err)
		}
		installed := map[string]string{}
		for _, row := range rows {
			installed[row.Key] = row.Digest
		}
		for _, key := range g.Keys {
			switch installed[key] {
			case g.Digest:
			case "":
				differs[g.Kind] = "no generation of definitions is recorded, so workers with other files are not kept from the work"
			default:
				differs[g.Kind] = fmt.Sprintf("other definitions are installed than these files have (%s is installed, theirs is %s): "+
					"workers with these files leave the job alone", installed[key], g.Digest)
			}
		}
	}
	return differs, nil
}

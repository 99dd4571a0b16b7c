package riverjobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
)

// installLockTimeout limits the time that an installation waits for batches of an earlier
// generation. A batch holds its fence until it commits. The server ends an idle batch
// after 10 s.
const installLockTimeout = "20s"

// MovedGeneration describes the replacement of one generation by another.
type MovedGeneration struct {
	Kind string `json:"kind"`
	// Installed is the digest of the new generation, and Was is the digest of the
	// replaced one.
	Installed string `json:"installed"`
	Was       string `json:"was"`
}

func (m MovedGeneration) String() string {
	return fmt.Sprintf("definitions of %s: installed %s, was %s", m.Kind, m.Installed, m.Was)
}

// InstallGenerations installs generations in all databases. It returns the entries that
// the previous installation did not have, and the replaced generations. It records each
// replacement as a change by the actor. After the commit in a database, no batch of
// another generation commits in that database.
//
// No transaction spans databases. While some databases have the old generation, passes
// that need several databases wait. The jobs database is last: if an installation is
// interrupted before that, the next installation returns the same entries and
// replacements.
func InstallGenerations(
	ctx context.Context, jobs database.Database, databases []database.Database, generations []Generation, actor string,
) (_ map[string]bool, moved []MovedGeneration, _ error) {
	added := map[string]bool{}
	for _, g := range generations {
		before, err := jobs.Queries().GenerationRead(ctx, g.Kind)
		if err != nil {
			return nil, nil, fmt.Errorf("read the installed definitions of %s: %w", g.Kind, err)
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
			found, err := InstallGenerationsIn(ctx, tx, db, db.Name == jobs.Name, generations)
			for _, m := range found {
				if err == nil {
					entry := database.Change{
						Actor: actor, Action: "install", Target: "definitions of " + m.Kind,
						Reason: m.Installed + ", was " + m.Was,
					}
					err = database.RecordChange(ctx, jobs, tx, entry)
				}
			}
			moved = append(moved, found...)
			return err
		})
		if err != nil {
			return nil, nil,
				fmt.Errorf("install definitions in database %s: %w; their jobs wait until you run `sexton triggers install` again",
					db.Name, err)
		}
	}
	return added, moved, nil
}

// InstallGenerationsIn stores the digests of generations in a transaction, and raises the
// fences of kinds whose digests change. If described is true, it also stores the entries
// and returns the replaced generations. Only the jobs database stores entries.
func InstallGenerationsIn(ctx context.Context, tx pgx.Tx, db database.Database, described bool,
	generations []Generation,
) (moved []MovedGeneration, _ error) {
	if _, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('lock_timeout', $1, true)",
		installLockTimeout); err != nil {
		return nil, err
	}
	queries := db.Names.Queries(tx)
	for _, g := range generations {
		if !slices.Contains(g.Databases, db.Name) {
			continue
		}
		if _, err := queries.FencesInstall(ctx, g.Digest, g.Keys, g.Prefix); err != nil {
			return nil, fmt.Errorf("install the generation of %s: %w", g.Kind, err)
		}
		if !described {
			continue
		}
		// This transaction has locked the fences, so no other installation can run now.
		before, err := queries.GenerationRead(ctx, g.Kind)
		if err != nil {
			return nil, fmt.Errorf("read the installed definitions of %s: %w", g.Kind, err)
		}
		if len(before) > 0 && before[0].Digest != g.Digest {
			moved = append(moved, MovedGeneration{Kind: g.Kind, Installed: g.Digest, Was: before[0].Digest})
		}
		if err := queries.GenerationInstall(ctx, g.Kind, g.Digest, g.Entries); err != nil {
			return nil, fmt.Errorf("store the definitions of %s: %w", g.Kind, err)
		}
	}
	return moved, nil
}

// CompareGenerations compares the installed generations of a database with the given
// ones. It returns a description of each difference by kind.
func CompareGenerations(ctx context.Context, db database.Database,
	generations []Generation,
) (map[string]string, error) {
	differs := map[string]string{}
	for _, g := range generations {
		if !slices.Contains(g.Databases, db.Name) {
			continue
		}
		rows, err := db.Queries().FenceDigests(ctx, g.Keys)
		if err != nil {
			return nil, fmt.Errorf("read the installed definitions of database %s: %w", db.Name, err)
		}
		installed := map[string]string{}
		for _, row := range rows {
			installed[row.Key] = row.Digest
		}
		for _, key := range g.Keys {
			switch installed[key] {
			case g.Digest:
			case "":
				differs[g.Kind] = "no generation of definitions is recorded, so workers with different files also run these jobs"
			default:
				differs[g.Kind] = fmt.Sprintf("the installed definitions (%s) differ from these files (%s): "+
					"workers with these files do not run the job", installed[key], g.Digest)
			}
		}
	}
	return differs, nil
}

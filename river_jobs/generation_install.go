package riverjobs

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/database"
)

// installLockTimeout is how long an installation waits for batches of an earlier
// generation, which hold their fence until they commit. One that hangs is ended by the
// server after 10 s.
const installLockTimeout = "20s"

// MovedGeneration is a generation of definitions that an installation has replaced.
type MovedGeneration struct {
	Kind string `json:"kind"`
	// Installed and Was are the digests.
	Installed string `json:"installed"`
	Was       string `json:"was"`
}

func (m MovedGeneration) String() string {
	return fmt.Sprintf("definitions of %s: installed %s, was %s", m.Kind, m.Installed, m.Was)
}

// InstallGenerations makes the generations the installed ones, in every database, and
// returns which of their entries the last installation did not have, and which
// generations it moved. Each is recorded as the actor's change; the first one moves none.
// From its commit in a database on, no batch of another generation commits there.
//
// No transaction spans databases. While some of them have the one generation and some the
// other, passes that need both wait. The jobs database comes last: an installation that
// breaks off before is found undone by the next one, which then says the same.
func InstallGenerations(
	ctx context.Context, jobs database.Database, databases []database.Database, generations []Generation, actor string,
) (_ map[string]bool, moved []MovedGeneration, _ error) {
	added := map[string]bool{}
	for _, g := range generations {
		before, err := jobs.Queries().GenerationRead(ctx, g.Kind)
		if err != nil {
			return nil, nil, fmt.Errorf("read what is installed of %s: %w", g.Kind, err)
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
				fmt.Errorf("install definitions in database %s: %w; until then their jobs wait: run `sexton triggers install` again",
					db.Name, err)
		}
	}
	return added, moved, nil
}

// InstallGenerationsIn records the digests of the definitions that a transaction
// installs, raises the fences of kinds whose digests move, and returns those. described
// is true in the database of the jobs, which alone describes generations.
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
			return nil, fmt.Errorf("move the generation of %s: %w", g.Kind, err)
		}
		if !described {
			continue
		}
		// Behind the fences that this transaction has locked, no other installation is
		// between the two.
		before, err := queries.GenerationRead(ctx, g.Kind)
		if err != nil {
			return nil, fmt.Errorf("read what is installed of %s: %w", g.Kind, err)
		}
		if len(before) > 0 && before[0].Digest != g.Digest {
			moved = append(moved, MovedGeneration{Kind: g.Kind, Installed: g.Digest, Was: before[0].Digest})
		}
		if err := queries.GenerationInstall(ctx, g.Kind, g.Digest, g.Entries); err != nil {
			return nil, fmt.Errorf("describe the generation of %s: %w", g.Kind, err)
		}
	}
	return moved, nil
}

// CompareGenerations says by kind how what a database has installed differs from the
// generations; a kind that is missing fits.
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

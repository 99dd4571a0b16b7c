package installation

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/lease"
	"sexton/internal/migrate"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// Install migrates the databases, installs the triggers, and returns the result of Bind.
func Install(ctx context.Context, c *config.Config, log *slog.Logger) (_ *Bound, err error) {
	all, err := Open(ctx, c)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	for _, schema := range all.Schemas() {
		if _, err := migrate.Up(ctx, log, schema); err != nil {
			return nil, err
		}
	}
	b, err := Bind(ctx, c)
	if err != nil {
		return nil, err
	}
	if _, err := InstallTriggers(ctx, b, func(cfg *triggers.Config) {
		cfg.Waits = func(lock, holders string) {
			log.WarnContext(ctx, "waits_for_lock", "lock", lock, "held_by",
				holders)
		}
	}); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// InstallTriggers installs the triggers in all databases, and then records the generation
// of the definitions.
func InstallTriggers(ctx context.Context, b *Bound, set func(*triggers.Config)) ([]TriggerReport, error) {
	reports := []TriggerReport{}
	err := b.OnTracked(ctx, func(db database.Database, conn *pgx.Conn, cfg triggers.Config,
		parents []triggers.Parent,
	) error {
		set(&cfg)
		report, err := triggers.Install(ctx, conn, cfg, parents)
		reports = append(reports, TriggerReport{Database: db.Name, Report: report})
		return err
	})
	if err != nil {
		return nil, err
	}
	added, moved, err := riverjobs.InstallGenerations(ctx, b.Jobs(), b.Databases, b.Generations(), Actor())
	if err != nil {
		return nil, err
	}
	for i := range reports {
		if reports[i].Database == b.Jobs().Name {
			reports[i].Generations = moved
		}
		reports[i].Audit = b.childrenOf(reports[i].Database, added)
	}
	return reports, nil
}

// childrenOf returns the child tables of the definitions in entries, for the parents of a
// database.
func (b *Bound) childrenOf(name string, entries map[string]bool) []string {
	var children []string
	for _, parent := range b.Parents[name] {
		for _, reference := range parent.References {
			if entries[riverjobs.DefinitionEntry(b.Config, reference.Definition)] {
				children = append(children, reference.Definition.Child.String())
			}
		}
	}
	slices.Sort(children)
	return slices.Compact(children)
}

// Generations returns the generations of the definitions and lists that this process has
// read, one per enabled job.
func (b *Bound) Generations() []riverjobs.Generation {
	return riverjobs.Generations(b.Config, b.Definitions)
}

// Leases returns a manager of leases. It grants no lease if other definitions are
// installed in the database than this process has read.
func (b *Bound) Leases(holder string) *lease.Manager {
	return &lease.Manager{
		Jobs: b.Jobs(), Holder: holder, Digests: riverjobs.GenerationDigests(b.Generations()),
		StatementTimeout: b.Config.Jobs.StatementTimeout,
	}
}

// TriggerReport is one entry of `sexton triggers install --json` and `uninstall --json`.
type TriggerReport struct {
	Database        string `json:"database"`
	triggers.Report        //nolint:embeddedstructfieldcheck // the order is that of the document
	// Audit lists the child tables of new definitions. Parents of their rows may have
	// been deleted before the installation.
	Audit []string `json:"audit,omitempty"`
	// Generations holds the changed generations. Only the report of the jobs database has
	// entries.
	Generations []riverjobs.MovedGeneration `json:"generations,omitempty"`
}

// OnTracked calls do for every database with the parents of its definitions.
func (b *Bound) OnTracked(ctx context.Context, do func(database.Database, *pgx.Conn, triggers.Config,
	[]triggers.Parent) error,
) error {
	for _, db := range b.Databases {
		cfg, tracked := riverjobs.Tracking(b.Config, db, b.Parents)
		if err := OnConnection(ctx, db, func(conn *pgx.Conn) error { return do(db, conn, cfg, tracked) }); err != nil {
			return err
		}
	}
	return nil
}

// OnConnection calls do with a connection of the database's pool.
func OnConnection(ctx context.Context, db database.Database, do func(*pgx.Conn) error) error {
	conn, err := db.Pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("connect to database %s: %w", db.Name, err)
	}
	defer conn.Release()
	return do(conn.Conn())
}

// GenerationFindings returns a finding for each kind whose installed definitions or lists
// differ from the files.
func GenerationFindings(ctx context.Context, db database.Database,
	generations []riverjobs.Generation,
) ([]triggers.Finding, error) {
	differs, err := riverjobs.CompareGenerations(ctx, db, generations)
	found := render.Each(slices.Sorted(maps.Keys(differs)), func(kind string) triggers.Finding {
		return triggers.Finding{
			Kind: triggers.Altered, Trigger: "definitions of " + kind, Detail: differs[kind],
			Fix: "run `sexton triggers install` with the files that must apply",
		}
	})
	return found, err
}

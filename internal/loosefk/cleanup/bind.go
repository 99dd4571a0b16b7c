package cleanup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/database"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
	"sexton/triggers"
)

// bindingAge is the time for which definitions stay bound to a database without a new
// check. The next pass finds changes of the tables, their privileges and indexes by the
// fingerprint. Other changes, such as changes of roles, are found when the binding is
// this old. Binding takes six transactions, which is too much for every tick.
const bindingAge = 5 * time.Minute

// binding holds the definitions of one database, bound to tables.
type binding struct {
	parents []*loosefk.Parent
	// fingerprints holds the fingerprint of the tables in each database, by database
	// name.
	fingerprints map[string]string
	checked      time.Time
	// expected is the fingerprint with which the pass compares the tables when it first
	// loads tombstones. It is empty if the fingerprint has just been read.
	expected string
	// partial reports that some definitions could not be bound or checked. The next pass
	// then tries again.
	partial bool
	// wrong lists the problems of the definitions that could not be bound or checked.
	wrong []string
}

// bind returns the binding of the pass: the stored one if nothing has changed, or a new
// one. For a new one it checks definitions, keys and privileges, and installs the
// triggers of new partitions. If a definition does not fit its tables, only the
// tombstones of its parent are not processed.
func (p *pass) bind(ctx context.Context) (*binding, error) {
	if kept := p.Memory.take(p.db.Name); kept != nil && time.Since(kept.checked) < bindingAge {
		if kept.expected = ""; len(p.otherDatabases(kept.parents)) == 0 {
			kept.expected = kept.fingerprints[p.db.Name]
			return kept, nil
		}
		same, err := kept.unchanged(ctx, p)
		if err != nil {
			return nil, err
		}
		if same {
			return kept, nil
		}
	}
	resolved, problems, partial, err := p.resolve(ctx)
	if err != nil {
		return nil, err
	}
	bound := &binding{parents: resolved, fingerprints: map[string]string{}, checked: time.Now(), partial: partial ||
		problems.Err() != nil}
	for _, wrong := range problems.Only(problem.Error) {
		if bound.addProblem(p, wrong.String()) {
			p.log.ErrorContext(ctx, "definition_invalid", "error",
				wrong.String())
		}
	}
	if err := bound.checkKeys(ctx, p); err != nil {
		return nil, err
	}
	if err := bound.checkPrivileges(ctx, p); err != nil {
		return nil, err
	}
	if err := p.keep(ctx, bound.parents); err != nil {
		return nil, err
	}
	p.Held.SetErrors(Kind, p.db.Name, bound.wrong)
	p.Memory.SetParents(p.db.Name, bound.parents)
	p.trackNewPartitions(ctx, bound.parents)
	if err := bound.readFingerprints(ctx, p); err != nil {
		return nil, err
	}
	return bound, nil
}

// addProblem records a problem with a definition. It returns true if the previous binding
// did not have the problem. The caller logs only such new problems, since passes run
// every few seconds.
func (b *binding) addProblem(p *pass, reason string) bool {
	b.wrong = append(b.wrong, reason)
	return !p.Held.HasError(Kind, p.db.Name, reason)
}

// resolve binds the definitions to the tables of all databases that can be reached.
// partial reports that a database could not be reached.
func (p *pass) resolve(ctx context.Context) (
	parents []*loosefk.Parent, problems problem.List, partial bool, err error,
) {
	for {
		sites := make([]loosefk.Site, len(p.Databases))
		partial = false
		for i, other := range p.Databases {
			settings, _ := p.Config.Database(other.Name)
			sites[i] = loosefk.Site{Name: other.Name, Schema: other.Names.Tracked, Tables: settings.Tables}
			if other.Name == p.db.Name {
				sites[i].DB = p.conn
				continue
			}
			reached, err := p.reach(ctx, other)
			if err != nil {
				partial = true
				continue
			}
			sites[i].DB = reached
		}
		resolved, problems, err := loosefk.Resolve(ctx, sites, p.Definitions)
		failed, ok := errors.AsType[*loosefk.SiteError](err)
		if !ok || failed.Database == p.db.Name || ctx.Err() != nil {
			return resolved[p.db.Name], problems, partial, err
		}
		// The connection was lost just now. Resolve again without that database.
		other := p.database(failed.Database)
		_ = p.markDown(ctx, other, other.Unreachable(failed.Err))
	}
}

// checkPrivileges marks the references and leaves on which the role lacks privileges as
// broken.
func (b *binding) checkPrivileges(ctx context.Context, p *pass) error {
	var missing problem.List
	if err := p.forEachDatabase(ctx, b.parents, func(db database.Database, conn *pgxpool.Conn) error {
		there, err := loosefk.BreakUnprivileged(ctx, conn, db.Name, b.parents)
		missing = append(missing, there...)
		return err
	}); err != nil {
		return err
	}
	for _, lacking := range missing {
		b.partial = true
		if b.addProblem(p, lacking.String()) {
			p.log.ErrorContext(ctx, "privilege_missing", "error", lacking.String())
		}
	}
	return nil
}

// unchanged reports whether the tables are unchanged since the definitions were bound. A
// database that cannot be reached counts as unchanged, since the pass cannot use it
// either.
func (b *binding) unchanged(ctx context.Context, p *pass) (bool, error) {
	before := b.fingerprints
	b.fingerprints = maps.Clone(before)
	if err := b.readFingerprints(ctx, p); err != nil {
		return false, err
	}
	return maps.Equal(before, b.fingerprints), nil
}

// readFingerprints reads the fingerprints of all databases.
func (b *binding) readFingerprints(ctx context.Context, p *pass) error {
	return p.forEachDatabase(ctx, b.parents, func(db database.Database, conn *pgxpool.Conn) error {
		taken, err := loosefk.Fingerprint(ctx, conn, db.Name, b.parents)
		if err == nil {
			b.fingerprints[db.Name] = taken
		}
		return err
	})
}

// checkKeys marks the references of a parent as broken if the parent's trigger records
// another key than the definitions name. A tombstone has the values of a key, but not the
// names of its columns. If they were read as values of other columns, children of
// existing parents would be deleted.
func (b *binding) checkKeys(ctx context.Context, p *pass) error {
	cfg, tracked := p.Track(p.db, b.parents)
	other, err := triggers.OtherKeys(ctx, p.conn.Conn(), cfg, tracked)
	if err != nil {
		return err
	}
	for at, found := range other {
		b.partial = true
		reason := fmt.Sprintf("the trigger on %s records another key: keep that key in the definitions (parent_column) until its tombstones have been processed, "+
			"then run `sexton triggers install`. If both keys have the same values, run `sexton triggers install --same-key` now", found.Table)
		if found.TypeOnly {
			reason = fmt.Sprintf("the type of the key of %s has changed: run `sexton triggers install`", found.Table)
		}
		if b.addProblem(p, reason) {
			p.log.ErrorContext(ctx, "trigger_key_differs", "parent",
				b.parents[at].Recorded, "error", reason)
		}
		for _, reference := range b.parents[at].References {
			reference.Broken = cmp.Or(reference.Broken, reason)
		}
	}
	return nil
}

package riverjobs

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/database"
	"sexton/internal/loosefk"
	"sexton/internal/problem"
)

// bindingAge is how long definitions stay bound to a database without being checked anew. Changes of the
// tables are seen at once, changes of privileges, NOT NULL and the like by then.
const bindingAge = time.Minute

// binding holds the tools of a pass: definitions bound to tables, with what passes have learned about them.
type binding struct {
	parents []*loosefk.Parent
	// fingerprints are those of the tables, by database.
	fingerprints map[string]string
	checked      time.Time
	// partial tells that some definitions could not be bound, or not be checked: the next pass tries again.
	partial bool
	// wrong lists the findings about that.
	wrong []string
}

// Bindings keeps each database's binding between the passes of one process. The zero value is ready to use.
type Bindings struct {
	// Foreground is for a process that ends with its pass.
	Foreground bool

	mu    sync.Mutex
	kept  map[string]*binding
	names map[string][]string
	marks map[string]*loosefk.Marks
	told  map[string]bool
	// wrong is by kind and database.
	wrong map[string][]string
	// clear is when no replica of a database was too far behind.
	clear map[string]time.Time

	outages outages
	refusal backOff
	// ghosts pauses the wake-ups of the kind that deletes users while it fails as a whole.
	ghosts backOff
	diffs  diffStore
	// ends tells lanes of jobs whose work this process has ended.
	ends ends
}

// Close lets go of what outlives a pass, after the last one.
func (b *Bindings) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, marks := range b.marks {
		marks.Close()
	}
}

// marksOf are those of a database's queues.
func (b *Bindings) marksOf(name string) *loosefk.Marks {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.marks[name] == nil {
		if b.marks == nil {
			b.marks = map[string]*loosefk.Marks{}
		}
		b.marks[name] = &loosefk.Marks{Brief: b.Foreground}
	}
	return b.marks[name]
}

// take removes the binding of a database, so that no two passes share one. It returns nil where there is none.
func (b *Bindings) take(name string) *binding {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := b.kept[name]
	delete(b.kept, name)
	return kept
}

// keep is for the next pass, unless that had better look for itself.
func (b *Bindings) keep(name string, kept *binding) {
	if kept.partial {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		b.kept = map[string]*binding{}
	}
	b.kept[name] = kept
}

// Note remembers which parents a database has.
func (b *Bindings) Note(name string, parents []*loosefk.Parent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.names == nil {
		b.names = map[string][]string{}
	}
	b.names[name] = Recorded(parents)
}

// recorded are the names of the parents that were noted last.
func (b *Bindings) recorded(name string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.names[name]
}

// first reports whether it is the first time that this is to be said in this process.
func (b *Bindings) first(what string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.told == nil {
		b.told = map[string]bool{}
	}
	told := b.told[what]
	b.told[what] = true
	return !told
}

// bind returns the binding to work with: the kept one if nothing has changed, or a new one, for which
// definitions, keys, privileges and the triggers of new partitions are seen to. Definitions that do not fit stop only the
// tombstones that they are about.
func bind(ctx context.Context, deps Deps, db database.Database, conn *pgxpool.Conn, elsewhere *others) (*binding, error) {
	if kept := deps.Bindings.take(db.Name); kept != nil && time.Since(kept.checked) < bindingAge {
		unchanged, err := kept.holds(ctx, deps, db, conn, elsewhere)
		if err != nil {
			return nil, err
		}
		if unchanged {
			return kept, nil
		}
	}
	resolved, problems, partial, err := resolve(ctx, deps, db, conn, elsewhere)
	if err != nil {
		return nil, err
	}
	bound := &binding{parents: resolved, fingerprints: map[string]string{}, checked: time.Now(), partial: partial || problems.Err() != nil}
	for _, wrong := range problems.Only(problem.Error) {
		if bound.news(deps, db, wrong.String()) {
			deps.Logger.ErrorContext(ctx, "definition does not fit the database: tombstones of its parent wait",
				"kind", LooseForeignKeys, "database", db.Name, "error", wrong.String())
		}
	}
	if err := bound.checkKeys(ctx, deps, db, conn); err != nil {
		return nil, err
	}
	if err := bound.checkPrivileges(ctx, deps, db, conn, elsewhere); err != nil {
		return nil, err
	}
	deps.Bindings.NoteWrong(LooseForeignKeys, db.Name, bound.wrong)
	deps.Bindings.Note(db.Name, bound.parents)
	if err := adopt(ctx, deps, db, conn, bound.parents); err != nil {
		return nil, err
	}
	trackNewPartitions(ctx, deps, db, conn, bound.parents)
	if err := bound.look(ctx, deps, db, conn, elsewhere); err != nil {
		return nil, err
	}
	return bound, nil
}

// news notes what is wrong with a definition, and reports whether it is new since the binding before: passes come every
// few seconds.
func (b *binding) news(deps Deps, db database.Database, reason string) bool {
	b.wrong = append(b.wrong, reason)
	return !deps.Bindings.wasWrong(LooseForeignKeys, db.Name, reason)
}

// resolve binds the definitions anew. partial tells that a database could not be asked.
func resolve(
	ctx context.Context, deps Deps, db database.Database, conn *pgxpool.Conn, elsewhere *others,
) (parents []*loosefk.Parent, problems problem.List, partial bool, err error) {
	for {
		sites := make([]loosefk.Site, len(deps.Databases))
		partial = false
		for i, other := range deps.Databases {
			settings, _ := deps.Config.Database(other.Name)
			sites[i] = loosefk.Site{Name: other.Name, Schema: other.Names.Tracked, Tables: settings.Tables}
			if other.Name == db.Name {
				sites[i].DB = conn
				continue
			}
			reached, err := elsewhere.reach(ctx, other)
			if err != nil {
				partial = true
				continue
			}
			sites[i].DB = reached
		}
		resolved, problems, err := loosefk.Resolve(ctx, sites, deps.Definitions)
		failed, ok := errors.AsType[*loosefk.SiteError](err)
		if !ok || failed.Database == db.Name || ctx.Err() != nil {
			return resolved[db.Name], problems, partial, err
		}
		// It was there a moment ago: once more without it.
		other, _ := deps.database(failed.Database)
		_ = elsewhere.lose(ctx, other, other.Unreachable(failed.Err))
	}
}

// checkPrivileges breaks the references whose tables the role may not work on.
func (b *binding) checkPrivileges(ctx context.Context, deps Deps, db database.Database, conn *pgxpool.Conn, elsewhere *others) error {
	missing, err := loosefk.MissingPrivileges(ctx, conn, db.Name, b.parents)
	if err != nil {
		return err
	}
	for _, other := range needed(deps, b.parents) {
		reached, err := elsewhere.reach(ctx, other)
		if err != nil {
			continue
		}
		there, err := loosefk.MissingPrivileges(ctx, reached, other.Name, b.parents)
		if err != nil {
			_ = elsewhere.lose(ctx, other, other.Unreachable(err))
			continue
		}
		missing = append(missing, there...)
	}
	for _, lacking := range missing {
		b.partial = true
		if b.news(deps, db, lacking.String()) {
			deps.Logger.ErrorContext(ctx, "a privilege is missing: tombstones of its parent wait",
				"kind", LooseForeignKeys, "database", db.Name, "error", lacking.String())
		}
		for _, parent := range b.parents {
			for _, reference := range parent.References {
				if reference.Definition.Key == lacking.Key && reference.Broken == "" {
					reference.Broken = lacking.Message + ": " + lacking.Fix
				}
			}
		}
	}
	return nil
}

// holds reports whether the tables are as they were when the definitions were bound. Where a database cannot be reached,
// nothing will be done there either.
func (b *binding) holds(ctx context.Context, deps Deps, db database.Database, conn *pgxpool.Conn, elsewhere *others) (bool, error) {
	before := b.fingerprints
	b.fingerprints = maps.Clone(before)
	if err := b.look(ctx, deps, db, conn, elsewhere); err != nil {
		return false, err
	}
	return maps.Equal(before, b.fingerprints), nil
}

// look takes the fingerprints.
func (b *binding) look(ctx context.Context, deps Deps, db database.Database, conn *pgxpool.Conn, elsewhere *others) error {
	var err error
	if b.fingerprints[db.Name], err = loosefk.Fingerprint(ctx, conn, db.Name, b.parents); err != nil {
		return err
	}
	for _, other := range needed(deps, b.parents) {
		reached, err := elsewhere.reach(ctx, other)
		if err != nil {
			continue
		}
		taken, err := loosefk.Fingerprint(ctx, reached, other.Name, b.parents)
		if err != nil {
			_ = elsewhere.lose(ctx, other, other.Unreachable(err))
			continue
		}
		b.fingerprints[other.Name] = taken
	}
	return nil
}

package riverjobs

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sexton/internal/database"
	"sexton/internal/loosefk"
)

// bindingAge is how long definitions stay bound to a database without being checked anew. Changes of the
// tables are seen at once, changes of privileges, NOT NULL and the like by then.
const bindingAge = time.Minute

// binding is what a pass works with: definitions bound to tables, with what passes have learned about them.
type binding struct {
	parents     []*loosefk.Parent
	fingerprint string
	checked     time.Time
}

// Bindings keeps each database's binding between the passes of one process. The zero value is ready to use.
type Bindings struct {
	mu    sync.Mutex
	kept  map[string]*binding
	names map[string][]string
	marks map[string]*loosefk.Marks
	told  map[string]bool
}

// marksOf are those of a database's queues.
func (b *Bindings) marksOf(name string) *loosefk.Marks {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.marks[name] == nil {
		if b.marks == nil {
			b.marks = map[string]*loosefk.Marks{}
		}
		b.marks[name] = &loosefk.Marks{}
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

// keep is for the next pass.
func (b *Bindings) keep(name string, kept *binding) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.kept == nil {
		b.kept = map[string]*binding{}
	}
	b.kept[name] = kept
}

// note remembers which parents a database has.
func (b *Bindings) note(name string, parents []*loosefk.Parent) {
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

// first tells whether it is the first time that this is to be said in this process.
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
// definitions, privileges and the triggers of new partitions are seen to.
func bind(ctx context.Context, deps Deps, db database.Database, conn *pgxpool.Conn) (*binding, error) {
	if kept := deps.Bindings.take(db.Name); kept != nil && time.Since(kept.checked) < bindingAge {
		now, err := loosefk.Fingerprint(ctx, conn, kept.parents)
		if err != nil {
			return nil, err
		}
		if now == kept.fingerprint {
			return kept, nil
		}
	}
	parents, problems, err := loosefk.Resolve(ctx, conn, db.Names.Tracked, deps.Definitions)
	if err != nil {
		return nil, fmt.Errorf("check definitions against database %s: %w", db.Name, err)
	}
	if err := problems.Err(); err != nil {
		return nil, err
	}
	missing, err := loosefk.MissingPrivileges(ctx, conn, parents)
	if err := cmp.Or(err, missing.Err()); err != nil {
		return nil, err
	}
	deps.Bindings.note(db.Name, parents)
	trackNewPartitions(ctx, deps, db, conn, parents)
	fingerprint, err := loosefk.Fingerprint(ctx, conn, parents)
	if err != nil {
		return nil, err
	}
	return &binding{parents: parents, fingerprint: fingerprint, checked: time.Now()}, nil
}

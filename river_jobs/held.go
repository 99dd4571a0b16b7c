package riverjobs

import (
	"context"
	"maps"
	"slices"

	"sexton/internal/database"
	"sexton/internal/jobrun"
	"sexton/internal/problem"
)

// What does not fit the database is held: tombstones of the parents that a definition is about, or all of a kind whose lists
// cannot be bound. Everything else goes on.

// wasWrong reports whether the last look had the same to say.
func (b *Bindings) wasWrong(kind, name, reason string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.wrong[kind+"/"+name], reason)
}

// NoteWrong remembers what in a kind's configuration does not fit a database.
func (b *Bindings) NoteWrong(kind, name string, wrong []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrong == nil {
		b.wrong = map[string][]string{}
	}
	b.wrong[kind+"/"+name] = wrong
}

// Held lists the held work, as kind/database: reason.
func (b *Bindings) Held() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var held []string
	for _, place := range slices.Sorted(maps.Keys(b.wrong)) {
		for _, reason := range b.wrong[place] {
			held = append(held, place+": "+reason)
		}
	}
	return held
}

// fits notes, and logs once, what in a kind's lists does not fit, and returns it as an error.
func (d Deps) fits(ctx context.Context, kind string, db database.Database, problems problem.List) error {
	wrong := []string{}
	for _, p := range problems.Only(problem.Error) {
		wrong = append(wrong, p.String())
		if !d.Bindings.wasWrong(kind, db.Name, p.String()) {
			d.Logger.ErrorContext(ctx, "configuration does not fit the database: the kind waits", "kind", kind, "database", db.Name, "error", p.String())
		}
	}
	d.Bindings.NoteWrong(kind, db.Name, wrong)
	return jobrun.Logged(problems.Err())
}

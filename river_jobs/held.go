package riverjobs

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/extdiff"
	"sexton/internal/jobrun"
	"sexton/internal/loosefk"
	"sexton/internal/loosefk/cleanup"
	"sexton/internal/pace"
	"sexton/internal/problem"
)

// Bindings holds the state that the passes of one process share. The zero value is ready
// to use.
type Bindings struct {
	// Foreground is for a process that ends with its pass.
	Foreground bool

	tombstones cleanup.Memory
	servers    pace.ServerMemory

	mu sync.Mutex
	// wrong lists errors of the configuration, by kind/database.
	wrong map[string][]string

	// store pauses the moves of diffs while the store is unavailable or refuses requests.
	store backOff
	// ghosts pauses the wake-ups of the kind that deletes users while its passes fail.
	ghosts backOff
	diffs  extdiff.Opened
	// ends notifies subscriptions of jobs that this process has finished.
	ends ends
}

func (b *Bindings) memory() *cleanup.Memory { return &b.tombstones }

// Note stores which parents a database has.
func (b *Bindings) Note(name string, parents []*loosefk.Parent) {
	b.tombstones.SetParents(name, parents)
}

// Noted returns the stored parents of a database, as tombstones name them, or nil.
func (b *Bindings) Noted(name string) []string { return b.tombstones.ParentNames(name) }

// If a definition does not fit a database, the tombstones of its parent are held. If a list
// does not, its kind is held. All other work continues.

// WasWrong reports whether the last check found the same error.
func (b *Bindings) WasWrong(kind, name, reason string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.wrong[kind+"/"+name], reason)
}

// isWrong reports whether the last check found an error.
func (b *Bindings) isWrong(kind, name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.wrong[kind+"/"+name]) > 0
}

// NoteWrong stores the errors of a kind's configuration in a database.
func (b *Bindings) NoteWrong(kind, name string, wrong []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrong == nil {
		b.wrong = map[string][]string{}
	}
	b.wrong[kind+"/"+name] = wrong
}

// Held returns the held work, as kind/database: reason.
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

// Placed returns problems with the positions of their keys in the file.
func Placed(c *config.Config, found problem.List) problem.List {
	at := make(problem.List, len(found))
	for i, p := range found {
		at[i] = c.Problem(p.Key, p.Message, p.Fix)
		at[i].Severity = p.Severity
	}
	return at
}

// fits returns the errors among the problems of a kind's lists. It stores them and logs
// new ones.
func (d Deps) fits(ctx context.Context, kind string, db database.Database, problems problem.List) error {
	wrong := []string{}
	for _, p := range problems.Only(problem.Error) {
		wrong = append(wrong, p.String())
		if !d.Bindings.WasWrong(kind, db.Name, p.String()) {
			d.Logger.ErrorContext(ctx, "kind_held", "kind", kind,
				"database", db.Name, "error", p.String())
		}
	}
	d.Bindings.NoteWrong(kind, db.Name, wrong)
	return jobrun.Logged(problems.Err())
}

// backOff is the pause of a process after a failure that an immediate retry would repeat,
// such as an unavailable store. All jobs of the process wait together, and one of them
// reports the failure. The zero value is ready to use.
type backOff struct {
	mu    sync.Mutex
	pause time.Duration
	until time.Time
	ended time.Time
}

// wait returns the time that is left of the pause, or 0.
func (r *backOff) wait(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.until.Sub(now))
}

// begin begins a pause after a failure. The first pause is firstPause, and each further
// one is twice as long, up to longest. It returns false if a pause is running: the failed
// job began before it.
func (r *backOff) begin(now time.Time, longest time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.until) {
		return false
	}
	r.pause = min(max(2*r.pause, firstPause), longest)
	r.until = now.Add(r.pause)
	return true
}

// end ends the pause after a success.
func (r *backOff) end(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause, r.until, r.ended = 0, time.Time{}, now
}

// after returns how long work that began at then and failed must wait, and whether it must
// report the failure. If another attempt has succeeded since then, the failure concerns
// this work only: it waits longestOutage.
func (r *backOff) after(then time.Time, longest time.Duration) (pause time.Duration, first bool) {
	r.mu.Lock()
	others := r.ended.After(then)
	r.mu.Unlock()
	if others {
		return longestOutage, true
	}
	first = r.begin(time.Now(), longest)
	return max(r.wait(time.Now()), firstPause), first
}

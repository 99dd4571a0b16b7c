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

// Bindings keeps what the passes of one process have learned. The zero value is ready to
// use.
type Bindings struct {
	// Foreground is for a process that ends with its pass.
	Foreground bool

	tombstones cleanup.Memory
	servers    pace.ServerMemory

	mu sync.Mutex
	// wrong is by kind and database.
	wrong map[string][]string

	// store pauses the moves of diffs while the store refuses them, or is not there.
	store backOff
	// ghosts pauses the wake-ups of the kind that deletes users while it fails as a
	// whole.
	ghosts backOff
	diffs  extdiff.Opened
	// ends tells subscriptions of jobs whose work this process has ended.
	ends ends
}

func (b *Bindings) memory() *cleanup.Memory { return &b.tombstones }

// Note remembers which parents a database has.
func (b *Bindings) Note(name string, parents []*loosefk.Parent) {
	b.tombstones.SetParents(name, parents)
}

// Noted are the parents of a database as its tombstones name them; nil while that is not
// known.
func (b *Bindings) Noted(name string) []string { return b.tombstones.ParentNames(name) }

// What does not fit the database is held: tombstones of the parents that a definition is
// about, or all of a kind whose lists cannot be bound. Everything else goes on.

// WasWrong reports whether the last look had the same to say.
func (b *Bindings) WasWrong(kind, name, reason string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.wrong[kind+"/"+name], reason)
}

// isWrong reports whether something did not fit the last time.
func (b *Bindings) isWrong(kind, name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.wrong[kind+"/"+name]) > 0
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

// Placed returns problems with the places of their keys in the file.
func Placed(c *config.Config, found problem.List) problem.List {
	at := make(problem.List, len(found))
	for i, p := range found {
		at[i] = c.Problem(p.Key, p.Message, p.Fix)
		at[i].Severity = p.Severity
	}
	return at
}

// fits notes, and logs once, what in a kind's lists does not fit, and returns it as an
// error.
func (d Deps) fits(ctx context.Context, kind string, db database.Database, problems problem.List) error {
	wrong := []string{}
	for _, p := range problems.Only(problem.Error) {
		wrong = append(wrong, p.String())
		if !d.Bindings.WasWrong(kind, db.Name, p.String()) {
			d.Logger.ErrorContext(ctx, "configuration does not fit the database: the kind waits", "kind", kind,
				"database", db.Name, "error", p.String())
		}
	}
	d.Bindings.NoteWrong(kind, db.Name, wrong)
	return jobrun.Logged(problems.Err())
}

// backOff is a process's pause after a failure that the next attempt would meet, too: a
// store that cannot be used as it is configured or is not there, or a kind that fails as
// a whole. After the first failure all jobs of the process wait together, and one of them
// reports it. The zero value is ready to use.
type backOff struct {
	mu    sync.Mutex
	pause time.Duration
	until time.Time
	ended time.Time
}

// wait returns how much of the pause is left, or 0.
func (r *backOff) wait(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.until.Sub(now))
}

// begin begins a pause after a failure: firstPause, twice as long each time, longest at
// most. It returns false where one is under way: a job at work when it began has met the
// cause of it.
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

// end ends the pause: an attempt has succeeded.
func (r *backOff) end(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pause, r.until, r.ended = 0, time.Time{}, now
}

// after returns how long work that began then and failed is to wait, and whether it is
// the first to report its failure. It waits a while where another attempt has succeeded
// since: others go through.
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

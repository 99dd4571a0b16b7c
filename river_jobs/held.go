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
	// Foreground is true for a process that ends with its pass.
	Foreground bool

	tombstones cleanup.Memory
	servers    pace.ServerMemory

	mu sync.Mutex
	// wrong contains the errors of the configuration, by kind/database.
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

// SetParents stores the parents of a database. Until then, the subscription of its loose
// foreign keys finds no due rows.
func (b *Bindings) SetParents(name string, parents []*loosefk.Parent) {
	b.tombstones.SetParents(name, parents)
}

// ParentNames returns the names of a database's stored parents as tombstones contain
// them, or nil.
func (b *Bindings) ParentNames(name string) []string { return b.tombstones.ParentNames(name) }

// HasError reports whether the last check of a kind's configuration in a database found
// the given error.
func (b *Bindings) HasError(kind, name, reason string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Contains(b.wrong[kind+"/"+name], reason)
}

// hasErrors reports whether the last check found any error.
func (b *Bindings) hasErrors(kind, name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.wrong[kind+"/"+name]) > 0
}

// SetErrors stores the errors of a kind's configuration in a database. If a definition
// does not fit a database, the tombstones of its parent are held. If a list does not fit,
// its kind is held. All other work continues.
func (b *Bindings) SetErrors(kind, name string, wrong []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.wrong == nil {
		b.wrong = map[string][]string{}
	}
	b.wrong[kind+"/"+name] = wrong
}

// Held returns the held work, each as "kind/database: reason".
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

// Placed returns the problems with the positions of their keys in the configuration file.
func Placed(c *config.Config, found problem.List) problem.List {
	placed := make(problem.List, len(found))
	for i, p := range found {
		placed[i] = c.Problem(p.Key, p.Message, p.Fix)
		placed[i].Severity = p.Severity
	}
	return placed
}

// fits returns an error if the problems of a kind's lists include errors. It stores the
// errors and logs those that the previous check did not find.
func (d Deps) fits(ctx context.Context, kind string, db database.Database, problems problem.List) error {
	wrong := []string{}
	for _, p := range problems.Only(problem.Error) {
		wrong = append(wrong, p.String())
		if !d.Bindings.HasError(kind, db.Name, p.String()) {
			d.Logger.ErrorContext(ctx, "kind_held", "kind", kind,
				"database", db.Name, "error", p.String())
		}
	}
	d.Bindings.SetErrors(kind, db.Name, wrong)
	return jobrun.Logged(problems.Err())
}

// backOff is the pause of a process after a failure that an immediate retry would repeat,
// such as an unavailable store. All jobs of the process wait for the same pause, and one
// of them reports the failure. The zero value is ready to use.
type backOff struct {
	mu    sync.Mutex
	pause time.Duration
	until time.Time
	ended time.Time
}

// wait returns the remaining time of the pause, or 0.
func (r *backOff) wait(now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, r.until.Sub(now))
}

// begin starts a pause after a failure. The first pause is firstPause, and each further
// pause is twice as long, up to longest. If a pause has not ended, begin changes nothing
// and returns false, because the failed job began before the pause.
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

// after returns the pause of work that began at the time began and failed, and whether
// the work must report the failure. If another job has succeeded since then, the failure
// concerns only this work, and the pause is longestOutage.
func (r *backOff) after(began time.Time, longest time.Duration) (pause time.Duration, first bool) {
	r.mu.Lock()
	succeeded := r.ended.After(began)
	r.mu.Unlock()
	if succeeded {
		return longestOutage, true
	}
	first = r.begin(time.Now(), longest)
	return max(r.wait(time.Now()), firstPause), first
}

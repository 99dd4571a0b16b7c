package installation

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
	"sexton/internal/sleep"
	riverjobs "sexton/river_jobs"
)

// A wait for a database grows from the first to the longest.
const (
	RetryFirst   = time.Second
	RetryLongest = 10 * time.Second
)

// BindForWork goes on without what does not fit the databases, and without databases that cannot be reached, except the jobs
// database. With failFast every database has to be there.
func BindForWork(ctx context.Context, c *config.Config, failFast bool) (*Bound, error) {
	all, err := bindFitting(ctx, c)
	if err == nil && failFast {
		if err = all.Complete(); err != nil {
			all.Close()
		}
	}
	return all, err
}

// Await returns once a database that was down at the start is there and fit to be worked on, and false where ctx ends first.
// Its parents are noted by then.
func (b *Bound) Await(ctx context.Context, name string, noted *riverjobs.Bindings, log *slog.Logger) bool {
	db := b.Database(name)
	if b.Down[db.Name] == nil {
		noted.Note(db.Name, b.Parents[db.Name])
		return true
	}
	log = log.With("database", db.Name)
	log.WarnContext(ctx, "database cannot be reached: it and what depends on it waits", "error", b.Down[db.Name])
	var said string
	for wait := RetryFirst; ; wait = min(2*wait, RetryLongest) {
		if sleep.For(ctx, wait) != nil {
			return false
		}
		parents, err := b.look(ctx, db)
		if err == nil {
			noted.Note(db.Name, parents)
			log.InfoContext(ctx, "database can be reached")
			return true
		}
		var unreachable *database.UnreachableError
		if !errors.As(err, &unreachable) && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			log.ErrorContext(ctx, "database is there but cannot be worked on yet", "error", err)
		}
	}
}

// look checks a database that was down at the start as the others were then, and returns its parents.
func (b *Bound) look(ctx context.Context, db database.Database) ([]*loosefk.Parent, error) {
	if err := db.Ping(ctx); err != nil {
		return nil, err
	}
	for _, schema := range b.Schemas() {
		if schema.Name != db.Name {
			continue
		}
		if err := migrate.Check(ctx, schema); err != nil {
			return nil, err
		}
	}
	sites := b.Sites()
	for i := range sites {
		if sites[i].Name == db.Name {
			sites[i].DB = db.Pool
		}
	}
	parents, _, err := loosefk.Resolve(ctx, sites, b.Definitions)
	return parents[db.Name], err
}

package installation

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/loosefk"
	"sexton/internal/migrate"
	"sexton/internal/pace"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	riverjobs "sexton/river_jobs"
	"sexton/triggers"
)

// MissingPrivileges returns what the role lacks for whole definitions of a database's
// parents, wherever the children live. A right on some partitions is left out: the pass
// logs it and holds those partitions alone.
func MissingPrivileges(ctx context.Context, all *Bound, name string) (problem.List, error) {
	var missing problem.List
	for _, db := range all.Databases {
		if all.Down[db.Name] != nil {
			continue
		}
		found, err := loosefk.BreakUnprivileged(ctx, db.Pool, db.Name, all.Parents[name])
		if err != nil {
			return nil, err
		}
		missing.Add(found...)
	}

	broken := map[string]bool{}
	for _, reference := range loosefk.References(all.Parents[name]) {
		broken[reference.Definition.Key] = broken[reference.Definition.Key] || reference.Broken != ""
	}
	return slices.DeleteFunc(missing, func(lacking problem.Problem) bool { return !broken[lacking.Key] }), nil
}

// ChildPrivileges are what the role of db lacks in one database for the children of all
// these parents.
func ChildPrivileges(ctx context.Context, db pgcatalog.Beginner, name string,
	parents map[string][]*loosefk.Parent,
) (problem.List, error) {
	var missing problem.List
	for _, bound := range parents {
		found, err := loosefk.MissingPrivileges(ctx, db, name, bound)
		if err != nil {
			return nil, err
		}
		missing.Add(found...)
	}
	return missing, nil
}

// WarningsOf are what makes a pass slow or leaves it without work, and no reason not to
// run.
func WarningsOf(ctx context.Context, all *Bound, db database.Database) ([]string, error) {
	var warnings []string
	for _, other := range all.Databases {
		if err := all.Down[other.Name]; err != nil {
			warnings = append(warnings, err.Error()+"; jobs that need it wait")
		}
	}
	if _, down := all.Down[db.Name]; down {
		return warnings, nil
	}
	later, err := migrate.OtherFunctions(ctx, all.schema(db))
	if err != nil {
		return warnings, err
	}
	for _, name := range later {
		warnings = append(warnings, "component "+name+": "+migrate.OtherFunctionsText)
	}
	cfg, tracked := riverjobs.Tracking(all.Config, db, all.Parents)
	err = OnConnection(ctx, db, func(conn *pgx.Conn) error {
		if found := pgcatalog.Untested(conn.PgConn().ParameterStatus("server_version")); found.Message != "" {
			warnings = append(warnings, found.String())
		}
		findings, err := triggers.Status(ctx, conn, cfg, tracked)
		if slices.ContainsFunc(findings, triggers.Finding.Drift) {
			warnings = append(warnings,
				"triggers do not match the definitions, so deletions may not be recorded;"+
					" see sexton triggers status, run sexton triggers install")
		}
		return err
	})
	return warnings, err
}

// NoteHeld says, in the log and to readers of the status, what the worker begins without.
func (b *Bound) NoteHeld(ctx context.Context, noted *riverjobs.Bindings, log *slog.Logger) {
	for kind, problems := range b.held {
		texts := make([]string, len(problems))
		for i, p := range problems {
			texts[i] = p.String()
			log.ErrorContext(ctx, "configuration_does_not_fit_database", "kind", kind,
				"error", texts[i])
		}
		for _, db := range b.Databases {
			// The database that a definition is about does not fit, so it counts for each
			// that the kind works on.
			if kind != riverjobs.LooseForeignKeys && db.Name != b.Jobs().Name {
				continue
			}
			noted.NoteWrong(kind, db.Name, texts)
		}
	}
}

// A wait for a database grows from the first to the longest.
const (
	RetryFirst   = time.Second
	RetryLongest = 10 * time.Second
)

// BindForWork goes on without what does not fit the databases, and without databases that
// cannot be reached, except the jobs database. With failFast every database has to be
// there.
func (f Files) BindForWork(ctx context.Context, c *config.Config, failFast bool) (*Bound, error) {
	if failFast {
		return complete(f.bindFitting(ctx, c))
	}
	return f.bindFitting(ctx, c)
}

// Await returns once a database that was down at the start is there and fit to be worked
// on, and false where ctx ends first. Its parents are noted by then.
func (b *Bound) Await(ctx context.Context, name string, noted *riverjobs.Bindings, log *slog.Logger) bool {
	db := b.Database(name)
	if b.Down[db.Name] == nil {
		noted.Note(db.Name, b.Parents[db.Name])
		return true
	}
	log = log.With("database", db.Name)
	log.WarnContext(ctx, "database_unreachable", "error", b.Down[db.Name])
	var said string
	for wait := RetryFirst; ; wait = min(2*wait, RetryLongest) {
		if pace.Sleep(ctx, wait) != nil {
			return false
		}
		parents, err := b.look(ctx, db)
		if err == nil {
			noted.Note(db.Name, parents)
			log.InfoContext(ctx, "database_reachable")
			return true
		}
		var unreachable *database.UnreachableError
		if !errors.As(err, &unreachable) && err.Error() != said && ctx.Err() == nil {
			said = err.Error()
			log.ErrorContext(ctx, "database_not_ready", "error", err)
		}
	}
}

// look checks a database that was down at the start as the others were then, and returns
// its parents.
func (b *Bound) look(ctx context.Context, db database.Database) ([]*loosefk.Parent, error) {
	if err := db.Ping(ctx); err != nil {
		return nil, err
	}
	if err := migrate.Check(ctx, b.schema(db)); err != nil {
		return nil, err
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

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

// MissingPrivileges returns the missing privileges that prevent a definition from
// running. name is the database of the definition's parent, and the children may be in
// any database. A privilege that is missing only on some partitions is omitted: the run
// logs it and does not process those partitions.
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

// ChildPrivileges returns the privileges that the role lacks in one database on the
// children of all these parents.
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

// StartupWarnings returns warnings about conditions that make runs of a database slow or
// prevent them.
func StartupWarnings(ctx context.Context, all *Bound, db database.Database) ([]string, error) {
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

// NoteHeld logs the parts of the configuration that do not fit the databases, and stores
// them in bindings, so that the status shows them.
func (b *Bound) NoteHeld(ctx context.Context, bindings *riverjobs.Bindings, log *slog.Logger) {
	for at, problems := range b.held {
		texts := make([]string, len(problems))
		for i, p := range problems {
			texts[i] = p.String()
			log.ErrorContext(ctx, "configuration_does_not_fit_database", "kind", at.kind,
				"error", texts[i])
		}
		for _, db := range b.Databases {
			if at.database == "" || at.database == db.Name {
				bindings.SetErrors(at.kind, db.Name, texts)
			}
		}
	}
}

// RetryFirst and RetryLongest are the first and the longest pause between two attempts to
// connect to a database. The pause doubles each time.
const (
	RetryFirst   = time.Second
	RetryLongest = 10 * time.Second
)

// BindForWork binds the definitions for a worker. It omits definitions that do not fit
// the databases, and unreachable databases except the jobs database. If failFast is set,
// every database must be reachable.
func (f Files) BindForWork(ctx context.Context, c *config.Config, failFast bool) (*Bound, error) {
	if failFast {
		return complete(f.bindFitting(ctx, c))
	}
	return f.bindFitting(ctx, c)
}

// Await waits until a database that was down at the start can be used, stores its parents
// in bindings, and returns true. It returns false if ctx ends first.
func (b *Bound) Await(ctx context.Context, name string, bindings *riverjobs.Bindings, log *slog.Logger) bool {
	db := b.Database(name)
	if b.Down[db.Name] == nil {
		bindings.SetParents(db.Name, b.Parents[db.Name])
		return true
	}
	log = log.With("database", db.Name)
	log.WarnContext(ctx, "database_unreachable", "error", b.Down[db.Name])
	var logged string
	for wait := RetryFirst; ; wait = min(2*wait, RetryLongest) {
		if pace.Sleep(ctx, wait) != nil {
			return false
		}
		parents, err := b.bindDatabase(ctx, db)
		if err == nil {
			bindings.SetParents(db.Name, parents)
			log.InfoContext(ctx, "database_reachable")
			return true
		}
		var unreachable *database.UnreachableError
		if !errors.As(err, &unreachable) && err.Error() != logged && ctx.Err() == nil {
			logged = err.Error()
			log.ErrorContext(ctx, "database_not_ready", "error", err)
		}
	}
}

// bindDatabase repeats the checks of the start for one database, and returns its parents.
func (b *Bound) bindDatabase(ctx context.Context, db database.Database) ([]*loosefk.Parent, error) {
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

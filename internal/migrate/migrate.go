package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/rivermigrate"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	sqlfiles "sexton/sql"
	"sexton/triggers"
)

// Database is one configured database and what belongs into it.
type Database struct {
	// Name is the name in the configuration.
	Name string
	// Conn says how to connect. The connection must be direct: a transaction pooler would lose the
	// session's advisory lock.
	Conn *pgx.ConnConfig
	// Sessions, if set, are such connections: what changes nothing takes one of them, as to open one costs more than what it is for.
	Sessions *pgxpool.Pool
	// JobsSchema is for Sexton's own tables, TrackedSchema for tombstones and the other deletion tables.
	JobsSchema    string
	TrackedSchema string
	// Jobs marks the jobs database, which also holds leases, runs, enqueue and River's tables.
	Jobs bool
	// Components are the optional ones that belong into this database. All but LooseForeignKeys belong into the jobs database alone,
	// and need the application's tables in the tracked schema; PlaceholderUsers needs GhostUsers.
	Components []string
	// Owner is the role that the objects belong to; empty means DefaultOwner.
	Owner string
	// Kinds are all jobs that enqueue is to accept. Only the jobs database takes them.
	Kinds []Kind
}

// Migration is one step of a component.
type Migration struct {
	Version int64  `json:"version"`
	Name    string `json:"name"`
}

// ComponentReport says what was done to one component.
type ComponentReport struct {
	Component string `json:"component"`
	From      int64  `json:"from"`
	To        int64  `json:"to"`
	// Applied are the migrations that were run, in order: upwards by Up, downwards by Down.
	Applied []Migration `json:"applied"`
}

// Report says what Up or Down did in one database.
type Report struct {
	Database   string            `json:"database"`
	Components []ComponentReport `json:"components"`
	// Owner says whom the objects belong to after Up; absent in the report of Down.
	Owner *Ownership `json:"owner,omitempty"`
	// Triggers says what Down removed; absent in the report of Up.
	Triggers *triggers.Report `json:"triggers,omitempty"`
	// SchemaKept reports that Down left Sexton's schema because it holds objects of others.
	SchemaKept bool `json:"schema_kept,omitempty"`
}

// Up installs what is missing, brings the enabled components to the newest version that this program knows
// and has enqueue accept the configured kinds and no others. It is idempotent and may run on several
// machines at once; they take turns.
//
// Nothing changes where it refuses: *SchemaError for a schema newer than this program and for a deletion table in another schema than the
// configured one, *PrivilegeError where the role lacks a right, RequirementError where the application lacks a table or columns that a
// component works with, and another error where a name is taken by an object that Sexton did not create.
func Up(ctx context.Context, log *slog.Logger, db Database) (Report, error) {
	report := Report{Database: db.Name, Components: []ComponentReport{}}
	err := withSession(ctx, log, db, func(s *session) error {
		look, err := db.inspect(ctx, s.pool)
		if err != nil {
			return err
		}
		if err := db.preflight(look); err != nil {
			return err
		}
		if found := pgcatalog.Untested(look.server); found.Message != "" {
			log.WarnContext(ctx, "server_untested", slog.String("database", db.Name), slog.String("warning", found.String()))
		}
		own, err := s.makeOwner(ctx, look.role)
		if err != nil {
			return err
		}
		report.Owner = &own
		if err := s.createRegistry(ctx, look); err != nil {
			return db.explain(look, err, asOwner)
		}
		for _, c := range db.components() {
			applied, err := c.up(ctx, s, look)
			report.Components = append(report.Components, ComponentReport{
				Component: c.name, From: look.versions[c.name], To: last(applied, look.versions[c.name]), Applied: applied,
			})
			if err != nil {
				return db.explain(look, fmt.Errorf("migrate %s: %w", c.name, err), asOwner)
			}
			s.logApplied(ctx, c, "up", applied)
			if err := c.installFunctions(ctx, s, look); err != nil {
				return db.explain(look, err, asOwner)
			}
		}
		if err := errors.Join(s.writeKinds(ctx), s.writeApplicationTables(ctx)); err != nil {
			return db.explain(look, err, asOwner)
		}
		return s.handOver(ctx, &own)
	})
	return report, problem.Doing(err, "migrate database %s up", db.Name)
}

func last(applied []Migration, otherwise int64) int64 {
	if len(applied) == 0 {
		return otherwise
	}
	return applied[len(applied)-1].Version
}

func (s *session) logApplied(ctx context.Context, c component, direction string, applied []Migration) {
	for _, m := range applied {
		s.log.InfoContext(ctx, "migration_applied",
			slog.String("database", s.db.Name), slog.String("component", c.name), slog.String("direction", direction),
			slog.Int64("version", m.Version), slog.String("name", m.Name))
	}
}

// Preview returns the SQL that Up would run, in its order, and changes nothing. It refuses what Up refuses. The rows that Up writes into
// Sexton's own tables, and the statements that hand objects over, depend on what is there then: a comment stands for them.
func Preview(ctx context.Context, log *slog.Logger, db Database) (string, error) {
	var parts []string
	err := withSession(ctx, log, db, func(s *session) error {
		look, err := db.inspect(ctx, s.pool)
		if err == nil {
			err = db.preflight(look)
		}
		if err != nil {
			return err
		}
		lacks, err := s.ownerLacks(ctx, look.role)
		if err != nil {
			return err
		}
		if !look.registry {
			registry, _ := sqlfiles.Migrations.ReadFile("migrations/registry.sql")
			if !look.hasSchema {
				parts = append(parts, "CREATE SCHEMA "+quote(db.JobsSchema))
			}
			parts = append(parts, s.replacer.Replace(string(registry)))
		}
		for _, c := range db.components() {
			statements, err := c.preview(ctx, s, look)
			if err != nil {
				return err
			}
			parts = append(parts, statements...)
		}
		if len(parts) > 0 || len(lacks) > 0 {
			parts = slices.Concat(lacks, parts, s.previewRights())
		}
		return nil
	})
	for i, part := range parts {
		parts[i] = strings.TrimSuffix(strings.TrimSpace(part), ";") + ";\n"
	}
	return strings.Join(parts, "\n"), problem.Doing(err, "preview migration of database %s", db.Name)
}

// preview returns what up would run of a component, each with a comment.
func (c component) preview(ctx context.Context, s *session, look inspection) (statements []string, _ error) {
	if c.name == River {
		return riverPreview(ctx, s)
	}
	for _, m := range c.missing(look) {
		text, err := c.statements(s, m)
		if err != nil {
			return nil, err
		}
		statements = append(statements, fmt.Sprintf("-- migration %d of %s\n%s", m.Version, c.name, text))
	}
	if s.db.functionsDiffer(look, c) {
		statements = append(statements, "-- functions of "+c.name+", whose bodies may use what comes later\nSET check_function_bodies = off")
		found, _ := c.functions(s.db)
		for _, f := range found {
			statements = append(statements, f.text)
		}
	}
	return statements, nil
}

func riverPreview(ctx context.Context, s *session) (statements []string, _ error) {
	migrator, err := newRiverMigrator(s.pool, slog.New(slog.DiscardHandler), s.db.JobsSchema)
	if err != nil {
		return nil, err
	}
	result, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, &rivermigrate.MigrateOpts{DryRun: true})
	if err != nil || len(result.Versions) == 0 {
		return nil, problem.Doing(err, "look up River's migrations")
	}
	for _, v := range result.Versions {
		statements = append(statements, fmt.Sprintf("-- River's migration %d\n%s", v.Version, v.SQL))
	}
	return statements, nil
}

// previewRights has a comment for the rest, with the rights that the owner's role gets on tables of the application's that are there.
func (s *session) previewRights() []string {
	tables, privileges := s.db.ownerNeeds()
	var text strings.Builder
	fmt.Fprintf(&text, "-- Then it notes versions, objects and kinds of jobs in schema %s, and all objects there pass to role %s",
		quote(s.db.JobsSchema), quote(s.db.owner()))
	for i, table := range tables {
		fmt.Fprintf(&text, "\n-- GRANT %s ON TABLE %s TO %s", privileges[i], identity(s.db.TrackedSchema, table), quote(s.db.owner()))
	}
	return []string{text.String()}
}

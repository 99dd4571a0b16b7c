package migrate

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/rivermigrate"

	"sexton/internal/problem"
	sqlfiles "sexton/sql"
)

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
		state, err := s.readOwner(ctx)
		if err != nil {
			return err
		}
		if state.mighty {
			return &MightyOwnerError{Database: db.Name, Role: db.owner()}
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
		if lacks := state.lacks(quote(db.owner()), look.role); len(parts) > 0 || len(lacks) > 0 {
			parts = slices.Concat(lacks, parts, s.previewRights())
		}
		return nil
	})
	for i, part := range parts {
		parts[i] = strings.TrimSuffix(strings.TrimSpace(part), ";") + ";\n"
	}
	return strings.Join(parts, "\n"), problem.Doing(err, "preview migration of database %s", db.Name)
}

func (c sqlComponent) preview(_ context.Context, s *session, look inspection) (statements []string, _ error) {
	for _, m := range c.migrations() {
		if m.Version <= look.versions[c.name()] {
			continue
		}
		text, err := c.statements(s, m, "up")
		if err != nil {
			return nil, err
		}
		statements = append(statements, fmt.Sprintf("-- migration %d of %s\n%s", m.Version, c.name(), text))
	}
	if s.db.functionsDiffer(look, c) {
		statements = append(statements, "-- functions of "+c.name()+", whose bodies may use what comes later\nSET check_function_bodies = off")
		found, _ := c.functions(s.db)
		for _, f := range found {
			statements = append(statements, f.text)
		}
	}
	return statements, nil
}

func (riverComponent) preview(ctx context.Context, s *session, _ inspection) (statements []string, _ error) {
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
	return append(append(statements, s.dropLeftOut()...), fmt.Sprintf(halfFull, pgx.Identifier{s.db.JobsSchema, "river_job"}.Sanitize())), nil
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

package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/triggers"
)

// Down removes every object that the registry lists, of all components and enabled or not: triggers and
// their functions first, then the components backwards, at last the registry and, where Sexton created
// it and no other program uses it, the schema. It is idempotent; a crash leaves a state from which Down and
// Up both go on.
//
// While deleted parents wait for their children to be cleaned up, users (placeholders among them) for their deletion, or groups for the
// end of a destruction that has begun, it refuses, unless force is set. It refuses a schema newer than this program with
// *SchemaError.
func Down(ctx context.Context, log *slog.Logger, db Database, force bool) (Report, error) {
	db = db.complete()
	report := Report{Database: db.Name, Components: []ComponentReport{}}
	err := withSession(ctx, log, db, func(s *session) error { return s.down(ctx, force, &report) })
	return report, problem.Doing(err, "migrate database %s down", db.Name)
}

// CheckDown returns the reasons to refuse that Down can find before it removes anything. It changes nothing.
// Of several databases all are to be asked first: one that is taken down leaves the others with work that needs it.
func CheckDown(ctx context.Context, log *slog.Logger, db Database, force bool) error {
	err := withSession(ctx, log, db.complete(), func(s *session) error {
		look, err := s.db.inspect(ctx, s.pool)
		if err != nil || !look.registry {
			return err
		}
		return s.refuse(ctx, look, force)
	})
	return problem.Doing(err, "migrate database %s down", db.Name)
}

// refuse tells why nothing may be removed.
func (s *session) refuse(ctx context.Context, look inspection, force bool) error {
	if err := s.db.fits(look); err != nil {
		return err
	}
	if err := s.refusePending(ctx, look, force, false); err != nil {
		return err
	}
	return s.refuseDependents(ctx, look)
}

func (s *session) down(ctx context.Context, force bool, report *Report) error {
	look, err := s.db.inspect(ctx, s.pool)
	if err != nil {
		return err
	}
	if !look.registry {
		return nil
	}
	if err := s.refuse(ctx, look, force); err != nil {
		return err
	}
	if report.Triggers, err = s.uninstallTriggers(ctx); err != nil {
		return err
	}
	// Until the triggers were gone the application went on deleting.
	if err := s.refusePending(ctx, look, force, true); err != nil {
		return err
	}
	components := allComponents()
	slices.Reverse(components)
	for _, c := range components {
		if !look.installed(s.db, c) {
			continue
		}
		applied, err := c.down(ctx, s, look)
		from := look.versions[c.name]
		report.Components = append(report.Components, ComponentReport{Component: c.name, From: from, To: from - int64(len(applied)), Applied: applied})
		if err != nil {
			return s.db.explain(look, fmt.Errorf("remove %s: %w", c.name, err), asOwner)
		}
		s.logApplied(ctx, c, "down", applied)
	}
	if err := s.refuseLeftovers(ctx, look); err != nil {
		return err
	}
	if err := s.revokeOwner(ctx, look); err != nil {
		return err
	}
	report.SchemaKept, err = s.dropRegistry(ctx, look)
	return s.db.explain(look, err, asOwner)
}

// refuseLeftovers keeps the registry while tables that it lists are there: without their version table,
// which must have been dropped by hand, no migration feels responsible for them.
func (s *session) refuseLeftovers(ctx context.Context, before inspection) error {
	look, err := s.db.inspect(ctx, s.pool)
	if err != nil {
		return err
	}
	var left []string
	for _, c := range allComponents() {
		for _, name := range c.relations() {
			id := identity(s.db.JobsSchema, name)
			ours := before.ownsRelation(id) || c.name == River && before.installed(s.db, c)
			if ours && name != versionTable(c.name) && slices.Contains(look.relations, name) {
				left = append(left, id)
			}
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("remove tables %q: their versions have been removed by hand; drop these tables and run the command again", left)
	}
	return nil
}

// refusePending counts the work that Down would throw away.
func (s *session) refusePending(ctx context.Context, look inspection, force, triggersRemoved bool) error {
	if force {
		return nil
	}
	var waiting []string
	for _, c := range allComponents() {
		// Of a queue that the application has brought along the registry knows nothing.
		there := look.tracked[c.queue].there()
		if c.pending.table != c.queue {
			there = slices.Contains(look.relations, c.pending.table)
		}
		if id := s.db.pendingID(c); there && look.owns("table", id) {
			var count int64
			if err := s.pool.QueryRow(ctx, "SELECT pg_catalog.count(*) FROM "+id+" WHERE "+c.pending.condition).Scan(&count); err != nil {
				return fmt.Errorf("count what waits for %s: %w", c.name, err)
			}
			if count > 0 {
				waiting = append(waiting, fmt.Sprintf("database %s still has "+c.pending.said, s.db.Name, count))
			}
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	if triggersRemoved {
		waiting[len(waiting)-1] += "; the triggers are already removed, so deletions are no longer recorded"
	}
	return errors.New(strings.Join(waiting, "; "))
}

func (s *session) uninstallTriggers(ctx context.Context) (*triggers.Report, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	report, err := triggers.Uninstall(ctx, conn.Conn(), triggers.Config{
		JobsSchema: s.db.JobsSchema, TrackedSchema: s.db.TrackedSchema, Waits: waits(ctx, s.log, "triggers"),
	})
	return &report, err
}

// refuseDependents comes before anything is removed: without its triggers but with its tables, Sexton would
// look well and record nothing.
func (s *session) refuseDependents(ctx context.Context, look inspection) error {
	deletionTables, views := []string{}, []string{}
	for _, c := range allComponents() {
		if id := s.db.queueID(c); look.owns("table", id) {
			deletionTables = append(deletionTables, c.queue)
		}
	}
	for o := range look.objects {
		if o.kind == "view" {
			views = append(views, o.identity)
		}
	}
	objects, err := list(ctx, s.pool, "dependents", pgx.RowTo[string], sqlText("dependents"), s.db.JobsSchema, s.db.TrackedSchema, deletionTables, views)
	if err != nil {
		return err
	}
	if len(objects) > 0 {
		return fmt.Errorf("database %s: %s depend on Sexton's tables; nothing was changed: drop them first", s.db.Name, strings.Join(objects, ", "))
	}
	return nil
}

// dropRegistry drops the version tables, the registry and the schema, in one transaction, so that what
// is left is either registered or gone.
func (s *session) dropRegistry(ctx context.Context, look inspection) (schemaKept bool, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		for _, c := range allComponents() {
			if c.name == River || !look.installed(s.db, c) {
				continue
			}
			if _, err := tx.Exec(ctx, "DROP TABLE IF EXISTS "+pgx.Identifier{s.db.JobsSchema, versionTable(c.name)}.Sanitize()); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(ctx, "DROP TABLE "+s.db.registry()); err != nil {
			return err
		}
		if !look.owns("schema", s.db.JobsSchema) {
			return nil
		}
		schemaKept, err = dropSchema(ctx, tx, s.db.JobsSchema)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("remove list of objects: %w", err)
	}
	if schemaKept {
		s.log.WarnContext(ctx, "schema_kept", slog.String("database", s.db.Name), slog.String("schema", s.db.JobsSchema),
			slog.String("reason", "it holds objects that Sexton did not create"))
	}
	return schemaKept, nil
}

// dropSchema drops the schema if it is empty.
func dropSchema(ctx context.Context, tx pgx.Tx, schema string) (kept bool, err error) {
	err = pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
		_, err := nested.Exec(ctx, "DROP SCHEMA "+quote(schema)+" RESTRICT")
		return err
	})
	if pgcatalog.SQLState(err) == "2BP01" {
		return true, nil
	}
	return false, err
}

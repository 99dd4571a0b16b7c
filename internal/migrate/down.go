package migrate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/problem"
	"sexton/triggers"
)

// Down removes all of Sexton's objects: the triggers table by table, then the rest in one
// transaction. In the tracked schema it removes the objects whose comments begin with
// "Sexton:".
//
// If work is pending or undo has saved deletions, Down returns an error unless force is
// set. If other objects depend on Sexton's objects, it always returns an error. It
// returns a *SchemaError if the schema is newer than this program.
func Down(ctx context.Context, log *slog.Logger, db Database, force bool) (Report, error) {
	report := Report{Database: db.Name, Components: []ComponentReport{}}
	err := withSession(ctx, log, db.complete(), func(s *session) error { return s.down(ctx, force, &report) })
	return report, problem.Doing(err, "migrate database %s down", db.Name)
}

// CheckDown returns the errors that Down can detect before it removes anything. If there
// are several databases, call CheckDown for all of them before the first Down, because
// pending work of one database may need another database.
func CheckDown(ctx context.Context, log *slog.Logger, db Database, force bool) error {
	err := withSession(ctx, log, db.complete(), func(s *session) error {
		snap, err := s.db.readSnapshot(ctx, s.pool)
		if err != nil {
			return err
		}
		return s.refuse(ctx, snap, force)
	})
	return problem.Doing(err, "migrate database %s down", db.Name)
}

// refuse returns the reason why Down must not remove anything, or nil.
func (s *session) refuse(ctx context.Context, snap snapshot, force bool) error {
	if err := s.db.fits(snap); err != nil {
		return err
	}
	if err := s.refusePending(ctx, s.pool, snap, force, ""); err != nil {
		return err
	}
	return s.refuseDependents(ctx)
}

func (s *session) down(ctx context.Context, force bool, report *Report) error {
	snap, err := s.db.readSnapshot(ctx, s.pool)
	if err != nil {
		return err
	}
	if err := s.refuse(ctx, snap, force); err != nil {
		return err
	}
	if snap.hasSchema {
		if report.Triggers, err = s.uninstallTriggers(ctx); err != nil {
			return err
		}
	}
	removed := false
	err = s.change(ctx, func(tx pgx.Tx) error {
		// The check is repeated, because the application may have deleted rows while the
		// triggers were being removed.
		const recorded = "; the triggers are already removed, so deletions are no longer recorded"
		if err := s.refusePending(ctx, tx, snap, force, recorded); err != nil {
			return err
		}
		statements, err := list(ctx, tx, "objects", pgx.RowTo[string], sqlText("tracked_drops"), s.db.TrackedSchema,
			queues())
		if err != nil {
			return err
		}
		removed = snap.hasSchema || len(statements) > 0
		// The privileges are revoked before the functions are dropped, because the bodies
		// of the functions name the application's rules.
		if err := s.revokeOwner(ctx, tx); err != nil {
			return err
		}
		if snap.hasSchema {
			statements = append(statements, "DROP SCHEMA "+schema+" CASCADE")
		}
		return execAll(ctx, tx, statements)
	})
	if err != nil || !removed {
		return s.db.explain(snap, err, asOwner)
	}
	components := allComponents()
	slices.Reverse(components)
	for _, c := range components {
		from := snap.versions[c.name]
		applied := slices.DeleteFunc(c.migrations(), func(m Migration) bool { return m.Version > from })
		slices.Reverse(applied)
		if from > 0 {
			report.Components = append(report.Components,
				ComponentReport{Component: c.name, From: from, Applied: applied})
		}
		s.logApplied(ctx, c, "down", applied)
	}
	return nil
}

// refusePending returns an error with the number of rows of pending work, or nil.
func (s *session) refusePending(ctx context.Context, on querier, snap snapshot, force bool, remark string) error {
	if force {
		return nil
	}
	var waiting []string
	for _, c := range allComponents() {
		table, name := snap.own[c.pending.table], identity(schema, c.pending.table)
		if c.queue != "" && c.pending.table == c.queue {
			table, name = snap.tracked[c.queue], s.db.queueID(c)
		}
		// Down keeps a queue that the application created, so its rows are not lost.
		if !table.exists() || !table.ours {
			continue
		}
		count, err := list(ctx, on, "pending work of "+c.name, pgx.RowTo[int64],
			"SELECT pg_catalog.count(*) FROM "+name+" WHERE "+c.pending.condition)
		if err != nil {
			return err
		}
		if count[0] > 0 {
			waiting = append(waiting, fmt.Sprintf("database %s still has "+c.pending.message, s.db.Name, count[0]))
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	return errors.New(strings.Join(waiting, "; ") + remark)
}

func (s *session) uninstallTriggers(ctx context.Context) (*triggers.Report, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	defer conn.Release()
	report, err := triggers.Uninstall(ctx, conn.Conn(), triggers.Config{
		TrackedSchema: s.db.TrackedSchema, Waits: waits(ctx, s.log),
	})
	return &report, err
}

// refuseDependents returns an error if other objects depend on Sexton's objects. It is
// called before anything is removed: with its tables but without its triggers, Sexton
// would record no deletions and report no error.
func (s *session) refuseDependents(ctx context.Context) error {
	objects, err := list(ctx, s.pool, "dependents", pgx.RowTo[string], sqlText("dependents"), s.db.TrackedSchema,
		queues())
	if err != nil {
		return err
	}
	if len(objects) > 0 {
		return fmt.Errorf("database %s: %s depend on Sexton's objects; nothing was changed: drop them first", s.db.Name,
			strings.Join(objects, ", "))
	}
	return nil
}

// queues returns the tables of the tracked schema that Sexton may have created.
func queues() (names []string) {
	for _, c := range allComponents() {
		if c.queue != "" {
			names = append(names, c.queue)
		}
	}
	return names
}

package triggers

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// Uninstall drops every trigger that runs one of our functions, on whatever table, and then the
// functions. From its return on deletions go unrecorded; tombstones already written stay.
//
// A table that cannot be locked is reported as *LockError after the others are done, and keeps the
// functions alive. Where Sexton is not installed, nothing happens.
func Uninstall(ctx context.Context, conn *pgx.Conn, cfg Config) (Report, error) {
	report := newReport()
	cfg, err := cfg.withDefaults()
	if err != nil {
		return report, err
	}
	err = locked(ctx, conn, func() error { return cfg.uninstall(ctx, conn, &report) })
	if err != nil {
		return report, fmt.Errorf("uninstall triggers: %w", err)
	}
	return report, nil
}

func (c Config) uninstall(ctx context.Context, conn *pgx.Conn, report *Report) error {
	var look inspection
	err := inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) (err error) {
		if look.footing, err = c.footing(ctx, tx); err != nil || !look.Registry {
			return err
		}
		return c.present(ctx, tx, &look)
	})
	if err != nil || !look.Registry {
		return err
	}
	// First, so that it puts no trigger on another partition while the others go.
	drop := false
	c.EventTrigger = &drop
	if err := c.installEvent(ctx, conn, look.event, report); err != nil {
		return err
	}
	if err := c.eachTable(ctx, conn, look.triggers, true, dropTriggers, func(t target) {
		report.Triggers = append(report.Triggers, Change{Table: t.Display, Trigger: t.Trigger, Action: Dropped})
	}); err != nil {
		return err
	}
	return c.dropFunctions(ctx, conn, look.registered, report)
}

func dropTriggers(ctx context.Context, tx pgx.Tx, triggers []target) error {
	for _, t := range triggers {
		statement := fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", quoteIdent(t.Trigger), pgx.Identifier{t.Schema, t.Table}.Sanitize())
		if _, err := tx.Exec(ctx, statement); err != nil {
			fix := ""
			if sqlState(err) == "42501" {
				fix = " (only the table's owner may: connect as that role)"
			}
			return fmt.Errorf("drop trigger %s on %s%s: %w", t.Trigger, t.Display, fix, err)
		}
	}
	return nil
}

// dropFunctions drops the functions together with their entries among Sexton's objects.
func (c Config) dropFunctions(ctx context.Context, conn *pgx.Conn, functions map[uint32]string, report *Report) error {
	return inTx(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
		for _, name := range functions {
			statement := fmt.Sprintf("DROP FUNCTION %s()", pgx.Identifier{c.JobsSchema, name}.Sanitize())
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("drop function %s: %w", name, err)
			}
			report.Functions = append(report.Functions, name)
		}
		slices.Sort(report.Functions)
		statement := fmt.Sprintf("DELETE FROM %s.objects WHERE component = 'triggers'", quoteIdent(c.JobsSchema))
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("remove functions from the list of objects: %w", err)
		}
		return nil
	})
}

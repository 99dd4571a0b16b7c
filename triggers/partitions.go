package triggers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// EnsurePartitions adds triggers to partitions that lack one which their root has, and returns the names
// of those partitions. It is made to be called often: where nothing is to do, it costs one catalogue
// query and no lock; where another installer is at work, it leaves the work to that one.
//
// It corrects nothing else. Parents that do not exist or have no triggers yet are passed over.
func EnsurePartitions(ctx context.Context, conn *pgx.Conn, cfg Config, parents []Parent) (installed []string, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg.LockAttempts = 1 // The next call is the retry.
	var lacking bool
	schemas, tables, _ := columnsOf(parents)
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlText("queries/new_partitions"), schemas, tables, cfg.JobsSchema).Scan(&lacking)
	})
	if err != nil {
		return nil, fmt.Errorf("look up new partitions: %w", err)
	}
	if !lacking {
		return nil, nil
	}
	err = tryLocked(ctx, conn, func() error {
		targets, problems, err := cfg.lackingTargets(ctx, conn, parents)
		if err != nil {
			return err
		}
		report := newReport()
		err = cfg.installTriggers(ctx, conn, targets, &report)
		for _, change := range report.Triggers {
			if !slices.Contains(installed, change.Table) {
				installed = append(installed, change.Table)
			}
		}
		return errors.Join(append(problems, err)...)
	})
	if err != nil {
		return installed, fmt.Errorf("install triggers on new partitions: %w", err)
	}
	return installed, nil
}

// lackingTargets returns the triggers that partitions lack and their roots have. A parent that cannot
// be tracked is no reason to leave the others' partitions alone: what is wrong with partitions comes
// back as problems, what is wrong with parents is for Status to tell.
func (c Config) lackingTargets(ctx context.Context, conn *pgx.Conn, parents []Parent) (lacking []target, problems []error, err error) {
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		found, _, err := resolve(ctx, tx, parents)
		if err != nil {
			return err
		}
		targets, err := c.targets(ctx, tx, found)
		if err != nil {
			return err
		}
		onRoot := map[string]bool{}
		for _, t := range targets {
			switch {
			case t.OID == t.parent.oid:
				onRoot[t.parent.recorded+t.Trigger] = t.present && !c.foreign(t)
			case t.present || !onRoot[t.parent.recorded+t.Trigger]:
			case t.relkind == "f":
				problems = append(problems, t.foreignTable())
			default:
				lacking = append(lacking, t)
			}
		}
		return nil
	})
	return lacking, problems, err
}

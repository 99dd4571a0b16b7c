package triggers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// EnsurePartitions adds the triggers of partitioned parents to partitions that do not
// have them, and returns the names of these partitions. It may be called often: if no
// trigger is missing, it costs one query of the catalog and no lock. If another installer
// is running, it returns an error and changes nothing.
//
// EnsurePartitions ignores parents that do not exist or have no triggers.
func EnsurePartitions(ctx context.Context, conn *pgx.Conn, cfg Config,
	parents []Parent,
) (installed []string, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg.LockAttempts = 1 // There is only one attempt, because the next run calls EnsurePartitions again.
	var lacking bool
	schemas, tables, _ := columnsOf(parents)
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlText("queries/new_partitions"), schemas, tables, pgcatalog.Schema).Scan(&lacking)
	})
	if err != nil {
		return nil, fmt.Errorf("read new partitions: %w", err)
	}
	if !lacking {
		return nil, nil
	}
	holders, err := tryLock(ctx, conn, installLock)
	switch {
	case err != nil:
		return nil, fmt.Errorf("lock out other trigger installations: %w", err)
	case holders != "":
		return nil, fmt.Errorf("the lock for trigger installation is held by %s", holders)
	}
	defer unlock(ctx, conn)
	targets, problems, err := cfg.lackingTargets(ctx, conn, parents)
	if err == nil {
		report := newReport()
		err = cfg.installTriggers(ctx, conn, targets, &report)
		for _, change := range report.Triggers {
			if !slices.Contains(installed, change.Table) {
				installed = append(installed, change.Table)
			}
		}
	}
	if err := errors.Join(append(problems, err)...); err != nil {
		return installed, fmt.Errorf("install triggers on new partitions: %w", err)
	}
	return installed, nil
}

// lackingTargets returns the triggers that roots have and their partitions lack, and the
// problems with partitions. It ignores parents that cannot be tracked, which Status
// reports.
func (c Config) lackingTargets(ctx context.Context, conn *pgx.Conn,
	parents []Parent,
) (lacking []target, problems []error, err error) {
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		found, _, err := resolve(ctx, tx, parents)
		if err != nil {
			return err
		}
		targets, err := c.targets(ctx, tx, found)
		if err != nil {
			return err
		}
		resolved := make([]Parent, len(found))
		for i, parent := range found {
			resolved[i] = parent.Parent
		}
		other, err := c.otherKeys(ctx, tx, resolved)
		if err != nil {
			return err
		}
		onRoot := map[slot]target{}
		for _, t := range targets {
			root := onRoot[slot{t.parent.oid, t.Trigger}]
			key := other[slices.Index(found, t.parent)]
			switch {
			case t.OID == t.parent.oid:
				onRoot[t.slot()] = t
			case t.present || !root.present || c.foreign(root):
			case t.relkind == "f":
				problems = append(problems, t.foreignTable())
			case key.Table == root.Display && !key.TypeOnly:
				problems = append(problems, fmt.Errorf("track partition %s: the trigger on %s records another key",
					t.Display, root.Display))
			default:
				lacking = append(lacking, t.like(root))
			}
		}
		return nil
	})
	return lacking, problems, err
}

// like returns t changed to run the same function as its root's trigger. The expected
// function may not exist, for example between a restore and the next Install.
func (t target) like(root target) target {
	t.runs = root.functionName
	if root.otherClass() {
		// The function is for another class of keys. An invalid type makes it build its
		// statement from the catalog.
		t.arguments[2] = "0"
	}
	return t
}

// OtherKey describes a trigger that records another key than the key of the parent.
type OtherKey struct {
	// Table is the table with the trigger: the parent, or one of its partitions.
	Table string
	// TypeOnly reports that the columns are the same and only their type has changed.
	TypeOnly bool
}

// OtherKeys returns, by the index of the parent, a table whose trigger records other
// columns than the parent's key, because of an earlier or later definition. If a worker
// read its tombstones as the parent's key, it would delete children of parents that still
// exist. A renamed column counts as the same column. Tables without a trigger are
// ignored.
func OtherKeys(ctx context.Context, conn *pgx.Conn, cfg Config, parents []Parent) (map[int]OtherKey, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	var other map[int]OtherKey
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		other, err = cfg.otherKeys(ctx, tx, parents)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read recorded keys: %w", err)
	}
	return other, nil
}

func (c Config) otherKeys(ctx context.Context, tx pgx.Tx, parents []Parent) (map[int]OtherKey, error) {
	indexes := []int{}
	for index, parent := range parents {
		for range parent.KeyColumns {
			indexes = append(indexes, index)
		}
	}
	schemas, tables, columns := columnsOf(parents)
	rows, _ := tx.Query(ctx, sqlText("queries/track_functions"), indexes, schemas, tables, columns, pgcatalog.Schema)
	other := map[int]OtherKey{}
	var index int
	var table, function string
	var same *bool
	var otherType bool
	_, err := pgx.ForEachRow(rows, []any{&index, &table, &function, &same, &otherType}, func() error {
		sameColumns := records(function, parents[index].KeyColumns)
		if same != nil {
			sameColumns = *same
		}
		if known, found := other[index]; (!found || known.TypeOnly) && (!sameColumns || otherType) {
			other[index] = OtherKey{Table: table, TypeOnly: sameColumns}
		}
		return nil
	})
	return other, err
}

// records reports whether a function records these columns, with any types.
func records(function string, keyColumns []string) bool {
	for _, class := range []keyClass{bigintKey, textKey, compositeKey} {
		for _, keeps := range []Keeps{KeepsNone, KeepsAll, KeepsBelow} {
			if strings.HasPrefix(function, trackName(keyColumns, class, keeps)+"_") {
				return true
			}
		}
	}
	return false
}

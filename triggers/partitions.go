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

// EnsurePartitions adds triggers to partitions that lack one which their root has, for
// the root's function, and returns the names of those partitions. It is made to be called
// often: where nothing is to do, it costs one catalogue query and no lock; where another
// installer is at work, it says so and leaves the work to that one.
//
// It corrects nothing else. Parents that do not exist or have no triggers yet are passed
// over.
func EnsurePartitions(ctx context.Context, conn *pgx.Conn, cfg Config,
	parents []Parent,
) (installed []string, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	cfg.LockAttempts = 1 // The next call is the retry.
	var lacking bool
	schemas, tables, _ := columnsOf(parents)
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sqlText("queries/new_partitions"), schemas, tables, pgcatalog.Schema).Scan(&lacking)
	})
	if err != nil {
		return nil, fmt.Errorf("look up new partitions: %w", err)
	}
	if !lacking {
		return nil, nil
	}
	holders, err := tryLock(ctx, conn, installLock)
	switch {
	case err != nil:
		return nil, fmt.Errorf("look for other installers of triggers: %w", err)
	case holders != "":
		return nil, fmt.Errorf("the lock of installers of triggers is held by %s", holders)
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

// lackingTargets returns the triggers that partitions lack and their roots have. A parent
// that cannot be tracked is no reason to leave the others' partitions alone: what is
// wrong with partitions comes back as problems, what is wrong with parents is for Status
// to tell.
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

// like has a partition's trigger run the function that its root's runs, which need not be
// the one that belongs there: after a restore, for one, that does not exist before the
// next Install.
func (t target) like(root target) target {
	t.runs = root.functionName
	if root.otherClass() {
		// No type at all: the function is for another kind of keys, and puts its
		// statement together by the catalogue.
		t.arguments[2] = "0"
	}
	return t
}

// OtherKey says how what a trigger records differs from a parent's key.
type OtherKey struct {
	// Table is the one with the trigger: the parent, or one of its partitions.
	Table string
	// TypeOnly reports that it is the parent's columns, whose type has become another
	// since.
	TypeOnly bool
}

// OtherKeys returns, by the place of the parent, a table whose trigger records other
// columns than the parent's key: that of an earlier definition, or of a later one. Read
// as the parent's key, its tombstones would lead to the children of rows that live. A
// column that has only been renamed is the same one. Tables without a trigger record
// nothing and are passed over.
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
		return nil, fmt.Errorf("look up recorded keys: %w", err)
	}
	return other, nil
}

func (c Config) otherKeys(ctx context.Context, tx pgx.Tx, parents []Parent) (map[int]OtherKey, error) {
	places := []int{}
	for place, parent := range parents {
		for range parent.KeyColumns {
			places = append(places, place)
		}
	}
	schemas, tables, columns := columnsOf(parents)
	rows, _ := tx.Query(ctx, sqlText("queries/track_functions"), places, schemas, tables, columns, pgcatalog.Schema)
	other := map[int]OtherKey{}
	var place int
	var table, function string
	var same *bool
	var otherType bool
	_, err := pgx.ForEachRow(rows, []any{&place, &table, &function, &same, &otherType}, func() error {
		sameColumns := records(function, parents[place].KeyColumns)
		if same != nil {
			sameColumns = *same
		}
		if known, is := other[place]; (!is || known.TypeOnly) && (!sameColumns || otherType) {
			other[place] = OtherKey{Table: table, TypeOnly: sameColumns}
		}
		return nil
	})
	return other, err
}

// records reports whether a function is one that records these columns, whatever their
// types are.
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

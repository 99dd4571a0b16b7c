package triggers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// keepFunction returns the function of a trigger that saves the rows that native foreign
// keys delete or change, and "" for other triggers.
func keepFunction(trigger string) string {
	switch trigger {
	case KeepTrigger:
		return "keep_deleted"
	case KeepUpdateTrigger:
		return "keep_changed"
	}
	return ""
}

// keepsRows reports whether the trigger is sexton_keep or sexton_keep_update.
func (t target) keepsRows() bool { return keepFunction(t.Trigger) != "" }

// Cascade is a native foreign key that deletes or changes rows of Table when rows of
// Above are deleted. The rows of Above are saved for `sexton undo`.
type Cascade struct {
	Table, Constraint, Above string
	// From holds the tracked parents and the children of definitions whose deletions
	// reach the table, over any number of native keys.
	From []string
	// Action is CASCADE, SET NULL or SET DEFAULT.
	Action string
	// Uncovered is the reason why undo does not restore the rows of Table. It is empty if
	// a trigger saves these rows. Fix is the statement or the change that makes undo
	// restore them.
	Uncovered, Fix string
}

// cascade is a row of cascades.sql.
type cascade struct {
	relation

	Constraint, Above string
	From              []string
	Action            string
	Tracked, Keyed    bool
	// Spared reports that rows of the table are never saved.
	Spared bool
}

// trigger returns the name of the trigger that saves, for undo, the rows that the foreign
// key's action deletes or changes. It returns "" if the table's tracking trigger saves
// them, or if no trigger can.
func (c cascade) trigger() string {
	switch {
	case c.Spared:
	case c.Action == "c" && !c.Tracked:
		return KeepTrigger
	case c.Keyed && c.Action != "c":
		return KeepUpdateTrigger
	}
	return ""
}

// Cascades returns the native foreign keys below the tables whose rows are saved: parents
// with Undo, and the tables of cfg.Undo.Children.
func Cascades(ctx context.Context, conn *pgx.Conn, cfg Config, parents []Parent) (list []Cascade, err error) {
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		found, targets, err := cfg.keepTargets(ctx, tx, parents)
		for _, c := range found {
			action := map[string]string{"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}[c.Action]
			one := Cascade{Table: c.Display, Constraint: c.Constraint, Above: c.Above, From: c.From, Action: action}
			at := slices.IndexFunc(targets, func(t target) bool { return t.OID == c.OID && t.Trigger == c.trigger() })
			switch {
			case c.Spared && !slices.Contains(cfg.Undo.Excluded, Table{c.Schema, c.Table}):
				one.Uncovered, one.Fix = "rows of users are not kept",
					"set loose_foreign_keys.undo.users: true to restore them"
			case c.Spared:
				one.Uncovered, one.Fix = "its rows are not kept",
					"remove it from loose_foreign_keys.undo.exclude_tables to restore them"
			case c.Action != "c" && !c.Keyed:
				one.Uncovered, one.Fix = "old values are kept only for tables with a primary key",
					"add a primary key, or make it a loose foreign key"
			case at < 0 || cfg.upToDate(targets[at]):
			case !targets[at].mayTrigger:
				one.Uncovered = "the role may not create a trigger on the table"
				one.Fix = fmt.Sprintf("GRANT TRIGGER ON TABLE %s to the role that runs `sexton triggers install`, and run it, or make it a loose foreign key",
					c.Display)
			default:
				finding, _ := cfg.compare(targets[at])
				one.Uncovered, one.Fix = strings.Join([]string{"trigger", string(finding.Kind) + ":", finding.Trigger},
					" "), finding.Fix
			}
			list = append(list, one)
		}
		return err
	})
	return list, err
}

// keepTargets returns the native foreign keys below tables whose rows are saved, and the
// triggers that save the rows that these keys delete or change.
func (c Config) keepTargets(ctx context.Context, tx pgx.Tx,
	parents []Parent,
) (found []cascade, targets []target, err error) {
	schemas, tables, tracked := []string{}, []string{}, []bool{}
	for _, p := range parents {
		if p.Undo != KeepsNone {
			schemas, tables, tracked = append(schemas, p.Schema), append(tables, p.Table), append(tracked, true)
		}
	}
	for _, child := range c.Undo.Children {
		schemas, tables, tracked = append(schemas, child.Schema), append(tables, child.Name), append(tracked, false)
	}
	if len(schemas) == 0 {
		return nil, nil, nil
	}
	var sparedSchemas, spared []string
	for _, table := range append(slices.Clone(c.Undo.Excluded), c.Undo.Users) {
		sparedSchemas, spared = append(sparedSchemas, table.Schema), append(spared, table.Name)
	}
	rows, _ := tx.Query(ctx, sqlText("queries/cascades"), schemas, tables, tracked, sparedSchemas, spared)
	if found, err = pgx.CollectRows(rows, pgx.RowToStructByPos[cascade]); err != nil {
		return nil, nil, fmt.Errorf("read native foreign keys: %w", err)
	}
	// Rows of the queue of users are not saved, because a restored row would delete the
	// user again.
	found = slices.DeleteFunc(found, func(one cascade) bool {
		return one.Schema == c.TrackedSchema && one.Table == "users_ghost_user_migrations"
	})
	var oids []uint32
	var names []string
	for i, one := range found {
		known := slices.ContainsFunc(found[:i], func(other cascade) bool {
			return other.OID == one.OID &&
				other.trigger() == one.trigger()
		})
		if one.trigger() != "" && !known {
			oids, names = append(oids, one.OID), append(names, one.trigger())
		}
	}
	targets, err = readTargets(ctx, tx, "triggers that keep rows", "keeps", oids, names)
	return found, targets, err
}

// dropUnused drops the triggers that save rows but are no longer needed, and then the
// functions that are no longer needed and that no trigger runs. It does not drop objects
// of other roles, which Status reports.
func (c Config) dropUnused(ctx context.Context, conn *pgx.Conn, snap snapshot, report *Report) error {
	surplus := slices.DeleteFunc(slices.Clone(snap.triggers), func(t target) bool {
		return !t.keepsRows() || slices.ContainsFunc(snap.targets, func(w target) bool { return w.slot() == t.slot() })
	})
	for _, t := range surplus {
		err := c.eachTable(ctx, conn, []target{t}, true, dropTriggers, func(t target) {
			report.Triggers = append(report.Triggers, Change{Table: t.Display, Trigger: t.Trigger, Action: Dropped})
			report.Surplus = slices.DeleteFunc(report.Surplus,
				func(f Finding) bool { return f.Table == t.Display && f.Trigger == t.Trigger })
		})
		if err != nil && sqlState(err) != "42501" {
			return err
		}
	}
	for _, name := range snap.registered {
		wanted := slices.ContainsFunc(snap.functions, func(f function) bool { return f.name == name })
		runs := slices.ContainsFunc(snap.triggers, func(t target) bool {
			moved := slices.ContainsFunc(report.Triggers,
				func(change Change) bool { return change.Table == t.Display && change.Trigger == t.Trigger })
			return t.functionName == name && !moved
		})
		if wanted || runs {
			continue
		}
		err := inTx(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
			return execAll(ctx, tx, "drop function "+name, []string{
				fmt.Sprintf("DROP FUNCTION %s()", pgx.Identifier{pgcatalog.Schema, name}.Sanitize()),
			})
		})
		// The error 2BP01 means that a trigger on a new partition was created after the
		// snapshot.
		if err != nil && sqlState(err) != "42501" && sqlState(err) != "2BP01" {
			return err
		}
	}
	return nil
}

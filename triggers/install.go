package triggers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

// Install creates or corrects the functions and triggers of the parents and their
// partitions, and the wake triggers. It reports and leaves unneeded triggers that record
// deletions or wake workers. It drops unneeded triggers that save rows, and functions
// that no trigger runs.
//
// Install is idempotent, and several installers may run concurrently. Every table has its
// own transaction. If a table cannot be locked, Install returns a *LockError after it has
// changed the other tables. If a parent cannot be tracked, or a trigger with Sexton's
// name runs another function, Install changes nothing.
//
// The connection must be direct. A transaction pooler would lose the session's advisory
// lock.
func Install(ctx context.Context, conn *pgx.Conn, cfg Config, parents []Parent) (Report, error) {
	report := newReport()
	cfg, err := cfg.withDefaults()
	if err != nil {
		return report, err
	}
	err = cfg.locked(ctx, conn, func() error {
		snap, err := cfg.prepare(ctx, conn, parents)
		if err != nil {
			return err
		}
		report.Surplus = slices.Clone(snap.surplus)
		if err := cfg.installFunctions(ctx, conn, snap, &report); err != nil {
			return err
		}
		return errors.Join(cfg.installTriggers(ctx, conn, snap.targets, &report),
			cfg.dropUnused(ctx, conn, snap, &report))
	})
	if err != nil {
		return report, fmt.Errorf("install triggers: %w", err)
	}
	return report, nil
}

// prepare reads the catalog, and returns the errors that can be detected before any
// change.
func (c Config) prepare(ctx context.Context, conn *pgx.Conn, parents []Parent) (snapshot, error) {
	var snap snapshot
	err := inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		if err := c.readSnapshot(ctx, tx, &snap, parents, true); err != nil {
			return err
		}
		var problems []error
		for _, t := range snap.targets {
			problems = append(problems, c.refuse(ctx, tx, t, snap.Role))
		}
		return errors.Join(problems...)
	})
	return snap, err
}

// refuse returns the reason why a trigger cannot be installed, or nil.
func (c Config) refuse(ctx context.Context, tx pgx.Tx, t target, role string) error {
	if c.foreign(t) {
		finding, _ := c.compare(t)
		return fmt.Errorf("create trigger %s on %s: %s; %s", t.Trigger, t.Display, finding.Detail, finding.Fix)
	}
	if c.upToDate(t) {
		return nil
	}
	if err := c.refuseOtherKey(ctx, tx, t); err != nil {
		return err
	}
	if !t.mayTrigger {
		return &PrivilegeError{
			Role: role, Missing: "TRIGGER on table " + t.Display,
			Grant: fmt.Sprintf("GRANT TRIGGER ON TABLE %s TO %s", t.Display, quoteIdent(role)),
		}
	}
	return nil
}

// refuseOtherKey returns an error if a parent's key changes while it has pending
// tombstones. The tombstones have the old key. If a worker read them as the new key, it
// would delete children of parents that still exist.
func (c Config) refuseOtherKey(ctx context.Context, tx pgx.Tx, t target) error {
	if t.Trigger != TrackTrigger || t.functionSchema != pgcatalog.Schema || t.functionName == "" || c.SameKey {
		return nil
	}
	other, err := c.otherKeys(ctx, tx, []Parent{t.parent.Parent})
	if found, differs := other[0]; err != nil || !differs || found.TypeOnly {
		return err
	}
	var pending bool
	sql := "SELECT EXISTS (SELECT FROM " + c.tombstones() + " WHERE fully_qualified_table_name = $1 AND status = 1)"
	if err := tx.QueryRow(ctx, sql, t.parent.recorded).Scan(&pending); err != nil {
		return fmt.Errorf("query tombstones of %s: %w", t.parent.recorded, err)
	}
	if pending {
		return fmt.Errorf("create trigger %s on %s: there are pending tombstones with another key than %s; let a worker whose definitions name "+
			"that key (parent_column) finish them first, or, if both keys have the same values, use --same-key",
			t.Trigger, t.Display, t.parent.keyLabel())
	}
	return nil
}

// upToDate reports whether a trigger needs no change. A trigger that does not fire ALWAYS
// counts as up to date if the role cannot change that because it does not own the table.
func (c Config) upToDate(t target) bool {
	finding, differs := c.compare(t)
	return !differs || finding.Kind == Plain && !t.owned
}

// installFunctions creates or replaces the functions that differ.
func (c Config) installFunctions(ctx context.Context, conn *pgx.Conn, snap snapshot, report *Report) error {
	differs := map[string]bool{}
	for _, finding := range snap.functionFindings {
		differs[finding.Trigger] = true
	}
	return inTx(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
		for _, f := range snap.functions {
			if !differs[f.name] {
				continue
			}
			name := pgx.Identifier{pgcatalog.Schema, f.name}.Sanitize()
			statements := []string{
				f.create,
				fmt.Sprintf("COMMENT ON FUNCTION %s() IS %s", name, pgcatalog.Literal(f.comment)),
				fmt.Sprintf("REVOKE ALL ON FUNCTION %s() FROM PUBLIC", name),
			}
			if snap.Owner != snap.Role {
				statements = append(statements, fmt.Sprintf("ALTER FUNCTION %s() OWNER TO %s", name,
					quoteIdent(snap.Owner)))
			}
			if err := execAll(ctx, tx, "create function "+name, statements); err != nil {
				return err
			}
			report.Functions = append(report.Functions, f.name)
		}
		return nil
	})
}

// installTriggers creates or replaces the triggers that differ.
func (c Config) installTriggers(ctx context.Context, conn *pgx.Conn, targets []target, report *Report) error {
	outdated := slices.DeleteFunc(slices.Clone(targets), c.upToDate)
	report.Unchanged += len(targets) - len(outdated)
	return c.eachTable(ctx, conn, outdated, false, c.create, func(t target) {
		action := Created
		if t.present {
			action = Replaced
		}
		report.Triggers = append(report.Triggers, Change{Table: t.Display, Trigger: t.Trigger, Action: action})
	})
}

// eachTable changes the triggers table by table, and continues after an error. It calls
// done for each changed trigger.
func (c Config) eachTable(
	ctx context.Context, conn *pgx.Conn, triggers []target, exclusive bool,
	change func(context.Context, pgx.Tx, []target) error, done func(target),
) error {
	var problems []error
	for _, group := range byTable(triggers) {
		err := c.onTable(ctx, conn, group[0].relation, exclusive,
			func(tx pgx.Tx) error { return change(ctx, tx, group) })
		if err != nil {
			problems = append(problems, err)
			if ctx.Err() != nil {
				break
			}
			continue
		}
		for _, t := range group {
			done(t)
		}
	}
	return errors.Join(problems...)
}

// create creates or replaces triggers of one table. CREATE OR REPLACE ensures that the
// table is never without the trigger.
func (c Config) create(ctx context.Context, tx pgx.Tx, triggers []target) error {
	for _, t := range triggers {
		if _, err := tx.Exec(ctx, c.createTrigger(t)); err != nil {
			return fmt.Errorf("create trigger %s on %s: %w", t.Trigger, t.Display, err)
		}
		if !t.owned {
			continue
		}
		// Without ONLY, Postgres 14 would also search the partitions for the trigger,
		// which are changed one by one.
		enable := fmt.Sprintf("ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %s",
			pgx.Identifier{t.Schema, t.Table}.Sanitize(), quoteIdent(t.Trigger))
		if _, err := tx.Exec(ctx, enable); err != nil {
			return fmt.Errorf("enable trigger %s on %s: %w", t.Trigger, t.Display, err)
		}
	}
	return nil
}

// byTable groups triggers by table, in order.
func byTable(targets []target) [][]target {
	var groups [][]target
	place := map[uint32]int{}
	for _, t := range targets {
		i, seen := place[t.OID]
		if !seen {
			i = len(groups)
			place[t.OID] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], t)
	}
	return groups
}

// Uninstall drops every trigger that runs one of Sexton's functions, and then the
// functions. Afterwards deletions are not recorded any more. Existing tombstones are
// kept.
//
// If a table cannot be locked, Uninstall returns a *LockError after it has changed the
// other tables, and keeps the functions. If Sexton is not installed, it does nothing.
func Uninstall(ctx context.Context, conn *pgx.Conn, cfg Config) (Report, error) {
	report := newReport()
	cfg, err := cfg.withDefaults()
	if err != nil {
		return report, err
	}
	err = cfg.locked(ctx, conn, func() error { return cfg.uninstall(ctx, conn, &report) })
	if err != nil {
		return report, fmt.Errorf("uninstall triggers: %w", err)
	}
	return report, nil
}

func (c Config) uninstall(ctx context.Context, conn *pgx.Conn, report *Report) error {
	var snap snapshot
	err := inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) (err error) {
		if snap.prerequisites, err = c.prerequisites(ctx, tx); err != nil || !snap.Schema {
			return err
		}
		return c.present(ctx, tx, &snap)
	})
	if err != nil || !snap.Schema {
		return err
	}
	if err := c.eachTable(ctx, conn, snap.triggers, true, dropTriggers, func(t target) {
		report.Triggers = append(report.Triggers, Change{Table: t.Display, Trigger: t.Trigger, Action: Dropped})
	}); err != nil {
		return err
	}
	return c.dropFunctions(ctx, conn, snap.registered, report)
}

func dropTriggers(ctx context.Context, tx pgx.Tx, triggers []target) error {
	for _, t := range triggers {
		statement := fmt.Sprintf("DROP TRIGGER IF EXISTS %s ON %s", quoteIdent(t.Trigger),
			pgx.Identifier{t.Schema, t.Table}.Sanitize())
		if _, err := tx.Exec(ctx, statement); err != nil {
			fix := ""
			if sqlState(err) == "42501" {
				fix = " (only the table's owner may do this: connect as that role)"
			}
			return fmt.Errorf("drop trigger %s on %s%s: %w", t.Trigger, t.Display, fix, err)
		}
	}
	return nil
}

func (c Config) dropFunctions(ctx context.Context, conn *pgx.Conn, functions []string, report *Report) error {
	return inTx(ctx, conn, pgx.ReadWrite, func(tx pgx.Tx) error {
		for _, name := range functions {
			statement := fmt.Sprintf("DROP FUNCTION %s()", pgx.Identifier{pgcatalog.Schema, name}.Sanitize())
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("drop function %s: %w", name, err)
			}
			report.Functions = append(report.Functions, name)
		}
		return nil
	})
}

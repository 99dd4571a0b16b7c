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

const fixInstall = "run `sexton triggers install`"

// Status returns every difference between the installed and the expected functions and
// triggers, functions first. It returns an error if Install would refuse a parent.
func Status(ctx context.Context, conn *pgx.Conn, cfg Config, parents []Parent) ([]Finding, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	var snap snapshot
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		return cfg.readSnapshot(ctx, tx, &snap, parents, false)
	})
	if err != nil {
		return nil, fmt.Errorf("compare triggers: %w", err)
	}
	findings := append([]Finding{}, snap.functionFindings...)
	for _, t := range snap.targets {
		if finding, differs := cfg.compare(t); differs {
			findings = append(findings, finding)
		}
	}
	return append(findings, snap.surplus...), nil
}

// snapshot holds the expected and the installed objects, as read in one transaction.
type snapshot struct {
	prerequisites

	functions        []function
	functionFindings []Finding
	// registered holds the names of the installed trigger functions, and triggers holds
	// the triggers that run these functions.
	registered []string
	triggers   []target
	targets    []target
	surplus    []Finding
}

// present reads the installed functions and triggers.
func (c Config) present(ctx context.Context, tx pgx.Tx, snap *snapshot) (err error) {
	if snap.registered, err = c.registered(ctx, tx); err != nil {
		return err
	}
	snap.triggers, err = c.installed(ctx, tx, snap.registered)
	return err
}

// readSnapshot reads the installed and the expected objects. If installs is set, it also
// checks the privileges for an installation.
func (c Config) readSnapshot(
	ctx context.Context, tx pgx.Tx, snap *snapshot, parents []Parent, installs bool,
) (err error) {
	if snap.prerequisites, err = c.prerequisites(ctx, tx); err != nil {
		return err
	}
	if err := c.check(snap.prerequisites, parents, installs); err != nil {
		return err
	}
	found, problems, err := resolve(ctx, tx, parents)
	if err := errors.Join(append(problems, err)...); err != nil {
		return err
	}
	_, keeping, err := c.keepTargets(ctx, tx, parents)
	if err != nil {
		return err
	}
	keeping = slices.DeleteFunc(keeping, func(t target) bool { return !t.mayTrigger && !c.upToDate(t) })
	snap.functions = c.wantedFunctions(found, keeping)
	if snap.functionFindings, err = c.compareFunctions(ctx, tx, snap.functions); err != nil {
		return err
	}
	if snap.targets, err = c.targets(ctx, tx, found); err != nil {
		return err
	}
	for _, t := range snap.targets {
		if t.relkind == "f" {
			problems = append(problems, t.foreignTable())
		}
	}
	wakes, wrong, err := c.wakeTargets(ctx, tx)
	if err != nil {
		return err
	}
	snap.targets = slices.Concat(snap.targets, wakes, keeping)
	problems = append(problems, wrong...)
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if err := c.present(ctx, tx, snap); err != nil {
		return err
	}
	snap.surplus = surplus(snap.triggers, snap.targets)
	return nil
}

// surplus returns a finding for each of Sexton's triggers that is not among the targets.
func surplus(triggers, targets []target) []Finding {
	wanted, roots := map[slot]bool{}, map[string]bool{}
	for _, t := range targets {
		if t.parent != nil {
			roots[t.parent.recorded] = true
		}
		wanted[t.slot()] = true
	}
	found := []Finding{}
	for _, t := range triggers {
		if wanted[t.slot()] {
			continue
		}
		if roots[t.tracks] && !t.wakesWorkers() && !t.keepsRows() {
			found = append(found, Finding{
				Table: t.Display, Trigger: t.Trigger, Kind: Swapped,
				Detail: fmt.Sprintf("the trigger was created when this table was %s or a partition of it; it records deletions for that parent", t.tracks),
				Fix: fmt.Sprintf("%s for %s, and on this table: DROP TRIGGER %s ON %s", fixInstall, t.tracks,
					quoteIdent(t.Trigger), t.Display),
			})
			continue
		}
		detail, restore := "no definition names this table as parent", "restore the definition"
		switch {
		case t.keepsRows():
			detail, restore = "no rows of this table are kept for sexton undo",
				"run `sexton triggers install` as the table's owner"
		case t.wakesWorkers():
			detail, restore = "no enabled job processes this table", "enable the job"
		}
		found = append(found, Finding{
			Table: t.Display, Trigger: t.Trigger, Kind: Surplus, Detail: detail,
			Fix: fmt.Sprintf("%s, or run: DROP TRIGGER %s ON %s", restore, quoteIdent(t.Trigger), t.Display),
		})
	}
	return found
}

// compare returns the difference between an installed and the expected trigger, if there
// is one.
func (c Config) compare(t target) (Finding, bool) {
	finding := Finding{Table: t.Display, Trigger: t.Trigger, Fix: fixInstall}
	switch {
	case !t.present:
		finding.Kind, finding.Detail = Missing, "deletions are not recorded"
		switch t.Trigger {
		case TruncateTrigger:
			finding.Detail = "TRUNCATE leaves children without a parent"
		case WakeTrigger, WakeUpdateTrigger:
			finding.Detail = "new work waits for the next tick"
		case KeepTrigger, KeepUpdateTrigger:
			finding.Detail = "sexton undo does not restore the effects of foreign keys on this table"
		}
	case c.foreign(t):
		finding.Kind = Altered
		finding.Detail = fmt.Sprintf("a trigger of this name runs %s.%s, which is not a function of Sexton",
			quoteIdent(t.functionSchema), quoteIdent(t.functionName))
		finding.Fix = "drop that trigger first"
	case t.enabled == "D":
		finding.Kind, finding.Detail = Disabled, "the trigger is disabled"
	case t.enabled == "R":
		finding.Kind, finding.Detail = Disabled, "the trigger fires only under session_replication_role = replica"
	case c.alteration(t) != "":
		finding.Kind, finding.Detail = Altered, "the trigger has "+c.alteration(t)
	case t.enabled == "O":
		finding.Kind, finding.Detail = Plain, "the trigger does not fire under session_replication_role = replica"
		if !t.owned {
			finding.Fix = fmt.Sprintf("as role %s run: ALTER TABLE ONLY %s ENABLE ALWAYS TRIGGER %s",
				quoteIdent(t.owner), t.Display, t.Trigger)
		}
	default:
		return Finding{}, false
	}
	return finding, true
}

// foreign reports whether a trigger with Sexton's name runs another function than
// Sexton's.
func (c Config) foreign(t target) bool {
	prefix := "track_"
	switch {
	case t.wakesWorkers():
		prefix = "wake_"
	case t.keepsRows():
		prefix = "keep_"
	}
	return t.present && (t.functionSchema != pgcatalog.Schema || !strings.HasPrefix(t.functionName, prefix))
}

func (c Config) alteration(t target) string {
	var differences []string
	if t.functionName != t.function() {
		differences = append(differences, "another function")
	}
	if !t.eventMatches {
		differences = append(differences, "another event")
	}
	if !t.argsMatch {
		differences = append(differences, "other arguments")
	}
	return strings.Join(differences, ", ")
}

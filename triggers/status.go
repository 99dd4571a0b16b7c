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

// Status compares the database with what the parents need and returns every difference,
// functions first. It changes nothing, and fails where Install would refuse a parent.
func Status(ctx context.Context, conn *pgx.Conn, cfg Config, parents []Parent) ([]Finding, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	var look inspection
	err = inTx(ctx, conn, pgx.ReadOnly, func(tx pgx.Tx) error {
		return cfg.inspect(ctx, tx, &look, parents, false)
	})
	if err != nil {
		return nil, fmt.Errorf("compare triggers: %w", err)
	}
	findings := append([]Finding{}, look.functionFindings...)
	for _, t := range look.targets {
		if finding, differs := cfg.compare(t); differs {
			findings = append(findings, finding)
		}
	}
	return append(findings, look.surplus...), nil
}

// inspection is one consistent look at the catalogue.
type inspection struct {
	footing

	functions        []function
	functionFindings []Finding
	// registered are the functions that Sexton created, and triggers the ones that run
	// them.
	registered []string
	triggers   []target
	targets    []target
	surplus    []Finding
}

// present reads what Sexton has installed.
func (c Config) present(ctx context.Context, tx pgx.Tx, look *inspection) (err error) {
	if look.registered, err = c.registered(ctx, tx); err != nil {
		return err
	}
	look.triggers, err = c.installed(ctx, tx, look.registered)
	return err
}

// inspect looks at everything that the parents need. Where installs is set, it also asks
// whether the role may install.
func (c Config) inspect(ctx context.Context, tx pgx.Tx, look *inspection, parents []Parent, installs bool) (err error) {
	if look.footing, err = c.footing(ctx, tx); err != nil {
		return err
	}
	if err := c.usable(look.footing, parents, installs); err != nil {
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
	look.functions = c.wantedFunctions(found, keeping)
	if look.functionFindings, err = c.compareFunctions(ctx, tx, look.functions); err != nil {
		return err
	}
	if look.targets, err = c.targets(ctx, tx, found); err != nil {
		return err
	}
	for _, t := range look.targets {
		if t.relkind == "f" {
			problems = append(problems, t.foreignTable())
		}
	}
	wakes, wrong, err := c.wakeTargets(ctx, tx)
	if err != nil {
		return err
	}
	look.targets = slices.Concat(look.targets, wakes, keeping)
	problems = append(problems, wrong...)
	if err := errors.Join(problems...); err != nil {
		return err
	}
	if err := c.present(ctx, tx, look); err != nil {
		return err
	}
	look.surplus = surplus(look.triggers, look.targets)
	return nil
}

// surplus returns the triggers of ours that no target accounts for.
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
				Detail: fmt.Sprintf("the trigger is from the time when this table was %s or a part of it; deletions here are looked up there", t.tracks),
				Fix: fmt.Sprintf("%s for %s, and on this table: DROP TRIGGER %s ON %s", fixInstall, t.tracks,
					quoteIdent(t.Trigger), t.Display),
			})
			continue
		}
		detail, restore := "no definition names this table as parent", "restore the definition"
		switch {
		case t.keepsRows():
			detail, restore = "nothing that is kept for sexton undo goes with this table's rows",
				"run `sexton triggers install` as the table's owner"
		case t.wakesWorkers():
			detail, restore = "no enabled job works on this table", "enable the job"
		}
		found = append(found, Finding{
			Table: t.Display, Trigger: t.Trigger, Kind: Surplus, Detail: detail,
			Fix: fmt.Sprintf("%s, or run: DROP TRIGGER %s ON %s", restore, quoteIdent(t.Trigger), t.Display),
		})
	}
	return found
}

// compare returns how a trigger differs from what belongs there.
func (c Config) compare(t target) (Finding, bool) {
	finding := Finding{Table: t.Display, Trigger: t.Trigger, Fix: fixInstall}
	switch {
	case !t.present:
		finding.Kind, finding.Detail = Missing, "deletions go unrecorded"
		switch t.Trigger {
		case TruncateTrigger:
			finding.Detail = "TRUNCATE goes unnoticed"
		case WakeTrigger, WakeUpdateTrigger:
			finding.Detail = "work that comes in waits for the next tick"
		case KeepTrigger, KeepUpdateTrigger:
			finding.Detail = "sexton undo does not bring back what foreign keys do here"
		}
	case c.foreign(t):
		finding.Kind = Altered
		finding.Detail = fmt.Sprintf("a trigger of this name runs %s.%s, which is not ours",
			quoteIdent(t.functionSchema), quoteIdent(t.functionName))
		finding.Fix = "remove that trigger, or uninstall the other installation first"
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

// foreign reports whether a trigger of our name runs a function that is not ours.
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

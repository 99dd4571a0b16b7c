package components

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/dbsqlc"
	"sexton/internal/definitions"
	"sexton/internal/doctor"
	"sexton/internal/drain/dml"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/render"
	"sexton/internal/retention"
	riverjobs "sexton/river_jobs"
)

const retentionKey = "retention"

func retentionRules() *Component {
	return &Component{
		Key: retentionKey, Units: map[string]string{retention.Table: "row"},
		Backlog: func(ctx context.Context, _ Source, db database.Database) ([]Backlog, error) {
			backlog, err := ReadBacklog(ctx, db, retentionKey)
			if err != nil {
				return nil, err
			}
			rules, err := retention.ReadStates(ctx, db.Pool)
			backlog.Details = ruleStates{rules}
			return []Backlog{backlog}, err
		},
		Failures: &Failures{Name: "retention", Everywhere: true, Keyed: true, List: listRules, Retry: retryRules},
		Plan:     map[string]Planner{riverjobs.RetentionCleanup: planRetention},
		Grants: func(g Granting) []migrate.TableGrant {
			t := grants{schema: g.Database.Schema}
			for _, rule := range g.Config.Retention.Rules {
				if rule.Database != g.Database.Name {
					continue
				}
				if rule.DryRun {
					t.named(rule.Table, readsRows)
					continue
				}
				t.named(rule.Table, deletesRows)
				if name, err := definitions.ParseName(rule.Table); err == nil {
					t.below(name, migrate.Cascading)
				}
			}
			return t.list
		},
		Checks: []Check{{
			Name: "retention", When: Schema,
			Look: func(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
				plan, found, err := riverjobs.CheckRetention(ctx, x.Config, x.DB, x.DB.Pool)
				if err != nil || plan == nil {
					return doctor.Findings(found), err
				}
				missing, err := retention.MissingPrivileges(ctx, x.As(), plan)
				if err != nil {
					return nil, err
				}
				seen, err := plan.Foresee(ctx, x.DB.Pool, PlanLimits().StatementTimeout)
				return doctor.Findings(append(found, riverjobs.Placed(x.Config,
					append(missing, retention.Findings(seen)...))...)), err
			},
		}},
	}
}

// listRules returns the rules that failed in their last run.
func listRules(ctx context.Context, all *installation.Connections, limit int) (failures []Failure, more bool, _ error) {
	for _, name := range all.Config.RetentionDatabases() {
		if all.Down[name] != nil {
			continue
		}
		rules, err := retention.ReadFailed(ctx, all.Database(name).Pool, limit+1)
		if err != nil {
			return nil, false, fmt.Errorf("database %s: %w", name, err)
		}
		more = more || len(rules) > limit
		for _, rule := range rules[:min(limit, len(rules))] {
			failure := Failure{
				Source: "retention", Database: name, ID: rule.Rule, What: "rule " + rule.Rule,
				Error: rule.LastError, Attempts: rule.Attempts, Since: rule.CheckedAt,
			}
			if cron, err := all.Config.Retention.Schedule.Parse(); err == nil {
				failure.Next = cron.Next(time.Now().UTC())
			}
			failures = append(failures, failure)
		}
	}
	return failures, more, nil
}

func retryRules(ctx context.Context, all *installation.Connections, db database.Database,
	id dml.ID,
) (string, error) {
	if !slices.Contains(all.Config.RetentionDatabases(), db.Name) {
		return "", Refuse("database %s has no rules", db.Name)
	}
	var rules int64
	err := installation.Waking(ctx, db, riverjobs.RetentionCleanup, func(tx pgx.Tx) (err error) {
		rules, err = retention.Retry(ctx, tx, id.Text)
		return err
	})
	if err == nil && rules == 0 && id.Text != "" {
		return "", Refuse("rule %s has not failed", id)
	}
	return render.Counted(rules, "rule") + " due now", err
}

// planRetention counts the due rows of all rules.
func planRetention(ctx context.Context, _ dbsqlc.DBTX, c *config.Config,
	db database.Database,
) (planned Planned, err error) {
	plan, problems, err := riverjobs.CheckRetention(ctx, c, db, db.Pool)
	if err == nil {
		err = problems.Err()
	}
	if err != nil {
		return planned, err
	}
	seen, err := plan.Foresee(ctx, db.Pool, PlanLimits().StatementTimeout)
	for _, rule := range seen {
		if !rule.DryRun {
			planned.Due, planned.Capped = planned.Due+rule.Due, planned.Capped || rule.Capped || rule.Unknown != ""
		}
	}
	planned.Capped, planned.Due = planned.Capped || planned.Due > PendingCap, min(planned.Due, PendingCap)
	planned.Details = foreseenRules{seen}
	return planned, err
}

// foreseenRules holds the expected work of the next run for each rule.
type foreseenRules struct {
	Rules []retention.Foreseen `json:"rules"`
}

// Print prints the expected work of each rule.
func (d foreseenRules) Print(w io.Writer) {
	render.List(w, "", "\nRULE\tDUE\tOLDEST\tINDEX\tDELETES BELOW", d.Rules, func(r retention.Foreseen) []any {
		due := render.Capped(r.Due, r.Capped)
		if r.DryRun {
			due += " (dry run)"
		}
		if r.Unknown != "" {
			due = r.Unknown
		}
		return []any{r.Rule, due, r.Oldest, r.Index, render.Listed(r.Below)}
	})
	for _, r := range d.Rules {
		for _, key := range r.Blocking {
			_, _ = fmt.Fprintf(w, "%s: %s\n", r.Rule, key)
		}
	}
	for _, p := range retention.Findings(d.Rules) {
		_, _ = fmt.Fprintf(w, "%s (%s)\n", p.Message, p.Fix)
	}
}

// ruleStates holds the results of the rules in their last run.
type ruleStates struct {
	Rules []retention.State `json:"rules,omitempty"`
}

// Print prints the last result of each rule.
func (d ruleStates) Print(w io.Writer) {
	render.List(w, "", "\nRULE\tLEFT\tNOT DELETED\tLAST RUN\tERROR", d.Rules, func(r retention.State) []any {
		left := render.Capped(r.Pending, r.Capped)
		if r.DryRun {
			left += " (dry run)"
		}
		return []any{r.Rule, left, r.Kept, render.Age(&r.CheckedAt), &r.LastError}
	})
}

package components

import (
	"context"
	"fmt"
	"io"

	"sexton/internal/config"
	"sexton/internal/database"
	"sexton/internal/doctor"
	"sexton/internal/drain/dml"
	"sexton/internal/installation"
	"sexton/internal/migrate"
	"sexton/internal/placeholder"
	"sexton/internal/problem"
	"sexton/internal/render"
	riverjobs "sexton/river_jobs"
)

func placeholderUsers() *Component {
	return &Component{
		Key: migrate.PlaceholderUsers, Units: map[string]string{placeholder.DetailsTable: "placeholder user"},
		Backlog: readPlaceholders, Failures: placeholderFailures(), Start: installation.SavePlaceholderRules,
		Plan: map[string]Planner{riverjobs.PlaceholderCleanup: Counting(placeholder.CountDueSQL()+", "+
			placeholder.NextDueSQL(),
			func(c *config.Config) (int, []any) {
				rules := riverjobs.PlaceholderRules(c)
				return 0, []any{rules.MaxAttempts, rules.RetryPeriod.Seconds()}
			})},
		Grants: func(g Granting) []migrate.TableGrant {
			t := grants{schema: g.Database.Schema}
			for _, entry := range g.Config.PlaceholderUsers.References {
				t.named(entry.Table, readsRows)
			}
			return t.list
		},
		Checks: []Check{
			{Name: "placeholder_users", When: Binding, Look: bindPlaceholders},
			{Name: "given_up", When: Work, Look: givenUpPlaceholders},
		},
	}
}

// placeholderFailures lists the placeholder users that cannot be deleted because rows
// refer to them, including those that are not retried.
func placeholderFailures() *Failures {
	failures := Rows("placeholders", "placeholder user", "due now", "is not pending",
		func(ctx context.Context, all *installation.Connections, limit int) ([]placeholder.Placeholder, error) {
			return placeholder.ReadKept(ctx, all.Jobs().Pool, all.Jobs().Names, riverjobs.PlaceholderRules(all.Config),
				limit)
		},
		func(p placeholder.Placeholder) int64 { return p.UserID },
		func(_ *installation.Connections, p placeholder.Placeholder) Failure {
			failure := Failure{Error: p.LastError, Attempts: p.Attempts}
			// A deferred placeholder without a time of the next attempt is deferred to
			// infinity, so that it is never retried.
			failure.GivenUp = p.State == placeholder.GivenUp ||
				p.State == placeholder.Deferred && p.NextAttemptAt == nil
			if p.LastAttemptAt != nil {
				failure.Since = *p.LastAttemptAt
			}
			if p.NextAttemptAt != nil {
				failure.Next = *p.NextAttemptAt
			}
			return failure
		},
		func(ctx context.Context, all *installation.Connections, _ int64) (int64, error) {
			return installation.RetryAllPlaceholders(ctx, all.Jobs())
		})
	retryAll := failures.Retry
	// The message for a single placeholder depends on its new state.
	failures.Retry = func(ctx context.Context, all *installation.Connections, db database.Database, id dml.ID) (string,
		error,
	) {
		if id.Text == "" {
			return retryAll(ctx, all, db, id)
		}
		state, err := installation.RetryPlaceholder(ctx, db, id.Number())
		if installation.PlaceholderRefused(err) {
			return "", Refuse("%v", err)
		}
		return fmt.Sprintf("placeholder user %s: %s", id, installation.PlaceholderOutcome(state)), err
	}
	return failures
}

// readPlaceholders reads the backlog of placeholder users by the configured rules.
func readPlaceholders(ctx context.Context, source Source, db database.Database) ([]Backlog, error) {
	rules := riverjobs.PlaceholderRules(source.Config)
	backlog, err := placeholder.ReadBacklog(ctx, db.Pool, db.Names, rules)
	if err != nil {
		return nil, err
	}
	kept, err := placeholder.ReadKept(ctx, db.Pool, db.Names, rules, Shown)
	if err != nil {
		return nil, err
	}
	return []Backlog{{
		Table: placeholder.DetailsTable, Database: db.Name, Pending: backlog.Pending, Capped: backlog.Capped,
		OldestAgeSeconds: backlog.OldestAgeSeconds, Deferred: backlog.Deferred, DeferredCapped: backlog.DeferredCapped,
		DeferredUntil: backlog.DeferredUntil, DeferredReason: backlog.DeferredReason,
		GivenUp: &backlog.GivenUp, Details: keptPlaceholders{kept},
	}}, nil
}

// keptPlaceholders holds the first placeholder users that are kept because rows refer to
// them.
type keptPlaceholders struct {
	Placeholders []placeholder.Placeholder `json:"placeholders,omitempty"`
}

// Print prints the placeholder users.
func (d keptPlaceholders) Print(w io.Writer) {
	if len(d.Placeholders) > 0 {
		_, _ = fmt.Fprintln(w)
	}
	printPlaceholders(w, d.Placeholders)
}

func printPlaceholders(w io.Writer, placeholders []placeholder.Placeholder) {
	render.List(w, "", "PLACEHOLDER\tSTATE\tATTEMPTS\tLAST ATTEMPT\tNEXT ATTEMPT\tREASON", placeholders,
		func(p placeholder.Placeholder) []any {
			last, next := render.Age(p.LastAttemptAt), render.Time(p.NextAttemptAt)
			if p.LastAttemptAt == nil && p.Attempts > 0 {
				// The time of the last attempt is infinite, so there is no age to print.
				last = "unknown"
			}
			if p.State == placeholder.Deferred && p.NextAttemptAt == nil {
				next = "never"
			}
			return []any{p.UserID, p.State, p.Attempts, last, next, &p.LastError}
		})
}

// bindPlaceholders reports configured references that do not match the tables of the jobs
// database.
func bindPlaceholders(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
	_, problems, err := riverjobs.CheckPlaceholderUsers(ctx, x.Config, x.DB, x.As())
	if err != nil {
		return nil, err
	}
	return doctor.Findings(problems), nil
}

// givenUpPlaceholders reports placeholder users that have no attempts left.
func givenUpPlaceholders(ctx context.Context, x *Exam) ([]doctor.Finding, error) {
	backlog, err := placeholder.ReadBacklog(ctx, x.DB.Pool, x.DB.Names, riverjobs.PlaceholderRules(x.Config))
	if err != nil || backlog.GivenUp == 0 {
		return nil, err
	}
	return doctor.One(problem.Warning, "table "+placeholder.DetailsTable,
		fmt.Sprintf("%s given up after %d attempts", render.Counted(backlog.GivenUp, "placeholder user"),
			x.Config.PlaceholderUsers.MaxAttempts),
		"remove the rows that refer to them (see `sexton failures list`), and run `sexton failures retry placeholders --all`"), nil
}

package retention

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/batch"
	"sexton/internal/dbsqlc"
	"sexton/internal/drain/dml"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// Table is the name of the table in Sexton's schema that stores the results of rules.
const Table = "retention_rules"

// DueSQL is the condition for a due rule. A rule is due if its last pass left due rows,
// or if an operator retries it.
const DueSQL = `EXISTS (SELECT FROM "sexton".` + Table + ` AS rule WHERE rule.due)`

// countTime is the timeout of a statement that only counts rows.
const countTime = 2 * time.Second

// mostCounted limits the rows that are counted. It is one more than
// components.PendingCap.
const mostCounted = 10_001

// begin reads the server's time and the results of the last pass. It returns one task per
// rule. The rule that was processed longest ago is first.
func (r *run) begin(ctx context.Context) ([]*task, error) {
	type past struct {
		Rule   string
		At     *time.Time
		Number *int64
	}
	var known []past
	names := render.Each(r.Plan.rules, func(one *rule) string { return one.String() })
	_, err := r.Session.RunOwn(ctx,
		batch.Statement{SQL: `SELECT pg_catalog.statement_timestamp()`, Scan: batch.One(&r.now)},
		batch.Statement{SQL: `DELETE FROM "sexton".` + Table + ` WHERE rule <> ALL ($1)`, Args: []any{names}},
		batch.Statement{
			SQL: `SELECT rule, resume_at, resume_number FROM "sexton".` + Table +
				` ORDER BY checked_at NULLS FIRST, rule`,
			Scan: batch.Collect(&known, pgx.RowToStructByPos[past]),
		})
	if err != nil {
		return nil, fmt.Errorf("read results of the last pass: %w", err)
	}
	rank := map[string]int{}
	after := map[string]any{}
	for i, one := range known {
		rank[one.Rule] = i + 1
		switch {
		case one.At != nil:
			after[one.Rule] = *one.At
		case one.Number != nil:
			after[one.Rule] = *one.Number
		}
	}
	tasks := render.Each(r.Plan.rules, func(one *rule) *task { return r.newTask(one, after[one.String()]) })
	slices.SortStableFunc(tasks, func(a, b *task) int { return rank[a.String()] - rank[b.String()] })
	return tasks, nil
}

// finish records the result of a rule. done reports whether all due rows were processed.
// If the pass has not begun the rule, finish keeps the last result and makes the rule
// due.
func (r *run) finish(ctx context.Context, t *task, done bool) error {
	if !t.begun {
		_, err := r.Session.RunOwn(ctx, batch.Statement{
			SQL: `
INSERT INTO "sexton".` + Table + ` (rule, due, pending, capped, dry_run, kept, attempts, checked_at)
VALUES ($1, true, 1, true, $2, 0, 0, pg_catalog.clock_timestamp())
ON CONFLICT (rule) DO UPDATE SET due = true`,
			Args: []any{t.String(), t.DryRun},
		})
		return problem.Doing(err, "record that %s is due", t)
	}
	if t.kept > 0 {
		r.stats.Kept[t.String()] = t.kept
	}
	pending, capped, moved := t.kept, false, t.tree.Changes > 0
	if t.DryRun || !done || t.stopped {
		var err error
		if pending, capped, err = r.count(ctx, t); err != nil {
			return err
		}
	}
	if t.DryRun {
		r.stats.Due[t.String()] = pending
	}
	fault := t.obstacle
	if t.tree.Fault != nil {
		fault = *t.tree.Fault
	}
	text := fault.Text()
	if fault.Message == "" {
		if text = ""; t.kept > 0 {
			text = "rows are left although nothing refers to them"
		}
	}
	if text != "" && !fault.Lock() {
		r.stats.Failed++
		r.stats.Failure = cmp.Or(r.stats.Failure, t.String()+": "+text)
	}
	// If the pass ended early, the rule stays due if rows were deleted. Otherwise it
	// waits for the next tick. The next pass continues at the last position, so that rows
	// that cannot be deleted do not delay the rows after them.
	again := !done && moved
	var resume any
	if !done || t.stopped {
		resume = t.at.value
	}
	var resumeAt *time.Time
	var resumeNumber *int64
	switch resume := resume.(type) {
	case time.Time:
		resumeAt = &resume
	case int64:
		resumeNumber = &resume
	}
	_, err := r.Session.RunOwn(ctx, batch.Statement{
		SQL: `
INSERT INTO "sexton".` + Table + ` AS rule (rule, due, pending, capped, due_since, dry_run, kept, last_error, attempts, resume_at, resume_number, checked_at)
VALUES ($1, $2, $3::pg_catalog.int8, $4, CASE WHEN $3::pg_catalog.int8 > 0 THEN pg_catalog.statement_timestamp() END, $5, $6, nullif($7, ''), CASE WHEN $7 <> '' THEN 1 ELSE 0 END,
	$8, $9, pg_catalog.clock_timestamp())
ON CONFLICT (rule) DO UPDATE SET
	due = excluded.due, pending = excluded.pending, capped = excluded.capped,
	due_since = CASE WHEN $3::pg_catalog.int8 > 0 THEN coalesce(rule.due_since, excluded.due_since) END, dry_run = excluded.dry_run,
	kept = excluded.kept, last_error = excluded.last_error,
	attempts = CASE WHEN $7 <> '' THEN rule.attempts + 1 ELSE 0 END,
	resume_at = excluded.resume_at, resume_number = excluded.resume_number, checked_at = excluded.checked_at`,
		Args: []any{
			t.String(), again, min(pending, mostCounted-1), capped, t.DryRun, t.kept, text, resumeAt,
			resumeNumber,
		},
	})
	return problem.Doing(err, "record the result of %s", t)
}

// count returns the number of due rows of a rule, up to mostCounted. If the query times
// out, it returns 1 and capped.
func (r *run) count(ctx context.Context, t *task) (rows int64, capped bool, _ error) {
	args := &dml.Args{}
	limits := r.Session.Limits.ShortWaits()
	limits.Reads, limits.StatementTimeout = true, min(limits.StatementTimeout, countTime)
	err := r.send(ctx, limits, batch.Statement{
		SQL: t.countSQL(t.cutoff, args), Args: args.Values,
		Scan: batch.One(&rows),
	})
	if err != nil {
		return 1, true, r.ifFatal(err)
	}
	return rows, rows >= mostCounted, nil
}

func (r *rule) countSQL(cutoff any, args *dml.Args) string {
	return fmt.Sprintf("SELECT pg_catalog.count(*) FROM (SELECT FROM %s WHERE %s LIMIT %d) AS counted",
		r.edge.FromItem(), r.due("child", cutoff, args), mostCounted)
}

// State is the result of the last pass for a rule.
type State struct {
	Rule string `json:"rule"`
	// Pending counts the due rows that the pass left, up to 10,000. DueSince is the time
	// of the first pass that left rows.
	Pending   int64      `json:"pending"`
	Capped    bool       `json:"capped"`
	DueSince  *time.Time `json:"due_since,omitempty"`
	DryRun    bool       `json:"dry_run,omitempty"`
	Kept      int64      `json:"kept,omitempty"`
	LastError string     `json:"last_error,omitempty"`
	Attempts  int64      `json:"attempts,omitempty"`
	CheckedAt time.Time  `json:"checked_at"`
}

const stateSQL = `SELECT rule, pending, capped, due_since, dry_run, kept, coalesce(last_error, ''), attempts, checked_at FROM "sexton".` + Table

// ReadStates returns the results of all rules.
func ReadStates(ctx context.Context, db dbsqlc.DBTX) ([]State, error) {
	return states(ctx, db, stateSQL+" ORDER BY rule")
}

// ReadFailed returns at most limit rules that failed in the last pass.
func ReadFailed(ctx context.Context, db dbsqlc.DBTX, limit int) ([]State, error) {
	return states(ctx, db, stateSQL+" WHERE last_error IS NOT NULL ORDER BY rule LIMIT $1", limit)
}

func states(ctx context.Context, db dbsqlc.DBTX, sql string, args ...any) ([]State, error) {
	rows, _ := db.Query(ctx, sql, args...)
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[State])
	return found, problem.Doing(err, "read results of rules")
}

// Retry makes a failed rule due now, or all failed rules if rule is empty. It returns
// their number.
func Retry(ctx context.Context, db dbsqlc.DBTX, rule string) (int64, error) {
	tag, err := db.Exec(ctx,
		`UPDATE "sexton".`+Table+` SET due = true WHERE last_error IS NOT NULL AND ($1 = '' OR rule = $1)`, rule)
	return tag.RowsAffected(), problem.Doing(err, "retry rules")
}

package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgschema"
)

// contribution is a column that names the author of rows which are to outlive their author.
type contribution struct {
	table, column string
	// owners are what the rows belong to: they go with any of them.
	owners []owner
}

// owner is a column that names a row of another table, if the value of the column kind is so.
type owner struct {
	column, table string
	kind, is      string
}

// contributions are the ones that GitLab moves, except two: of award emoji and achievements the ghost user keeps one of
// each sort, so these may go for good.
func contributions() []contribution {
	project := owner{column: "project_id", table: "projects"}
	issue, mergeRequest := owner{column: "issue_id", table: "issues"}, owner{column: "merge_request_id", table: "merge_requests"}
	either := func(column, kind string) []owner {
		return []owner{
			project,
			{column: column, table: "issues", kind: kind, is: "Issue"},
			{column: column, table: "merge_requests", kind: kind, is: "MergeRequest"},
		}
	}
	return []contribution{
		{"issues", "author_id", []owner{project}},
		{"merge_requests", "author_id", []owner{{column: "target_project_id", table: "projects"}}},
		{"notes", "author_id", either("noteable_id", "noteable_type")}, //nolint:misspell // the column's name
		// A todo is also its reader's, who may be deleted as well.
		{"todos", "author_id", append(either("target_id", "target_type"), owner{column: "user_id", table: "users"})},
		{"resource_label_events", "user_id", []owner{issue, mergeRequest}},
		{"reviews", "author_id", []owner{project, mergeRequest}},
		{"releases", "author_id", []owner{project}},
		{"timelogs", "user_id", []owner{project, issue, mergeRequest}},
		{"ci_pipelines", "user_id", []owner{project, mergeRequest}},
		{"p_ci_builds", "user_id", []owner{project, {column: "commit_id", table: "ci_pipelines"}}},
	}
}

// contributionsTable holds what the users had written when their deletion was asked for, with what it belonged to then.
const contributionsTable = `
CREATE SCHEMA IF NOT EXISTS demo;
DROP TABLE IF EXISTS demo.contributions;
CREATE UNLOGGED TABLE demo.contributions (
	place text NOT NULL,
	row_id bigint NOT NULL,
	owners jsonb NOT NULL
)`

func quoted(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

func literal(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// recordContributions is the statement that takes down those of user $1.
func recordContributions(names pgschema.Names) string {
	var parts []string
	for _, c := range contributions() {
		var pairs []string
		for _, o := range c.owners {
			value := "written." + quoted(o.column)
			if o.kind != "" {
				value = fmt.Sprintf("CASE WHEN written.%s = %s THEN %s END", quoted(o.kind), literal(o.is), value)
			}
			pairs = append(pairs, literal(o.table+"."+o.column), value)
		}
		parts = append(parts, fmt.Sprintf("SELECT %s, written.id, jsonb_build_object(%s) FROM %s AS written WHERE written.%s = $1",
			literal(c.table), strings.Join(pairs, ", "), quoted(names.Tracked, c.table), quoted(c.column)))
	}
	return "INSERT INTO demo.contributions (place, row_id, owners) " + strings.Join(parts, "\nUNION ALL ")
}

// contributionCount says what has become of the contributions: earlier ones stand with the ghost user, have gone with
// what they belonged to, or are lost.
type contributionCount struct{ before, ghost, gone int64 }

// countContributions looks at each row that was taken down.
func countContributions(ctx context.Context, on stage) (contributionCount, error) {
	var total contributionCount
	for _, c := range contributions() {
		var n contributionCount
		if err := on.pool.QueryRow(ctx, countOf(c, on.names), on.ledger.of(c.table)).Scan(&n.before, &n.ghost, &n.gone); err != nil {
			return total, fmt.Errorf("count contributions in %s: %w", c.table, err)
		}
		total.before, total.ghost, total.gone = total.before+n.before, total.ghost+n.ghost, total.gone+n.gone
	}
	return total, nil
}

// countOf is the statement for one column. $1 are the rows of the table that the application has deleted itself.
func countOf(c contribution, names pgschema.Names) string {
	excuses := []string{"before.row_id = ANY ($1::bigint[])"}
	for _, o := range c.owners {
		id := fmt.Sprintf("(before.owners ->> %s)::bigint", literal(o.table+"."+o.column))
		excuses = append(excuses, fmt.Sprintf("%s IS NOT NULL AND NOT EXISTS (SELECT FROM %s AS owner WHERE owner.id = %s)",
			id, quoted(names.Tracked, o.table), id))
	}
	return fmt.Sprintf(`SELECT count(*),
	count(*) FILTER (WHERE kept.%s = (SELECT min(ghost.id) FROM %s AS ghost WHERE ghost.user_type = 5)),
	count(*) FILTER (WHERE kept.id IS NULL AND (%s))
FROM demo.contributions AS before LEFT JOIN %s AS kept ON kept.id = before.row_id
WHERE before.place = %s`,
		quoted(c.column), quoted(names.Tracked, "users"), strings.Join(excuses, "\n\tOR "), quoted(names.Tracked, c.table), literal(c.table))
}

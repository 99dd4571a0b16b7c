package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/pgcatalog"
)

const (
	ghostUsersKind = "users_migrate_records_to_ghost_user_in_batches"
	// hardEvery is the user, in the order of their deletion, that goes with everything that it wrote.
	hardEvery = 5
	// soleOwner is the SQLSTATE with which delete_user refuses users whose groups would be left alone.
	soleOwner = "SX012"
)

// ghostUsers deletes users at random, as an administrator: most of them softly, so that what they wrote passes to the
// ghost user.
type ghostUsers struct {
	stage
	span

	initiator int64
	// deleted are the users that it has asked for, refused the ones that may not go.
	deleted, refused []int64
}

// Script tells of users.
func (*ghostUsers) Script() Script {
	return Script{
		Kind: ghostUsersKind, Title: "ghost users",
		Acted: "users deleted", Unit: "users", Finished: "gone", Until: "from request to gone",
		Pace:        Pace{Share: 30, Length: 25 * time.Second, Slowest: 3},
		EndlessPace: Pace{Share: 60, Length: 10 * time.Minute, Slowest: 0.5},
		Waiting:     query("waiting_users"),
		Processed:   "users_processed", Numbers: []string{"users_failed", "duplicates"},
		Rows: []RowCount{{"moved", "moved"}, {"deleted", "deleted"}, {"nullified", "nullified"}},
	}
}

// Plan counts the users, and makes room for the record of what they wrote.
func (g *ghostUsers) Plan(ctx context.Context) (int64, error) {
	if err := g.row(ctx, "find_administrator", []any{&g.initiator}); err != nil {
		return 0, err
	}
	var users int64
	if err := g.row(ctx, "count_users", []any{&users, &g.first, &g.last}, g.initiator); err != nil {
		return 0, err
	}
	return g.of(g.Script(), users), g.record(ctx, "contributions")
}

// Act asks for the deletion of users and takes down, in the same transaction, what they have written.
func (g *ghostUsers) Act(ctx context.Context, limit int) (acted []Item, more bool, err error) {
	users, err := g.anywhere(func(from int64) ([]int64, error) {
		return g.ids(ctx, "find_users", g.initiator, orNone(g.refused), from, limit)
	})
	if err != nil {
		return nil, false, err
	}
	var gone []int64
	err = pgx.BeginFunc(ctx, g.pool, func(tx pgx.Tx) error {
		for _, user := range users {
			switch done, err := g.ask(ctx, tx, user, (len(g.deleted)+len(gone)+1)%hardEvery == 0); {
			case err != nil:
				return fmt.Errorf("delete user %d: %w", user, err)
			case done:
				gone = append(gone, user)
			default:
				g.refused = append(g.refused, user)
			}
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	g.deleted = append(g.deleted, gone...)
	return items("users", gone), len(users) > 0, nil
}

// ask asks for one user's deletion; false is no for an answer.
func (g *ghostUsers) ask(ctx context.Context, tx pgx.Tx, user int64, hard bool) (done bool, err error) {
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		const sql = `SELECT "sexton".delete_user($1, $2, $3)`
		return tx.QueryRow(ctx, g.names.Render(sql), user, g.initiator, hard).Scan(&done)
	})
	if pgcatalog.SQLState(err) == soleOwner {
		return false, nil
	}
	if err != nil || !done || hard {
		return done, err
	}
	_, err = tx.Exec(ctx, recordContributions(g.names), user)
	return done, err
}

// Check looks for users that are left, and for what those deleted softly had written.
func (g *ghostUsers) Check(ctx context.Context) ([]Finding, error) {
	var left int64
	if err := g.row(ctx, "count_deleted_users", []any{&left}, g.deleted); err != nil {
		return nil, err
	}
	c, err := countContributions(ctx, g.stage)
	if err != nil {
		return nil, err
	}
	return []Finding{
		{Name: "users_left", Text: "deleted users are left", Count: left, Fault: true},
		{Name: "contributions", Text: "contributions of those deleted softly", Count: c.before},
		{Name: "with_ghost", Text: "of them with the ghost user", Count: c.ghost},
		{Name: "gone_with_others", Text: "gone with deleted projects, issues and so on", Count: c.gone},
		{Name: "contributions_lost", Text: "contributions are lost", Count: c.before - c.ghost - c.gone, Fault: true},
	}, nil
}

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
		// A todo also belongs to its reader, a user that may be deleted as well.
		{"todos", "author_id", append(either("target_id", "target_type"), owner{column: "user_id", table: "users"})},
		{"resource_label_events", "user_id", []owner{issue, mergeRequest}},
		{"reviews", "author_id", []owner{project, mergeRequest}},
		{"releases", "author_id", []owner{project}},
		{"timelogs", "user_id", []owner{project, issue, mergeRequest}},
		{"ci_pipelines", "user_id", []owner{project, mergeRequest}},
		{"p_ci_builds", "user_id", []owner{project, {column: "commit_id", table: "ci_pipelines"}}},
	}
}

func quoted(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

// recordContributions is the statement that takes down those of user $1.
func recordContributions(names pgcatalog.Names) string {
	var parts []string
	for _, c := range contributions() {
		var pairs []string
		for _, o := range c.owners {
			value := "written." + quoted(o.column)
			if o.kind != "" {
				value = fmt.Sprintf("CASE WHEN written.%s = %s THEN %s END", quoted(o.kind), pgcatalog.Literal(o.is), value)
			}
			pairs = append(pairs, pgcatalog.Literal(o.table+"."+o.column), value)
		}
		parts = append(parts, fmt.Sprintf("SELECT %s, written.id, jsonb_build_object(%s) FROM %s AS written WHERE written.%s = $1",
			pgcatalog.Literal(c.table), strings.Join(pairs, ", "), quoted(names.Tracked, c.table), quoted(c.column)))
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
func countOf(c contribution, names pgcatalog.Names) string {
	excuses := []string{"before.row_id = ANY ($1::bigint[])"}
	for _, o := range c.owners {
		id := fmt.Sprintf("(before.owners ->> %s)::bigint", pgcatalog.Literal(o.table+"."+o.column))
		excuses = append(excuses, fmt.Sprintf("%s IS NOT NULL AND NOT EXISTS (SELECT FROM %s AS owner WHERE owner.id = %s)",
			id, quoted(names.Tracked, o.table), id))
	}
	return fmt.Sprintf(`SELECT count(*),
	count(*) FILTER (WHERE kept.%s = (SELECT min(ghost.id) FROM %s AS ghost WHERE ghost.user_type = 5)),
	count(*) FILTER (WHERE kept.id IS NULL AND (%s))
FROM demo.contributions AS before LEFT JOIN %s AS kept ON kept.id = before.row_id
WHERE before.place = %s`,
		quoted(c.column), quoted(names.Tracked, "users"), strings.Join(excuses, "\n\tOR "), quoted(names.Tracked, c.table), pgcatalog.Literal(c.table))
}

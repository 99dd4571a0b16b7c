package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
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

	// share of the users goes, in percent.
	share       int64
	initiator   int64
	first, last int64
	// deleted are the users that it has asked for, refused the ones that may not go.
	deleted, refused []int64
}

func newGhostUsers(on stage) *ghostUsers {
	g := &ghostUsers{stage: on}
	g.share = g.Script().pace(on.endless).Share
	return g
}

// Script tells of users.
func (*ghostUsers) Script() Script {
	return Script{
		Kind: ghostUsersKind, Title: "ghost users",
		Acted: "users deleted", Unit: "users", Finished: "gone", Until: "from request to gone",
		Pace:        Pace{Share: 30, Length: 25 * time.Second, Slowest: 3},
		EndlessPace: Pace{Share: 60, Length: 10 * time.Minute, Slowest: 0.5},
		Waiting:     `SELECT 'users', user_id, created_at FROM "public".users_ghost_user_migrations`,
		Processed:   "users_processed", Numbers: []string{"users_failed", "duplicates"},
		Rows: []RowCount{{"moved", "moved"}, {"deleted", "deleted"}, {"nullified", "nullified"}},
	}
}

// candidates are the users that may likely be deleted. Placeholders are another job's.
const candidates = `
FROM "public".users AS leaving
WHERE leaving.user_type IN (0, 6, 13) AND leaving.id <> $1
AND NOT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.user_id = leaving.id)`

// Plan counts the users, and makes room for the record of what they wrote.
func (g *ghostUsers) Plan(ctx context.Context) (int64, error) {
	const administrator = `SELECT coalesce(min(admin.id), 0) FROM "public".users AS admin WHERE admin.admin AND admin.user_type = 0`
	if err := g.pool.QueryRow(ctx, g.names.Render(administrator)).Scan(&g.initiator); err != nil {
		return 0, fmt.Errorf("find an administrator: %w", err)
	}
	var users int64
	const count = "SELECT count(*), coalesce(min(leaving.id), 0), coalesce(max(leaving.id), 0)" + candidates
	if err := g.pool.QueryRow(ctx, g.names.Render(count), g.initiator).Scan(&users, &g.first, &g.last); err != nil {
		return 0, fmt.Errorf("count users: %w", err)
	}
	if _, err := g.pool.Exec(ctx, contributionsTable); err != nil {
		return 0, fmt.Errorf("create the record of contributions: %w", err)
	}
	return (users*g.share + 99) / 100, nil
}

// Act asks for the deletion of users and takes down, in the same transaction, what they have written.
func (g *ghostUsers) Act(ctx context.Context, limit int) (acted []Item, more bool, err error) {
	from := g.first + rand.Int64N(g.last-g.first+1)
	users, err := g.find(ctx, from, limit)
	if err == nil && len(users) == 0 {
		users, err = g.find(ctx, g.first, limit)
	}
	if err != nil {
		return nil, false, fmt.Errorf("find users to delete: %w", err)
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
	for _, user := range gone {
		acted = append(acted, Item{"users", user})
	}
	return acted, len(users) > 0, nil
}

// find returns users in the order of their keys.
func (g *ghostUsers) find(ctx context.Context, from int64, limit int) ([]int64, error) {
	const sql = "SELECT leaving.id" + candidates + " AND leaving.id <> ALL ($2::bigint[]) AND leaving.id >= $3 ORDER BY leaving.id LIMIT $4"
	// An array that is NULL would exclude everybody.
	refused := append([]int64{}, g.refused...)
	rows, _ := g.pool.Query(ctx, g.names.Render(sql), g.initiator, refused, from, limit)
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// ask asks for one user's deletion; false is no for an answer.
func (g *ghostUsers) ask(ctx context.Context, tx pgx.Tx, user int64, hard bool) (done bool, err error) {
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		const sql = `SELECT "sexton".delete_user($1, $2, $3)`
		return tx.QueryRow(ctx, g.names.Render(sql), user, g.initiator, hard).Scan(&done)
	})
	if failed, ok := errors.AsType[*pgconn.PgError](err); ok && failed.Code == soleOwner {
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
	const sql = `SELECT count(*) FROM "public".users AS gone WHERE gone.id = ANY ($1)`
	if err := g.pool.QueryRow(ctx, g.names.Render(sql), g.deleted).Scan(&left); err != nil {
		return nil, fmt.Errorf("count deleted users: %w", err)
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

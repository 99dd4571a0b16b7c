package demo

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const placeholderUsersKind = "import_placeholder_user_cleanup"

// placeholderUsers takes the group away from placeholder users of an import, as the deletion of that group does. Those who
// have written nothing are deleted, by way of the ghost users' queue; the others stay.
type placeholderUsers struct {
	stage

	// left are the placeholders that it has left without an owner.
	left []int64
}

func newPlaceholderUsers(on stage) *placeholderUsers { return &placeholderUsers{stage: on} }

// Script tells of placeholders. One is decided about when it is queued for deletion, or when its row says what keeps it.
func (*placeholderUsers) Script() Script {
	return Script{
		Kind: placeholderUsersKind, Title: "placeholder users",
		Acted: "left by their group", Unit: "placeholders", Finished: "offered", Until: "from ownerless to decided",
		Pace:        Pace{Share: 100, Length: 20 * time.Second, Slowest: 3},
		EndlessPace: Pace{Share: 100, Length: 10 * time.Minute, Slowest: 0.2},
		Waiting: `SELECT 'placeholders', detail.placeholder_user_id, coalesce(detail.last_deletion_attempt_at, now())
			FROM "public".import_placeholder_user_details AS detail
			WHERE detail.namespace_id IS NULL AND detail.deletion_attempts < 15 AND detail.last_error IS NULL
			AND NOT EXISTS (SELECT FROM "public".users_ghost_user_migrations AS job WHERE job.user_id = detail.placeholder_user_id)`,
		Processed: "scheduled", Numbers: []string{"final_attempts"},
	}
}

// Plan counts the placeholders with an owner, and takes down who wrote the notes and issues that keep them.
func (p *placeholderUsers) Plan(ctx context.Context) (int64, error) {
	const record = `CREATE SCHEMA IF NOT EXISTS demo;
		DROP TABLE IF EXISTS demo.imported;
		CREATE UNLOGGED TABLE demo.imported AS
		SELECT note.id, note.author_id FROM "public".notes AS note
		JOIN "public".users AS author ON author.id = note.author_id AND author.user_type = 15`
	if _, err := p.pool.Exec(ctx, p.names.Render(record)); err != nil {
		return 0, fmt.Errorf("take down what placeholders have written: %w", err)
	}
	var owned int64
	const count = `SELECT count(*) FROM "public".import_placeholder_user_details AS detail WHERE detail.namespace_id IS NOT NULL`
	if err := p.pool.QueryRow(ctx, p.names.Render(count)).Scan(&owned); err != nil {
		return 0, fmt.Errorf("count placeholder users: %w", err)
	}
	return owned, nil
}

// Act leaves some placeholders without an owner.
func (p *placeholderUsers) Act(ctx context.Context, limit int) (acted []Item, more bool, err error) {
	const leave = `UPDATE "public".import_placeholder_user_details AS detail SET namespace_id = NULL
		WHERE detail.id IN (
			SELECT owned.id FROM "public".import_placeholder_user_details AS owned
			WHERE owned.namespace_id IS NOT NULL ORDER BY owned.id LIMIT $1 FOR UPDATE SKIP LOCKED
		)
		RETURNING detail.placeholder_user_id`
	rows, _ := p.pool.Query(ctx, p.names.Render(leave), limit)
	left, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, false, fmt.Errorf("leave placeholder users: %w", err)
	}
	p.left = append(p.left, left...)
	for _, user := range left {
		acted = append(acted, Item{"placeholders", user})
	}
	return acted, len(left) > 0, nil
}

// Check looks for placeholders that are undecided, for kept ones without a reason, and for notes that have lost
// their author to the ghost user although they should have kept it.
func (p *placeholderUsers) Check(ctx context.Context) ([]Finding, error) {
	const sql = `SELECT
		(SELECT count(*) FROM unnest($1::bigint[]) AS gone (id) WHERE NOT EXISTS (SELECT FROM "public".users WHERE users.id = gone.id)),
		(SELECT count(*) FROM "public".import_placeholder_user_details AS detail WHERE detail.placeholder_user_id = ANY ($1) AND detail.last_error IS NOT NULL),
		(SELECT count(*) FROM "public".import_placeholder_user_details AS detail WHERE detail.placeholder_user_id = ANY ($1) AND detail.last_error IS NULL),
		(SELECT count(*) FROM demo.imported JOIN "public".notes AS note ON note.id = imported.id WHERE note.author_id IS DISTINCT FROM imported.author_id)`
	var gone, kept, undecided, lost int64
	if err := p.pool.QueryRow(ctx, p.names.Render(sql), p.left).Scan(&gone, &kept, &undecided, &lost); err != nil {
		return nil, fmt.Errorf("look at placeholder users: %w", err)
	}
	return []Finding{
		{Name: "gone", Text: "of them are gone", Count: gone},
		{Name: "kept", Text: "kept, with the reason", Count: kept},
		{Name: "undecided", Text: "are neither", Count: undecided, Fault: true},
		{Name: "authors_lost", Text: "imported notes have lost their author", Count: lost, Fault: true},
	}, nil
}

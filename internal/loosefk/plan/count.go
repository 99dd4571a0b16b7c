package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sexton/internal/batch"
	"sexton/internal/drain/dml"
	"sexton/internal/loosefk"
)

// keysPerCount limits the keys of one counting statement. The counting for a definition
// can only end early between two statements.
const keysPerCount = 1000

// pendingKeys holds the counts of a parent's tombstones and the keys of the due ones, up
// to the cap.
type pendingKeys struct {
	Backlog

	// chunks holds the distinct keys of due tombstones, oldest first, as parameters of
	// statements.
	chunks []any
	// more reports that there are more due tombstones than the cap.
	more bool
}

// inChunks divides keys into chunks, one for each counting statement. It drops
// duplicates: a row may have been deleted, inserted and deleted again.
func inChunks[T comparable](keys []*T) (chunks []any) {
	known, distinct := map[T]bool{}, []T{}
	for _, key := range keys {
		if key != nil && !known[*key] {
			known[*key] = true
			distinct = append(distinct, *key)
		}
	}
	for some := range slices.Chunk(distinct, keysPerCount) {
		chunks = append(chunks, some)
	}
	return chunks
}

// readOnly runs do in a READ ONLY transaction in the planner's database. It does not
// change the search path, which statements that compare keys need to find the operators
// of extension types.
func (p *planner) readOnly(ctx context.Context, settings string, do func(pgx.Tx) error) error {
	return readOnly(ctx, p.db, p.limits.StatementTimeout, settings, do)
}

// countSettings is the planner setting with which Postgres plans for the actual keys. A
// generic plan for a thousand keys could read a whole table by the index.
const countSettings = "SET LOCAL plan_cache_mode = force_custom_plan"

// backlog counts the parent's tombstones and loads the keys of the due ones, oldest
// first.
func (p *planner) backlog(ctx context.Context, parent *loosefk.Parent) (pending pendingKeys, err error) {
	err = p.readOnly(ctx, countSettings, func(tx pgx.Tx) error {
		most, q := int64(p.limits.Tombstones), p.names.Queries(tx)
		waiting, err := q.TombstonesByDue(ctx, parent.Recorded, most+1)
		if err != nil {
			return err
		}
		pending.Due, pending.Deferred = min(waiting.Due, most), min(waiting.Deferred, most)
		pending.Pending = pending.Due + pending.Deferred
		pending.PendingCapped, pending.more = waiting.Due > most || waiting.Deferred > most, waiting.Due > most
		rows, err := q.TombstonesDueKeys(ctx, parent.Recorded, most)
		var integers []*int64
		var texts []*string
		for _, row := range rows {
			integers, texts = append(integers, row.PrimaryKeyValue), append(texts, row.PrimaryKeyText)
		}
		if pending.chunks = inChunks(texts); parent.Integer {
			pending.chunks = inChunks(integers)
		}
		return err
	})
	return pending, err
}

// countRows counts the children that the definition would delete or change now.
func (p *planner) countRows(ctx context.Context, parent *loosefk.Parent, reference *loosefk.Reference,
	pending pendingKeys, planned *Definition,
) error {
	// The tombstones that are not counted may have children too.
	planned.RowsCapped = pending.more
	begun := time.Now()
	for i, some := range pending.chunks {
		counted, err := p.countChildren(ctx, parent, reference, some, int64(p.limits.Rows)+1-planned.Rows)
		if err != nil {
			planned.RowsCapped = true
			return planned.note(ctx, "rows could not be counted", err)
		}
		planned.Rows += counted
		if planned.Rows > int64(p.limits.Rows) {
			planned.Rows, planned.RowsCapped = int64(p.limits.Rows), true
			return nil
		}
		if i+1 < len(pending.chunks) && time.Since(begun) > p.limits.StatementTimeout {
			planned.RowsCapped = true
			planned.Findings = append(planned.Findings,
				fmt.Sprintf("counting rows stopped after %s", p.limits.StatementTimeout))
			return nil
		}
	}
	return nil
}

func (p *planner) countChildren(ctx context.Context, parent *loosefk.Parent, reference *loosefk.Reference, keys any,
	most int64,
) (int64, error) {
	args := &dml.Args{}
	keysAt, mostAt := args.Add(keys), args.Add(most)
	sql := fmt.Sprintf("SELECT pg_catalog.count(*) FROM (%s LIMIT $%d) AS counted",
		reference.Rows(&parent.Key, parent.Parameter(keysAt), args), mostAt)
	var counted int64
	err := p.readOnly(ctx, countSettings, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, sql, args.Values...).Scan(&counted)
	})
	return counted, err
}

// note adds an error of a single table to the findings. It returns all other errors:
// errors of the context, of the connection and of a server that shuts down.
func (d *Definition) note(ctx context.Context, what string, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if ctx.Err() != nil || !ok || batch.EndsSession(pgErr) {
		return err
	}
	d.Findings = append(d.Findings, fmt.Sprintf("%s: %s (SQLSTATE %s)", what, pgErr.Message, pgErr.Code))
	return nil
}

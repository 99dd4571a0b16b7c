package placeholder

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/dbsqlc"
	"sexton/internal/pgschema"
)

// backlogCap bounds every count.
const backlogCap = 10_001

// Backlog is what waits.
type Backlog struct {
	// Pending counts the rows of ownerless placeholders that are to be deleted, those tried and put off included. Capped tells
	// that there are more than it says. Those in the queue of the users to be deleted are counted there.
	Pending int64
	Capped  bool
	// OldestAge is how long the first of those that can be offered could be: since its retry period was over or, where it was
	// never tried, since it was created.
	OldestAge time.Duration
	// Deferred counts those that were tried within the retry period, no further than Pending. The first of them can be
	// offered again at DeferredUntil; DeferredReason is what kept it.
	Deferred       int64
	DeferredUntil  *time.Time
	DeferredReason string
	// GivenUp counts those that were tried as often as they may be and are there still. It stops at 10,000, too.
	GivenUp int64
}

// givenUp is the condition on a row that will not be offered any more, attempts the number of that parameter: the last job
// has ended, and the placeholder is neither deleted nor about to be.
func givenUp(attempts int) string {
	return fmt.Sprintf(`detail.namespace_id IS NULL AND detail.deletion_attempts >= $%d AND %s AND NOT %s
AND EXISTS (SELECT FROM "public".users AS placeholder WHERE placeholder.id = detail.placeholder_user_id AND placeholder.user_type = %d)`,
		attempts, unqueued, jobWaits, userType)
}

func backlogSQL() string {
	both := arms(1, 2)
	deferred := "detail.namespace_id IS NULL AND detail.deletion_attempts < $1 AND " + triedRecently(2)
	return fmt.Sprintf(`
SELECT
    (SELECT count(*) FROM (
        SELECT FROM %[1]s WHERE detail.namespace_id IS NULL AND detail.deletion_attempts < $1 AND %[2]s LIMIT $3
    ) AS counted),
    (SELECT count(*) FROM (SELECT FROM %[1]s WHERE %[3]s AND %[2]s LIMIT $3) AS counted),
    (SELECT count(*) FROM (SELECT FROM %[1]s WHERE %[4]s LIMIT $3) AS counted),
    coalesce(extract(epoch FROM statement_timestamp() - least(
        (SELECT min(oldest.created_at) FROM (SELECT detail.created_at FROM %[1]s WHERE %[5]s AND isfinite(detail.created_at) AND %[2]s LIMIT $3) AS oldest),
        (SELECT min(oldest.last_deletion_attempt_at) + make_interval(secs => $2::float8)
         FROM (
             SELECT detail.last_deletion_attempt_at FROM %[1]s WHERE %[6]s AND isfinite(detail.last_deletion_attempt_at) AND %[2]s LIMIT $3
         ) AS oldest)
    )), 0)::float8`, details, unqueued, deferred, givenUp(1), both[0], both[1])
}

// firstDeferredSQL is the row that can be offered again next, as NextDueSQL finds it.
func firstDeferredSQL() string {
	return fmt.Sprintf(`
SELECT next.last_deletion_attempt_at + make_interval(secs => $2::float8), coalesce(next.last_error, '')
FROM generate_series(0, $1 - 1) AS tried (times)
CROSS JOIN LATERAL (
    SELECT detail.last_deletion_attempt_at, detail.last_error
    FROM %s
    WHERE detail.namespace_id IS NULL AND detail.deletion_attempts = tried.times AND %s AND %s
    ORDER BY detail.last_deletion_attempt_at
    LIMIT 1
) AS next
ORDER BY next.last_deletion_attempt_at
LIMIT 1`, details, triedRecently(2), unqueued)
}

// ReadBacklog counts what waits, as far as the cap.
func ReadBacklog(ctx context.Context, db dbsqlc.DBTX, names pgschema.Names, rules Rules) (Backlog, error) {
	var b Backlog
	var age float64
	err := db.QueryRow(ctx, names.Render(backlogSQL()), append(rules.args(), backlogCap)...).Scan(&b.Pending, &b.Deferred, &b.GivenUp, &age)
	if err != nil {
		return Backlog{}, fmt.Errorf("count placeholder users: %w", err)
	}
	if b.Deferred > 0 {
		rows, err := db.Query(ctx, names.Render(firstDeferredSQL()), rules.args()...)
		if err != nil {
			return Backlog{}, fmt.Errorf("look for the next placeholder user: %w", err)
		}
		_, err = pgx.ForEachRow(rows, []any{&b.DeferredUntil, &b.DeferredReason}, func() error { return nil })
		if err != nil {
			return Backlog{}, fmt.Errorf("look for the next placeholder user: %w", err)
		}
	}
	if b.Pending == backlogCap {
		b.Pending, b.Capped = backlogCap-1, true
	}
	b.Deferred, b.GivenUp = min(b.Deferred, b.Pending), min(b.GivenUp, backlogCap-1)
	b.OldestAge = max(0, time.Duration(age*float64(time.Second)))
	return b, nil
}

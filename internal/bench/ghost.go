package bench

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"sexton/internal/exampleapp"
	"sexton/internal/problem"
)

// moves says what Ghost compares. The ratios are those of Sexton's median to another one's: of rows per second more is better.
func moves(target float64) contest {
	steered := fmt.Sprintf(", statements steered to %g ms", target)
	if target == 0 {
		steered = ", statements of fixed sizes"
	}
	return contest{
		name: "ghost", targets: "users", head: Row{{"target_ms", "", "", target}},
		ratios: []contestRatio{
			{"ratio_to_one_statement", "sexton / one statement", speeds(sexton, oneStatement), ""},
			{"ratio_to_original", "/ original", speeds(sexton, original), ""},
			{"ratio_wal_to_one_statement", "WAL / one statement", wals(sexton, oneStatement), ""},
		},
		how:  steered,
		note: "original: LIMIT 50 per statement and transaction, no sequential scans; it and one statement move rows only, Sexton also deletes the users",
		work: "half of the users deleted, at least one",
	}
}

// Ghost deletes users and measures how their rows pass to the ghost user: by Sexton, by one statement per table, and by
// statements of the original's shape. After every one it checks that exactly the right rows are the ghost's. The
// cluster has to be one of the job that deletes users; target is that of its statements in milliseconds, 0 for its fixed sizes.
func Ghost(ctx context.Context, g *Cluster, target float64, o Options) (*Report, error) {
	return compareSets(ctx, g, o, moves(target), newUserSet)
}

// The data sets, at their full size: one user who has written 1,000,000 notes; 200 users with 1,000 rows each in four tables;
// and one user with 200,000 notes and as many emoji, of half of which the ghost user has the like.
const (
	BigUser    = "big"
	ManyUsers  = "many"
	Duplicates = "duplicates"
)

// GhostSets lists the data sets in their order.
func GhostSets() []string { return []string{BigUser, ManyUsers, Duplicates} }

const (
	// ghostID is the ghost user's; the deleted users come behind it, and then the users that stay.
	ghostID   = 1
	firstUser = 2
	// userQueue is where users wait for their deletion.
	userQueue = "users_ghost_user_migrations"
	// issuesWithNotes are how many issues the notes are spread over.
	issuesWithNotes = 50_000
)

// moved is a table of the reference application with a column that is moved to the ghost user.
type moved struct {
	Table, Column string
	// Each is how many rows a user has.
	Each int64
	// Double is the condition for rows of which the ghost user has the like; "" where there are none.
	Double string
}

// clear deletes the doubles of the users $1, as plain SQL does it.
func (t moved) clear() string {
	return fmt.Sprintf(`DELETE FROM %[1]s AS child USING %[1]s AS twin
		WHERE child.%[2]s = ANY ($1) AND twin.%[2]s = %[3]d AND twin.awardable_type = child.awardable_type
			AND twin.awardable_id = child.awardable_id AND twin.name = child.name`, t.Table, t.Column, ghostID)
}

// userSet is users with what they have written. Neighbours in a table belong to different users, the bad case for
// locality. The users that stay show that nothing else is moved.
type userSet struct {
	name            string
	targets, spared int64
	Tables          []moved
}

// newUserSet returns one of GhostSets at a fraction of its full size.
func newUserSet(name string, scale float64) (userSet, error) {
	notes := moved{Table: "notes", Column: "author_id"}
	switch name {
	case BigUser:
		// The users that stay have a tenth of the notes together.
		notes.Each = max(100, int64(1_000_000*scale))
		return userSet{name: name, targets: 1, spared: 1, Tables: []moved{notes}}, nil
	case ManyUsers:
		notes.Each = 400
		users := max(10, int64(200*scale))
		return userSet{name: name, targets: users, spared: users / 10, Tables: []moved{
			notes,
			{Table: "issues", Column: "author_id", Each: 200},
			{Table: "award_emoji", Column: "user_id", Each: 200},
			{Table: "resource_label_events", Column: "user_id", Each: 200},
		}}, nil
	case Duplicates:
		notes.Each = max(100, int64(200_000*scale))
		doubles := moved{Table: "award_emoji", Column: "user_id", Each: notes.Each, Double: "awardable_id % 2 = 0"}
		return userSet{name: name, targets: 1, spared: 1, Tables: []moved{notes, doubles}}, nil
	default:
		return userSet{}, fmt.Errorf("no data set %q", name)
	}
}

// Rows are those of a table, of all users. The user that stays beside a big one has a tenth of its rows.
func (s userSet) Rows(t moved) int64 {
	if s.targets == 1 {
		return t.Each + t.Each/10
	}
	return (s.targets + s.spared) * t.Each
}

// Owner is the SQL expression for the user of row n.
func (s userSet) Owner() string {
	if s.targets == 1 {
		return fmt.Sprintf("%d + (n %% 11 = 0)::integer", firstUser)
	}
	return fmt.Sprintf("%d + n %% %d", firstUser, s.targets+s.spared)
}

// Ghost is the id of the ghost user.
func (userSet) Ghost() int64 { return ghostID }

// Last is the id of the last user.
func (s userSet) Last() int64 { return firstUser + s.targets + s.spared - 1 }

// Issues is how many issues the notes are spread over.
func (userSet) Issues() int64 { return issuesWithNotes }

func (s userSet) source() source {
	return source{create: exampleapp.Schema(), fill: statements("users_fill.sql", s)}
}

func (s userSet) title() string { return s.name }

func (s userSet) size() int64 { return s.targets }

func (s userSet) variants() []variant {
	return []variant{
		{name: oneStatement, stalls: true, drain: s.moveByOneStatement},
		{name: original, drain: s.moveByOriginal},
		{name: sexton, stalls: true, prepare: openWorker, drain: drainByWorker},
	}
}

// trial queues the first so many users: the ghost user gets their rows, each once, and no other user loses any.
func (s userSet) trial(targets int64) trial {
	last := firstUser + targets - 1
	t := trial{
		done: func(c content) content {
			return content{rows: c.rows - c.doubles, referring: c.referring + c.targets - c.doubles, others: c.others}
		},
		leftovers: fmt.Sprintf(`SELECT CASE WHEN users + queued > 0 THEN users || ' users and ' || queued || ' rows of the queue' END
			FROM (SELECT count(*) AS users FROM users WHERE id BETWEEN %d AND %d) AS a, (SELECT count(*) AS queued FROM %s) AS b`, firstUser, last, userQueue),
		begin: func(ctx context.Context, conn *pgx.Conn) (time.Duration, error) {
			_, took, err := timed(ctx, conn, "SELECT sexton.delete_user(id, NULL) FROM users WHERE id BETWEEN $1 AND $2", firstUser, last)
			return took, problem.Doing(err, "queue users")
		},
		// What a batch changes it changes in one table alone, no partition and no heir of it.
		watch: &stopwatch{work: "UPDATE ONLY", queue: userQueue},
	}
	for _, table := range s.Tables {
		t.tables = append(t.tables, counted{table.Table, fmt.Sprintf(`
			SELECT count(*), count(*) FILTER (WHERE %[1]s = $1), count(*) FILTER (WHERE %[1]s BETWEEN $2 AND $3),
				coalesce(sum(id) FILTER (WHERE %[1]s > $3), 0)::bigint, count(*) FILTER (WHERE %[1]s BETWEEN $2 AND $3 AND %[3]s)
			FROM %[2]s`, table.Column, table.Table, cmp.Or(table.Double, "false")), []any{ghostID, firstUser, last}})
	}
	return t
}

// notesOfAnIssue is the foreground's query. It does not ask for a user's rows: by statistics from before the move, a
// hundred of the big user's are found on the first pages of the table. They are not there any more once rows move, and
// 750 sequential scans per second that read on for them are more than a machine can do, under every variant.
const notesOfAnIssue = "SELECT id, note FROM notes WHERE noteable_id = $1 AND noteable_type = 'Issue' LIMIT 100" //nolint:misspell // the column's name

// transaction reads the notes of some issue and another note, and updates that one, in one round trip.
func (s userSet) transaction(ctx context.Context, conn *pgx.Conn) error {
	notes := s.Rows(s.Tables[0])
	return use(ctx, conn, notesOfAnIssue, (1+rand.Int64N(notes))%issuesWithNotes, "notes", "note", 1+rand.Int64N(notes))
}

// original has the statements of the original.
const original = "original"

// queued are the users that the work is about, in the order of the queue.
func (p *dataCopy) queued(ctx context.Context) ([]int64, error) {
	rows, _ := p.conn.Query(ctx, "SELECT user_id FROM "+userQueue+" ORDER BY consume_after, id")
	users, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	return users, problem.Doing(err, "load users")
}

// moveByOneStatement is the yardstick: one UPDATE per table for all users at once, in one transaction, behind a DELETE of the
// doubles where there are any. The users stay.
func (s userSet) moveByOneStatement(ctx context.Context, p *dataCopy) error {
	users, err := p.queued(ctx)
	if err != nil {
		return err
	}
	var statements []counted
	for _, t := range s.Tables {
		if t.Double != "" {
			statements = append(statements, counted{t.Table, t.clear(), []any{users}})
		}
		sql := fmt.Sprintf("UPDATE %s SET %s = %d WHERE %[2]s = ANY ($1)", t.Table, t.Column, ghostID)
		statements = append(statements, counted{t.Table, sql, []any{users}})
	}
	return p.together(ctx, statements)
}

// originalMoves is the original's batch.
const originalMoves = 50

// moveByOriginal has the original's statements, without its limits per run: per user and table, until one of them
// changes nothing, and each in a transaction of its own. The users stay. Sequential scans are off, without which the
// planner reads all that has been moved again for every fifty rows.
func (s userSet) moveByOriginal(ctx context.Context, p *dataCopy) error {
	users, err := p.queued(ctx)
	if err != nil {
		return err
	}
	if err := p.avoidSequentialScans(ctx); err != nil {
		return err
	}
	for _, user := range users {
		for _, t := range s.Tables {
			if t.Double != "" {
				if _, err := p.send(ctx, t.Table, t.clear(), []int64{user}); err != nil {
					return err
				}
			}
			if err := p.exhaust(ctx, t.Table, originalStatement(t), user); err != nil {
				return err
			}
		}
	}
	return nil
}

func originalStatement(t moved) string {
	return fmt.Sprintf("UPDATE %[1]s SET %[2]s = %[3]d WHERE id IN (SELECT id FROM %[1]s WHERE %[2]s = $1 LIMIT %[4]d)",
		t.Table, t.Column, ghostID, originalMoves)
}

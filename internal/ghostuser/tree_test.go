package ghostuser_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/ghostuser"
	"sexton/internal/pgtest"
)

// topics creates topics below users, replies below topics and marks below replies. Pins
// refer to topics with ON DELETE SET NULL. A statement that deletes more than 100 replies
// fails with the error of a statement timeout.
const topics = `
CREATE TABLE topics (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
CREATE INDEX ON topics (user_id);
CREATE TABLE replies (id bigint PRIMARY KEY, topic_id bigint NOT NULL REFERENCES topics ON DELETE CASCADE, parent_id bigint REFERENCES replies ON DELETE CASCADE);
CREATE INDEX ON replies (topic_id);
CREATE INDEX ON replies (parent_id);
CREATE TABLE marks (id bigint PRIMARY KEY, reply_id bigint NOT NULL REFERENCES replies ON DELETE CASCADE);
CREATE INDEX ON marks (reply_id);
CREATE TABLE pins (id bigint PRIMARY KEY, topic_id bigint REFERENCES topics ON DELETE SET NULL);
CREATE INDEX ON pins (topic_id);
CREATE FUNCTION tire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	PERFORM pg_catalog.set_config('test.deleted', (coalesce(nullif(pg_catalog.current_setting('test.deleted', true), ''), '0')::integer + 1)::text, true);
	IF pg_catalog.current_setting('test.deleted')::integer > 100 THEN
		RAISE EXCEPTION 'canceling statement due to statement timeout' USING ERRCODE = '57014';
	END IF;
	RETURN old; END $$;
CREATE TRIGGER tire BEFORE DELETE ON replies FOR EACH ROW EXECUTE FUNCTION tire();
INSERT INTO topics VALUES (1, 1), (2, 1), (3, 2), (4, 5);
INSERT INTO replies SELECT n, 1, CASE WHEN n % 10 <> 1 THEN n - 1 END FROM generate_series(1, 600) AS n;
INSERT INTO replies VALUES (1001, 2, NULL), (1002, 3, NULL), (1003, 4, NULL);
INSERT INTO marks SELECT id, id FROM replies;
INSERT INTO pins VALUES (1, 1), (2, 3), (3, 4);`

// Rows with rows below them are deleted children first if one statement would exceed the
// timeout. The statistics count all of them.
func TestTreesAreDeletedChildrenFirst(t *testing.T) {
	t.Parallel()
	b := setup(t, topics, lists())
	b.queue(true, 2)
	b.requireDone(t, b.run(t), 1)
	require.Empty(t, b.Rows("SELECT FROM replies WHERE topic_id = 3"))

	b.queue(true, 1)
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.Equal(t, map[string]int64{"topics.user_id": 2, "replies": 601, "marks": 601}, stats.Deleted)
	require.Equal(t, map[string]int64{"pins.topic_id": 1}, stats.Nullified)
	require.Equal(t, [][]string{{"4"}}, b.Rows("SELECT id FROM topics"))
	require.Equal(t, [][]string{{"1003"}}, b.Rows("SELECT reply_id FROM marks"))
	require.Equal(t, [][]string{{"1", "NULL"}, {"2", "NULL"}, {"3", "4"}}, b.Rows("SELECT * FROM pins ORDER BY id"))
	require.Equal(t, [][]string{{"1204", "1"}}, b.Rows(
		"SELECT payload ->> 'deleted', payload ->> 'nullified' FROM sexton.events WHERE payload ->> 'user_id' = '1'"))
}

func TestTriggersSeeNoPlannerSettings(t *testing.T) {
	t.Parallel()
	b := setup(t,
		topics+"INSERT INTO posts VALUES (1, 1); INSERT INTO likes VALUES (1, 1); INSERT INTO visits VALUES (1, 1);",
		lists())
	// Fewer replies are enough, and shorten the test.
	b.Exec("ALTER TABLE replies DISABLE TRIGGER USER; DELETE FROM replies WHERE id BETWEEN 201 AND 600; ALTER TABLE replies ENABLE TRIGGER USER")
	tables := []string{
		"users", "users_ghost_user_migrations", "posts", "likes", "visits", "topics", "replies", "marks",
		"pins",
	}
	b.RecordPlannerSettings(tables...)
	b.queue(true, 1)
	b.queue(false, 2)
	b.requireDone(t, b.run(t), 2)
	b.RequireDefaultPlannerSettings(t, tables...)
}

// After a kill in the middle of a tree, the next run deletes the remaining rows. The
// event counts the rows of both runs.
func TestTreesAfterAKill(t *testing.T) {
	t.Parallel()
	b := setup(t, topics, lists())
	b.queue(true, 1)
	dying, stop := context.WithCancel(t.Context())
	kill := b.KillOnce(b.engine.Session.Conn)
	b.engine.Progress = func(_ context.Context, stats *ghostuser.Stats) {
		if stats.Deleted["replies"] > 100 {
			stop()
			kill()
		}
	}
	_, err := b.engine.Run(dying)
	require.Error(t, err)
	require.Equal(t, [][]string{{"0"}}, b.Rows("SELECT attempts FROM users_ghost_user_migrations"))
	left := len(b.Rows("SELECT FROM replies WHERE topic_id < 3"))
	require.Positive(t, left)
	require.Less(t, left, 601)
	_, err = b.Pool().Exec(t.Context(), "SELECT sexton.cancel_user_deletion(1, NULL)")
	require.ErrorContains(t, err, "it has begun")

	b.engine = b.newEngineAfterKill(t)
	b.Exec("CREATE OR REPLACE FUNCTION tire() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF pg_catalog.pg_trigger_depth() > 1 THEN RAISE EXCEPTION ''cascaded''; END IF; RETURN old; END'")
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.EqualValues(t, left, stats.Deleted["replies"])
	require.Equal(t, [][]string{{"1204"}}, b.Rows("SELECT payload ->> 'deleted' FROM sexton.events"))
}

// A run waits for locked rows below other rows without counting an attempt. A row that
// forbids the deletion fails the user, and the error names the row.
func TestTreesWithLockedAndForbiddingRows(t *testing.T) {
	t.Parallel()
	b := setup(t, topics+`
		CREATE TABLE receipts (id bigint PRIMARY KEY, mark_id bigint REFERENCES marks);
		CREATE INDEX ON receipts (mark_id);
		INSERT INTO receipts VALUES (77, 300);
`, lists())
	b.engine.Limits.RetryAfter = time.Hour
	b.queue(true, 1)
	require.Equal(t, []batch.FaultCounts{{
		Table:   "receipts",
		Message: "the row with id 77 refers to marks, and foreign key receipts_mark_id_fkey has no ON DELETE action",
		Count:   1,
	}}, b.run(t).Errors)
	require.Equal(t,
		[][]string{{
			"1", "1", "t",
			"receipts: the row with id 77 refers to marks, and foreign key receipts_mark_id_fkey has no ON DELETE action",
		}}, b.queued())

	b.Exec("DELETE FROM receipts; UPDATE users_ghost_user_migrations SET consume_after = now()")
	tx := b.Begin(t, "SELECT FROM marks WHERE id = 300 FOR UPDATE")
	wait := b.runWhile(t.Context(), t)
	b.AwaitLock(t)
	require.NoError(t, tx.Commit(t.Context()))
	b.requireDone(t, wait(), 1)
}

// A row that the ghost user has already is deleted with the rows below it. The rows below
// a moved row are kept.
func TestDuplicatesWithTrees(t *testing.T) {
	t.Parallel()
	b := setup(t, topics+`
		ALTER TABLE topics ADD UNIQUE (user_id, id);
		ALTER TABLE topics ADD name text, ADD UNIQUE (user_id, name);
		INSERT INTO topics VALUES (90, 9, 'one');
		INSERT INTO replies VALUES (1090, 90);
		UPDATE topics SET name = CASE id WHEN 1 THEN 'one' ELSE 'other' || id END WHERE id < 90;`, lists())
	l := lists()
	l.Move = append(l.Move, ghostuser.Move{Table: "topics", Columns: []string{"user_id"}})
	b.engine.Plan = plan(t, b.DB, l)
	b.queue(false, 1)
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.EqualValues(t, 1, stats.Duplicates)
	require.Equal(t, map[string]int64{"topics.user_id": 1}, stats.Moved)
	require.Equal(t, map[string]int64{"topics.user_id": 1, "replies": 600, "marks": 600}, stats.Deleted)
	require.Equal(t, [][]string{{"2", "9"}, {"90", "9"}},
		b.Rows("SELECT id, user_id FROM topics WHERE user_id IS NULL OR user_id NOT IN (2, 5) ORDER BY id"))
	require.Equal(t, [][]string{{"1001"}, {"1090"}},
		b.Rows("SELECT id FROM replies WHERE topic_id IN (2, 90) ORDER BY id"))
}

// Foreign keys to more columns of users than the id have no step in the plan. Their rows
// are deleted before the user.
func TestTreesBelowCompositeKeys(t *testing.T) {
	t.Parallel()
	b := setup(t, topics+`
		ALTER TABLE users ADD shard integer NOT NULL DEFAULT 1, ADD UNIQUE (id, shard);
		CREATE TABLE visas (id bigint PRIMARY KEY, holder bigint, shard integer, FOREIGN KEY (holder, shard) REFERENCES users (id, shard) ON DELETE CASCADE);
		CREATE INDEX ON visas (holder, shard);
		CREATE TRIGGER tire BEFORE DELETE ON visas FOR EACH ROW EXECUTE FUNCTION tire();
		INSERT INTO visas SELECT n, 3, 1 FROM generate_series(1, 600) AS n;
		INSERT INTO visas VALUES (1000, 4, 1);`, lists())
	b.queue(false, 3)
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.Equal(t, map[string]int64{"visas": 600}, stats.Deleted)
	require.Equal(t, [][]string{{"1000"}}, b.Rows("SELECT id FROM visas"))
	require.Equal(t, fmt.Sprint(600), b.Rows("SELECT payload ->> 'deleted' FROM sexton.events")[0][0])
}

// The application, or a trigger on the rows below, may change the top row of a tree
// during its deletion. The run still deletes the tree without an error.
func TestTopOfATreeChanges(t *testing.T) {
	t.Parallel()
	const counted = topics + `
		ALTER TABLE topics ADD n integer NOT NULL DEFAULT 0;
		CREATE FUNCTION recount() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE topics SET n = n - 1 WHERE id = old.topic_id; RETURN old; END $$;`
	const recounting = "CREATE TRIGGER recount AFTER DELETE ON replies FOR EACH ROW EXECUTE FUNCTION recount();"
	type example struct {
		tables    string
		duplicate bool
		want      map[string]int64
	}
	all := map[string]int64{"topics.user_id": 2, "replies": 601, "marks": 601}
	pgtest.Each(t, map[string]example{
		"by a trigger":       {tables: recounting, want: all},
		"by the application": {want: all},
		"of a duplicate": {tables: recounting + `
			ALTER TABLE topics ADD name text, ADD UNIQUE (user_id, name);
			INSERT INTO topics VALUES (90, 9, 0, 'one');
			UPDATE topics SET name = 'one' WHERE id = 1;`, duplicate: true, want: map[string]int64{"topics.user_id": 1, "replies": 600, "marks": 600}},
	}, func(t *testing.T, _ string, test example) {
		b := setup(t, counted+test.tables, lists())
		if test.duplicate {
			l := lists()
			l.Move = append(l.Move, ghostuser.Move{Table: "topics", Columns: []string{"user_id"}})
			b.engine.Plan = plan(t, b.DB, l)
		}
		b.queue(!test.duplicate, 1)
		if test.tables == "" {
			b.engine.Progress = func(context.Context,
				*ghostuser.Stats,
			) {
				b.Exec("UPDATE topics SET n = n + 1 WHERE user_id = 1")
			}
		}
		stats := b.run(t)
		b.requireDone(t, stats, 1)
		// A cascade deletes the last replies together with their topic, and the run does
		// not count these replies.
		if test.duplicate {
			require.Equal(t, test.want["topics.user_id"], stats.Deleted["topics.user_id"])
			return
		}
		require.Equal(t, test.want, stats.Deleted)
	})
}

// If the application gives a row to another user during the run, the row and the rows
// that are still below it are kept.
func TestTreeIsGivenToAnotherUser(t *testing.T) {
	t.Parallel()
	b := setup(t, topics, lists())
	b.queue(true, 1)
	left := 0
	b.doOnce(func(stats *ghostuser.Stats) bool { return stats.Deleted["replies"] > 0 }, func() {
		left = len(b.Rows("SELECT FROM replies WHERE topic_id = 1"))
		b.Exec("UPDATE topics SET user_id = 2 WHERE id = 1")
	})
	b.requireDone(t, b.run(t), 1)
	require.Positive(t, left)
	require.Len(t, b.Rows("SELECT FROM replies WHERE topic_id = 1"), left)
	require.Equal(t, [][]string{{"1", "2"}, {"3", "2"}, {"4", "5"}}, b.Rows("SELECT * FROM topics ORDER BY id"))
}

// If an uncommitted transaction gives a row to another user, the run waits for the
// transaction before it deletes the rows below. After the commit it keeps these rows.
func TestUncommittedChangeOfATopRow(t *testing.T) {
	t.Parallel()
	b := setup(t, topics, lists())
	b.queue(true, 1)
	tx := b.Begin(t, "UPDATE topics SET user_id = 2 WHERE id = 1")
	wait := b.runWhile(t.Context(), t)
	b.AwaitLock(t)
	require.NoError(t, tx.Commit(t.Context()))
	stats := wait()
	b.requireDone(t, stats, 1)
	require.Equal(t, map[string]int64{"topics.user_id": 1, "replies": 1, "marks": 1}, stats.Deleted)
	require.Empty(t, stats.Nullified)
}

// If a trigger inserts deleted rows again, at the top of a tree or below, the user is
// deferred with an error.
func TestRowsOfTreesReappear(t *testing.T) {
	t.Parallel()
	type example struct {
		table, insert string
		more          int
	}
	pgtest.Each(t, map[string]example{
		"at the top":      {"topics", "INSERT INTO public.topics VALUES (old.id + 1000, old.user_id)", 0},
		"many at the top": {"topics", "INSERT INTO public.topics VALUES (old.id + 1000, old.user_id)", 70},
		"below":           {"replies", "INSERT INTO public.replies VALUES (old.id + 10000, old.topic_id)", 0},
	}, func(t *testing.T, _ string, c example) {
		b := setup(t, topics+`
			CREATE FUNCTION put_back() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN `+c.insert+`; RETURN NULL; END';
			CREATE TRIGGER put_back AFTER DELETE ON `+c.table+` FOR EACH ROW EXECUTE FUNCTION put_back();`, lists())
		b.Exec("INSERT INTO topics SELECT n, 2 FROM generate_series(101, 100 + $1) AS n", c.more)
		b.queue(true, 2)
		stats := b.run(t)
		require.Len(t, stats.Errors, 1)
		require.Equal(t, c.table, stats.Errors[0].Table)
		require.Contains(t, stats.Errors[0].Message, "rows reappear as fast as they are deleted")
		require.Equal(t, [][]string{{"1"}}, b.Rows("SELECT attempts FROM users_ghost_user_migrations"))
	})
}

package ghostuser_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/ghostuser"
	"sexton/internal/jobrun"
	"sexton/internal/pgtest"
)

const contributions = `
INSERT INTO posts SELECT n, 1 + n % 2, 'post ' || n FROM generate_series(1, 240) AS n;
INSERT INTO likes SELECT n, 1 + n % 2, n FROM generate_series(1, 60) AS n;
INSERT INTO visits SELECT n, 1 + n % 2 FROM generate_series(1, 3000) AS n;`

func TestSoftDelete(t *testing.T) {
	t.Parallel()
	b := setup(t, contributions, lists())
	b.queue(false, 1)
	b.Exec("UPDATE users_ghost_user_migrations SET created_at = now() - interval '50 minutes'")
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.Equal(t, jobrun.Histogram{"3600": 1}, stats.Latency)
	require.Equal(t, map[string]int64{"posts.author_id": 120, "likes.user_id": 30}, stats.Moved)
	require.Equal(t, map[string]int64{"visits.user_id": 1500}, stats.Deleted)
	require.Empty(t, stats.Nullified)
	require.EqualValues(t, 3+1+2+1, stats.Batches, "3 moves of 50 posts, 1 of likes, 2 deletions of 1000 rows, and the user")
	require.False(t, stats.OverLimit)
	require.Equal(t, [][]string{{"2", "120"}, {"9", "120"}},
		b.Rows("SELECT author_id, count(*) FROM posts GROUP BY 1 ORDER BY 1"))
	require.Equal(t, [][]string{{"2", "30"}, {"9", "30"}},
		b.Rows("SELECT user_id, count(*) FROM likes GROUP BY 1 ORDER BY 1"))
	require.Equal(t, [][]string{{"2", "1500"}}, b.Rows("SELECT user_id, count(*) FROM visits GROUP BY 1 ORDER BY 1"))
	require.Empty(t, b.Rows("SELECT FROM users WHERE id = 1"))
	require.Equal(t, [][]string{{"user_destroyed", "1", "t", "NULL", "false", "150", "1500", "0"}}, b.Rows(`
		SELECT kind, payload ->> 'user_id', payload ->> 'username_sha256' = encode(sha256('user1'), 'hex'), payload ->> 'initiator_user_id',
			payload ->> 'hard_delete', payload ->> 'moved', payload ->> 'deleted', payload ->> 'nullified'
		FROM sexton.events`))
	require.Equal(t, []ghostuser.Item{{
		UserID: dml.IntegerID(1), Outcome: ghostuser.Destroyed, Moved: 150,
		Deleted: 1500,
	}}, b.items)

	again := b.run(t)
	require.False(t, again.Changed(), "the second run changes nothing")
	require.Zero(t, again.Batches)
}

func TestHardDelete(t *testing.T) {
	t.Parallel()
	l := lists()
	l.Move = append(l.Move, ghostuser.Move{Table: "prizes", Columns: []string{"given_by_id"}, Always: true})
	b := setup(t, contributions+`
		CREATE TABLE prizes (id bigint PRIMARY KEY, given_by_id bigint REFERENCES users);
		CREATE INDEX ON prizes (given_by_id);
		INSERT INTO prizes VALUES (1, 1), (2, 2);`, l)
	b.queue(true, 1)
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.Equal(t, map[string]int64{"prizes.given_by_id": 1}, stats.Moved)
	require.Equal(t, map[string]int64{"visits.user_id": 1500, "likes.user_id": 30}, stats.Deleted)
	require.Equal(t, map[string]int64{"posts.author_id": 120}, stats.Nullified, "by the foreign key's own action")
	require.Equal(t, [][]string{{"1", "9"}, {"2", "2"}}, b.Rows("SELECT * FROM prizes ORDER BY id"))
}

// A row that the ghost user has already, or that collides with a row of the same batch,
// is treated as on a hard delete: it is deleted or nullified instead of moved.
func TestDuplicates(t *testing.T) {
	t.Parallel()
	b := setup(t, `
		INSERT INTO likes SELECT n, 1, n FROM generate_series(1, 400) AS n;
		INSERT INTO likes SELECT 1000 + n, 9, n FROM generate_series(1, 400) AS n WHERE n % 90 = 7;
		CREATE TABLE pins (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE SET NULL, EXCLUDE USING btree (user_id WITH =));
		CREATE INDEX ON pins (user_id);
		INSERT INTO pins VALUES (1, 1), (9, 9);
		CREATE TABLE seats (id bigint PRIMARY KEY, user_id bigint NOT NULL, UNIQUE (user_id) DEFERRABLE INITIALLY DEFERRED);
		INSERT INTO seats VALUES (1, 1), (9, 9);`, ghostuser.Lists{Move: []ghostuser.Move{
		{Table: "likes", Columns: []string{"user_id"}},
		{Table: "pins", Columns: []string{"user_id"}},
		{Table: "seats", Columns: []string{"user_id"}},
	}})
	b.queue(false, 1)
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.Equal(t, map[string]int64{"likes.user_id": 395}, stats.Moved)
	require.Equal(t, map[string]int64{"likes.user_id": 5, "seats.user_id": 1}, stats.Deleted)
	require.Equal(t, map[string]int64{"pins.user_id": 1}, stats.Nullified)
	require.EqualValues(t, 7, stats.Duplicates)
	require.Equal(t, [][]string{{"9", "400"}}, b.Rows("SELECT user_id, count(*) FROM likes GROUP BY 1"))
	require.Equal(t, [][]string{{"1", "NULL"}, {"9", "9"}}, b.Rows("SELECT * FROM pins ORDER BY id"))
}

// One statement deletes many rows that the ghost user has already. Two rows are equal if
// any of the unique indexes forbids both for one user.
func TestManyDuplicatesAreDeletedTogether(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]time.Duration{"fixed sizes": 0, "with target": 50 * time.Millisecond},
		func(t *testing.T, _ string, target time.Duration) {
			b := setup(t, `
			CREATE TABLE marks (id bigint PRIMARY KEY, user_id bigint, place bigint, name text COLLATE "C", shade text, UNIQUE (user_id, place, name));
			CREATE UNIQUE INDEX ON marks (shade, user_id);
			INSERT INTO marks SELECT n, 1, n, 'x', n FROM generate_series(1, 3000) AS n;
			INSERT INTO marks SELECT 10000 + n, 9, n, 'x', 'other ' || n FROM generate_series(1, 3000, 3) AS n;
			INSERT INTO marks SELECT 20000 + n, 9, NULL, 'x', n FROM generate_series(2, 3000, 3) AS n;
			INSERT INTO marks SELECT 30000 + n, 9, n, 'y', NULL FROM generate_series(1, 3000) AS n;
			CREATE TABLE halves (id bigint PRIMARY KEY, user_id bigint, place bigint, whole boolean);
			CREATE UNIQUE INDEX ON halves (user_id, place) WHERE NOT whole;
			INSERT INTO halves SELECT n, 1, n, n % 2 = 0 FROM generate_series(1, 20) AS n;
			INSERT INTO halves SELECT 100 + n, 9, n, false FROM generate_series(1, 20) AS n;`,
				ghostuser.Lists{Move: []ghostuser.Move{
					{Table: "marks", Columns: []string{"user_id"}},
					{Table: "halves", Columns: []string{"user_id"}},
				}})
			b.engine.Sizes = ghostuser.Sizes{Move: 500, Target: target}
			b.queue(false, 1)
			stats := b.run(t)
			b.requireDone(t, stats, 1)
			require.Equal(t, map[string]int64{"marks.user_id": 1000, "halves.user_id": 10}, stats.Moved)
			require.Equal(t, map[string]int64{"marks.user_id": 2000, "halves.user_id": 10}, stats.Deleted)
			require.EqualValues(t, 2010, stats.Duplicates)
			require.Equal(t, [][]string{{"1000", "0"}},
				b.Rows("SELECT count(*), sum(id % 3) FROM marks WHERE id <= 3000 AND user_id = 9"))
			require.Equal(t, [][]string{{"10"}},
				b.Rows("SELECT count(*) FROM halves WHERE id <= 20 AND whole AND user_id = 9"),
				"the partial index does not have these rows")
			if target == 0 {
				require.Less(t, stats.Batches, int64(60), "marks are not deleted one by one")
			}
		})
}

func TestOtherForeignKeysFollowTheirAction(t *testing.T) {
	t.Parallel()
	b := setup(t, `
		CREATE SCHEMA other;
		CREATE TABLE other.badges (id bigint PRIMARY KEY, user_id integer REFERENCES users ON DELETE CASCADE);
		CREATE INDEX ON other.badges (user_id);
		INSERT INTO other.badges VALUES (1, 1), (2, 2);
		CREATE TABLE files (id bigint PRIMARY KEY, owner_id bigint DEFAULT 3 REFERENCES users ON DELETE SET DEFAULT);
		CREATE INDEX ON files (owner_id);
		INSERT INTO files VALUES (1, 1), (2, 2);
		ALTER TABLE users ADD invited_by_id bigint REFERENCES users ON DELETE SET NULL;
		CREATE INDEX ON users (invited_by_id);
		UPDATE users SET invited_by_id = 1 WHERE id IN (4, 5);`, lists())
	b.queue(false, 1)
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.Equal(t, map[string]int64{"other.badges.user_id": 1}, stats.Deleted)
	require.Equal(t, map[string]int64{"files.owner_id": 1, "users.invited_by_id": 2}, stats.Nullified)
	require.Equal(t, [][]string{{"1", "3"}, {"2", "2"}}, b.Rows("SELECT * FROM files ORDER BY id"))
}

// partedBuilds creates a table with a partition that is partitioned itself.
const partedBuilds = `
CREATE TABLE builds (id bigint, part int, user_id bigint) PARTITION BY LIST (part);
CREATE TABLE builds_1 PARTITION OF builds FOR VALUES IN (1);
CREATE TABLE builds_2 PARTITION OF builds FOR VALUES IN (2) PARTITION BY RANGE (id);
CREATE TABLE builds_2a PARTITION OF builds_2 FOR VALUES FROM (0) TO (50);
CREATE TABLE builds_2b PARTITION OF builds_2 FOR VALUES FROM (50) TO (1000);
CREATE INDEX ON builds (user_id);`

func TestRowsOfPartitionsAreMoved(t *testing.T) {
	t.Parallel()
	b := setup(t, partedBuilds+`
		INSERT INTO builds SELECT n, 1 + n % 2, 1 FROM generate_series(1, 200) AS n;`,
		ghostuser.Lists{Move: []ghostuser.Move{{Table: "builds", Columns: []string{"user_id"}}}})
	b.queue(false, 1)
	stats := b.run(t)
	b.requireDone(t, stats, 1)
	require.Equal(t, map[string]int64{"builds.user_id": 200}, stats.Moved)
	require.Equal(t, [][]string{{"9", "200"}}, b.Rows("SELECT user_id, count(*) FROM builds GROUP BY 1"))
}

// A foreign key of a partition that is partitioned itself is followed for the rows of
// that partition only.
func TestForeignKeyOfAPartitionedPartition(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]time.Duration{"without target": 0, "with target": time.Second},
		func(t *testing.T, _ string, target time.Duration) {
			b := setup(t, partedBuilds+`
			ALTER TABLE builds_2 ADD FOREIGN KEY (user_id) REFERENCES users ON DELETE CASCADE;
			INSERT INTO builds SELECT n, 1 + n % 2, 1 + n % 4 / 2 FROM generate_series(1, 200) AS n;`, lists())
			b.engine.Sizes.Target = target
			b.queue(false, 1)
			stats := b.run(t)
			b.requireDone(t, stats, 1)
			require.Equal(t, map[string]int64{"builds_2.user_id": 50}, stats.Deleted)
			require.Equal(t, [][]string{{"1", "1", "50"}, {"1", "2", "50"}, {"2", "2", "50"}},
				b.Rows("SELECT part, user_id, count(*) FROM builds GROUP BY 1, 2 ORDER BY 1, 2"))
		})
}

// A plan has only the partitions that existed when it was made. A user with rows in a
// newer partition fails, and is deleted with the next plan.
func TestPartitionCreatedAfterThePlan(t *testing.T) {
	t.Parallel()
	l := ghostuser.Lists{Move: []ghostuser.Move{{Table: "builds", Columns: []string{"user_id"}}}}
	b := setup(t, `
		CREATE TABLE builds (id bigint, part int, user_id bigint) PARTITION BY LIST (part);
		CREATE TABLE builds_1 PARTITION OF builds FOR VALUES IN (1);
		CREATE INDEX ON builds (user_id);
		INSERT INTO builds VALUES (1, 1, 1);`, l)
	b.Exec("CREATE TABLE builds_2 PARTITION OF builds FOR VALUES IN (2); INSERT INTO builds VALUES (2, 2, 1)")
	b.queue(false, 1)
	stats := b.run(t)
	require.Len(t, stats.Errors, 1)
	require.Contains(t, stats.Errors[0].Message, "or a partition was created after the run began")
	b.engine.Plan = plan(t, b.DB, l)
	b.Exec("UPDATE users_ghost_user_migrations SET consume_after = now(); ALTER TABLE builds DETACH PARTITION builds_1; INSERT INTO builds_1 VALUES (3, 1, 1)")
	b.requireDone(t, b.run(t), 1)
	require.Equal(t, [][]string{{"1", "9"}, {"3", "1"}}, b.Rows("SELECT id, user_id FROM builds_1 ORDER BY id"),
		"rows of a detached partition are kept")
}

func TestConditionsMoveOnlyMatchingRows(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]time.Duration{"without target": 0, "with target": time.Second},
		func(t *testing.T, _ string, target time.Duration) {
			b := setup(t, `
			CREATE TABLE snippets (id bigint PRIMARY KEY, author_id bigint REFERENCES users ON DELETE CASCADE, type varchar(20));
			CREATE INDEX ON snippets (author_id);
			INSERT INTO snippets VALUES (1, 1, 'project'), (2, 1, 'personal'), (3, 1, NULL), (4, 2, 'project'), (5, 3, 'project'), (6, 3, NULL);`,
				ghostuser.Lists{Move: []ghostuser.Move{
					{
						Table: "snippets", Columns: []string{"author_id"},
						Conditions: []definitions.Condition{{Column: "type", Value: "project"}},
					},
				}})
			b.engine.Sizes.Target = target
			b.queue(false, 1, 3)
			stats := b.run(t)
			b.requireDone(t, stats, 2)
			require.Equal(t, [][]string{{"1", "9"}, {"4", "2"}, {"5", "9"}},
				b.Rows("SELECT id, author_id FROM snippets ORDER BY id"))
			if target > 0 {
				require.EqualValues(t, 2*2+2, stats.Batches,
					"one for the moved rows, one for the other rows, and one for the user, each twice")
			}
		})
}

// A user with many rows does not delay other users, even if the other users are queued
// later.
func TestUsersTakeTurns(t *testing.T) {
	t.Parallel()
	b := setup(t, `
		INSERT INTO posts SELECT n, 1, 'post' FROM generate_series(1, 6000) AS n;
		INSERT INTO posts VALUES (100001, 2, 'post'), (100002, 3, 'post');`, lists())
	b.queue(false, 1, 2)
	b.engine.Sizes.Move = 5
	b.doOnce(func(stats *ghostuser.Stats) bool { return stats.Moved["posts.author_id"] > 1000 }, func() {
		b.queue(false, 3)
		b.Exec("UPDATE users_ghost_user_migrations SET consume_after = '-infinity' WHERE user_id = 3")
	})
	b.requireDone(t, b.run(t), 3)
	require.Equal(t, []int64{2, 3, 1}, b.endedUsers())
}

// drafts creates a table whose deleted rows are published in events.
const drafts = `
CREATE TABLE "draft's" (part integer, "Id" bigint, user_id bigint REFERENCES users ON DELETE CASCADE, PRIMARY KEY (part, "Id"));
CREATE INDEX ON "draft's" (user_id);
INSERT INTO "draft's" SELECT n % 3, n, 1 + n % 3 FROM generate_series(1, 300) AS n;`

func listsWithEvent() ghostuser.Lists {
	l := lists()
	l.Delete = append(l.Delete, ghostuser.Columns{Table: "draft's", Columns: []string{"user_id"}, Event: true})
	return l
}

// eventKeys returns the keys in the events of deleted rows, with the user and the table.
func (b *bundle) eventKeys() [][]string {
	return b.Rows(`SELECT payload ->> 'user_id', payload ->> 'table', key FROM sexton.events, jsonb_array_elements(payload -> 'keys') AS key
		WHERE kind = 'files_orphaned' ORDER BY 1, 2, (key -> 'Id')::bigint, 3`)
}

// expectedKeys returns what eventKeys must return after the deletion of the users.
func (b *bundle) expectedKeys(users ...int64) [][]string {
	return b.Rows(`SELECT user_id, 'draft''s', jsonb_build_object('Id', "Id", 'part', part) FROM "draft's" WHERE user_id = ANY ($1) ORDER BY user_id, "Id"`, users)
}

// Each deleted row is in one event, with its key and user, although the worker is killed
// after batches.
func TestDeletedRowsAreInEvents(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string]time.Duration{"without target": 0, "with target": 20 * time.Millisecond},
		func(t *testing.T, _ string, target time.Duration) {
			b := setup(t, drafts, listsWithEvent())
			want := b.expectedKeys(1, 2)
			require.Len(t, want, 200)
			b.queue(false, 1, 2)
			for done, kills := false, 0; !done; kills++ {
				b.Exec("UPDATE sexton.leases SET expires_at = now()")
				b.engine = b.newEngine(t, listsWithEvent())
				b.engine.Sizes = ghostuser.Sizes{Target: target, Delete: 40}
				if kill := b.KillOnce(b.engine.Session.Conn); kills < 4 {
					b.engine.Progress = func(context.Context, *ghostuser.Stats) { kill() }
				}
				_, err := b.engine.Run(t.Context())
				if done = len(b.queued()) == 0; !done {
					require.Error(t, err)
				}
			}
			require.Equal(t, want, b.eventKeys())
			require.Len(t, b.Rows(`SELECT FROM "draft's"`), 100)
		})
}

// Rows that are deleted because the ghost user has them already are in events, and moved
// rows are not. Rows at the top of a tree are in events, and the rows below them are not.
func TestDuplicatesAndTreesAreInEvents(t *testing.T) {
	t.Parallel()
	const likes = "INSERT INTO likes SELECT n, 1, n FROM generate_series(1, 20) AS n; INSERT INTO likes SELECT n + 100, 9, n FROM generate_series(1, 8) AS n;"
	pgtest.Each(t, map[string][]any{"likes": {likes, 8}, "topics": {topics, 2}},
		func(t *testing.T, table string, test []any) {
			b := setup(t, test[0].(string), lists())
			l := lists()
			l.Delete = append(l.Delete, ghostuser.Columns{Table: table, Columns: []string{"user_id"}, Event: true})
			b.engine.Plan = plan(t, b.DB, l)
			b.queue(false, 1)
			b.requireDone(t, b.run(t), 1)
			var want [][]string
			for id := range test[1].(int) {
				want = append(want, []string{"1", table, fmt.Sprintf(`{"id": %d}`, id+1)})
			}
			require.ElementsMatch(t, want, b.eventKeys())
		})
}

// Rows of tables with events are deleted before the rows above them, whose cascades would
// delete them without an event. The order of the lists does not matter. Rows of other
// users that are deleted below a row are in events, too.
func TestRowsBelowOtherRowsAreInEvents(t *testing.T) {
	t.Parallel()
	const uploads = `
		CREATE TABLE uploads (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, topic_id bigint REFERENCES topics ON DELETE CASCADE);
		CREATE INDEX ON uploads (user_id);
		CREATE INDEX ON uploads (topic_id);
		INSERT INTO uploads VALUES (1, 1, 2), (2, 1, NULL), (3, 2, 1);`
	type example struct {
		order, events []string
		tree          bool
		want          [][]string
	}
	pgtest.Each(t, map[string]example{
		"below first": {order: []string{"uploads", "topics"}, events: []string{"uploads"}},
		"above first": {order: []string{"topics", "uploads"}, events: []string{"uploads"}},
		"both with events": {
			order: []string{"topics", "uploads"}, events: []string{"topics", "uploads"},
			want: [][]string{{"1", "topics", `{"id": 2}`}},
		},
		"children first": {
			order: []string{"topics", "uploads"}, events: []string{"uploads"}, tree: true,
			want: [][]string{{"1", "uploads", `{"id": 3}`}},
		},
		"above not named": {order: []string{"uploads"}, events: []string{"uploads"}},
	}, func(t *testing.T, _ string, test example) {
		b := setup(t, topics+uploads, lists())
		if !test.tree {
			b.Exec("UPDATE replies SET topic_id = 3 WHERE id > 0; DELETE FROM topics WHERE id = 1")
		}
		l := lists()
		for _, table := range test.order {
			l.Delete = append(l.Delete, ghostuser.Columns{
				Table: table, Columns: []string{"user_id"},
				Event: slices.Contains(test.events, table),
			})
		}
		b.engine.Plan = plan(t, b.DB, l)
		b.queue(true, 1)
		b.requireDone(t, b.run(t), 1)
		require.ElementsMatch(t, append(test.want, []string{"1", "uploads", `{"id": 1}`},
			[]string{"1", "uploads", `{"id": 2}`}), b.eventKeys())
	})
}

// An event contains the configured columns of rows of the user and of rows below other
// rows.
func TestEventsHaveColumns(t *testing.T) {
	t.Parallel()
	b := setup(t, topics+`
		CREATE TABLE uploads (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, topic_id bigint REFERENCES topics ON DELETE CASCADE, path text);
		CREATE INDEX ON uploads (user_id);
		CREATE INDEX ON uploads (topic_id);
		INSERT INTO uploads VALUES (1, 1, 2, 'a'), (2, 1, NULL, NULL), (3, 2, 1, 'c');`, lists())
	l := lists()
	l.Delete = append(l.Delete, ghostuser.Columns{Table: "topics", Columns: []string{"user_id"}},
		ghostuser.Columns{Table: "uploads", Columns: []string{"user_id"}, Event: true, EventColumns: []string{"path"}})
	b.engine.Plan = plan(t, b.DB, l)
	b.queue(true, 1)
	b.requireDone(t, b.run(t), 1)
	require.Equal(t, [][]string{
		{"1", `{"id": 1}`, `{"path": "a"}`},
		{"1", `{"id": 2}`, `{"path": null}`},
		{"1", `{"id": 3}`, `{"path": "c"}`},
	},
		b.Rows(`SELECT payload -> 'user_id', key, row FROM sexton.events,
			ROWS FROM (jsonb_array_elements(payload -> 'keys'), jsonb_array_elements(payload -> 'rows')) AS of (key, row)
			WHERE kind = 'rows_deleted' AND payload ->> 'table' = 'uploads' ORDER BY 2`))
}

func TestEventsNeedAPrimaryKey(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE heaps (user_id bigint); CREATE INDEX ON heaps (user_id);", lists())
	l := lists()
	l.Delete = append(slices.Clone(l.Delete), ghostuser.Columns{
		Table: "heaps", Columns: []string{"user_id"},
		Event: true,
	})
	_, problems := resolve(t, b.DB, l)
	require.EqualError(t, problems.Err(),
		"ghost_users.delete[1].event: table heaps has no primary key to identify its rows (add a primary key, or omit event and cleaner_class)")

	b.Exec("ALTER TABLE heaps ADD id bigint PRIMARY KEY; CREATE RULE also AS ON DELETE TO heaps DO ALSO SELECT 1")
	_, problems = resolve(t, b.DB, l)
	require.ErrorContains(t, problems.Err(),
		"ghost_users.delete[1].event: table heaps has the rule also, and Postgres does not support DELETE")
}

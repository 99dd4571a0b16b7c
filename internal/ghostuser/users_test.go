package ghostuser_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/ghostuser"
	"sexton/internal/pgtest"
)

// people creates 60 users from 1001 on, each with 20 posts, 5 likes and 30 visits. The
// rows of different users alternate.
const people = `
INSERT INTO users (id, username, email, name) SELECT 1000 + n, 'p' || n, 'p' || n, 'p' FROM generate_series(1, 60) AS n;
INSERT INTO posts SELECT n, 1001 + n % 60, 'post' FROM generate_series(1, 60 * 20) AS n;
INSERT INTO likes SELECT n, 1001 + n % 60, n FROM generate_series(1, 60 * 5) AS n;
INSERT INTO visits SELECT n, 1001 + n % 60 FROM generate_series(1, 60 * 30) AS n;`

// setupPeople returns an engine with two connections and a target of one second, which
// all its statements meet, and creates the people.
func setupPeople(t *testing.T, tables string) *bundle {
	b := setup(t, people+tables, lists())
	b.engine.Sizes = ghostuser.Sizes{Target: time.Second}
	b.useTwoConnections(t)
	return b
}

// useTwoConnections lets the engine use a second connection, which the test holds until
// its end.
func (b *bundle) useTwoConnections(t *testing.T) {
	t.Helper()
	if b.extraConn == nil {
		b.extraConn = pgtest.Acquire(t, b.Pool()).Conn()
	}
	own := b.engine.Session
	b.engine.Connections = 2
	next := b.extraConn
	b.engine.More = func(context.Context) *batch.Session {
		b.requested++
		conn := next
		// The engine requests a connection again if it has lost one. The first request
		// got extraConn, so later requests get new connections.
		if next = nil; conn == nil {
			conn = pgtest.Connect(t, b.URL)
		}
		return &batch.Session{Conn: conn, Names: own.Names, Fence: own.Fence, Limits: own.Limits}
	}
}

// Two connections delete users in parallel. A deadlock between them is retried, and is
// not a failure of a user.
func TestUsersOnTwoConnections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ action, condition string }{
		"without conflict": {"", "count(DISTINCT pid) = 2"},
		"with deadlocks": {`PERFORM nextval('public.tries');
			UPDATE public.marks SET n = n + 1 WHERE id = (TG_TABLE_NAME = 'likes')::int;
			PERFORM pg_sleep(0.05) WHERE (SELECT last_value FROM public.tries) < 6;
			UPDATE public.marks SET n = n + 1 WHERE id = (TG_TABLE_NAME <> 'likes')::int;`, "count(*) > 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setupPeople(t, `
				CREATE TABLE marks (id integer PRIMARY KEY, n bigint);
				INSERT INTO marks VALUES (0, 0), (1, 0);
				CREATE SEQUENCE tries;
				CREATE TABLE sightings (name name, pid int);
				CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN `+c.action+`
					INSERT INTO public.sightings VALUES (TG_TABLE_NAME, pg_backend_pid());
					RETURN NULL;
				END $$;
				CREATE TRIGGER see AFTER UPDATE ON posts FOR EACH STATEMENT EXECUTE FUNCTION see();
				CREATE TRIGGER see AFTER UPDATE ON likes FOR EACH STATEMENT EXECUTE FUNCTION see();`)
			b.queue(false, numbers(1001, 1040)...)
			stats := b.run(t)
			b.requireDone(t, stats, 40)
			require.Equal(t, map[string]int64{"posts.author_id": 40 * 20, "likes.user_id": 40 * 5}, stats.Moved)
			require.Equal(t, [][]string{{"25", "30", "40"}},
				b.Rows("SELECT payload ->> 'moved', payload ->> 'deleted', count(*) FROM sexton.events GROUP BY 1, 2"))
			require.Equal(t, [][]string{{"t"}}, b.Rows("SELECT "+c.condition+" FROM sightings"), c.condition)
			require.Equal(t, 1, b.requested)
		})
	}
}

func numbers(first, last int64) []int64 {
	var all []int64
	for n := first; n <= last; n++ {
		all = append(all, n)
	}
	return all
}

func TestManyUsers(t *testing.T) {
	t.Parallel()
	b := setupPeople(t, "")
	b.queue(false, numbers(1001, 1040)...)
	b.queue(true, numbers(1041, 1059)...)
	stats := b.run(t)
	b.requireDone(t, stats, 59)
	require.Equal(t, map[string]int64{"posts.author_id": 40 * 20, "likes.user_id": 40 * 5}, stats.Moved)
	require.Equal(t, map[string]int64{"visits.user_id": 59 * 30, "likes.user_id": 19 * 5}, stats.Deleted)
	require.Equal(t, map[string]int64{"posts.author_id": 19 * 20}, stats.Nullified)
	require.Equal(t, [][]string{{"false", "25", "30", "0", "40"}, {"true", "0", "35", "20", "19"}}, b.Rows(`
		SELECT payload ->> 'hard_delete', payload ->> 'moved', payload ->> 'deleted', payload ->> 'nullified', count(*)
		FROM sexton.events GROUP BY 1, 2, 3, 4 ORDER BY 1`), "each row is counted for its own user")
	for _, item := range b.items {
		require.Equal(t, ghostuser.Destroyed, item.Outcome)
	}
	require.Equal(t, [][]string{{"9", "800"}, {"1060", "20"}, {"NULL", "380"}},
		b.Rows("SELECT author_id, count(*) FROM posts GROUP BY 1 ORDER BY 1"))
	require.Equal(t, [][]string{{"1060", "30"}}, b.Rows("SELECT user_id, count(*) FROM visits GROUP BY 1"))
}

// Rows with events are deleted before the rows above them, even if some cannot be
// deleted. Each row either remains or is in one event.
func TestRowsWithEventsAreDeletedBeforeRowsAbove(t *testing.T) {
	t.Parallel()
	const folders = `
		INSERT INTO users (id, username, email, name) SELECT 1000 + n, 'p' || n, 'p' || n, 'p' FROM generate_series(1, 20) AS n;
		CREATE TABLE folders (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE);
		CREATE TABLE uploads (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, folder_id bigint REFERENCES folders ON DELETE CASCADE);
		CREATE INDEX ON folders (user_id);
		CREATE INDEX ON uploads (user_id);
		CREATE INDEX ON uploads (folder_id);
		INSERT INTO folders SELECT n, 1001 + n % 20 FROM generate_series(1, 200) AS n;
		INSERT INTO uploads SELECT n, 1001 + n % 20, 1 + (n - 1) % 200 FROM generate_series(1, 800) AS n;`
	refuse := func(code string) string {
		return "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '" + code + `'; END $$;
			CREATE TRIGGER refuse BEFORE DELETE ON uploads FOR EACH ROW WHEN (old.id = 181) EXECUTE FUNCTION refuse();`
	}
	type example struct {
		refuse          string
		locked, changed bool
		// folderEvents requests events for folders, too.
		folderEvents bool
		// keptFolders is the number of folders that are kept because an upload below them
		// cannot be deleted.
		keptFolders string
		sizes       ghostuser.Sizes
		two         bool
	}
	examples := map[string]example{}
	for name, c := range map[string]example{
		"both with events": {folderEvents: true, keptFolders: "0"},
		"one is locked":    {locked: true, keptFolders: "10"},
		"one is refused":   {refuse: refuse("P0001"), keptFolders: "10"},
		"one is too slow":  {refuse: refuse("57014"), keptFolders: "10"},
		"some rows change": {changed: true, keptFolders: "0"},
	} {
		c.sizes = ghostuser.Sizes{Delete: 5}
		examples[name+", without target"] = c
		c.sizes.Target = 20 * time.Millisecond
		// Short test runs skip this case, because two connections send the same batches
		// as one.
		if pgtest.Long || c.locked {
			examples[name+", with target"] = c
		}
		c.two = true
		if pgtest.Long || c.locked || c.changed {
			examples[name+", on two connections"] = c
		}
	}
	pgtest.Each(t, examples, func(t *testing.T, _ string, c example) {
		b := setup(t, folders+c.refuse, lists())
		l := lists()
		l.Delete = append(l.Delete, ghostuser.Columns{Table: "folders", Columns: []string{"user_id"}, Event: c.folderEvents},
			ghostuser.Columns{Table: "uploads", Columns: []string{"user_id"}, Event: true})
		b.engine.Plan, b.engine.Sizes = plan(t, b.DB, l), c.sizes
		if c.two {
			b.useTwoConnections(t)
		}
		const known = `
			SELECT id, user_id FROM uploads UNION ALL
			SELECT (key ->> 'id')::bigint, (payload ->> 'user_id')::bigint FROM sexton.events, jsonb_array_elements(payload -> 'keys') AS key
			WHERE kind = 'files_orphaned' AND payload ->> 'table' = 'uploads' ORDER BY 1`
		want := b.Rows(known)
		b.queue(true, numbers(1001, 1020)...)
		if c.changed {
			b.doOnce(nil, func() { b.Exec("UPDATE uploads SET folder_id = folder_id WHERE id > 400") })
		}
		kept := [][]string{{c.keptFolders}}
		if c.locked {
			b.engine.Session.Limits.LockTimeout = 300 * time.Millisecond
			tx := b.Begin(t, "SELECT FROM uploads WHERE id = 181 FOR UPDATE")
			wait := b.runWhile(t.Context(), t)
			pgtest.Await(t, b.Pool(), "the other users to be deleted",
				"SELECT count(*) = 1 FROM users_ghost_user_migrations")
			require.Equal(t, kept, b.Rows("SELECT count(*) FROM folders"))
			require.NoError(t, tx.Rollback(t.Context()))
			b.requireDone(t, wait(), 20)
		} else {
			b.run(t)
			require.Equal(t, kept, b.Rows("SELECT count(*) FROM folders"))
		}
		require.Equal(t, want, b.Rows(known), "each upload remains or is in one event")
	})
}

// If users of one batch have rows that the ghost user can have only once, one row is
// moved and the others are deleted.
func TestDuplicatesWithinABatch(t *testing.T) {
	t.Parallel()
	b := setupPeople(t, "INSERT INTO likes SELECT 2000 + n, 1000 + n, 5000 FROM generate_series(1, 10) AS n")
	b.queue(false, numbers(1001, 1010)...)
	stats := b.run(t)
	b.requireDone(t, stats, 10)
	require.EqualValues(t, 9, stats.Duplicates)
	require.Equal(t, [][]string{{"51"}}, b.Rows("SELECT count(*) FROM likes WHERE user_id = 9"))
	require.EqualValues(t, 200, stats.Moved["posts.author_id"])
}

// timed makes each statement on posts take at least 20 µs per row, and records its number
// of rows.
const timed = `
CREATE TABLE statements (number bigint GENERATED ALWAYS AS IDENTITY, affected bigint);
CREATE FUNCTION timed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	affected bigint := (SELECT count(*) FROM changed);
BEGIN
	PERFORM pg_sleep(affected * 0.00002);
	INSERT INTO public.statements (affected) VALUES (affected);
	RETURN NULL;
END $$;
CREATE TRIGGER timed AFTER UPDATE ON posts REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION timed();`

// A user with 60,000 posts delays no other user, whether the other user is queued before
// the run or during it. No statement has more than 15 times the rows that the target
// allows, and half of the statements have at most 3 times. The bounds are not tighter,
// because delays of a busy machine can count as a fixed cost.
func TestLargeUserDelaysNoOtherUser(t *testing.T) {
	t.Parallel()
	const rows, target = 60_000, 20 * time.Millisecond
	b := setup(t, timed+people+fmt.Sprintf("INSERT INTO posts SELECT 10000 + n, 1 FROM generate_series(1, %d) AS n;",
		rows), lists())
	b.engine.Sizes = ghostuser.Sizes{Target: target}
	b.queue(false, 1)
	b.Exec("UPDATE users_ghost_user_migrations SET consume_after = now() - interval '1 day'")
	b.queue(false, numbers(1001, 1030)...)
	b.doOnce(func(stats *ghostuser.Stats) bool { return stats.UsersProcessed == 30 },
		func() { b.queue(false, numbers(1031, 1050)...) })
	stats := b.run(t)
	b.requireDone(t, stats, 51)
	require.EqualValues(t, rows+50*20, stats.Moved["posts.author_id"])
	order := b.endedUsers()
	require.EqualValues(t, 1, order[50], "the large user ends last")
	require.Equal(t, numbers(1001, 1030), slices.Sorted(slices.Values(order[:30])))

	const most = 15 * int64(target/(20*time.Microsecond))
	require.LessOrEqual(t, pgtest.Scalar[int64](t, b.Database, "SELECT max(affected) FROM statements"), most)
	require.LessOrEqual(t, pgtest.Scalar[int64](t, b.Database,
		"SELECT percentile_disc(0.5) WITHIN GROUP (ORDER BY affected) FROM statements"), most/5)
	require.GreaterOrEqual(t, stats.Batches, rows/most)
	require.Greater(t, pgtest.Scalar[int64](t, b.Database, "SELECT max(affected) FROM statements"), int64(50),
		"the size grows beyond the initial size")
}

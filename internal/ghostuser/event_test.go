package ghostuser_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/ghostuser"
)

// drafts have files behind them.
const drafts = `
CREATE TABLE "draft's" (part integer, "Id" bigint, user_id bigint REFERENCES users ON DELETE CASCADE, PRIMARY KEY (part, "Id"));
CREATE INDEX ON "draft's" (user_id);
INSERT INTO "draft's" SELECT n % 3, n, 1 + n % 3 FROM generate_series(1, 300) AS n;`

func telling() ghostuser.Lists {
	l := lists()
	l.Delete = append(l.Delete, ghostuser.Columns{Table: "draft's", Columns: []string{"user_id"}, Event: true})
	return l
}

// told are the keys that events name, by user.
func (b *bundle) told() [][]string {
	return b.Rows(`SELECT payload ->> 'user_id', payload ->> 'table', key FROM sexton.events, jsonb_array_elements(payload -> 'keys') AS key
		WHERE kind = 'files_orphaned' ORDER BY 1, 2, (key -> 'Id')::bigint, 3`)
}

// wanted are the events that the deletion of users has to leave.
func (b *bundle) wanted(users ...int64) [][]string {
	return b.Rows(`SELECT user_id, 'draft''s', jsonb_build_object('Id', "Id", 'part', part) FROM "draft's" WHERE user_id = ANY ($1) ORDER BY user_id, "Id"`, users)
}

// Each row that a list deletes is told of once, with its key and user, whether users go alone or together, whatever kills the worker.
func TestDeletedRowsAreToldOf(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]time.Duration{"alone": 0, "together": 20 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, drafts, telling())
			want := b.wanted(1, 2)
			require.Len(t, want, 200)
			b.queue(false, 1, 2)
			for done, kills := false, 0; !done; kills++ {
				b.Exec("UPDATE sexton.leases SET expires_at = now()")
				b.engine = b.newEngine(t, telling())
				b.engine.Sizes = ghostuser.Sizes{Target: target, Delete: 40}
				killed := kills >= 4
				b.engine.Progress = func(context.Context, *ghostuser.Stats) {
					if !killed {
						killed = true
						b.Exec("SELECT pg_terminate_backend($1)", int32(b.engine.Session.Conn.PgConn().PID()))
					}
				}
				_, err := b.engine.Run(t.Context())
				if done = len(b.queued()) == 0; !done {
					require.Error(t, err)
				}
			}
			require.Equal(t, want, b.told())
			require.Len(t, b.Rows(`SELECT FROM "draft's"`), 100)
		})
	}
}

// Doubles of the ghost user's rows are deleted, and so told of; rows that pass to it are not.
func TestDeletedDuplicatesAreToldOf(t *testing.T) {
	t.Parallel()
	b := setup(t, `INSERT INTO likes SELECT n, 1, n FROM generate_series(1, 20) AS n; INSERT INTO likes SELECT n + 100, 9, n FROM generate_series(1, 8) AS n;`, lists())
	l := lists()
	l.Delete = append(l.Delete, ghostuser.Columns{Table: "likes", Columns: []string{"user_id"}, Event: true})
	b.engine.Plan = plan(t, b.DB, l)
	b.queue(false, 1)
	b.requireDone(t, b.run(t), 1)
	var want [][]string
	for id := range 8 {
		want = append(want, []string{"1", "likes", fmt.Sprintf(`{"id": %d}`, id+1)})
	}
	require.ElementsMatch(t, want, b.told())
}

// Rows that go children first are told of as well, and rows below them are not.
func TestHeavyRowsAreToldOf(t *testing.T) {
	t.Parallel()
	b := setup(t, topics, lists())
	l := lists()
	l.Delete = append(l.Delete, ghostuser.Columns{Table: "topics", Columns: []string{"user_id"}, Event: true})
	b.engine.Plan = plan(t, b.DB, l)
	b.queue(false, 1)
	b.requireDone(t, b.run(t), 1)
	require.Equal(t, [][]string{{"1", "topics", `{"id": 1}`}, {"1", "topics", `{"id": 2}`}}, b.told())
}

// Rows that are told of go by themselves, before rows that would take them along, in whatever order the lists name them. Rows below that go
// children first are told of, too, even where another user owns them.
func TestRowsBelowOthersAreToldOf(t *testing.T) {
	t.Parallel()
	const uploads = `
		CREATE TABLE uploads (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, topic_id bigint REFERENCES topics ON DELETE CASCADE);
		CREATE INDEX ON uploads (user_id);
		CREATE INDEX ON uploads (topic_id);
		INSERT INTO uploads VALUES (1, 1, 2), (2, 1, NULL), (3, 2, 1);`
	for name, test := range map[string]struct {
		order, events []string
		heavy         bool
		want          [][]string
	}{
		"below first":     {order: []string{"uploads", "topics"}, events: []string{"uploads"}},
		"above first":     {order: []string{"topics", "uploads"}, events: []string{"uploads"}},
		"both told of":    {order: []string{"topics", "uploads"}, events: []string{"topics", "uploads"}, want: [][]string{{"1", "topics", `{"id": 2}`}}},
		"children first":  {order: []string{"topics", "uploads"}, events: []string{"uploads"}, heavy: true, want: [][]string{{"1", "uploads", `{"id": 3}`}}},
		"above not named": {order: []string{"uploads"}, events: []string{"uploads"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, topics+uploads, lists())
			if !test.heavy {
				b.Exec("UPDATE replies SET topic_id = 3 WHERE id > 0; DELETE FROM topics WHERE id = 1")
			}
			l := lists()
			for _, table := range test.order {
				l.Delete = append(l.Delete, ghostuser.Columns{Table: table, Columns: []string{"user_id"}, Event: slices.Contains(test.events, table)})
			}
			b.engine.Plan = plan(t, b.DB, l)
			b.queue(true, 1)
			b.requireDone(t, b.run(t), 1)
			require.ElementsMatch(t, append(test.want, []string{"1", "uploads", `{"id": 1}`}, []string{"1", "uploads", `{"id": 2}`}), b.told())
		})
	}
}

func TestAnEventNeedsAPrimaryKey(t *testing.T) {
	t.Parallel()
	b := setup(t, "CREATE TABLE heaps (user_id bigint); CREATE INDEX ON heaps (user_id);", lists())
	l := lists()
	l.Delete = append(slices.Clone(l.Delete), ghostuser.Columns{Table: "heaps", Columns: []string{"user_id"}, Event: true})
	_, problems := resolve(t, b.DB, l)
	require.EqualError(t, problems.Err(), "ghost_users.delete[1].event: table heaps has no primary key to name its rows by (add a primary key, or leave event and cleaner_class out)")
}

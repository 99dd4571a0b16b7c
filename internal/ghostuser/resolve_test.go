package ghostuser_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/ghostuser"
	"sexton/internal/pgtest"
)

func TestResolveNamesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	db := dbtest.WithUsers(t, application, `
		CREATE VIEW authors AS SELECT author_id FROM posts;
		CREATE TABLE events (id bigint, author_id bigint NOT NULL, at int, who text, twice bigint GENERATED ALWAYS AS (id * 2) STORED) PARTITION BY LIST (at);
		CREATE TABLE events_1 PARTITION OF events FOR VALUES IN (1);
		CREATE INDEX ON events_1 (author_id);
		CREATE TABLE reports (id bigint, reporter_id bigint REFERENCES users);
		CREATE TABLE owners (id bigint, boss_id bigint REFERENCES users ON DELETE RESTRICT, name text REFERENCES users (username) ON DELETE SET NULL);
		CREATE INDEX ON owners (boss_id);
		ALTER TABLE users ADD parent_id bigint REFERENCES users ON DELETE CASCADE;
		CREATE INDEX ON users (parent_id);
		CREATE TABLE stuck (user_id bigint NOT NULL REFERENCES users ON DELETE SET NULL);
		CREATE INDEX ON stuck (user_id);`)
	_, problems := resolve(t, db, ghostuser.Lists{
		Move: []ghostuser.Move{
			{Table: "post", Columns: []string{"author_id"}},
			{Table: "posts", Columns: []string{"autor_id", "author_id", "author_id", "note"}},
			{Table: "authors", Columns: []string{"author_id"}},
			{Table: "events_1", Columns: []string{"author_id"}},
			{Table: "events", Columns: []string{"at", "twice", "author_id"}},
			{Table: "reports", Columns: []string{"reporter_id"}, Conditions: []ghostuser.Condition{{Column: "id", Value: "x"}, {Column: "kind", Value: "x"}}},
			{Table: "likes", Columns: []string{"user_id"}, Always: true},
			{Table: "users_ghost_user_migrations", Columns: []string{"user_id"}},
		},
		Delete:  []ghostuser.Columns{{Table: "likes", Columns: []string{"user_id"}}, {Table: "users", Columns: []string{"id"}}, {Table: "visits", Columns: []string{"user_id"}}},
		Nullify: []ghostuser.Columns{{Table: "visits", Columns: []string{"user_id"}}, {Table: "events", Columns: []string{"author_id", "who"}}, {Table: `"`, Columns: nil}},
	})
	var found []string
	for _, p := range problems {
		found = append(found, string(p.Severity)+" "+p.String())
	}
	slices.Sort(found)
	require.Equal(t, []string{
		`error ghost_users.delete[0].columns[0]: likes.user_id is always moved, so this entry would find nothing (remove one of them)`,
		`error ghost_users.delete[1].table: deleting one user would delete others (nullify the column)`,
		`error ghost_users.move[0].table: table post does not exist (did you mean posts?)`,
		`error ghost_users.move[1].columns[0]: table posts has no column autor_id (did you mean author_id?)`,
		`error ghost_users.move[1].columns[2]: posts.author_id is moved by ghost_users.move[1].columns[1] already (remove one of them)`,
		`error ghost_users.move[1].columns[3]: posts.note is of type text, but users.id is of type bigint (only integers can refer to users)`,
		`error ghost_users.move[2].table: authors is not a table (name the table behind it)`,
		`error ghost_users.move[3].table: events_1 is a partition (name the partitioned table)`,
		`error ghost_users.move[4].columns[0]: events.at decides about the partition of a row and cannot be set (delete the rows)`,
		`error ghost_users.move[4].columns[1]: events.twice is a generated column and cannot be set (delete the rows)`,
		`error ghost_users.move[5].conditions[0].value: value "x" does not fit column id of type bigint (give a value of that type)`,
		`error ghost_users.move[5].conditions[1].column: table reports has no column kind (correct the name)`,
		`error ghost_users.move[7].table: users_ghost_user_migrations is the queue itself (remove the entry)`,
		`error ghost_users.nullify[0].columns[0]: visits.user_id stands in the list delete already (remove one of them)`,
		`error ghost_users.nullify[1].columns[0]: events.author_id is NOT NULL and cannot be nullified (drop the constraint, or delete the rows)`,
		`error ghost_users.nullify[1].columns[1]: events.who is of type text, but users.id is of type bigint (only integers can refer to users)`,
		`error ghost_users.nullify[2].table: table "\"" lacks its closing double quote`,
		`warning ghost_users.move[4].columns[2]: no list says what becomes of rows of events.author_id that are not moved, as on a hard delete: they keep the id of a user that is gone (add the column to ghost_users.nullify or delete)`,
		`warning ghost_users.move[5].columns[0]: no index of reports begins with reporter_id, so every batch reads the whole table (CREATE INDEX CONCURRENTLY ON "public"."reports" ("reporter_id"))`,
		`warning ghost_users.move[5].columns[0]: users with rows there stay, each with this reason: reports.reporter_id refers to users without an action (foreign key reports_reporter_id_fkey), and no list says what becomes of rows that are not moved, as on a hard delete (add {table: reports, columns: [reporter_id]} to ghost_users.nullify, delete or move)`,
		`warning ghost_users: foreign key owners_name_fkey of owners does not refer to users by id alone: it is left to Postgres, in one statement, or stops the deletion (refer to users by their id alone)`,
		`warning ghost_users: users with rows there stay, each with this reason: foreign key stuck_user_id_fkey sets stuck.user_id to NULL, which is NOT NULL (drop the constraint, or change the key's action)`,
		`warning ghost_users: users with rows there stay, each with this reason: foreign key users_parent_id_fkey: deleting one user would delete others (change the key's action to SET NULL, or list the column in ghost_users.nullify)`,
		`warning ghost_users: users with rows there stay, each with this reason: owners.boss_id refers to users without an action (foreign key owners_boss_id_fkey), and no list says what becomes of its rows (add {table: owners, columns: [boss_id]} to ghost_users.nullify, delete or move)`,
	}, found)
}

func TestResolveNeedsUsersAndTheirQueue(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	_, problems, err := ghostuser.Resolve(t.Context(), d.Pool(), "public", ghostuser.Lists{})
	require.NoError(t, err)
	require.ErrorContains(t, problems.Err(), "there is no table users in schema public")
	d.Exec(application)
	_, problems, err = ghostuser.Resolve(t.Context(), d.Pool(), "public", ghostuser.Lists{})
	require.NoError(t, err)
	require.ErrorContains(t, problems.Err(), "the table users_ghost_user_migrations is not installed (run `sexton migrate up`)")

	for column, message := range map[string]string{
		"id uuid, user_type smallint": "users.id is of type uuid (only integers are supported)",
		"id int, user_type text":      "users.user_type is of type text (only integers are supported)",
	} {
		odd := pgtest.New(t)
		odd.Exec("CREATE TABLE users (" + column + ")")
		_, problems, err = ghostuser.Resolve(t.Context(), odd.Pool(), "public", ghostuser.Lists{})
		require.NoError(t, err)
		require.ErrorContains(t, problems.Err(), message)
	}

	db := dbtest.WithUsers(t, application+"CREATE TABLE groups (id bigint, path text); CREATE TABLE members (user_id bigint, source_type text, source_id bigint, access_level int, state int, requested_at date)")
	_, problems = resolve(t, db, lists())
	require.Equal(t, []string{
		"ghost_users: table groups has no column parent_id (add it)", "ghost_users: table members has no column expires_at (add it)",
	}, []string{problems[0].String(), problems[1].String()})
}

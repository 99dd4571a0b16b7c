package ghostuser_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/drain/dml"
	"sexton/internal/exampleapp"
	"sexton/internal/ghostuser"
	"sexton/internal/pgtest"
)

func TestResolveReportsProblems(t *testing.T) {
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
			{
				Table: "reports", Columns: []string{"reporter_id"},
				Conditions: []definitions.Condition{{Column: "id", Value: "x"}, {Column: "kind", Value: "x"}},
			},
			{Table: "likes", Columns: []string{"user_id"}, Always: true},
			{Table: "users_ghost_user_migrations", Columns: []string{"user_id"}},
		},
		Delete: []ghostuser.Columns{
			{Table: "likes", Columns: []string{"user_id"}},
			{Table: "users", Columns: []string{"id"}},
			{Table: "visits", Columns: []string{"user_id"}},
		},
		Nullify: []ghostuser.Columns{
			{Table: "visits", Columns: []string{"user_id"}},
			{Table: "events", Columns: []string{"author_id", "who"}},
			{Table: `"`, Columns: nil},
		},
	})
	var found []string
	for _, p := range problems {
		found = append(found, string(p.Severity)+" "+p.String())
	}
	slices.Sort(found)
	require.Equal(t, []string{
		`error ghost_users.delete[0].columns[0]: likes.user_id is always moved, so this entry has no effect (remove one of them)`,
		`error ghost_users.delete[1].table: deleting one user would delete other users (nullify the column)`,
		`error ghost_users.move[0].table: table post does not exist (did you mean posts?)`,
		`error ghost_users.move[1].columns[0]: table posts has no column autor_id (did you mean author_id?)`,
		`error ghost_users.move[1].columns[2]: posts.author_id is moved by ghost_users.move[1].columns[1] already (remove one of them)`,
		`error ghost_users.move[1].columns[3]: posts.note is of type text, but users.id is of type bigint (only integers can refer to users)`,
		`error ghost_users.move[2].table: authors is not a table (use a table)`,
		`error ghost_users.move[3].table: events_1 is a partition (name the partitioned table)`,
		`error ghost_users.move[4].columns[0]: events.at is a partition key and cannot be set (delete the rows)`,
		`error ghost_users.move[4].columns[1]: events.twice is a generated column and cannot be set (delete the rows)`,
		`error ghost_users.move[5].conditions[0].value: value "x" does not fit column id of type bigint (give a value of that type)`,
		`error ghost_users.move[5].conditions[1].column: table reports has no column kind (correct the name)`,
		`error ghost_users.move[7].table: users_ghost_user_migrations is the queue itself (remove the entry)`,
		`error ghost_users.nullify[0].columns[0]: visits.user_id is in the list delete already (remove one of them)`,
		`error ghost_users.nullify[1].columns[0]: events.author_id is NOT NULL and cannot be nullified (drop the constraint, or delete the rows)`,
		`error ghost_users.nullify[1].columns[1]: events.who is of type text, but users.id is of type bigint (only integers can refer to users)`,
		`error ghost_users.nullify[2].table: table "\"" lacks its closing double quote`,
		`warning ghost_users.move[4].columns[2]: no list has an action for rows of events.author_id that are not moved, as on a hard delete: they keep the id of a deleted user (add the column to ghost_users.nullify or delete)`,
		`warning ghost_users.move[5].columns[0]: no index of reports begins with reporter_id, so every batch reads the whole table (CREATE INDEX CONCURRENTLY ON "public"."reports" ("reporter_id"))`,
		`warning ghost_users.move[5].columns[0]: users with rows there cannot be deleted: reports.reporter_id refers to users without an action (foreign key reports_reporter_id_fkey), and no list has an action for rows that are not moved, as on a hard delete (add {table: reports, columns: [reporter_id]} to ghost_users.nullify, delete or move)`,
		`warning ghost_users: foreign key owners_name_fkey of owners does not refer to users by id alone: Postgres applies its action in one statement, or it prevents the deletion (refer to users by their id alone)`,
		`warning ghost_users: users with rows there cannot be deleted: foreign key stuck_user_id_fkey sets stuck.user_id to NULL, which is NOT NULL (drop the constraint, or change the key's action)`,
		`warning ghost_users: users with rows there cannot be deleted: foreign key users_parent_id_fkey: deleting one user would delete other users (change the key's action to SET NULL, or list the column in ghost_users.nullify)`,
		`warning ghost_users: users with rows there cannot be deleted: owners.boss_id refers to users without an action (foreign key owners_boss_id_fkey), and no list contains it (add {table: owners, columns: [boss_id]} to ghost_users.nullify, delete or move)`,
	}, found)
}

func TestResolveNeedsUsersAndTheirQueue(t *testing.T) {
	t.Parallel()
	d := pgtest.New(t)
	_, problems := pgtest.Must2(ghostuser.Resolve(t.Context(), d.Pool(), "public", ghostuser.Lists{}))(t)
	require.ErrorContains(t, problems.Err(), "there is no table users in schema public")
	d.Exec(application)
	_, problems = pgtest.Must2(ghostuser.Resolve(t.Context(), d.Pool(), "public", ghostuser.Lists{}))(t)
	require.ErrorContains(t, problems.Err(),
		"the table users_ghost_user_migrations is not installed (run `sexton migrate up`)")

	odd := pgtest.New(t)
	odd.Exec("CREATE TABLE users (id uuid PRIMARY KEY)")
	_, problems = pgtest.Must2(ghostuser.Resolve(t.Context(), odd.Pool(), "public", ghostuser.Lists{}))(t)
	require.ErrorContains(t, problems.Err(), "users.id is of type uuid instead of integer")
}

// Foresee returns the counts of the deletion, including rows that native cascades delete.
// It counts a row once if two keys lead to it. It changes nothing.
func TestForeseeMatchesTheDeletion(t *testing.T) {
	t.Parallel()
	b := setup(t, topics+`
		CREATE TABLE uploads (id bigint PRIMARY KEY, user_id bigint REFERENCES users ON DELETE CASCADE, topic_id bigint REFERENCES topics ON DELETE CASCADE);
		CREATE INDEX ON uploads (user_id);
		CREATE INDEX ON uploads (topic_id);
		INSERT INTO uploads VALUES (1, 1, 1), (2, 1, NULL), (3, 2, 1);
		INSERT INTO posts VALUES (1, 1), (2, 2);`, lists())
	p := plan(t, b.DB, lists())
	foresee := func() *dml.Foresight {
		return pgtest.Must(p.Foresee(t.Context(), b.Pool(), dml.IntegerID(1), false))(t)
	}
	require.Equal(t, &dml.Foresight{
		Moved:     map[string]int64{"posts": 1},
		Deleted:   map[string]int64{"topics": 2, "replies": 601, "marks": 601, "uploads": 3},
		Nullified: map[string]int64{"pins.topic_id": 1},
		Rows:      1209, Forbidden: []string{},
	}, foresee())
	b.queue(false, 1)
	b.requireDone(t, b.run(t), 1)
	require.Equal(t, [][]string{{"1", "1207", "1"}},
		b.Rows("SELECT payload ->> 'moved', payload ->> 'deleted', payload ->> 'nullified' FROM sexton.events"))

	b.Exec(`CREATE TABLE heaps (topic_id bigint);
		INSERT INTO topics VALUES (50, 2);
		INSERT INTO heaps SELECT 50 FROM generate_series(1, 100100);
		CREATE INDEX ON heaps (topic_id);
		ALTER TABLE heaps ADD FOREIGN KEY (topic_id) REFERENCES topics ON DELETE CASCADE;`)
	seen := pgtest.Must(plan(t, b.DB, lists()).Foresee(t.Context(), b.Pool(), dml.IntegerID(2), false))(t)
	require.True(t, seen.Capped)
	require.GreaterOrEqual(t, seen.Rows, int64(100_000))
}

// Foresee counts rows that loose foreign keys delete separately, once and at any depth,
// below the user and below its rows.
func TestForeseeLooseChildren(t *testing.T) {
	t.Parallel()
	b := setup(t, topics+`
		CREATE TABLE sightings (id bigint PRIMARY KEY, user_id bigint, kind text);
		CREATE TABLE traces (id bigint PRIMARY KEY, sighting_id bigint);
		CREATE TABLE badges (id bigint PRIMARY KEY, topic_id bigint);
		INSERT INTO sightings VALUES (1, 1, 'web'), (2, 1, 'web'), (3, 1, 'api'), (4, 2, 'web');
		INSERT INTO traces VALUES (1, 1), (2, 1), (3, 3), (4, 4);
		INSERT INTO badges SELECT id, id FROM topics WHERE user_id = 1;`, lists())
	p := plan(t, b.DB, lists())
	public := func(table string) [2]string { return [2]string{"public", table} }
	natively := pgtest.Must(p.Foresee(t.Context(), b.Pool(), dml.IntegerID(1), false))(t)
	require.Nil(t, natively.Loose)
	seen := pgtest.Must(p.Foresee(t.Context(), b.Pool(), dml.IntegerID(1), false,
		dml.Loose{
			Child: public("sightings"), Parent: public("users"), Columns: []string{"user_id"}, Action: dml.Remove,
			Only: [][2]string{{"kind", "web"}},
		},
		dml.Loose{
			Child: public("traces"), Parent: public("sightings"), Columns: []string{"sighting_id"},
			Action: dml.Remove,
		},
		dml.Loose{
			Child: public("badges"), Parent: public("topics"), Columns: []string{"topic_id"},
			Action: dml.Nullify,
		},
		dml.Loose{Child: public("topics"), Parent: public("users"), Columns: []string{"user_id"}, Action: dml.Remove},
		dml.Loose{
			Child: public("missing"), Parent: public("users"), Columns: []string{"user_id"},
			Action: dml.Remove,
		}))(t)
	require.Equal(t, map[string]int64{"sightings": 2, "traces": 2, "badges.topic_id": natively.Deleted["topics"]},
		seen.Loose)
	require.Positive(t, natively.Deleted["topics"])
	natively.Loose = seen.Loose
	require.Equal(t, natively, seen, "the other counts are equal")
}

func TestDefaultsFitTheReferenceApplication(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	p, problems := resolve(t, db, defaults(t))
	require.Empty(t, problems, "errors and warnings")

	// Every column that refers to users, by a foreign key or by a definition, has a step
	// in both kinds of deletion.
	var all []string
	for _, row := range db.Rows(`
		SELECT conrelid::regclass || '.' || attname FROM pg_constraint
		JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
		WHERE contype = 'f' AND confrelid = 'users'::regclass AND conrelid <> 'users_ghost_user_migrations'::regclass`) {
		all = append(all, row[0])
	}
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "lfk.yml", Data: []byte(exampleapp.Definitions())}))(t)
	for _, d := range defs {
		if d.Parent.Table == "users" {
			all = append(all, d.Child.Table+"."+d.Columns[0])
		}
	}
	slices.Sort(all)
	for _, hard := range []bool{false, true} {
		columns := p.Columns(hard)
		slices.Sort(columns)
		require.Equal(t, all, slices.Compact(columns), "hard: %t", hard)
	}
}

// seed is a row that refers to the user in one column.
type seed struct{ table, column, row string }

// effect is the effect of the deletion on a seed.
type effect string

const (
	moved     effect = "moved"
	deleted   effect = "deleted"
	nullified effect = "nullified"
)

// expectedEffects returns the effects of a soft and of a hard delete for each column of
// the reference application.
func expectedEffects() map[string][2]effect {
	return map[string][2]effect{
		"user_achievements.awarded_by_user_id": {moved, moved},
		"user_achievements.revoked_by_user_id": {moved, moved},
		"todos.author_id":                      {moved, deleted},
		"issues.author_id":                     {moved, deleted},
		"issues.last_edited_by_id":             {moved, nullified},
		"merge_requests.author_id":             {moved, deleted},
		"merge_requests.merge_user_id":         {moved, nullified},
		"notes.author_id":                      {moved, deleted},
		"resource_label_events.user_id":        {moved, nullified},
		"abuse_reports.reporter_id":            {moved, nullified},
		"award_emoji.user_id":                  {moved, deleted},
		"reviews.author_id":                    {moved, nullified},
		"releases.author_id":                   {moved, nullified},
		"timelogs.user_id":                     {moved, deleted},
		"ci_pipelines.user_id":                 {moved, nullified},
		"p_ci_builds.user_id":                  {moved, nullified},
		// The row is a snippet of a project. TestPersonalSnippetsAreDeleted covers other
		// snippets.
		"snippets.author_id": {moved, deleted},

		"events.author_id":                                    {deleted, deleted},
		"todos.user_id":                                       {deleted, deleted},
		"issue_assignees.user_id":                             {deleted, deleted},
		"keys.user_id":                                        {deleted, deleted},
		"emails.user_id":                                      {deleted, deleted},
		"personal_access_tokens.user_id":                      {deleted, deleted},
		"identities.user_id":                                  {deleted, deleted},
		"subscriptions.user_id":                               {deleted, deleted},
		"merge_request_assignees.user_id":                     {deleted, deleted},
		"merge_request_reviewers.user_id":                     {deleted, deleted},
		"approvals.user_id":                                   {deleted, deleted},
		"members.user_id":                                     {deleted, deleted},
		"namespaces.owner_id":                                 {deleted, deleted},
		"user_achievements.user_id":                           {deleted, deleted},
		"import_placeholder_user_details.placeholder_user_id": {deleted, deleted},

		"deploy_keys.user_id":                       {nullified, nullified},
		"projects.creator_id":                       {nullified, nullified},
		"merge_requests.assignee_id":                {nullified, nullified},
		"merge_requests.updated_by_id":              {nullified, nullified},
		"merge_requests.last_edited_by_id":          {nullified, nullified},
		"merge_request_metrics.merged_by_id":        {nullified, nullified},
		"merge_request_metrics.latest_closed_by_id": {nullified, nullified},
		"issues.updated_by_id":                      {nullified, nullified},
		"issues.closed_by_id":                       {nullified, nullified},
		"abuse_reports.user_id":                     {nullified, nullified},
		"resource_state_events.user_id":             {nullified, nullified},
		"deploy_tokens.creator_id":                  {nullified, nullified},
		"import_source_users.placeholder_user_id":   {nullified, nullified},
		"import_source_users.reassign_to_user_id":   {nullified, nullified},
		"import_source_users.reassigned_by_user_id": {nullified, nullified},
		"packages_packages.creator_id":              {nullified, nullified},
		"members.created_by_id":                     {nullified, nullified},
	}
}

// leaver is the deleted user. It has only the rows that the test gives it.
const leaver = int64(999_999)

// For each column of the reference application, a deletion moves, deletes or nullifies
// the row as expected. Each column is tested with its own user, so that no other deletion
// removes its row.
func TestEveryColumnOfTheReferenceApplication(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"soft", "hard"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Reference(t)
			pgtest.Must(exampleapp.Load(t.Context(), db.Pool(), 30_000, nil))(t)
			b := newBundle(t, db, defaults(t))
			// With a target, native cascades delete the rows below deleted rows. The
			// counts do not include rows that cascades delete.
			b.engine.Sizes.Target = time.Second
			ghost := pgtest.Scalar[int64](t, db.Database, "SELECT sexton.ghost_user()")
			all := expectedEffects()
			for _, label := range b.engine.Plan.Columns(true) {
				require.Contains(t, all, label)
			}
			for label, expected := range all {
				b.Exec("INSERT INTO users (id, username, email, name) VALUES ($1, 'leaver', 'leaver@example.com', 'Leaver')", leaver)
				s := b.seed(t, label)
				b.queue(i == 1, leaver)
				stats := b.run(t)
				require.Empty(t, stats.Errors, label)
				require.EqualValues(t, 1, stats.UsersProcessed, label)
				require.Equal(t, expected[i], b.effect(s, ghost), label)
				counted := map[effect]map[string]int64{
					moved: stats.Moved, deleted: stats.Deleted,
					nullified: stats.Nullified,
				}[expected[i]]
				require.Equal(t, map[string]int64{label: 1}, counted, label)
				require.Equal(t, 1, len(stats.Moved)+len(stats.Deleted)+len(stats.Nullified), label)
				require.False(t, b.run(t).Changed(), "%s: the second run", label)
			}
			require.EqualValues(t, len(all), pgtest.Scalar[int64](t, db.Database,
				"SELECT count(*) FROM sexton.events WHERE kind = 'user_destroyed'"))
		})
	}
}

// seed sets the column of one row to the leaver, and returns the row without the column.
func (b *bundle) seed(t *testing.T, label string) seed {
	table, column, _ := strings.Cut(label, ".")
	s := seed{table: pgx.Identifier{table}.Sanitize(), column: pgx.Identifier{column}.Sanitize()}
	where := "true"
	switch table {
	case "snippets":
		where = "project_id IS NOT NULL"
	case "members":
		where = "source_type = 'Project'" // delete_user refuses the last owner of a group.
	}
	b.Exec(fmt.Sprintf(`UPDATE %s SET %s = $1 WHERE (tableoid, ctid) = (SELECT tableoid, ctid FROM %s WHERE %s ORDER BY to_jsonb(%s)::text LIMIT 1)`,
		s.table, s.column, s.table, where, s.table), leaver)
	s.row = pgtest.Scalar[string](t, b.Database,
		fmt.Sprintf("SELECT (to_jsonb(seeded) - '%s')::text FROM %s AS seeded WHERE %s = $1", column, s.table,
			s.column), leaver)
	return s
}

func (b *bundle) effect(s seed, ghost int64) effect {
	rows := b.Rows(fmt.Sprintf("SELECT %s FROM %s AS seeded WHERE (to_jsonb(seeded) - '%s')::text = $1",
		s.column, s.table, strings.Trim(s.column, `"`)), s.row)
	switch {
	case len(rows) == 0:
		return deleted
	case rows[0][0] == "NULL":
		return nullified
	case rows[0][0] == fmt.Sprint(ghost):
		return moved
	}
	return effect("unexpected value " + rows[0][0])
}

func TestPersonalSnippetsAreDeleted(t *testing.T) {
	t.Parallel()
	b := newBundle(t, dbtest.Reference(t), defaults(t))
	b.Exec(`INSERT INTO users (id, username, email, name) VALUES (1, 'ada', 'ada@example.com', 'Ada');
		INSERT INTO groups (id, name, path) VALUES (1, 'g', 'g');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'p', 'p');
		INSERT INTO snippets (id, project_id, author_id, type, title) VALUES (1, 1, 1, 'ProjectSnippet', 't'), (2, NULL, 1, 'PersonalSnippet', 't')`)
	b.queue(false, 1)
	b.requireDone(t, b.run(t), 1)
	require.Equal(t, [][]string{{"1", "Ghost User"}},
		b.Rows("SELECT snippets.id, users.name FROM snippets JOIN users ON users.id = author_id"))
}

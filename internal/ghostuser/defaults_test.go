package ghostuser_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"sexton/internal/dbtest"
	"sexton/internal/definitions"
	"sexton/internal/pgtest"
	"sexton/internal/sample"
)

func TestDefaultsFitTheReferenceApplication(t *testing.T) {
	t.Parallel()
	db := dbtest.Reference(t)
	p, problems := resolve(t, db, defaults(t))
	require.Empty(t, problems, "errors and warnings")

	// Every column that refers to users, by a key or by a loose definition, is looked at on either kind of delete.
	var all []string
	for _, row := range db.Rows(`
		SELECT conrelid::regclass || '.' || attname FROM pg_constraint
		JOIN pg_attribute ON attrelid = conrelid AND attnum = conkey[1]
		WHERE contype = 'f' AND confrelid = 'users'::regclass AND conrelid <> 'users_ghost_user_migrations'::regclass`) {
		all = append(all, row[0])
	}
	defs := pgtest.Must(definitions.Parse(definitions.File{Name: "lfk.yml", Data: []byte(sample.Definitions())}))(t)
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

// seed is a row that refers to the user by one column.
type seed struct{ table, column, row string }

// fate is what becomes of a seed.
type fate string

const (
	moved     fate = "moved"
	deleted   fate = "deleted"
	nullified fate = "nullified"
)

// fates are those of the reference application's columns on a soft and a hard delete.
func fates() map[string][2]fate {
	return map[string][2]fate{
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
		"snippets.author_id":                   {moved, deleted}, // A project's; see TestPersonalSnippetsGo.

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

// leaver has no rows but those that the test makes.
const leaver = int64(999_999)

// Each column on its own, so that no deletion takes another's row along.
func TestEveryColumnOfTheReferenceApplication(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"soft", "hard"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Reference(t)
			pgtest.Must(sample.Load(t.Context(), db.Pool(), 30_000, nil))(t)
			b := onto(t, db, defaults(t))
			ghost := pgtest.Scalar[int64](t, db.Database, "SELECT sexton.ghost_user()")
			all := fates()
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
				require.Equal(t, expected[i], b.fate(t, s, ghost), label)
				counted := map[fate]map[string]int64{moved: stats.Moved, deleted: stats.Deleted, nullified: stats.Nullified}[expected[i]]
				require.Equal(t, map[string]int64{label: 1}, counted, label)
				require.Equal(t, 1, len(stats.Moved)+len(stats.Deleted)+len(stats.Nullified), label)
				require.False(t, b.run(t).Changed(), "%s: the second run", label)
			}
			require.EqualValues(t, len(all), pgtest.Scalar[int64](t, db.Database, "SELECT count(*) FROM sexton.events WHERE kind = 'user_destroyed'"))
		})
	}
}

// seed gives one row of the column's table to the leaver, and returns it without the column.
func (b *bundle) seed(t *testing.T, label string) seed {
	t.Helper()
	table, column, _ := strings.Cut(label, ".")
	s := seed{table: pgx.Identifier{table}.Sanitize(), column: pgx.Identifier{column}.Sanitize()}
	where := "true"
	switch table {
	case "snippets":
		where = "project_id IS NOT NULL"
	case "members":
		where = "source_type = 'Project'" // The last owner of a group is refused.
	}
	b.Exec(fmt.Sprintf(`UPDATE %s SET %s = $1 WHERE (tableoid, ctid) = (SELECT tableoid, ctid FROM %s WHERE %s ORDER BY to_jsonb(%s)::text LIMIT 1)`,
		s.table, s.column, s.table, where, s.table), leaver)
	s.row = pgtest.Scalar[string](t, b.Database, fmt.Sprintf("SELECT (to_jsonb(seeded) - '%s')::text FROM %s AS seeded WHERE %s = $1", column, s.table, s.column), leaver)
	return s
}

func (b *bundle) fate(t *testing.T, s seed, ghost int64) fate {
	t.Helper()
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
	return fate("left at " + rows[0][0])
}

func TestPersonalSnippetsGo(t *testing.T) {
	t.Parallel()
	b := onto(t, dbtest.Reference(t), defaults(t))
	b.Exec(`INSERT INTO users (id, username, email, name) VALUES (1, 'ada', 'ada@example.com', 'Ada');
		INSERT INTO groups (id, name, path) VALUES (1, 'g', 'g');
		INSERT INTO projects (id, group_id, name, path) VALUES (1, 1, 'p', 'p');
		INSERT INTO snippets (id, project_id, author_id, type, title) VALUES (1, 1, 1, 'ProjectSnippet', 't'), (2, NULL, 1, 'PersonalSnippet', 't')`)
	b.queue(false, 1)
	b.requireDone(t, b.run(t), 1)
	require.Equal(t, [][]string{{"1", "Ghost User"}}, b.Rows("SELECT snippets.id, users.name FROM snippets JOIN users ON users.id = author_id"))
}

package records_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"sexton/internal/cli/clitest"
	"sexton/internal/pgtest"
)

// account returns the uuid key of account n.
func account(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012d", n) }

const accountSettings = `loose_foreign_keys: {enabled: true, undo: {keep: 72h, exclude_tables: [drafts], exclude_columns: [documents.title_name]}}
ghost_users:
  enabled: true
  users: {table: accounts}
  ghost: 00000000-0000-0000-0000-000000000009
  may_delete: may_delete_account
  on_request: {set: {state: blocked}}
  move: [{table: documents, columns: [author_id], always: true}]
  delete: [{table: sessions, columns: [account_id]}]
  nullify: [{table: documents, columns: [reviewer_id]}]
`

// accountsSite returns an application with a table accounts instead of GitLab's users.
// The keys are uuids, account 3 is an administrator, and account 9 is the ghost user.
// Some tables have the names of GitLab's tables but other columns.
func accountsSite(t *testing.T) *clitest.Site {
	tables := `
		CREATE TABLE organizations (id uuid PRIMARY KEY, name text);
		CREATE TABLE accounts (id uuid PRIMARY KEY, email text NOT NULL, full_name text, state text NOT NULL DEFAULT 'active', organization_id uuid);
		CREATE INDEX ON accounts (organization_id);
		CREATE TABLE documents (id bigint PRIMARY KEY, author_id uuid NOT NULL REFERENCES accounts, reviewer_id uuid REFERENCES accounts, title_name text, last_ip inet);
		CREATE INDEX ON documents (author_id); CREATE INDEX ON documents (reviewer_id);
		CREATE TABLE sessions (id bigint PRIMARY KEY, account_id uuid); CREATE INDEX ON sessions (account_id);
		CREATE TABLE drafts (id bigint PRIMARY KEY, document_id bigint); CREATE INDEX ON drafts (document_id);
		CREATE TABLE badges (id bigint PRIMARY KEY, account_id uuid); CREATE INDEX ON badges (account_id);
		CREATE TABLE members (id int, role text); CREATE TABLE groups (id int); CREATE TABLE projects (name text); CREATE TABLE users (nick text);
		CREATE FUNCTION may_delete_account(account uuid, initiator uuid) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
			AS $$ SELECT 'it is an administrator' WHERE account = '` + account(3) + `' $$;
		INSERT INTO organizations VALUES ('` + account(1) + `', 'one');
		INSERT INTO accounts SELECT ('00000000-0000-0000-0000-' || lpad(n::text, 12, '0'))::uuid, 'person' || n || '@example.com', 'Person ' || n FROM generate_series(1, 9) AS n;
		UPDATE accounts SET organization_id = '` + account(1) + `' WHERE id = '` + account(4) + `';
		INSERT INTO documents SELECT n, '` + account(1) + `', '` + account(2) + `', 'title', '10.1.1.1' FROM generate_series(1, 3) AS n;
		INSERT INTO sessions VALUES (1, '` + account(1) + `'); INSERT INTO drafts VALUES (1, 1), (2, 2); INSERT INTO badges VALUES (1, '` + account(4) + `');`
	s := clitest.Prepared(t, tables, "loose_foreign_keys: {enabled: false}\n")
	s.Configure(s.URL, accountSettings)
	s.Write("loose_foreign_keys.yml", `drafts: [{table: documents, column: document_id, on_delete: async_delete}]
accounts: [{table: organizations, column: organization_id, on_delete: async_delete}]
badges: [{table: accounts, column: account_id, on_delete: async_delete}]
`)
	s.OK("migrate", "up")
	s.OK("triggers", "install")
	return s
}

// The commands `user delete` and `user cancel` work for accounts with uuid keys.
func TestAccountsAreDeleted(t *testing.T) {
	t.Parallel()
	s := accountsSite(t)
	plan := s.JSON(0, "user", "delete", "--plan", account(1)).(map[string]any)
	require.Equal(t, account(1), plan["user_id"])
	require.Equal(t, map[string]any{"documents": 3.0}, plan["moved"])
	require.Equal(t, map[string]any{"user_id": account(1), "queued": true},
		s.JSON(0, "user", "delete", account(1), "--by", account(2)))
	require.Equal(t, "user "+account(1)+": is already queued; the first request is kept\n",
		s.OK("user", "delete", account(1)))
	require.Equal(t, [][]string{{"blocked"}}, s.Rows("SELECT state FROM accounts WHERE id = $1", account(1)))
	require.Equal(t, map[string]any{"user_id": account(1), "cancelled": true}, s.JSON(0, "user", "cancel", account(1)))
	require.Equal(t, [][]string{{"active"}}, s.Rows("SELECT state FROM accounts WHERE id = $1", account(1)))
	for id, message := range map[string]string{
		account(3):       "delete user " + account(3) + ": it is an administrator",
		account(9):       "the ghost user cannot be deleted",
		account(5) + "0": "invalid input syntax for type uuid", account(77): "there is no user " + account(77),
	} {
		s.RequireError(1, message, "user", "delete", id)
	}
	require.Equal(t, "user "+account(1)+": queued for deletion\n", s.OK("user", "delete", account(1)))
	require.Contains(t, s.OK("status"), "\n"+account(1)+" ")
	report := s.JSON(0, "job", "run", ghostKind).(map[string]any)
	require.EqualValues(t, 1, report["stats"].(map[string]any)["users_processed"])
	require.Equal(t, [][]string{{account(9), account(2)}},
		s.Rows("SELECT DISTINCT author_id, reviewer_id FROM documents"))
	require.Empty(t, s.Rows("SELECT FROM sessions"))
	require.Equal(t, [][]string{{account(1), "0"}},
		s.Rows("SELECT payload ->> 'user_id', payload ->> 'nullified' FROM sexton.events WHERE kind = 'user_destroyed'"))
}

// With the printed grants, the application can queue accounts and the worker can delete
// them.
func TestGrantsForAccounts(t *testing.T) {
	t.Parallel()
	s := accountsSite(t)
	application, worker := s.CreateRole(), s.CreateRole()
	s.OK("grants", "--app", application, "--worker", worker, "--viewer", worker, "--apply")
	as := func(role string) *clitest.Site {
		other := *s
		other.Environ = append([]string{"SEXTON_DATABASES__MAIN__URL=" + s.AsRole(role)}, s.Environ...)
		return &other
	}
	conn := pgtest.Connect(t, s.AsRole(application))
	_, err := conn.Exec(t.Context(), "SELECT sexton.delete_user($1, NULL)", account(1))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT FROM public.accounts")
	require.ErrorContains(t, err, "permission denied")
	report := as(worker).JSON(0, "job", "run", ghostKind).(map[string]any)
	require.EqualValues(t, 1, report["stats"].(map[string]any)["users_processed"], report)
	require.Empty(t, s.Rows("SELECT FROM accounts WHERE id = $1", account(1)))
}

// undo saves no rows of accounts or excluded tables, and no values of excluded columns.
// doctor reports other columns that may contain personal data.
func TestUndoKeepsNoAccounts(t *testing.T) {
	t.Parallel()
	s := accountsSite(t)
	s.Exec("DELETE FROM organizations; DELETE FROM documents WHERE id = 1")
	s.Exec("DELETE FROM accounts WHERE id = $1", account(5))
	s.OK("job", "run", clitest.Kind)
	s.OK("job", "run", clitest.Kind)
	require.Empty(t, s.Rows("SELECT FROM accounts WHERE id = $1", account(4)))
	require.Empty(t, s.Rows("SELECT FROM badges"))
	require.Equal(t, [][]string{{"2"}}, s.Rows("SELECT id FROM drafts"))
	require.Equal(t, [][]string{
		{"public.accounts", "0", "1"},
		{"public.documents", "1", "0"},
		{"public.drafts", "0", "1"},
		{"public.organizations", "1", "0"},
	},
		s.Rows(`SELECT l.name, sum(u.rows)::text, sum(u.left_out)::text FROM sexton.undo AS u JOIN sexton.undo_layouts AS l ON l.id = u.layout GROUP BY 1 ORDER BY 1`))
	require.Empty(t, s.Rows("SELECT FROM sexton.undo WHERE c::text ~ '(person|Person|title)'"))

	report, _ := s.RunDoctor(0)
	var personal []string
	for _, f := range report.Findings {
		require.NotEqual(t, "ghost_users", f.Check, f)
		if strings.Contains(f.Message, "personal") {
			personal = append(personal, strings.Join([]string{string(f.Severity), f.Object, f.Message, f.Fix}, " | "))
		}
	}
	require.Equal(t, []string{
		"info | table public.documents | columns that look personal are kept for 72h0m0s after a deletion: last_ip | " +
			"add to loose_foreign_keys.undo: exclude_columns: [documents.last_ip]",
		"info | table public.organizations | columns that look personal are kept for 72h0m0s after a deletion: name | " +
			"add to loose_foreign_keys.undo: exclude_columns: [organizations.name]",
	}, personal)
}

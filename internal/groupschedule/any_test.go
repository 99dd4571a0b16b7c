package groupschedule_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"sexton/internal/batch"
	"sexton/internal/dbtest"
	"sexton/internal/drain/dml"
	"sexton/internal/groupdelete"
	"sexton/internal/groupschedule"
	"sexton/internal/lease"
	"sexton/internal/migrate"
	"sexton/internal/pgtest"
)

// organizations returns SQL that creates an application whose keys have the given type.
// It has the organizations 1 to 6. Its tables members, projects, users and
// application_settings have other columns than GitLab's.
func organizations(kind string) string {
	return strings.ReplaceAll(fmt.Sprintf(`
CREATE TABLE organizations (
	id $ PRIMARY KEY, above $ REFERENCES organizations, slug text NOT NULL UNIQUE, domain varchar(40) UNIQUE, days smallint,
	deleted_on date, deleted_by uuid);
CREATE INDEX ON organizations (above);
CREATE TABLE memberships (organization_id $ REFERENCES organizations ON DELETE CASCADE, account_id uuid, PRIMARY KEY (organization_id, account_id));
CREATE TABLE documents (id bigint PRIMARY KEY, organization_id $ NOT NULL REFERENCES organizations ON DELETE CASCADE);
CREATE INDEX ON documents (organization_id);
CREATE TABLE files (id bigint PRIMARY KEY, document_id bigint REFERENCES documents ON DELETE CASCADE);
CREATE INDEX ON files (document_id);
CREATE TABLE members (name text);
CREATE TABLE projects (id uuid, title text);
CREATE TABLE users (login text);
CREATE TABLE application_settings (name text, value text);
INSERT INTO organizations (id, above, slug, domain) SELECT %[1]s, NULL, 'org ' || n, n || '.example.com' FROM generate_series(1, 6) AS n;
INSERT INTO memberships SELECT %[2]s, gen_random_uuid() FROM generate_series(1, 60) AS n;
INSERT INTO documents SELECT n, %[2]s FROM generate_series(1, 300) AS n;
INSERT INTO files SELECT n, n %% 300 + 1 FROM generate_series(1, 900) AS n;
ANALYZE`, dbtest.KeySQL(kind, "n"), dbtest.KeySQL(kind, "n % 6 + 1")), "$", kind)
}

const account = "00000000-0000-0000-0000-00000000000a"

// organization returns a configuration in which all options are set.
func organization() migrate.Groups {
	return migrate.Groups{
		Table: "organizations", Key: "id", Parent: "above", MarkedOn: "deleted_on", MarkedBy: "deleted_by", Period: 30,
		PeriodColumn: "days",
		Rename:       []string{"slug", "domain"},
	}
}

// anySite is a site whose groups are organizations.
type anySite struct {
	site

	kind   string
	groups migrate.Groups
}

func setupAny(t *testing.T, kind string, groups migrate.Groups, later ...string) anySite {
	d := dbtest.WithOrganizations(t, organizations(kind), groups, later...)
	s := anySite{site{d}, kind, groups}
	s.addKind()
	return s
}

// addKind adds the job kind that destroys a group.
func (s anySite) addKind() {
	s.Exec(`INSERT INTO sexton.job_kinds (kind, queue, cron, max_attempts, args, defaults, row_table, row_column, row_argument)
		VALUES ('group_destroy', 'group_destroy', false, 25, '{"group_id": "key", "user_id": "key"}', '{"user_id": ""}', 'organizations', 'id', 'group_id')`)
}

func (s anySite) key(n int) string { return dbtest.Key(s.kind, n) }

func (s anySite) id(n int) dml.ID {
	return dml.ID{Text: s.key(n), Integer: s.kind == "bigint" || s.kind == "integer"}
}

// nestOrganizations puts organizations 2 and 3 below 1, and 4 below 3.
func (s anySite) nestOrganizations() {
	for child, above := range map[int]int{2: 1, 3: 1, 4: 3} {
		s.Exec("UPDATE organizations SET above = $1 WHERE id = $2", s.key(above), s.key(child))
	}
}

// try executes a statement and returns its error.
func (s anySite) try(t *testing.T, sql string, args ...any) error {
	_, err := s.Pool().Exec(t.Context(), sql, args...)
	return err
}

// destroy runs the engine until the group is deleted. It kills the connection of the
// given number of first runs.
func (s anySite) destroy(t *testing.T, id dml.ID, kills int) *groupdelete.Stats {
	of := groupdelete.Groups{Table: s.groups.Table, Key: s.groups.Key, Parent: s.groups.Parent, Path: "slug"}
	for run := 0; ; run++ {
		s.Exec("UPDATE sexton.leases SET expires_at = now()")
		manager := &lease.Manager{Jobs: s.Connected, Holder: t.Name()}
		granted := pgtest.Must(manager.Acquire(t.Context(), groupdelete.LeaseKey(id), groupdelete.LeaseTTL,
			s.Connected))(t)
		plan, problems := pgtest.Must2(groupdelete.Resolve(t.Context(), s.Pool(), s.Connected.Names, of, false))(t)
		require.NoError(t, problems.Err())
		conn := pgtest.Connect(t, s.URL)
		engine := &groupdelete.Engine{
			Session: &batch.Session{
				Conn: conn, Names: s.Connected.Names, Fence: granted,
				Limits: batch.Limits{StatementTimeout: 10 * time.Second, LockTimeout: 10 * time.Second},
			},
			Plan: plan, GroupID: id, Leases: manager, Database: s.Connected, Sizes: groupdelete.Sizes{Rows: 10},
		}
		if run < kills {
			batches := 0
			kill := s.KillOnce(conn)
			engine.Progress = func(context.Context, *groupdelete.Stats) {
				if batches++; batches > 3*run {
					kill()
				}
			}
		}
		stats, err := engine.Run(t.Context())
		if err == nil {
			return stats
		}
		require.Less(t, run, kills, "%v", err)
	}
}

// Groups of any table, with keys of every type, can be marked by a function or by the
// application, restored, decided about and destroyed.
func TestGroupsOfAnyTable(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, dbtest.Keys, func(t *testing.T, kind, _ string) {
		s := setupAny(t, kind, organization())
		s.nestOrganizations()
		const shown = "SELECT slug, domain, deleted_on = (now() AT TIME ZONE 'UTC')::date, deleted_by FROM organizations WHERE id = $1"
		before := s.Rows(shown, s.key(1))
		require.True(t, s.call(t, "schedule_group_deletion", s.key(1), account))
		require.False(t, s.call(t, "schedule_group_deletion", s.key(1), nil))
		suffix := "-deletion_scheduled-" + s.key(1)
		domain := "1.example.com" + suffix
		if len([]rune(domain)) > 40 {
			suffix, domain = "", "1.example.com"
		}
		require.Equal(t, [][]string{{"org 1" + suffix, domain, "t", account}}, s.Rows(shown, s.key(1)))
		require.True(t, s.call(t, "cancel_group_deletion", s.key(1), account))
		require.False(t, s.call(t, "cancel_group_deletion", s.key(1), account))
		require.Equal(t, before, s.Rows(shown, s.key(1)))

		// The application sets the marks itself: organization 1 is due, 5 is due by its
		// own period, and 6 is not due.
		s.Exec("UPDATE organizations SET deleted_on = current_date - 40 WHERE id = ANY ($1)",
			[]string{s.key(1), s.key(6)})
		s.Exec("UPDATE organizations SET days = 60 WHERE id = $1", s.key(6))
		s.Exec("UPDATE organizations SET deleted_on = current_date - 10, days = 5, deleted_by = $2 WHERE id = $1",
			s.key(5), account)
		stats := s.pass(t)
		require.EqualValues(t, 2, stats.GroupsEnqueued, "%v", stats.Errors)
		require.False(t, s.pass(t).Changed(), "the second pass changes nothing")
		listed := pgtest.Must(groupschedule.ReadGroups(t.Context(), s.Pool(), s.Connected.Names, 10))(t)
		require.Len(t, listed, 3)
		require.Equal(t, "enqueued", listed[0].State)
		require.ElementsMatch(t, []dml.ID{s.id(1), s.id(5), s.id(6)},
			[]dml.ID{listed[0].GroupID, listed[1].GroupID, listed[2].GroupID})
		type args struct {
			Group dml.ID `json:"group_id"`
			User  dml.ID `json:"user_id"`
		}
		require.ElementsMatch(t, []args{{s.id(1), dml.ID{}}, {s.id(5), dml.ID{Text: account}}},
			pgtest.Scalar[[]args](t, s.Database,
				"SELECT jsonb_agg(args) FROM sexton.river_job WHERE kind = 'group_destroy'"))

		done := s.destroy(t, s.id(1), 3)
		require.Equal(t, groupdelete.Destroyed, done.Outcome, "%s %v", done.Reason, done.Errors)
		require.Equal(t, [][]string{{s.key(5)}, {s.key(6)}}, s.Rows("SELECT id FROM organizations ORDER BY slug"))
		require.Equal(t, [][]string{{"100", "300", "20"}}, s.Rows(
			"SELECT (SELECT count(*) FROM documents), (SELECT count(*) FROM files), (SELECT count(*) FROM memberships)"))
		require.Equal(t, [][]string{{"0", "0"}},
			s.Rows("SELECT (SELECT count(*) FROM sexton.group_destructions), (SELECT count(*) FROM sexton.leases WHERE key ~ '^groups/')"))
		require.ElementsMatch(t, []dml.ID{s.id(1), s.id(2), s.id(3), s.id(4)},
			pgtest.Scalar[[]dml.ID](t, s.Database,
				"SELECT jsonb_agg(payload -> 'group_id') FROM sexton.events WHERE kind = 'group_destroyed'"))
		require.Equal(t, groupdelete.Gone, s.destroy(t, s.id(1), 0).Outcome)
	})
}

// A table of groups needs only a key and a mark. A destruction that has not begun can be
// canceled, and delete_group_now makes a group due.
func TestGroupsWithoutParents(t *testing.T) {
	t.Parallel()
	s := setupAny(t, "uuid", migrate.Groups{Table: "organizations", Key: "id", MarkedOn: "deleted_on", Period: 30},
		"ALTER TABLE organizations DROP above, DROP deleted_by, DROP days, DROP domain")
	require.True(t, s.call(t, "delete_group_now", s.key(2), s.key(9)))
	require.False(t, s.call(t, "delete_group_now", s.key(2), s.key(9)))
	require.Equal(t, [][]string{{`{"user_id": "` + s.key(9) + `", "group_id": "` + s.key(2) + `"}`}},
		s.Rows("SELECT args FROM sexton.river_job"))
	require.True(t, s.call(t, "cancel_group_deletion", s.key(2), nil))
	require.Equal(t, groupdelete.Kept, s.destroy(t, s.id(2), 0).Outcome)
	require.True(t, s.call(t, "delete_group_now", s.key(2), nil))
	require.Equal(t, groupdelete.Destroyed, s.destroy(t, s.id(2), 0).Outcome)
	require.Equal(t, [][]string{{"5", "250"}},
		s.Rows("SELECT (SELECT count(*) FROM organizations), (SELECT count(*) FROM documents)"))
}

// The application's rule function decides about marking a group and, at the end of the
// period, about its deletion. It must be SECURITY DEFINER and not STRICT.
func TestRuleDecidesWhoRemovesGroups(t *testing.T) {
	t.Parallel()
	groups := organization()
	groups.MayRemove = "may_remove"
	const rule = `CREATE FUNCTION may_remove(key bigint, account uuid) RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
		AS $$ SELECT CASE WHEN account IS NULL THEN 'no user' WHEN key = 2 THEN 'group 2' END $$`
	s := setupAny(t, "bigint", organization(), rule)
	require.NoError(t, s.MigrateGroups(t, groups))
	s.addKind()
	require.ErrorContains(t, s.try(t, "SELECT sexton.schedule_group_deletion(2, $1)", account),
		"user "+account+" may not remove it (SQLSTATE SX021)")
	require.True(t, s.call(t, "schedule_group_deletion", 1, account))
	s.Exec("UPDATE organizations SET deleted_on = current_date - 40 WHERE id IN (1, 2, 3)")
	s.Exec("UPDATE organizations SET deleted_by = $1 WHERE id = 2", account)
	stats := s.pass(t)
	require.EqualValues(t, 1, stats.GroupsEnqueued, "%v", stats)
	require.EqualValues(t, 2, stats.GroupsRestored, "group 2 by the rule, and group 3 because no user is recorded")
	require.Equal(t, [][]string{{"2"}, {"3"}},
		s.Rows("SELECT payload -> 'group_id' FROM sexton.events WHERE kind = 'group_restored' AND payload ->> 'reason' = 'not_permitted' ORDER BY 1"))

	s.Exec("ALTER FUNCTION may_remove STRICT")
	require.ErrorContains(t, s.try(t, "SELECT sexton.schedule_group_deletion(4, NULL)"),
		"or is STRICT or returns a set")
	require.ErrorContains(t, s.MigrateGroups(t, groups),
		`adjourned_groups.may_remove: the function "public"."may_remove"(bigint, uuid) is STRICT`)
	s.Exec("ALTER FUNCTION may_remove CALLED ON NULL INPUT SECURITY INVOKER")
	require.ErrorContains(t, s.try(t, "SELECT sexton.schedule_group_deletion(4, $1)", account),
		"is not SECURITY DEFINER with a search_path of its own")
	require.ErrorContains(t, s.MigrateGroups(t, groups),
		`adjourned_groups.may_remove: the function "public"."may_remove"(bigint, uuid) would run with the privileges of Sexton's owner`)
}

const otherGroupsMessage = "groups of another table or key than configured are being destroyed"

// A migration to another table, key or parent is refused while a group is being
// destroyed, even if the types of the keys are equal. A destruction that has begun needs
// only the key of the group to continue.
func TestMigrationIsRefusedDuringADestruction(t *testing.T) {
	t.Parallel()
	s := setupAny(t, "bigint", organization(), `ALTER TABLE organizations ADD number bigint UNIQUE;
		CREATE TABLE companies (LIKE organizations INCLUDING ALL)`)
	of := func(change func(*migrate.Groups)) migrate.Groups {
		groups := organization()
		change(&groups)
		return groups
	}
	companies := of(func(g *migrate.Groups) { g.Table = "companies" })
	s.Exec("INSERT INTO sexton.group_destructions (group_id) VALUES (5)")
	for _, other := range []migrate.Groups{
		companies, of(func(g *migrate.Groups) { g.Key = "number" }),
		of(func(g *migrate.Groups) { g.Parent = "number" }),
	} {
		require.ErrorContains(t, s.MigrateGroups(t, other), otherGroupsMessage)
	}
	require.NoError(t, s.MigrateGroups(t, of(func(g *migrate.Groups) { g.Period = 7 })))
	role := s.CreateRole()
	s.Exec("GRANT SELECT ON sexton.groups TO " + role)
	s.Exec("DELETE FROM sexton.group_destructions")
	require.NoError(t, s.MigrateGroups(t, companies))
	require.NoError(t, s.MigrateGroups(t, companies))
	require.Equal(t, [][]string{{"0", "t"}},
		s.Rows("SELECT count(*), has_table_privilege($1, 'sexton.groups', 'SELECT') FROM sexton.groups", role))
}

// A migration between GitLab's groups and another table is refused while a group is being
// destroyed.
func TestMigrationFromAndToGitLabsGroups(t *testing.T) {
	t.Parallel()
	s := setup(t)
	clubs := migrate.Groups{Table: "clubs", Key: "id", MarkedOn: "deleted_on", Period: 30}
	s.Exec("CREATE TABLE clubs (id bigint PRIMARY KEY, deleted_on date); INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (10, 1)")
	require.ErrorContains(t, s.MigrateGroups(t, clubs), otherGroupsMessage)
	s.Exec("DELETE FROM sexton.group_destructions")
	require.NoError(t, s.MigrateGroups(t, clubs))
	const trigger = "SELECT count(*) FROM pg_trigger WHERE tgname = 'sexton_group_schedule_lost'"
	require.Equal(t, [][]string{{"0"}}, s.Rows(trigger), "the trigger would change groups that are not configured")
	s.Exec("INSERT INTO sexton.group_destructions (group_id, user_id) VALUES (10, 1)")
	require.ErrorContains(t, s.MigrateGroups(t, migrate.Groups{}), otherGroupsMessage)
	s.Exec("DELETE FROM sexton.group_destructions")
	require.NoError(t, s.MigrateGroups(t, migrate.Groups{}))
	require.Equal(t, [][]string{{"t"}}, s.Rows("SELECT to_regclass('sexton.groups') IS NULL"))
	require.Equal(t, [][]string{{"1"}}, s.Rows(trigger))
}

// A worker may be restarted with another configured table of groups. It then deletes no
// group before the migration, because the view of groups still reads the former table's
// marks.
func TestNoGroupIsDestroyedBeforeTheMigration(t *testing.T) {
	t.Parallel()
	s := setupAny(t, "bigint", organization(), `ALTER TABLE organizations ADD number bigint UNIQUE;
		CREATE TABLE companies (LIKE organizations INCLUDING ALL)`)
	configured := groupdelete.Groups{Table: "organizations", Key: "id", Parent: "above", Path: "slug"}
	resolve := func(change func(*groupdelete.Groups)) error {
		groups := configured
		change(&groups)
		names := s.Connected.Names
		names.GroupViews = groups.Table != ""
		_, problems := pgtest.Must2(groupdelete.Resolve(t.Context(), s.Pool(), names, groups, false))(t)
		return problems.Err()
	}
	require.NoError(t, resolve(func(*groupdelete.Groups) {}))
	for _, change := range []func(*groupdelete.Groups){
		func(g *groupdelete.Groups) { g.Table = "companies" }, func(g *groupdelete.Groups) { g.Key = "number" },
		func(g *groupdelete.Groups) { g.Parent = "" },
	} {
		require.ErrorContains(t, resolve(change), "the schema sexton was migrated for another table")
	}
	s.Exec("DROP TABLE projects; CREATE TABLE groups (id bigint, parent_id bigint, path text, marked_for_deletion_on date); CREATE TABLE projects (id bigint, group_id bigint)")
	require.ErrorContains(t, resolve(func(g *groupdelete.Groups) { *g = groupdelete.Groups{} }),
		"the schema sexton was migrated for another table")
	companies := organization()
	companies.Table = "companies"
	require.NoError(t, s.MigrateGroups(t, companies))
	require.NoError(t, resolve(func(g *groupdelete.Groups) { g.Table = "companies" }))
	require.Error(t, resolve(func(*groupdelete.Groups) {}))
}

// A key without a unique index is refused, because the destruction of one group would
// delete other groups with the same key.
func TestGroupsNeedAUniqueKey(t *testing.T) {
	t.Parallel()
	s := setupAny(t, "bigint", migrate.Groups{Table: "organizations", Key: "id", MarkedOn: "deleted_on", Period: 30})
	resolve := func() error {
		_, problems := pgtest.Must2(groupdelete.Resolve(t.Context(), s.Pool(), s.Connected.Names,
			groupdelete.Groups{Table: "organizations", Key: "id"}, false))(t)
		return problems.Err()
	}
	require.NoError(t, resolve())
	s.Exec("ALTER TABLE organizations DROP CONSTRAINT organizations_pkey CASCADE; CREATE INDEX ON organizations (id); CREATE UNIQUE INDEX ON organizations (id) WHERE days > 1")
	require.ErrorContains(t, resolve(), "organizations.id has no unique index")
	s.Exec("CREATE UNIQUE INDEX ON organizations (id)")
	require.NoError(t, resolve())
}

// The arguments of a job contain the group's key in the text form of its row, whatever
// form the caller uses. Two jobs for one group therefore exclude each other.
func TestJobsHaveTheTextFormOfTheRow(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, map[string][]string{
		"bigint": {`5`, `"5"`, `"05"`, `" 5 "`}, "uuid": {
			`"00000000-0000-0000-0000-00000000000a"`,
			`"00000000-0000-0000-0000-00000000000A"`, `"{0000000000000000000000000000000a}"`,
		},
		"text": {`"Zoë/5's <&>"`},
	}, func(t *testing.T, kind string, forms []string) {
		s := setupAny(t, kind, organization())
		if kind == "uuid" {
			s.Exec("INSERT INTO organizations (id, slug) VALUES ($1, 'a')", account)
		}
		for _, form := range forms {
			s.Exec(`SELECT sexton.enqueue('group_destroy', jsonb_build_object('group_id', $1::jsonb))`, form)
		}
		require.Equal(t, [][]string{{forms[0]}}, s.Rows("SELECT args -> 'group_id' FROM sexton.river_job"))
		require.ErrorContains(t,
			s.try(t, `SELECT sexton.enqueue('group_destroy', '{"group_id": "00000000-0000-0000-0000-0000000000ff"}')`),
			map[bool]string{true: "invalid input syntax", false: "there is no row of organizations"}[kind == "bigint"])
	})
}

// A migration reports tables and columns that do not exist or have the wrong type. It
// refuses another type of key while a group is being destroyed.
func TestInvalidGroupsAreRefused(t *testing.T) {
	t.Parallel()
	s := setupAny(t, "bigint", organization())
	s.Exec(`CREATE TABLE clubs (id numeric PRIMARY KEY, deleted_at timestamptz); CREATE TABLE teams (id uuid PRIMARY KEY, deleted_on date);
		CREATE TABLE squads (id uuid PRIMARY KEY, above text, deleted_on date)`)
	for message, groups := range map[string]migrate.Groups{
		"adjourned_groups.groups.key: clubs.id is of type numeric instead of bigint, integer, uuid or text (name another column, or change its type)\n" +
			"adjourned_groups.groups.marked_on: clubs.deleted_at is of type timestamp with time zone instead of date": {Table: "clubs", Key: "id", MarkedOn: "deleted_at"},
		"adjourned_groups.groups.key: table clubs has no column uid (did you mean id?)\n" +
			"adjourned_groups.groups.marked_on: table clubs has no column deleted_on (did you mean deleted_at?)": {Table: "clubs", Key: "uid", MarkedOn: "deleted_on"},
		"adjourned_groups.groups.parent: squads.above is of type text instead of the type of the key": {
			Table: "squads",
			Key:   "id", Parent: "above", MarkedOn: "deleted_on",
		},
	} {
		require.ErrorContains(t, s.MigrateGroups(t, groups), message)
	}
	teams := migrate.Groups{Table: "teams", Key: "id", MarkedOn: "deleted_on", Period: 1}
	s.Exec("INSERT INTO sexton.group_destructions (group_id) VALUES (1)")
	require.ErrorContains(t, s.MigrateGroups(t, teams), otherGroupsMessage)
	s.Exec("DELETE FROM sexton.group_destructions")
	require.NoError(t, s.MigrateGroups(t, teams))
	require.NoError(t, s.MigrateGroups(t, teams))
	s.Exec("INSERT INTO teams VALUES ($1)", account)
	require.True(t, s.call(t, "schedule_group_deletion", account, account))
	require.Equal(t, [][]string{{"sexton.delete_group_now(uuid,uuid)"}},
		s.Rows("SELECT oid::regprocedure FROM pg_proc WHERE proname = 'delete_group_now'"))
	require.Equal(t, [][]string{{"1"}},
		s.Rows("SELECT count(*) FROM pg_proc WHERE proname ~ 'schedule_group_deletion'"))
}

// schedule_group_deletion sets the mark to today, so that the group's own period counts
// from today, whether it is longer or shorter than the configured period.
func TestScheduleMarksTodayWithAnyPeriod(t *testing.T) {
	t.Parallel()
	s := setupAny(t, "bigint", organization())
	for id, days := range map[int]int{5: 90, 6: 5} {
		s.Exec("UPDATE organizations SET days = $2 WHERE id = $1", id, days)
		require.True(t, s.call(t, "schedule_group_deletion", id, account))
	}
	const shown = `SELECT id, deleted_on - (now() AT TIME ZONE 'UTC')::date, (SELECT marked_for_deletion_on - sexton.group_deletion_cutoff()
		FROM sexton.groups WHERE groups.id = organizations.id) FROM organizations WHERE deleted_on IS NOT NULL ORDER BY id`
	require.Equal(t, [][]string{{"5", "0", "90"}, {"6", "0", "5"}}, s.Rows(shown))
	require.True(t, s.call(t, "delete_group_now", 5, account))
	require.Equal(t, [][]string{{"5", "-91", "-1"}, {"6", "0", "5"}}, s.Rows(shown))
}

// The SQL functions work if columns of the application have the names of variables in the
// functions.
func TestColumnsMayHaveNamesOfVariables(t *testing.T) {
	t.Parallel()
	s := setupAny(t, "bigint", organization(), `ALTER TABLE organizations ADD suffix text, ADD tail text, ADD day date DEFAULT '2000-01-01',
		ADD requester uuid, ADD due date, ADD attempt integer, ADD scheduled_by uuid`)
	const shown = "SELECT slug, deleted_on = (now() AT TIME ZONE 'UTC')::date, deleted_by FROM organizations WHERE id = 2"
	s.Exec("INSERT INTO organizations (id, slug) VALUES (7, 'org 2-deletion_scheduled-2')")
	require.True(t, s.call(t, "schedule_group_deletion", 2, account))
	scheduled := s.Rows(shown)
	require.Regexp(t, "^org 2-.{5}-deletion_scheduled-2$", scheduled[0][0])
	require.Equal(t, []string{"t", account}, scheduled[0][1:])
	require.True(t, s.call(t, "delete_group_now", 2, account))
	require.Equal(t, [][]string{{"-1"}},
		s.Rows("SELECT deleted_on - sexton.group_deletion_cutoff() FROM organizations WHERE id = 2"))
	require.True(t, s.call(t, "cancel_group_deletion", 2, account))
	require.Equal(t, "NULL", s.Rows(shown)[0][1])
	require.Regexp(t, "^org 2-.{5}$", s.Rows(shown)[0][0])
}

// The view of groups is created again if one of its columns gets another type.
func TestViewIsRecreatedForOtherTypes(t *testing.T) {
	t.Parallel()
	without := migrate.Groups{Table: "organizations", Key: "id", MarkedOn: "deleted_on", Period: 30}
	s := setupAny(t, "integer", without, "CREATE TABLE teams (id uuid PRIMARY KEY, deleted_on date)")
	teams := without
	teams.Table = "teams"
	for _, groups := range []migrate.Groups{organization(), without, teams} {
		require.NoError(t, s.MigrateGroups(t, groups))
		require.Equal(t, [][]string{{groups.Table}}, s.Rows(`SELECT DISTINCT refobjid::regclass FROM pg_depend
			WHERE objid = (SELECT oid FROM pg_rewrite WHERE ev_class = 'sexton.groups'::regclass) AND refobjid <> 'sexton.groups'::regclass
			AND refclassid = 'pg_class'::regclass`))
	}
}

// If the keys get another type, a migration keeps a rule that the application has
// replaced, and requires a rule for the new type.
func TestReplacedRuleIsKeptForOtherKeys(t *testing.T) {
	t.Parallel()
	s := setupAny(t, "bigint", organization(), `CREATE TABLE teams (id uuid PRIMARY KEY, deleted_on date);
		CREATE OR REPLACE FUNCTION sexton.may_remove_group(user_id uuid, group_id bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false'`)
	s.Exec("INSERT INTO teams VALUES ($1)", account)
	teams := migrate.Groups{Table: "teams", Key: "id", MarkedOn: "deleted_on", Period: 1}
	require.ErrorContains(t, s.MigrateGroups(t, teams),
		`sexton.may_remove_group(uuid,bigint) is the application's own rule, and the types of the keys change`)
	require.ErrorContains(t, s.MigrateGroups(t, teams),
		`(Create "sexton".may_remove_group(uuid, uuid) with that rule, or drop the old function to use Sexton's rule.)`)
	s.Exec("CREATE FUNCTION sexton.may_remove_group(user_id uuid, group_id uuid) RETURNS boolean LANGUAGE sql AS 'SELECT false'")
	require.NoError(t, s.MigrateGroups(t, teams))
	require.ErrorContains(t, s.try(t, "SELECT sexton.schedule_group_deletion($1, $1)", account), "may not remove it")
	require.ErrorContains(t, s.MigrateGroups(t, organization()), "sexton.may_remove_group(uuid,uuid) is the application's own rule")
	s.Exec("DROP FUNCTION sexton.may_remove_group")
	require.NoError(t, s.MigrateGroups(t, organization()))
	require.True(t, s.call(t, "schedule_group_deletion", 1, account))
}

package migrate

import (
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"sexton/internal/render"
	sqlfiles "sexton/sql"
)

// component is a set of database objects with a version of its own. Its migrations are
// the SQL files of one folder. River's tables are also a component: River migrates them
// in the schema sexton and records their version.
type component struct {
	name string
	// queue is the component's deletion table in the tracked schema, if it has one. holds
	// describes the rows of the queue in messages. If columns is set, the application may
	// have created the queue with these columns.
	queue, holds string
	columns      []string
	// needs holds the application's tables that the component needs.
	needs []Need
	// privileges holds the privileges on tables of the tracked schema that the owner of
	// the functions needs.
	privileges []tablePrivileges
	// pending describes the work that Down would discard.
	pending pending
}

type tablePrivileges struct {
	table      string
	privileges []string
}

// pending describes the pending work of a component: the rows of a table that meet the
// condition. The table is in the tracked schema if it is the component's queue, and
// otherwise in the schema sexton. message is a format with the number of rows.
type pending struct{ table, condition, message string }

// These constants are the names of the components, in the order of their installation.
const (
	Base             = "base"
	Jobs             = "jobs"
	River            = "river"
	LooseForeignKeys = "loose_foreign_keys"
	GhostUsers       = "ghost_users"
	PlaceholderUsers = "placeholder_users"
	AdjournedGroups  = "adjourned_groups"
	ExternalDiffs    = "external_diffs"
	Undo             = "undo"
)

// complete returns the database with every component enabled, for Down.
func (db Database) complete() Database {
	db.Jobs, db.Components = true, nil
	for _, c := range allComponents() {
		db.Components = append(db.Components, c.name)
	}
	return db
}

// Latest is this program's newest version of a component.
type Latest struct {
	Component string `json:"component"`
	Version   int64  `json:"version"`
}

// Versions returns the newest version of every component, in the order of their
// installation.
func Versions() []Latest {
	return render.Each(allComponents(), func(c component) Latest {
		return Latest{Component: c.name, Version: latest(c)}
	})
}

func latest(c component) int64 {
	migrations := c.migrations()
	return migrations[len(migrations)-1].Version
}

// migrations returns the component's migrations by ascending version.
func (c component) migrations() []Migration {
	if c.name == River {
		return riverMigrations()
	}
	files, _ := fs.Glob(sqlfiles.Migrations, path.Join("migrations", c.name, "*.up.sql"))
	migrations := make([]Migration, 0, len(files))
	for _, file := range files {
		name := strings.TrimSuffix(path.Base(file), ".up.sql")
		digits, _, _ := strings.Cut(name, "_")
		version, _ := strconv.ParseInt(digits, 10, 64)
		migrations = append(migrations, Migration{Version: version, Name: name})
	}
	slices.SortFunc(migrations, func(a, b Migration) int { return int(a.Version - b.Version) })
	return migrations
}

// text returns the SQL of a migration.
func (c component) text(m Migration) string {
	text, _ := fs.ReadFile(sqlfiles.Migrations, path.Join("migrations", c.name, m.Name+".up.sql"))
	return string(text)
}

// rows returns the SQL that inserts the rows which the component needs.
func (c component) rows() string {
	text, _ := fs.ReadFile(sqlfiles.Rows, path.Join("rows", c.name+".sql"))
	return string(text)
}

// These constants are tables of the tracked schema that several components use.
const (
	tombstones = "loose_foreign_keys_deleted_records"
	ghostQueue = "users_ghost_user_migrations"
	users      = "users"
	groups     = "groups"
	members    = "members"
	links      = "group_group_links"
	settings   = "application_settings"
)

// allComponents returns all components in the order of their installation.
func allComponents() []component {
	list := []component{
		{name: Base},
		{name: Jobs},
		riverComponent(),
		{
			name: LooseForeignKeys, queue: tombstones, holds: "tombstones",
			privileges: []tablePrivileges{{tombstones, []string{"SELECT", "INSERT"}}},
			pending: pending{
				tombstones, "status = 1",
				"pending tombstones (%d), each for a deleted parent whose children are not cleaned up; " +
					"let `sexton job run loose_foreign_keys_cleanup` finish, or pass --force to leave those children as orphans",
			},
		},
		ghostUsers(),
		placeholderUsers(),
		adjournedGroups(),
		externalDiffs(),
		{
			name: Undo,
			pending: pending{"undo", "origins IS NULL", "deletions that `sexton undo` can restore (%d); " +
				"wait until they expire, or pass --force to discard them"},
		},
	}
	// Every folder of migrations is a component.
	folders, _ := fs.ReadDir(sqlfiles.Migrations, "migrations")
	for _, folder := range folders {
		if name := folder.Name(); folder.IsDir() && !slices.ContainsFunc(list,
			func(c component) bool { return c.name == name }) {
			list = append(list, component{name: name})
		}
	}
	return list
}

func riverComponent() component { return component{name: River} }

func ghostUsers() component {
	return component{
		name: GhostUsers, queue: ghostQueue, holds: "users to be deleted",
		columns: []string{
			"id", "user_id", "initiator_user_id", "hard_delete", "consume_after", "created_at",
			"updated_at",
		},
		needs: []Need{
			{Table: users, Columns: slices.Concat(columns(Integer, "id", "user_type"),
				columns("", "username", "email", "name", "state", "admin"))},
			{Table: groups, With: []string{groups, members}, Columns: columns("", "id", "parent_id", "path")},
			{Table: members, With: []string{groups, members}, Columns: columns("", membership...)},
		},
		privileges: []tablePrivileges{
			{users, []string{"SELECT", "INSERT", "UPDATE"}},
			{ghostQueue, []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
			{members, []string{"SELECT"}},
			{groups, []string{"SELECT"}},
		},
		pending: pending{ghostQueue, "true", "users to be deleted (%d); " +
			"let `sexton job run users_migrate_records_to_ghost_user_in_batches` finish, or pass --force to leave them blocked"},
	}
}

func placeholderUsers() component {
	const details = "import_placeholder_user_details"
	return component{
		name: PlaceholderUsers, queue: details, holds: "details of placeholder users",
		columns: []string{
			"id", "placeholder_user_id", "namespace_id", "deletion_attempts", "last_deletion_attempt_at",
			"created_at", "updated_at",
		},
		privileges: []tablePrivileges{{details, []string{"SELECT"}}},
		pending: pending{details, "namespace_id IS NULL", "placeholder users without an owner (%d); " +
			"let `sexton job run import_placeholder_user_cleanup` and its jobs finish, or pass --force to discard them"},
	}
}

func adjournedGroups() component {
	const schedules, destructions = "group_deletion_schedules", "group_destructions"
	return component{
		name: AdjournedGroups, queue: schedules, holds: "groups to be deleted",
		columns: []string{"group_id", "user_id", "marked_for_deletion_on"},
		needs: []Need{
			{Table: groups, Columns: slices.Concat(
				columns(Integer, "id", "parent_id"), columns("", "name", "path"),
				columns(Date, "marked_for_deletion_on"))},
			{Table: "projects", Columns: columns(Integer, "id", "group_id")},
			{Table: users, Columns: slices.Concat(columns(Integer, "id"), columns("", "state", "admin"))},
			{Table: members, With: []string{members}, Columns: columns("", membership...)},
			{Table: links, With: []string{links}, Columns: columns("", "shared_group_id", "shared_with_group_id",
				"group_access", "expires_at")},
			{
				Table: settings, With: []string{settings},
				Columns: []Column{{Name: "deletion_adjourned_period", Type: Integer, Optional: true}},
			},
		},
		privileges: []tablePrivileges{
			{users, []string{"SELECT"}},
			{groups, []string{"SELECT", "UPDATE"}},
			{schedules, []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
			{ghostQueue, []string{"SELECT"}},
			{members, []string{"SELECT"}},
			{links, []string{"SELECT"}},
			{settings, []string{"SELECT"}},
		},
		pending: pending{destructions, "true", "groups that are being destroyed (%d); " +
			"let the jobs group_destroy finish, or pass --force to leave the remaining rows of these groups"},
	}
}

func externalDiffs() component {
	const removals = "external_diff_removals"
	return component{
		name: ExternalDiffs,
		needs: []Need{
			{Table: "merge_request_diff_files", Columns: slices.Concat(columns("",
				"merge_request_diff_id", "relative_order", "binary", "external_diff_offset", "external_diff_size",
				"old_path", "new_path", "diff"),
				[]Column{{Name: "project_id", Optional: true}})},
			{Table: "merge_request_diffs", Columns: slices.Concat(columns("",
				"id", "merge_request_id", "diff_type", "files_count", "stored_externally", "external_diff",
				"external_diff_store", "sorted"),
				[]Column{{Name: "project_id", Optional: true}})},
			{Table: "merge_request_metrics", Columns: columns("", "merge_request_id", "merged_at", "latest_closed_at")},
			{Table: "merge_requests", Columns: slices.Concat(columns("", "id", "state_id",
				"latest_merge_request_diff_id"),
				[]Column{{Name: "target_project_id", Optional: true}})},
		},
		privileges: []tablePrivileges{{"merge_request_diffs", []string{"SELECT"}}, {"merge_request_diff_files", []string{"SELECT"}}},
		pending: pending{removals, "true", "objects of deleted diffs to be removed (%d); " +
			"let `sexton job run schedule_migrate_external_diffs` finish, or pass --force to leave them in the store"},
	}
}

// optionalTables returns the application's tables that functions read if they exist. Up
// records which of them exist, and the functions rely on that record. A name alone is not
// safe: in a schema in which every role may create, any role may create a view with it.
func optionalTables() []string {
	return []string{settings, links, groups, members, ghostQueue}
}

// trackedTables returns all tables of the tracked schema that components use.
func trackedTables() (names []string) {
	for _, c := range allComponents() {
		if c.queue != "" {
			names = append(names, c.queue)
		}
		for _, n := range c.needs {
			names = append(names, n.Table)
		}
	}
	return names
}

// components returns the enabled components of the database.
func (db Database) components() []component {
	all := render.Each(render.Each(allComponents(), db.Users.fit), db.Groups.fit)
	return slices.DeleteFunc(all, func(c component) bool {
		switch c.name {
		case Base:
			return false
		case Jobs, River:
			return !db.Jobs
		default:
			return !slices.Contains(db.Components, c.name)
		}
	})
}

// queueID returns the deletion table's qualified name, or "" if the component has none.
func (db Database) queueID(c component) string {
	if c.queue == "" {
		return ""
	}
	return identity(db.TrackedSchema, c.queue)
}

// ownerNeeds returns the application's tables on which the owner of the functions needs
// privileges, with one privilege each.
func (db Database) ownerNeeds() (tables, privileges []string) {
	for _, c := range db.components() {
		for _, r := range c.privileges {
			for _, privilege := range r.privileges {
				tables, privileges = append(tables, r.table), append(privileges, privilege)
			}
		}
	}
	return tables, privileges
}

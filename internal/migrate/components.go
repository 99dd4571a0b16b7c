package migrate

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"sexton/internal/each"
	sqlfiles "sexton/sql"
)

// component is a set of objects with a version of its own: a folder of migrations, and what is said of it here. River's tables are one, too:
// River migrates them in the schema sexton and records their version.
type component struct {
	name string
	// queue is a deletion table in the tracked schema, holds what a row of it stands for. The application may have brought the table
	// along, if it has these columns; without columns it may not.
	queue, holds string
	columns      []string
	// needs are tables of the application's.
	needs []need
	// rights are what functions need on tables of the tracked schema, as they work with their owner's rights.
	rights []right
	// pending is the work that Down would throw away.
	pending pending
}

// need is a table of the application's with columns that it must have; integers, keys and dates are those of them that must have
// such types, and alike those whose values are keys of one type.
type need struct {
	table                                 string
	columns, integers, keys, alike, dates []string
}

type right struct {
	table      string
	privileges []string
}

// pending counts rows of a table that meet the condition. The table is in the tracked schema if it is the component's queue, and else in
// Sexton's; said takes the number. A component without a table has none.
type pending struct{ table, condition, said string }

// The components, in the order of their installation.
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

// complete returns the database with every component: Down removes what was ever installed.
func (db Database) complete() Database {
	db.Jobs, db.Components = true, nil
	for _, c := range allComponents() {
		db.Components = append(db.Components, c.name)
	}
	return db
}

// Latest is the newest version of a component that this program has.
type Latest struct {
	Component string `json:"component"`
	Version   int64  `json:"version"`
}

// Versions returns the newest version of every component, in the order of their installation.
func Versions() []Latest {
	return each.Of(allComponents(), func(c component) Latest { return Latest{Component: c.name, Version: latest(c)} })
}

func latest(c component) int64 {
	migrations := c.migrations()
	return migrations[len(migrations)-1].Version
}

// migrations are all steps that this program has, by ascending version. The folder is part of the program, so an error in it shows in every test.
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

// text is the SQL of one migration.
func (c component) text(m Migration) string {
	text, _ := fs.ReadFile(sqlfiles.Migrations, path.Join("migrations", c.name, m.Name+".up.sql"))
	return string(text)
}

// rows is the SQL that adds the rows which the component needs.
func (c component) rows() string {
	text, _ := fs.ReadFile(sqlfiles.Rows, path.Join("rows", c.name+".sql"))
	return string(text)
}

// The tables of the tracked schema that more than one component works with.
const (
	tombstones = "loose_foreign_keys_deleted_records"
	ghostQueue = "users_ghost_user_migrations"
	users      = "users"
	groups     = "groups"
)

// allComponents are all there are, in the order of their installation.
func allComponents() []component {
	list := []component{
		{name: Base},
		{name: Jobs},
		riverComponent(),
		{
			name: LooseForeignKeys, queue: tombstones, holds: "tombstones",
			rights: []right{{tombstones, []string{"SELECT", "INSERT"}}},
			pending: pending{tombstones, "status = 1", "pending tombstones (%d), each for a deleted parent whose children are not cleaned up; " +
				"let `sexton job run loose_foreign_keys_cleanup` finish, or pass --force to leave those children as orphans"},
		},
		ghostUsers(),
		placeholderUsers(),
		adjournedGroups(),
		externalDiffs(),
		{
			name: Undo,
			pending: pending{"undo", "origins IS NULL", "deletions that `sexton undo` can restore (%d); " +
				"wait until they expire, or pass --force to forget them"},
		},
	}
	// A folder of migrations alone is a component, too.
	folders, _ := fs.ReadDir(sqlfiles.Migrations, "migrations")
	for _, folder := range folders {
		if name := folder.Name(); folder.IsDir() && !slices.ContainsFunc(list, func(c component) bool { return c.name == name }) {
			list = append(list, component{name: name})
		}
	}
	return list
}

func riverComponent() component { return component{name: River} }

func ghostUsers() component {
	return component{
		name: GhostUsers, queue: ghostQueue, holds: "users to be deleted",
		columns: []string{"id", "user_id", "initiator_user_id", "hard_delete", "consume_after", "created_at", "updated_at"},
		needs: []need{{
			table: users, columns: []string{"id", "username", "email", "name", "state", "user_type", "admin"}, integers: []string{"id", "user_type"},
		}},
		rights: []right{
			{users, []string{"SELECT", "INSERT", "UPDATE"}},
			{ghostQueue, []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
			{"members", []string{"SELECT"}},
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
		columns: []string{"id", "placeholder_user_id", "namespace_id", "deletion_attempts", "last_deletion_attempt_at", "created_at", "updated_at"},
		rights:  []right{{details, []string{"SELECT"}}},
		pending: pending{details, "namespace_id IS NULL", "placeholder users without an owner (%d); " +
			"let `sexton job run import_placeholder_user_cleanup` and its jobs finish, or pass --force to forget which they are"},
	}
}

func adjournedGroups() component {
	const schedules, destructions = "group_deletion_schedules", "group_destructions"
	return component{
		name: AdjournedGroups, queue: schedules, holds: "groups to be deleted",
		columns: []string{"group_id", "user_id", "marked_for_deletion_on"},
		needs: []need{
			{table: groups, columns: []string{"id", "parent_id", "name", "path", "marked_for_deletion_on"}},
			{table: users, columns: []string{"id", "state", "admin"}},
		},
		rights: []right{
			{users, []string{"SELECT"}},
			{groups, []string{"SELECT", "UPDATE"}},
			{schedules, []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
			{ghostQueue, []string{"SELECT"}},
			{"members", []string{"SELECT"}},
			{"group_group_links", []string{"SELECT"}},
			{"application_settings", []string{"SELECT"}},
		},
		pending: pending{destructions, "true", "groups that are being destroyed (%d); " +
			"let the jobs group_destroy finish, or pass --force to leave what is left of these groups"},
	}
}

func externalDiffs() component {
	const removals = "external_diff_removals"
	return component{
		name: ExternalDiffs,
		needs: []need{
			{table: "merge_request_diff_files", columns: []string{
				"merge_request_diff_id", "relative_order", "binary", "external_diff_offset", "external_diff_size", "old_path", "new_path", "diff",
			}},
			{table: "merge_request_diffs", columns: []string{
				"id", "merge_request_id", "diff_type", "files_count", "stored_externally", "external_diff", "external_diff_store", "sorted",
			}},
			{table: "merge_request_metrics", columns: []string{"merge_request_id", "merged_at", "latest_closed_at"}},
			{table: "merge_requests", columns: []string{"id", "state_id", "latest_merge_request_diff_id"}},
		},
		rights: []right{{"merge_request_diffs", []string{"SELECT"}}, {"merge_request_diff_files", []string{"SELECT"}}},
		pending: pending{removals, "true", "objects of deleted diffs to be removed (%d); " +
			"let `sexton job run schedule_migrate_external_diffs` finish, or pass --force to leave them in the store"},
	}
}

// optionalTables are the application's tables that functions read where they are there. The functions believe what migrations have
// noted, not a name: anybody may put a view of a free name into a schema in which all may create.
func optionalTables() []string {
	return []string{"application_settings", "group_group_links", groups, "members", ghostQueue}
}

// trackedTables are all tables of the tracked schema that components share with the application.
func trackedTables() (names []string) {
	for _, c := range allComponents() {
		if c.queue != "" {
			names = append(names, c.queue)
		}
		for _, n := range c.needs {
			names = append(names, n.table)
		}
	}
	return names
}

// components are the ones that belong into the database.
func (db Database) components() []component {
	return slices.DeleteFunc(each.Of(each.Of(allComponents(), db.Users.fit), db.Groups.fit), func(c component) bool {
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

// queueID is the deletion table's name in SQL; empty if the component has none.
func (db Database) queueID(c component) string {
	if c.queue == "" {
		return ""
	}
	return identity(db.TrackedSchema, c.queue)
}

// requirements refuses to install what the application's tables do not fit. A component that is installed may
// find the application changed; that is for the job to say. The configured tables of users and groups may be others each time.
func (db Database) requirements(look inspection) error {
	for _, c := range db.components() {
		if db.gitlab(c.name) && look.versions[c.name] > 0 && len(db.lacking(look, c)) == 0 {
			continue
		}
		for _, n := range c.needs {
			if err := db.requires(c.name, n, look.tracked[n.table]); err != nil {
				return err
			}
		}
		if err := db.fitsQueue(c, look.tracked[c.queue]); err != nil {
			return err
		}
	}
	return nil
}

// requires reports what a table of the application's lacks for a component.
func (db Database) requires(component string, n need, table relation) error {
	needs := "the table " + identity(db.TrackedSchema, n.table)
	if table.kind == "r" || table.kind == "p" {
		columns := table.lacks(n.columns)
		for _, typed := range []struct {
			columns []string
			fits    func(name string) bool
			want    string
		}{
			{n.integers, table.integer, "an integer"},
			{n.keys, func(name string) bool { return table.keyType(name) != "" }, "of type bigint, integer, uuid or text"},
			{n.alike, func(name string) bool {
				kind := table.keyType(name)
				return kind == "" || kind == table.keyType(n.alike[0])
			}, "of the same type as the key"},
			{n.dates, func(name string) bool { return table.typeOf(name) == "date" }, "of type date"},
		} {
			for _, name := range typed.columns {
				if table.typeOf(name) != "" && !typed.fits(name) {
					wrong := typed.want
					if strings.HasPrefix(wrong, "of type") {
						wrong += ", not " + table.typeOf(name)
					}
					columns = append(columns, name+" ("+wrong+")")
				}
			}
		}
		if len(columns) == 0 {
			return nil
		}
		needs += " with the columns " + strings.Join(columns, ", ")
	}
	return RequirementError(fmt.Sprintf("database %s: component %s needs %s, which the application has to bring along; nothing was changed: "+
		"create it, point the database's schema to where it is, or disable the component", db.Name, component, needs))
}

// ownerNeeds are the application's tables that functions work on with their owner's rights, with one privilege each.
func (db Database) ownerNeeds() (tables, privileges []string) {
	for _, c := range db.components() {
		for _, r := range c.rights {
			for _, privilege := range r.privileges {
				tables, privileges = append(tables, r.table), append(privileges, privilege)
			}
		}
	}
	return tables, privileges
}

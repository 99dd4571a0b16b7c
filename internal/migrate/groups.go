package migrate

import (
	"fmt"
	"slices"
	"strings"

	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// Groups describes the table of groups in the tracked schema. The zero value means
// GitLab's table, with GitLab's columns and rules.
type Groups struct {
	Table, Key string
	// Parent is the column with the key of the parent group. MarkedBy is the column with
	// the user who requested the deletion. An empty name means that there is no such
	// column.
	Parent, MarkedOn, MarkedBy string
	// Period is the number of days between mark and deletion. PeriodColumn, if set, is a
	// column that overrides Period for a group.
	Period       int
	PeriodColumn string
	// Rename holds the columns that get a suffix when a group is marked.
	Rename []string
	// MayRemove is the name of a function of the application, with or without its schema.
	// It is empty if there is none.
	MayRemove string
}

// gitlab reports whether a component is configured for GitLab's tables.
func (db Database) gitlab(component string) bool {
	switch component {
	case GhostUsers:
		return db.Users.gitlab()
	case AdjournedGroups:
		return db.Groups.Table == ""
	}
	return true
}

// groupTypes returns the column types that Sexton's tables use for group keys and for the
// keys of users who request a deletion.
func (db Database) groupTypes(snap snapshot) (group, user string) {
	g := db.Groups
	if g.Table == "" {
		return "bigint", "bigint"
	}
	table := snap.tracked[g.Table]
	if group = table.keyType(g.Key); g.MarkedBy == "" {
		return group, group
	}
	return group, table.keyType(g.MarkedBy)
}

// fit returns c with the needs and privileges for the configured table of groups.
func (g Groups) fit(c component) component {
	if c.name != AdjournedGroups || g.Table == "" {
		return c
	}
	c.queue, c.holds, c.columns = "", "", nil
	list := []Column{
		{g.Key, "groups.key", AnyKey, false},
		{g.MarkedOn, "groups.marked_on", Date, false},
		{g.MarkedBy, "groups.marked_by", AnyKey, true},
		{g.Parent, "groups.parent", SameKey, true},
		{g.PeriodColumn, "period_column", Integer, true},
	}
	for i, name := range g.Rename {
		list = append(list, Column{name, fmt.Sprintf("rename[%d]", i), "", true})
	}
	c.needs = []Need{{Table: g.Table, Key: "groups.table", Columns: configured(list...)}}
	c.privileges = []tablePrivileges{{g.Table, []string{"SELECT", "UPDATE"}}}
	return c
}

// groupTexts returns the placeholders for groups in the SQL of package sqlfiles, each
// followed by its replacement. Groups of another table than GitLab's are read through
// views with GitLab's columns.
func (db Database) groupTexts(snap snapshot) []string {
	g := db.Groups
	group, user := db.groupTypes(snap)
	if db.gitlab(AdjournedGroups) {
		g = Groups{
			Table: groups, Key: "id", Parent: "parent_id", MarkedOn: "marked_for_deletion_on",
			Rename: []string{"name", "path"},
		}
	}
	own := func(column, otherwise string) string {
		if column == "" {
			return otherwise
		}
		return "own." + quote(column)
	}
	marked := own(g.MarkedOn, "")
	mark := "day"
	if g.PeriodColumn != "" {
		days := fmt.Sprintf("(coalesce(own.%s, %d)::integer - %d)", quote(g.PeriodColumn), g.Period, g.Period)
		marked, mark = marked+" + "+days, "day - "+days
	}
	set, requester := quote(g.MarkedOn)+" = "+mark, ""
	if g.MarkedBy != "" {
		requester = ", " + quote(g.MarkedBy) + " = requester"
	}
	suffixed := render.Each(g.Rename, func(column string) string {
		return fmt.Sprintf(", %[1]s = CASE WHEN pg_catalog.right(own.%[1]s, pg_catalog.length(suffix)) = suffix "+
			"THEN own.%[1]s ELSE own.%[1]s || tail || suffix END", quote(column))
	})
	restored := render.Each(g.Rename, func(column string) string {
		return fmt.Sprintf(", %[1]s = CASE WHEN pg_catalog.right(own.%[1]s, pg_catalog.length(suffix)) = suffix "+
			"THEN coalesce(nullif(pg_catalog.left(own.%[1]s, -pg_catalog.length(suffix)), ''), own.%[1]s) || tail ELSE own.%[1]s END", quote(column))
	})
	table := identity(db.TrackedSchema, quote(g.Table))
	texts := []string{
		`"{group}"`, group, `'{group}'`, pgcatalog.Literal(group), `"{user}"`, user, `'{user}'`,
		pgcatalog.Literal(user),
		`{table}`, table, `{id}`, "own." + quote(g.Key), `{parent}`, own(g.Parent, "NULL::"+group), `{by}`,
		own(g.MarkedBy, "NULL::"+user),
		`{marked_on}`, quote(g.MarkedOn), `{marked}`, marked, `{set_mark}`, set, `{set_requester}`, requester,
		`{suffixed}`, strings.Join(suffixed, ""), `{restored}`, strings.Join(restored, ""),
		`{clear_requester}`, strings.ReplaceAll(requester, "requester", "NULL"),
	}
	if db.gitlab(AdjournedGroups) {
		return append(texts, `'{argument}'`, "'bigint'", `{nobody}`, "'0'", `{required}`, " NOT NULL",
			`{brings_schedules}`, "true",
			`{user_exists}`, `EXISTS (SELECT FROM `+identity(db.TrackedSchema, users)+
				` WHERE users.id = decide_group_deletion.user_id)`,
			`{who_may}`, "'Administrators may remove it, and so may owners of the group or of a parent group who are not blocked.'",
			`{group_tables}`, identity(db.TrackedSchema, groups)+", "+identity(db.TrackedSchema,
				"group_deletion_schedules"), `{group_views}`, "",
			`{described}`, "NULL")
	}
	path, rule, hint := "own."+quote(g.Key)+"::pg_catalog.text", "",
		"'The function \"sexton\".may_remove_group decides.'"
	if len(g.Rename) > 0 {
		path = "own." + quote(g.Rename[0]) + "::pg_catalog.text"
	}
	if g.MayRemove != "" {
		schema, name := pgcatalog.SplitName(db.TrackedSchema, g.MayRemove)
		function := identity(schema, quote(name))
		signature := pgcatalog.Literal(function + "(" + group + ", " + user + ")")
		rule, hint = fmt.Sprintf(groupRule, function, signature),
			pgcatalog.Literal("The function "+function+" decides.")
	}
	return append(texts, `'{argument}'`, "'key'", `{nobody}`, `'""'`, `{required}`, "", `{brings_schedules}`, "false",
		`{user_exists}`, "true",
		`{who_may}`, hint, `{group_tables}`, table, `{group_views}`,
		"\nGRANT SELECT ON TABLE \"sexton\".groups, \"sexton\".group_deletion_schedules TO :\"worker\", :\"viewer\";",
		`{described}`, pgcatalog.Literal(pgcatalog.GroupsComment(db.TrackedSchema, g.Table, g.Key, g.Parent)),
		`{path}`, path, `{period}`, fmt.Sprint(g.Period), `{group_rule}`, rule,
		`'"public".groups`, `'"sexton".groups`, `"public".groups`, `"sexton".groups`,
		`"public".group_deletion_schedules`, `"sexton".group_deletion_schedules`)
}

// unsafeRule is the beginning of an IF statement in PL/pgSQL. Its condition is true for a
// rule %[2]s that could run code of other roles with the privileges of Sexton's owner, or
// that could allow a deletion without being called. The rule is checked at each call,
// because its owner may replace it at any time.
const unsafeRule = `
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_proc AS function
        WHERE function.oid = %[2]s::pg_catalog.regprocedure AND function.prosecdef
          AND NOT function.proisstrict AND NOT function.proretset
          AND EXISTS (SELECT FROM pg_catalog.unnest(function.proconfig) AS setting (text) WHERE pg_catalog.starts_with(setting.text, 'search_path='))
    ) THEN`

// groupRule is the PL/pgSQL code that calls the application's rule for groups.
const groupRule = unsafeRule + `
        RAISE EXCEPTION USING
            ERRCODE = 'SX021',
            MESSAGE = pg_catalog.format('the function %%s is not SECURITY DEFINER with a search_path of its own, or is STRICT or returns a set',
                %[2]s);
    ELSIF %[1]s(default_may_remove_group.group_id, default_may_remove_group.user_id) IS NOT NULL THEN
        RETURN false;
    END IF;

`

// rule is a function of the application that a component calls. key is its configuration
// key in the component's section.
type rule struct {
	component, key, function string
	arguments                []string
}

// rules returns the functions of the application that the enabled components call.
func (db Database) rules(snap snapshot) []rule {
	key := db.userKeyType(snap)
	group, user := db.groupTypes(snap)
	return slices.DeleteFunc([]rule{
		{GhostUsers, "may_delete", db.Users.MayDelete, []string{key, key}},
		{AdjournedGroups, "may_remove", db.Groups.MayRemove, []string{group, user}},
	}, func(r rule) bool {
		return r.function == "" || !slices.ContainsFunc(db.components(),
			func(c component) bool { return c.name == r.component })
	})
}

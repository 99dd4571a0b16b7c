package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sexton/internal/pgcatalog"
	"sexton/internal/render"
)

// Users describes the table of users in the tracked schema. The zero value means GitLab's
// table, with GitLab's columns and rules.
type Users struct {
	Table, Key string
	// Ghost is the key of the ghost user, or "" if none is configured.
	Ghost string
	// MayDelete is the name of a function of the application, with or without its schema.
	// It is empty if there is none.
	MayDelete string
	// OnRequest maps columns to the values that they get when a user is queued.
	OnRequest map[string]string
}

func (u Users) gitlab() bool { return u.Table == "" }

// userKeyType returns the type of the users' key in the queue, or "" if it is not a
// supported type.
func (db Database) userKeyType(snap snapshot) string {
	if db.Users.gitlab() {
		return "bigint"
	}
	return snap.tracked[db.Users.Table].keyType(db.Users.Key)
}

// fit returns c with the needs and privileges for the configured table of users.
func (u Users) fit(c component) component {
	if c.name == GhostUsers && !u.gitlab() {
		list := []Column{{u.Key, "users.key", AnyKey, false}}
		for _, name := range slices.Sorted(maps.Keys(u.OnRequest)) {
			list = append(list, Column{name, "on_request.set", "", true})
		}
		c.needs = []Need{{Table: u.Table, Key: "users.table", Columns: configured(list...)}}
		c.privileges = []tablePrivileges{
			{u.Table, []string{"SELECT", "UPDATE"}},
			{ghostQueue, []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		}
	}
	return c
}

// userTexts returns the placeholders for users in the SQL of package sqlfiles, each
// followed by its replacement.
func (db Database) userTexts(snap snapshot) []string {
	u, lock := db.Users, "state"
	if u.gitlab() {
		u = Users{Table: users, Key: "id", OnRequest: map[string]string{"state": "blocked"}}
	} else {
		lock = u.Key
	}
	key := db.userKeyType(snap)
	columns := slices.Sorted(maps.Keys(u.OnRequest))
	joined := func(format, by string) string {
		return strings.Join(render.Each(columns, func(column string) string {
			return fmt.Sprintf(format, quote(column), pgcatalog.Literal(column), pgcatalog.Literal(u.OnRequest[column]))
		}), by)
	}
	table, previous, set, reset, rule, ghost := identity(db.TrackedSchema, quote(u.Table)), "NULL", "", "", "", "NULL"
	if len(columns) > 0 {
		previous = "pg_catalog.jsonb_build_object(" + joined("%[2]s, account.%[1]s", ", ") + ")"
		set = fmt.Sprintf("\n    UPDATE %s AS account SET %s WHERE account.%s = account_id;\n", table,
			joined("%[1]s = %[3]s", ", "), quote(u.Key))
		// The base of jsonb_populate_record is the row itself. With NULL as base, the
		// domains of all other columns would have to allow NULL.
		reset = fmt.Sprintf("\n    UPDATE %[1]s AS account SET (%[2]s) = (\n"+
			"        SELECT %[3]s FROM pg_catalog.jsonb_populate_record(account.*, job.previous_state::pg_catalog.jsonb) AS previous\n"+
			"    )\n"+
			"    WHERE account.%[4]s = account_id AND %[5]s;\n",
			table, joined("%[1]s", ", "), joined("previous.%[1]s", ", "), quote(u.Key),
			joined("account.%[1]s IS NOT DISTINCT FROM %[3]s", " AND "))
	}
	if u.Ghost != "" {
		ghost = pgcatalog.Literal(u.Ghost)
	}
	if u.MayDelete != "" {
		schema, name := pgcatalog.SplitName(db.TrackedSchema, u.MayDelete)
		function := identity(schema, quote(name))
		rule = fmt.Sprintf(userRule, function, pgcatalog.Literal(function+"("+key+", "+key+")"))
	}
	var untyped []string
	if key == "" { // The type of the keys is not supported, so statements name the functions without arguments.
		untyped = []string{`("{type}", "{type}", boolean, boolean)`, "", `("{type}", "{type}")`, ""}
	}
	return append(untyped,
		`"{users}"`, quote(u.Table), `"{key}"`, quote(u.Key), `'{key}'`, pgcatalog.Literal(u.Key), `"{type}"`, key,
		`'{type}'`, pgcatalog.Literal(key), `"{lock}"`, quote(lock),
		`'{ghost}'`, ghost, `{previous}`, previous, "{set}\n", set, "{reset}\n", reset, "{rule}\n", rule)
}

// userRule is the PL/pgSQL code that calls the application's rule for users.
const userRule = unsafeRule + `
        RAISE EXCEPTION USING
            ERRCODE = 'SX011',
            MESSAGE = pg_catalog.format(
                'delete user %%s: the function %%s is not SECURITY DEFINER with a search_path of its own, '
                'or is STRICT or returns a set',
                account_id, %[2]s);
    END IF;

    reason := %[1]s(account_id, delete_user.initiator_id);

    IF reason IS NOT NULL THEN
        RAISE EXCEPTION USING
            ERRCODE = 'SX011',
            MESSAGE = pg_catalog.format('delete user %%s: %%s', account_id, reason);
    END IF;

`

package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"sexton/internal/blobstore"
	"sexton/internal/definitions"
	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

const (
	// maxStatement is the largest accepted jobs.statement_timeout.
	maxStatement = time.Minute
	// maxIdentifier is the maximum length of a Postgres identifier in bytes. Postgres
	// truncates longer names.
	maxIdentifier = 63
)

var databaseName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

const pathName = `(?:[a-z_][a-z0-9_$]*|"(?:[^"\x00]|"")+")`

// searchPath matches a list of schema names, as in SET search_path.
var searchPath = regexp.MustCompile(`^\s*` + pathName + `(?:\s*,\s*` + pathName + `)*\s*$`)

// validator checks values that have the right type. It ignores values for which an
// earlier problem has been reported.
type validator struct {
	config           *Config
	before, problems problem.List
}

func (v *validator) fail(key, message, fix string) {
	if !v.reported(key) {
		v.problems.Add(v.config.Problem(key, message, fix))
	}
}

func (v *validator) reported(key string) bool {
	p := v.config.Problem(key, "", "")
	return slices.ContainsFunc(v.before, func(earlier problem.Problem) bool {
		return earlier.Position == p.Position && earlier.Key == p.Key
	})
}

func (v *validator) isSet(key string) bool {
	_, ok := v.config.positions[key]
	return ok
}

// keys checks the values that are configured below path: numbers and durations against
// the field's tag `check`, and the syntax of schedules. It does not check defaults.
func (v *validator) keys(path string, section reflect.Value) {
	for i := range section.NumField() {
		field, value := section.Type().Field(i), section.Field(i)
		key, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		fieldKey := yamlfile.Join(path, key)
		if key == "" || key == "-" || !v.isSet(fieldKey) {
			continue
		}
		rule, number := field.Tag.Lookup("check")
		schedule, cron := reflect.TypeAssert[Schedule](value)
		switch {
		case value.Kind() == reflect.Struct:
			v.keys(fieldKey, value)
		case number:
			v.number(fieldKey, rule, value)
		case cron:
			if _, err := schedule.Parse(); err != nil {
				v.fail(fieldKey, err.Error(), "")
			}
		}
	}
}

// number checks a number or duration against the rule of a `check` tag. The rule is
// "positive", "not negative" (optionally followed by the meaning of 0), or bounds such as
// "1s..10m". "0s, or " before the bounds also allows 0.
func (v *validator) number(key, rule string, value reflect.Value) {
	n, duration := value.Int(), value.Type() == reflect.TypeFor[time.Duration]()
	bounds, zero := strings.CutPrefix(rule, "0s, or ")
	least, most, bounded := strings.Cut(bounds, "..")
	note, signed := strings.CutPrefix(rule, "not negative")
	switch {
	case bounded && (n < numberOf(least, duration) || n > numberOf(most, duration)) && (n != 0 || !zero):
		v.fail(key, "must be "+strings.TrimSuffix(rule, bounds)+"between "+least+" and "+most, "")
	case rule == "positive" && n <= 0 && duration:
		v.fail(key, "must be longer than 0s", "")
	case rule == "positive" && n <= 0:
		v.fail(key, "must be greater than 0", "")
	case signed && n < 0 && note == "":
		v.fail(key, "must be 0 or longer", "")
	case signed && n < 0:
		v.fail(key, "must not be negative"+note, "")
	}
}

// numberOf returns the value of a bound in a `check` tag.
func numberOf(text string, duration bool) int64 {
	if duration {
		d, _ := time.ParseDuration(text)
		return int64(d)
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

func (v *validator) validate() {
	v.keys("", reflect.ValueOf(v.config).Elem())
	for _, d := range v.config.Databases {
		v.keys(yamlfile.Join("databases", d.Name), reflect.ValueOf(d))
		v.database(d)
	}
	v.jobs()
	v.looseForeignKeys()
	v.components()
	v.retention()
	v.http()
}

func (v *validator) database(d Database) {
	key := yamlfile.Join("databases", d.Name)
	if !databaseName.MatchString(d.Name) {
		v.fail(key, "a database's name must be lower-case letters, digits and underscores, beginning with a letter", "")
	}
	if message, fix := checkURL(d.URL); message != "" && v.isSet(key+".url") {
		v.fail(key+".url", message, fix)
	}
	if message, fix := checkURL(d.ListenURL); message != "" && d.ListenURL != "" {
		v.fail(key+".listen_url", message, fix)
	}
	switch {
	case d.Schema == "":
		v.fail(key+".schema", "is empty", "")
	case len(d.Schema) > maxIdentifier:
		v.fail(key+".schema", fmt.Sprintf("has %d bytes; Postgres allows %d", len(d.Schema), maxIdentifier), "")
	}
	if !searchPath.MatchString(d.SearchPath) {
		v.fail(key+".search_path", "is not a list of schemas such as app, public",
			`"$user" and names with capitals need double quotes; auto is the role's or the database's own`)
	}
	for i, pattern := range d.Tables {
		if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
			v.fail(fmt.Sprintf("%s.tables[%d]", key, i), "is not a pattern such as ci_* or p_ci_*", "")
		}
	}
}

func (v *validator) jobs() {
	jobs := &v.config.Jobs
	names := v.config.DatabaseNames()
	if !v.isSet("jobs.database") && len(names) > 0 {
		jobs.Database = names[0]
	}
	if v.isSet("jobs.database") && len(names) > 0 && !slices.Contains(names, jobs.Database) {
		v.fail("jobs.database", "is not a configured database", "the databases are "+strings.Join(names, ", "))
	}
	if jobs.Owner == "" || len(jobs.Owner) > maxIdentifier || strings.HasPrefix(jobs.Owner, "pg_") {
		v.fail("jobs.owner", fmt.Sprintf("must be the name of a role of 1 to %d bytes, not beginning with pg_",
			maxIdentifier), "")
	}
	if jobs.StatementTimeout > maxStatement {
		v.fail("jobs.statement_timeout", "must be at most 1m0s", "")
	}
	if jobs.StatementTimeout > 0 && jobs.LockTimeout > jobs.StatementTimeout {
		v.fail("jobs.lock_timeout", fmt.Sprintf("is %s, longer than statement_timeout, which is %s", jobs.LockTimeout,
			jobs.StatementTimeout), "")
	}
}

func (v *validator) looseForeignKeys() {
	keys := v.config.LooseForeignKeys
	if len(keys.Definitions) == 0 {
		v.fail("loose_foreign_keys.definitions", "is empty", "name a file, or set enabled: false")
	}
	seen := map[string]bool{}
	for i, file := range keys.Definitions {
		key := fmt.Sprintf("loose_foreign_keys.definitions[%d]", i)
		switch {
		case file == "":
			v.fail(key, "is empty", "")
		case seen[filepath.Clean(file)]:
			v.fail(key, "is listed twice", "")
		}
		seen[filepath.Clean(file)] = true
	}
	for i, column := range keys.Undo.ExcludeColumns {
		if !strings.Contains(column, ".") {
			v.fail(fmt.Sprintf("loose_foreign_keys.undo.exclude_columns[%d]", i), "must have the form table.column", "")
		}
	}
}

func (v *validator) http() {
	v.secretFile("http.password", v.config.HTTP.PasswordFile, &v.config.HTTP.Password)
	v.secretFile("http.token", v.config.HTTP.TokenFile, &v.config.HTTP.Token)
	if !v.isSet("http.read_only") {
		v.config.HTTP.ReadOnly = !v.config.HTTP.protected()
	}
	h := v.config.HTTP
	if (h.User == "") != (h.Password == "") && !v.reported("http.user") && !v.reported("http.password") {
		present, missing := "user", "password"
		if h.User == "" {
			present, missing = missing, present
			if h.PasswordFile != "" {
				present = "password_file"
			}
		}
		v.fail("http."+present, "is set without http."+missing, "")
	}
	if h.Listen == "" {
		return
	}
	host, port, err := net.SplitHostPort(h.Listen)
	if _, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil {
		v.fail("http.listen", "must be host:port, such as 127.0.0.1:8686", `write "" to disable the server`)
		return
	}
	if !isLoopback(host) && !h.protected() {
		v.fail("http.listen", "is reachable from other machines and needs user and password, or a token",
			"set http.user and http.password, or http.token, or listen on 127.0.0.1")
	}
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// components checks the optional jobs, except for the rules in `check` tags.
func (v *validator) components() {
	c := v.config
	v.users()
	v.groups()
	for i, entry := range c.GhostUsers.Move {
		v.tableColumns(fmt.Sprintf("ghost_users.move[%d]", i), TableColumns{Table: entry.Table, Columns: entry.Columns})
	}
	for i, entry := range c.GhostUsers.Delete {
		key := fmt.Sprintf("ghost_users.delete[%d]", i)
		v.tableColumns(key, TableColumns{Table: entry.Table, Columns: entry.Columns})
		if entry.CleanerClass != "" && entry.CleanerClass != definitions.ArtifactsCleaner {
			v.fail(key+".cleaner_class", "must be "+definitions.ArtifactsCleaner,
				"write event: true, which does the same")
		}
	}
	v.columnLists("ghost_users.nullify", c.GhostUsers.Nullify)
	if c.PlaceholderUsers.Enabled && !c.GhostUsers.Enabled {
		v.fail("placeholder_users.enabled", "requires ghost_users, which deletes the placeholder users",
			"set ghost_users.enabled: true")
	}
	v.columnLists("placeholder_users.references", c.PlaceholderUsers.References)
	_, err := blobstore.ParseURL(string(c.ExternalDiffs.Bucket))
	if wrong, ok := errors.AsType[*blobstore.URLError](err); ok {
		v.fail("external_diffs.bucket", wrong.Reason, wrong.Fix)
	}
}

// users checks the keys of ghost_users that depend on the table of users. If a table
// other than GitLab's is configured, it also removes GitLab's default lists.
func (v *validator) users() {
	g := &v.config.GhostUsers
	v.config.LooseForeignKeys.Undo.usersTable = g.Users.Table
	if g.Users.Table == "" {
		for key, isSet := range map[string]bool{
			"users.key": g.Users.Key != "id", "ghost": g.Ghost != "", "may_delete": g.MayDelete != "",
			"on_request.set": len(g.OnRequest.Set) > 0,
		} {
			if isSet {
				v.fail("ghost_users."+key, "requires ghost_users.users.table, because GitLab's users have their own rules",
					"")
			}
		}
		return
	}
	if !v.isSet("ghost_users.move") {
		g.Move = nil
	}
	if !v.isSet("ghost_users.delete") {
		g.Delete = nil
	}
	if !v.isSet("ghost_users.nullify") {
		g.Nullify = nil
	}
	if strings.Contains(g.Users.Table, ".") {
		v.fail("ghost_users.users.table", "must be a table in the database's configured schema, without the schema's name",
			"set databases.NAME.schema")
	}
	if g.Users.Key == "" {
		v.fail("ghost_users.users.key", "is empty", "")
	}
	if len(g.Move) > 0 && g.Ghost == "" {
		v.fail("ghost_users.move", "requires ghost_users.ghost, the key of the user that receives the rows", "")
	}
	if v.config.PlaceholderUsers.Enabled {
		v.fail("placeholder_users.enabled", "supports only GitLab's users",
			"set placeholder_users.enabled: false, or remove ghost_users.users")
	}
}

// groups checks the keys of adjourned_groups that depend on the table of groups. With a
// configured table, groups.key, groups.marked_on and period are required. With GitLab's
// table, the keys of a configured table are errors.
func (v *validator) groups() {
	a := &v.config.AdjournedGroups
	if a.Groups.Table == "" {
		if a.Enabled && v.config.GhostUsers.Users.Table != "" {
			v.fail("adjourned_groups.enabled",
				"supports only GitLab's users, because GitLab's groups refer to them",
				"set adjourned_groups.groups.table, or remove ghost_users.users")
		}
		for key, isSet := range map[string]bool{
			"groups.key": a.Groups.Key != "id", "groups.parent": a.Groups.Parent != "",
			"groups.marked_on": a.Groups.MarkedOn != "",
			"groups.marked_by": a.Groups.MarkedBy != "", "period": a.Period != 0, "period_column": a.PeriodColumn != "",
			"rename":     len(a.Rename) > 0,
			"may_remove": a.MayRemove != "",
		} {
			if isSet {
				v.fail("adjourned_groups."+key,
					"requires adjourned_groups.groups.table, because GitLab's groups have their own rules", "")
			}
		}
		return
	}
	if strings.Contains(a.Groups.Table, ".") {
		v.fail("adjourned_groups.groups.table",
			"must be a table in the database's configured schema, without the schema's name", "set databases.NAME.schema")
	}
	for _, missing := range []struct {
		key  string
		lack bool
	}{{"groups.key", a.Groups.Key == ""}, {"groups.marked_on", a.Groups.MarkedOn == ""}, {"period", a.Period == 0}} {
		if missing.lack {
			v.fail("adjourned_groups."+missing.key, "is missing; it is required with adjourned_groups.groups.table", "")
		}
	}
	for i, column := range a.Rename {
		if column == "" {
			v.fail(fmt.Sprintf("adjourned_groups.rename[%d]", i), "is empty", "")
		}
	}
}

func (v *validator) columnLists(key string, entries []TableColumns) {
	for i, entry := range entries {
		v.tableColumns(fmt.Sprintf("%s[%d]", key, i), entry)
	}
}

func (v *validator) tableColumns(key string, entry TableColumns) {
	if v.isSet(key+".table") && entry.Table == "" {
		v.fail(key+".table", "is empty", "")
	}
	if v.isSet(key+".columns") && len(entry.Columns) == 0 {
		v.fail(key+".columns", "is empty", "")
	}
	for i, column := range entry.Columns {
		if column == "" {
			v.fail(fmt.Sprintf("%s.columns[%d]", key, i), "is empty", "")
		}
	}
}

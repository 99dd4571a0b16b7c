package config

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"

	"sexton/internal/definitions"
	"sexton/internal/yamlfile"
)

// Components returns the keys of the enabled components in the order of the fields of
// Config. The key undo is last.
func (c *Config) Components() []string {
	var keys []string
	all := reflect.ValueOf(c).Elem()
	for i := range all.NumField() {
		if all.Field(i).Kind() != reflect.Struct {
			continue
		}
		if on := all.Field(i).FieldByName("Enabled"); on.IsValid() && on.Bool() {
			keys = append(keys, all.Type().Field(i).Tag.Get("yaml"))
		}
	}
	if l := c.LooseForeignKeys; l.Enabled && l.Undo.On() {
		keys = append(keys, "undo")
	}
	return keys
}

// ComponentsIn returns the keys of the enabled components that work in the given
// database. In a database other than the jobs database, only loose foreign keys, undo and
// retention can work, and retention only if it has rules for that database.
func (c *Config) ComponentsIn(database string) []string {
	keys := c.Components()
	if database != c.Jobs.Database {
		keys = slices.DeleteFunc(keys, func(key string) bool {
			return key != "loose_foreign_keys" && key != "undo" &&
				(key != "retention" || !slices.Contains(c.RetentionDatabases(), database))
		})
	}
	return keys
}

// Schema is the JSON schema of sexton.yaml. The test TestSchemasFollowTheStructs
// generates it.
//
//go:embed schema.json
var Schema json.RawMessage

// Has reports whether a component is enabled.
func (c *Config) Has(component string) bool { return slices.Contains(c.Components(), component) }

// TableKey names a table of the database's configured schema, and its key: the column
// that other tables refer to.
type TableKey struct {
	// Table is the name of the table in the database's configured schema.
	Table string `yaml:"table"`
	// Key is a column with a unique index. Its type is bigint, integer, uuid or text.
	Key string `default:"id" yaml:"key"`
}

// OnRequest configures which columns of a user change when the user is queued for
// deletion.
type OnRequest struct {
	// Set maps columns of the user to the values that they get when the user is queued. A
	// cancellation restores the former values.
	Set map[string]yamlfile.Literal `yaml:"set"`
}

// TableColumns names columns of one table that refer to users.
type TableColumns struct {
	Table   string   `yaml:"table,required"`
	Columns []string `yaml:"columns,required"`
}

// DeleteColumns names columns of one table that refer to users. A row of the table is
// deleted with the user to which it refers.
type DeleteColumns struct {
	Table   string   `yaml:"table,required"`
	Columns []string `yaml:"columns,required"`
	// Event writes an event with the keys of the deleted rows for each batch. Its value
	// is true, or a list of further columns to include. CleanerClass, a key of GitLab's
	// files, has the same effect as event: true.
	Event        yamlfile.Columns `yaml:"event"`
	CleanerClass string           `yaml:"cleaner_class"`
}

// EmitsEvent reports whether events are written for the rows that are deleted.
func (d DeleteColumns) EmitsEvent() bool { return d.Event != nil || d.CleanerClass != "" }

// MoveColumns names columns of one table that refer to users. The rows are moved to the
// ghost user instead of being deleted.
type MoveColumns struct {
	Table   string   `yaml:"table,required"`
	Columns []string `yaml:"columns,required"`
	// Always moves the rows even if the user is deleted with hard_delete.
	Always bool `yaml:"always"`
	// Conditions select the rows that are moved: a row must meet all of them. Other rows
	// are treated as if the user were deleted with hard_delete.
	Conditions []definitions.Condition `yaml:"conditions"`
}

// Batches limits the rows of one statement if the job has no target duration.
type Batches struct {
	// Move is the number of rows that one statement moves if target is 0s.
	Move int `check:"positive" default:"50" yaml:"move"`
	// Delete is the number of rows that one statement deletes if target is 0s.
	Delete int `check:"positive" default:"1000" yaml:"delete"`
	// Nullify is the number of rows in which one statement sets columns to NULL if target
	// is 0s.
	Nullify int `check:"positive" default:"100" yaml:"nullify"`
}

// GhostUsers configures the deletion of users. The records that they wrote are moved to a
// ghost user.
type GhostUsers struct {
	// Enabled enables the job.
	Enabled bool `yaml:"enabled"`
	// Schedule is the cron expression of the job, in UTC. Commits that queue work start
	// the job, too.
	Schedule Schedule `default:"*/2 * * * *" yaml:"schedule"`
	// Limit is the maximum number of users that one run handles.
	Limit int `check:"positive" default:"1000" yaml:"limit"`
	// MaxRuntime is the time limit of a run. The lease of the run is 10 s longer.
	MaxRuntime time.Duration `check:"10s..1m0s" default:"1m" yaml:"max_runtime"`
	// RetryAfter is the time for which a user is deferred after an error.
	RetryAfter time.Duration `check:"positive" default:"30m" yaml:"retry_after"`
	Batches    Batches       `yaml:"batches"`
	// Target is the intended duration of a statement. With 0s, statements have the fixed
	// sizes of batches.
	Target time.Duration `check:"0s, or 1ms..1s" default:"20ms" yaml:"target"`
	// Duty is the share of its time, in percent, that a run works. With auto, it depends
	// on the server's load.
	Duty Duty `default:"auto" yaml:"duty"`
	// Connections is the number of users that are deleted in parallel while no other
	// session is active.
	Connections int `check:"1..32" default:"2" yaml:"connections"`
	// Users names the table of users. Without it, the table users must have GitLab's
	// columns, and GitLab's rules apply. With it, lists that are not set are empty.
	Users TableKey `yaml:"users"`
	// Ghost is the key of the user that receives the moved rows. It requires Users.
	// GitLab's ghost user is found by its user type, and is created if it does not exist.
	Ghost yamlfile.Literal `yaml:"ghost"`
	// MayDelete is an SQL function (key, initiator) that returns NULL, or the reason for
	// which the user must not be deleted. It requires Users.
	MayDelete string `yaml:"may_delete"`
	// OnRequest configures which columns of a user sexton.delete_user changes. It
	// requires Users.
	OnRequest OnRequest `yaml:"on_request"`
	// Move lists the columns whose rows are moved to the ghost user. The default is
	// GitLab's list.
	Move []MoveColumns `yaml:"move"`
	// Delete lists the columns whose rows are deleted with their user. The default is
	// GitLab's list.
	Delete []DeleteColumns `yaml:"delete"`
	// Nullify lists the columns that are set to NULL. The default is GitLab's list.
	Nullify []TableColumns `yaml:"nullify"`
}

// UsersTable returns the name of the table of users in the database's configured schema.
func (g GhostUsers) UsersTable() string { return cmp.Or(g.Users.Table, "users") }

// PlaceholderUsers configures the removal of the placeholder users that an import
// created.
type PlaceholderUsers struct {
	// Enabled enables both jobs of placeholder users. It requires ghost_users.enabled.
	Enabled bool `yaml:"enabled"`
	// Schedule is the cron expression of the job, in UTC. Commits that queue work start
	// the job, too.
	Schedule Schedule `default:"0 0 * * *" yaml:"schedule"`
	// MaxAttempts is the number of attempts after which the removal of a placeholder user
	// is not retried.
	MaxAttempts int `check:"1..100" default:"15" yaml:"max_attempts"`
	// RetryPeriod is the time between two attempts to remove a placeholder user.
	RetryPeriod time.Duration `check:"positive" default:"48h" yaml:"retry_period"`
	// Spacing is the minimum time between the starts of two removals. With 0s, a removal
	// starts when a worker is free.
	Spacing time.Duration `check:"not negative" default:"1s" yaml:"spacing"`
	// References lists the columns that keep a placeholder user while a row refers to it.
	// The default is GitLab's list.
	References []TableColumns `yaml:"references"`
}

// Groups names the table of groups and its columns.
type Groups struct {
	// Table is the name of the table in the database's configured schema.
	Table string `yaml:"table"`
	// Key is a column with a unique index. Its type is bigint, integer, uuid or text.
	Key string `default:"id" yaml:"key"`
	// Parent is the column with the key of the parent group. If it is empty, groups have
	// no sub-groups.
	Parent string `yaml:"parent"`
	// MarkedOn is a column of type date. A date requests the deletion of the group.
	MarkedOn string `yaml:"marked_on"`
	// MarkedBy is the column with the key of the user who requested the deletion. If it
	// is empty, the user is not recorded.
	MarkedBy string `yaml:"marked_by"`
}

// Days is a number of days, written as 30d. 0 means that no number is configured.
type Days int

// MarshalText returns the number of days with the unit d, or nothing for 0.
func (d Days) MarshalText() ([]byte, error) {
	if d == 0 {
		return nil, nil
	}
	return []byte(strconv.Itoa(int(d)) + "d"), nil
}

// UnmarshalText accepts a number of days with the unit d, or an empty text.
func (d *Days) UnmarshalText(text []byte) error {
	number, days := strings.CutSuffix(string(text), "d")
	count, err := strconv.Atoi(number)
	if string(text) != "" && (!days || err != nil || count < 1 || count > 3650) {
		return errors.New("must be a number of days from 1d to 3650d")
	}
	*d = Days(count)
	return nil
}

// AdjournedGroups configures the destruction of marked groups after a period.
type AdjournedGroups struct {
	// Enabled enables the job.
	Enabled bool `yaml:"enabled"`
	// Schedule is the cron expression of the job, in UTC. Commits that queue work start
	// the job, too.
	Schedule Schedule `default:"0 2 * * *" yaml:"schedule"`
	// BatchSize is the number of due groups that one query reads.
	BatchSize int `check:"positive" default:"100" yaml:"batch_size"`
	// Spacing is the minimum time between the starts of two destructions: 20s allows
	// 4,320 a day. With 0s, a destruction starts when a worker is free.
	Spacing time.Duration `check:"not negative" default:"20s" yaml:"spacing"`
	// Target is the intended duration of a statement.
	Target time.Duration `check:"1ms..1s" default:"20ms" yaml:"target"`
	// Duty is the share of its time, in percent, that a run works. With auto, it depends
	// on the server's load.
	Duty Duty `default:"auto" yaml:"duty"`
	// Groups names the table of groups and its columns. Without it, the tables must have
	// GitLab's columns, and GitLab's rules apply.
	Groups Groups `yaml:"groups"`
	// Period is the time between the mark and the deletion of a group, such as 30d. It
	// requires Groups. GitLab's period is read from application_settings.
	Period Days `yaml:"period"`
	// PeriodColumn is an integer column with the group's own number of days, or NULL for
	// Period. It requires Groups.
	PeriodColumn string `yaml:"period_column"`
	// Rename lists the columns that get a suffix when the group is marked, so that other
	// groups can use the values. It requires Groups.
	Rename []string `yaml:"rename"`
	// MayRemove is an SQL function (key, user) that returns NULL, or the reason for which
	// the user must not remove the group. It requires Groups.
	MayRemove string `yaml:"may_remove"`
}

// ExternalDiffs configures the move of diffs to object storage.
type ExternalDiffs struct {
	// Enabled enables the job.
	Enabled bool `yaml:"enabled"`
	// Schedule is the cron expression of the job, in UTC. Commits that queue work start
	// the job, too.
	Schedule Schedule `default:"15 * * * *" yaml:"schedule"`
	// When selects the diffs to move. With always, all diffs are moved. With outdated,
	// all versions but the latest are moved, and the diffs that were merged or closed
	// more than 7 days ago.
	When DiffRule `default:"always" yaml:"when"`
	// Limit is the maximum number of diffs for which one run inserts jobs. The next tick
	// continues.
	Limit int `check:"positive" default:"1000" yaml:"limit"`
	// MaxWorkers is the number of diffs that one process moves in parallel. At most three
	// of them are larger than 128 KiB.
	MaxWorkers int `check:"1..64" default:"8" yaml:"max_workers"`
	// Bucket is the URL of the object storage: s3://… or file://….
	Bucket URL `default:"file:///var/lib/sexton/diffs" yaml:"bucket"`
}

// DiffRule is always or outdated. It selects the diffs to move.
type DiffRule string

// Choices returns the valid values of a DiffRule.
func (DiffRule) Choices() []string { return []string{"always", "outdated"} }

// Retention configures the deletion of expired rows.
type Retention struct {
	// Enabled enables the job.
	Enabled bool `yaml:"enabled"`
	// Schedule is the cron expression of the job, in UTC.
	Schedule Schedule `default:"*/10 * * * *" yaml:"schedule"`
	// Target is the intended duration of a statement.
	Target time.Duration `check:"1ms..1s" default:"20ms" yaml:"target"`
	// Duty is the share of its time, in percent, that a run works. With auto, it depends
	// on the server's load.
	Duty Duty `default:"auto" yaml:"duty"`
	// Rules lists the tables whose expired rows are deleted.
	Rules []RetentionRule `yaml:"rules"`
}

// RetentionRule configures the deletion of expired rows of one table.
type RetentionRule struct {
	// Database is the name of the database that has the table. The default is the jobs
	// database.
	Database string `yaml:"database"`
	Table    string `yaml:"table,required"`
	// Column is the column with the time from which the age of a row is measured. Its
	// type is timestamptz, timestamp (in UTC), date, integer or bigint. Rows with NULL
	// are kept.
	Column string `yaml:"column,required"`
	// Keep is the age after which a row is deleted, such as 90d or 12h.
	Keep Age `yaml:"keep,required"`
	// Unit is the unit of a column of type integer or bigint: s or ms since 1970. It is
	// required for these types.
	Unit EpochUnit `yaml:"unit"`
	// Conditions select the rows that are deleted: a row must meet all of them. Other
	// rows are kept.
	Conditions []definitions.Condition `yaml:"conditions"`
	// Event writes an event with the keys of the deleted rows for each batch. Its value
	// is true, or a list of further columns to include.
	Event yamlfile.Columns `yaml:"event"`
	// DryRun counts the expired rows and deletes none.
	DryRun bool `yaml:"dry_run"`
}

// RetentionDatabases returns the names of the databases for which there are rules. If
// there are no rules, it returns the jobs database.
func (c *Config) RetentionDatabases() []string {
	names := slices.DeleteFunc(c.DatabaseNames(), func(name string) bool {
		return !slices.ContainsFunc(c.Retention.Rules, func(r RetentionRule) bool { return r.Database == name })
	})
	if len(names) == 0 {
		return []string{c.Jobs.Database}
	}
	return names
}

// retention sets the database of rules that name none to the jobs database. It reports
// rules whose database is not configured.
func (v *validator) retention() {
	names := v.config.DatabaseNames()
	for i := range v.config.Retention.Rules {
		rule := &v.config.Retention.Rules[i]
		rule.Database = cmp.Or(rule.Database, v.config.Jobs.Database)
		if !slices.Contains(names, rule.Database) && len(names) > 0 {
			v.fail(fmt.Sprintf("retention.rules[%d].database", i), "is not a configured database",
				"the databases are "+strings.Join(names, ", "))
		}
	}
}

// Age is a duration. It is written in days, as in 90d, or with Go's units.
type Age time.Duration

// longestAge is the largest accepted Age. A time.Duration overflows at about 292 years.
const longestAge = 36_500 * 24 * time.Hour

// MarshalText returns a number of days, or a Go duration if the age is not a whole number
// of days.
func (a Age) MarshalText() ([]byte, error) {
	if d := time.Duration(a); d == 0 || d%(24*time.Hour) != 0 {
		return []byte(d.String()), nil
	}
	return append(strconv.AppendInt(nil, int64(time.Duration(a)/(24*time.Hour)), 10), 'd'), nil
}

// UnmarshalText accepts a number of days, or a Go duration.
func (a *Age) UnmarshalText(text []byte) error {
	number, days := strings.CutSuffix(string(text), "d")
	age, err := time.ParseDuration(string(text))
	if days {
		var count uint64
		count, err = strconv.ParseUint(number, 10, 16)
		age = time.Duration(count) * 24 * time.Hour
	}
	if err != nil || age < 0 || age > longestAge {
		return errors.New("must be a number of days or a duration from 0s to 36500d, such as 90d, 12h or 0s")
	}
	*a = Age(age)
	return nil
}

// EpochUnit is s or ms, the unit of a column with the time since 1970, or empty.
type EpochUnit string

// MarshalText returns the unit.
func (u EpochUnit) MarshalText() ([]byte, error) { return []byte(u), nil }

// UnmarshalText accepts s, ms or an empty text.
func (u *EpochUnit) UnmarshalText(text []byte) error {
	if unit := string(text); unit != "" && unit != "s" && unit != "ms" {
		return errors.New("must be s or ms")
	}
	*u = EpochUnit(text)
	return nil
}

// Schedule is a cron expression with five fields (minute, hour, day of month, month, day
// of week), or a descriptor such as @hourly or @every 90s.
type Schedule string

// Parse returns the parsed schedule, or an error that names the wrong field. A schedule
// that never fires, such as 31 February, is an error.
func (s Schedule) Parse() (cron.Schedule, error) {
	parsed, err := parseCron(string(s))
	if err != nil {
		return nil, explainCron(string(s))
	}
	// Next returns the zero time if the schedule does not fire within five years. Five
	// years include a leap day.
	if parsed.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("never fires: no such date exists")
	}
	return parsed, nil
}

// parseCron parses a cron expression. It rejects a time zone without a space after it,
// because cron.ParseStandard panics on it.
func parseCron(text string) (cron.Schedule, error) {
	if strings.Contains(text, "TZ=") && !strings.Contains(text, " ") {
		return nil, errors.New("a time zone alone")
	}
	return cron.ParseStandard(text)
}

// explainCron returns an error that names the wrong field of a cron expression. It does
// not repeat the expression, which may contain a misplaced secret.
func explainCron(text string) error {
	if strings.HasPrefix(text, "@") {
		return errors.New("must be one of @yearly, @monthly, @weekly, @daily, @hourly, or @every with a duration")
	}
	fields := strings.Fields(text)
	if len(fields) > 0 && strings.Contains(fields[0], "TZ=") {
		if _, err := parseCron(fields[0] + " * * * * *"); err != nil {
			return errors.New("names an unknown time zone")
		}
		fields = fields[1:]
	}
	if len(fields) != 5 {
		return fmt.Errorf("has %d fields; a cron expression has five: minute, hour, day of month, month, day of week",
			len(fields))
	}
	for i, name := range []string{"minute", "hour", "day of month", "month", "day of week"} {
		alone := []string{"*", "*", "*", "*", "*"}
		alone[i] = fields[i]
		if _, err := parseCron(strings.Join(alone, " ")); err != nil {
			return fmt.Errorf("field %d (%s) is not valid", i+1, name)
		}
	}
	return errors.New("is not a cron expression")
}

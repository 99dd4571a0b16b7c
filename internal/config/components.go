package config

import (
	"cmp"
	_ "embed" // For Schema.
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

// Components returns the keys of the enabled components, in the order of Config.
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

// ComponentsIn returns the keys of the enabled components that work in a database.
// Outside the jobs database, these are loose foreign keys, undo, and retention if it has
// rules there.
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

// Schema is the JSON schema of sexton.yaml. TestSchemasFollowTheStructs in package config
// writes it.
//
//go:embed schema.json
var Schema json.RawMessage

// Has reports whether a component is enabled.
func (c *Config) Has(component string) bool { return slices.Contains(c.Components(), component) }

// TableKey names a table of the database's own schema and the column that other tables
// refer to.
type TableKey struct {
	// Table is the table, in the database's own schema.
	Table string `yaml:"table"`
	// Key is a column with a unique index, of type bigint, integer, uuid or text.
	Key string `default:"id" yaml:"key"`
}

// OnRequest configures changes to a user at the time of queueing.
type OnRequest struct {
	// Set are columns of the user and the values set when the user is queued. A
	// cancellation restores the former values.
	Set map[string]yamlfile.Literal `yaml:"set"`
}

// TableColumns names columns of one table that refer to a user.
type TableColumns struct {
	Table   string   `yaml:"table,required"`
	Columns []string `yaml:"columns,required"`
}

// DeleteColumns names columns of one table that refer to a user. Its rows are deleted
// with the user.
type DeleteColumns struct {
	Table   string   `yaml:"table,required"`
	Columns []string `yaml:"columns,required"`
	// Event writes an event with the keys of the rows of each batch: true for the keys
	// alone, or a list of further columns of the rows. CleanerClass is GitLab's name for
	// event: true.
	Event        yamlfile.Columns `yaml:"event"`
	CleanerClass string           `yaml:"cleaner_class"`
}

// EmitsEvent reports whether the entry writes events.
func (d DeleteColumns) EmitsEvent() bool { return d.Event != nil || d.CleanerClass != "" }

// MoveColumns names columns whose rows are moved to the ghost user.
type MoveColumns struct {
	Table   string   `yaml:"table,required"`
	Columns []string `yaml:"columns,required"`
	// Always moves the rows on a hard delete as well.
	Always bool `yaml:"always"`
	// Conditions, all of which must hold, select the rows that are moved; other rows are
	// treated as on a hard delete.
	Conditions []definitions.Condition `yaml:"conditions"`
}

// Batches are the rows of one statement if there is no target.
type Batches struct {
	// Move is how many rows a statement moves with target 0s.
	Move int `check:"positive" default:"50" yaml:"move"`
	// Delete is how many rows it deletes.
	Delete int `check:"positive" default:"1000" yaml:"delete"`
	// Nullify is how many rows it sets to NULL.
	Nullify int `check:"positive" default:"100" yaml:"nullify"`
}

// GhostUsers configures the deletion of users. Their records are moved to a ghost user.
type GhostUsers struct {
	// Enabled enables the job.
	Enabled bool `yaml:"enabled"`
	// Schedule is when the job searches for work, in UTC; commits also start it.
	Schedule Schedule `default:"*/2 * * * *" yaml:"schedule"`
	// Limit is how many users one run handles.
	Limit int `check:"positive" default:"1000" yaml:"limit"`
	// MaxRuntime is the time limit of a run. Its lease is 10 s longer.
	MaxRuntime time.Duration `check:"10s..1m0s" default:"1m" yaml:"max_runtime"`
	// RetryAfter is how long a user is deferred after an error.
	RetryAfter time.Duration `check:"positive" default:"30m" yaml:"retry_after"`
	Batches    Batches       `yaml:"batches"`
	// Target is the intended duration of a statement; 0s uses the fixed sizes in batches.
	Target time.Duration `check:"0s, or 1ms..1s" default:"20ms" yaml:"target"`
	// Duty is the share of its time, in percent, that a run works; auto depends on the
	// load of the server.
	Duty Duty `default:"auto" yaml:"duty"`
	// Connections is how many users are deleted in parallel while the server is otherwise
	// idle.
	Connections int `check:"1..32" default:"2" yaml:"connections"`
	// Users is the table of users. Without it, the table users has GitLab's columns and
	// rules; with it, nothing but the key is required, and lists that are left out are
	// empty.
	Users TableKey `yaml:"users"`
	// Ghost is the key of the row that moved rows are given to; needs users. GitLab's is
	// found by its user type, or created.
	Ghost yamlfile.Literal `yaml:"ghost"`
	// MayDelete is an SQL function (key, initiator) that returns NULL, or why a user must
	// not be deleted; needs users.
	MayDelete string `yaml:"may_delete"`
	// OnRequest is what sexton.delete_user changes; needs users.
	OnRequest OnRequest `yaml:"on_request"`
	// Move are the columns whose rows are moved to the ghost user; default GitLab's.
	Move []MoveColumns `yaml:"move"`
	// Delete are the columns whose rows are deleted with their user; default GitLab's.
	Delete []DeleteColumns `yaml:"delete"`
	// Nullify are the columns that are set to NULL; default GitLab's.
	Nullify []TableColumns `yaml:"nullify"`
}

// UsersTable is the table of users, in the database's own schema.
func (g GhostUsers) UsersTable() string { return cmp.Or(g.Users.Table, "users") }

// PlaceholderUsers configures the removal of placeholder users that an import left
// behind.
type PlaceholderUsers struct {
	// Enabled enables both jobs; needs ghost_users.enabled.
	Enabled bool `yaml:"enabled"`
	// Schedule is when the job searches for work, in UTC; commits also start it.
	Schedule Schedule `default:"0 0 * * *" yaml:"schedule"`
	// MaxAttempts is how often a removal is tried before the placeholder is given up.
	MaxAttempts int `check:"1..100" default:"15" yaml:"max_attempts"`
	// RetryPeriod is the time between two attempts.
	RetryPeriod time.Duration `check:"positive" default:"48h" yaml:"retry_period"`
	// Spacing is the time between the starts of two removals; 0s: as workers are free.
	Spacing time.Duration `check:"not negative" default:"1s" yaml:"spacing"`
	// References are the columns that keep a placeholder user; default GitLab's.
	References []TableColumns `yaml:"references"`
}

// Groups names the table of groups and its columns.
type Groups struct {
	// Table is the table, in the database's own schema.
	Table string `yaml:"table"`
	// Key is a column with a unique index, of type bigint, integer, uuid or text.
	Key string `default:"id" yaml:"key"`
	// Parent is the column with the key of the parent group; empty: no sub-groups.
	Parent string `yaml:"parent"`
	// MarkedOn is a column of type date. A date requests the group's deletion.
	MarkedOn string `yaml:"marked_on"`
	// MarkedBy is the column with the key of the user who requested it; empty: not
	// recorded.
	MarkedBy string `yaml:"marked_by"`
}

// Days is a number of days, such as 30d. 0 is none.
type Days int

// MarshalText is the number of days, or nothing for none.
func (d Days) MarshalText() ([]byte, error) {
	if d == 0 {
		return nil, nil
	}
	return []byte(strconv.Itoa(int(d)) + "d"), nil
}

// UnmarshalText reads a number of days.
func (d *Days) UnmarshalText(text []byte) error {
	number, days := strings.CutSuffix(string(text), "d")
	count, err := strconv.Atoi(number)
	if string(text) != "" && (!days || err != nil || count < 1 || count > 3650) {
		return errors.New("must be a number of days from 1d to 3650d")
	}
	*d = Days(count)
	return nil
}

// AdjournedGroups configures the destruction of groups whose time has come.
type AdjournedGroups struct {
	// Enabled enables the job.
	Enabled bool `yaml:"enabled"`
	// Schedule is when the job searches for work, in UTC; commits also start it.
	Schedule Schedule `default:"0 2 * * *" yaml:"schedule"`
	// BatchSize is how many groups are looked up at a time.
	BatchSize int `check:"positive" default:"100" yaml:"batch_size"`
	// Spacing is the time between the starts of two destructions: 20s makes 4,320 a day.
	// 0s: as workers are free.
	Spacing time.Duration `check:"not negative" default:"20s" yaml:"spacing"`
	// Target is the intended duration of a statement.
	Target time.Duration `check:"1ms..1s" default:"20ms" yaml:"target"`
	// Duty is the share of its time, in percent, that a run works; auto depends on the
	// load of the server.
	Duty Duty `default:"auto" yaml:"duty"`
	// Groups is the table of groups. Without it, the table groups has GitLab's columns
	// and rules, and tables around it.
	Groups Groups `yaml:"groups"`
	// Period is the time between mark and deletion, such as 30d; needs groups. GitLab's
	// is in application_settings.
	Period Days `yaml:"period"`
	// PeriodColumn is an integer column of the group with its own number of days, NULL
	// for Period; needs groups.
	PeriodColumn string `yaml:"period_column"`
	// Rename are columns that get a suffix with the mark, so that their values become
	// free; needs groups.
	Rename []string `yaml:"rename"`
	// MayRemove is an SQL function (key, user) that returns NULL, or why the user must
	// not remove the group; needs groups.
	MayRemove string `yaml:"may_remove"`
}

// ExternalDiffs configures moving diffs to object storage.
type ExternalDiffs struct {
	// Enabled enables the job.
	Enabled bool `yaml:"enabled"`
	// Schedule is when the job searches for work, in UTC; commits also start it.
	Schedule Schedule `default:"15 * * * *" yaml:"schedule"`
	// When is which diffs move: all, or outdated ones: all versions but the latest, and
	// diffs merged or closed for more than 7 days.
	When DiffRule `default:"always" yaml:"when"`
	// Limit is the number of diffs for which one run inserts jobs; the next tick continues.
	Limit int `check:"positive" default:"1000" yaml:"limit"`
	// MaxWorkers is how many diffs one process moves in parallel, at most three larger
	// than 128 KiB.
	MaxWorkers int `check:"1..64" default:"8" yaml:"max_workers"`
	// Bucket is the store, an s3:// or file:// URL.
	Bucket URL `default:"file:///var/lib/sexton/diffs" yaml:"bucket"`
}

// DiffRule selects the diffs to move: all, or outdated ones.
type DiffRule string

// Choices lists the rules.
func (DiffRule) Choices() []string { return []string{"always", "outdated"} }

// Retention configures the deletion of expired rows.
type Retention struct {
	// Enabled enables the job.
	Enabled bool `yaml:"enabled"`
	// Schedule is when the job searches for due rows, in UTC.
	Schedule Schedule `default:"*/10 * * * *" yaml:"schedule"`
	// Target is the intended duration of a statement.
	Target time.Duration `check:"1ms..1s" default:"20ms" yaml:"target"`
	// Duty is the share of its time, in percent, that a run works; auto depends on the
	// load of the server.
	Duty Duty `default:"auto" yaml:"duty"`
	// Rules are the tables with rows to delete.
	Rules []RetentionRule `yaml:"rules"`
}

// RetentionRule configures the deletion of expired rows of one table.
type RetentionRule struct {
	// Database is the name of the database with the table; default the jobs database.
	Database string `yaml:"database"`
	Table    string `yaml:"table,required"`
	// Column is of type timestamptz, timestamp (UTC), date, integer or bigint. Rows with
	// NULL are kept.
	Column string `yaml:"column,required"`
	// Keep is how long a row is kept after the time in the column, such as 90d or 12h.
	Keep Age `yaml:"keep,required"`
	// Unit is s or ms if the column is an integer: the time since 1970.
	Unit EpochUnit `yaml:"unit"`
	// Conditions, all of which must hold, select the rows that are deleted; other rows are
	// kept.
	Conditions []definitions.Condition `yaml:"conditions"`
	// Event writes an event with the keys of the rows of each batch: true for the keys
	// alone, or a list of further columns of the rows.
	Event yamlfile.Columns `yaml:"event"`
	// DryRun counts the due rows and deletes none.
	DryRun bool `yaml:"dry_run"`
}

// RetentionDatabases returns the names of the databases with rules. The jobs database is
// the only one if there are no rules.
func (c *Config) RetentionDatabases() []string {
	names := slices.DeleteFunc(c.DatabaseNames(), func(name string) bool {
		return !slices.ContainsFunc(c.Retention.Rules, func(r RetentionRule) bool { return r.Database == name })
	})
	if len(names) == 0 {
		return []string{c.Jobs.Database}
	}
	return names
}

// retention checks the databases of rules, and fills in the default.
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

// Age is a duration in days, such as 90d, or with Go's units.
type Age time.Duration

// longestAge is far below the largest time.Duration.
const longestAge = 36_500 * 24 * time.Hour

// MarshalText returns a number of days, or a duration if it is not full days.
func (a Age) MarshalText() ([]byte, error) {
	if d := time.Duration(a); d == 0 || d%(24*time.Hour) != 0 {
		return []byte(d.String()), nil
	}
	return append(strconv.AppendInt(nil, int64(time.Duration(a)/(24*time.Hour)), 10), 'd'), nil
}

// UnmarshalText accepts a number of days or a duration.
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

// EpochUnit is the unit of an integer that is a time since 1970, or empty.
type EpochUnit string

// MarshalText returns the unit.
func (u EpochUnit) MarshalText() ([]byte, error) { return []byte(u), nil }

// UnmarshalText accepts a unit.
func (u *EpochUnit) UnmarshalText(text []byte) error {
	if unit := string(text); unit != "" && unit != "s" && unit != "ms" {
		return errors.New("must be s or ms")
	}
	*u = EpochUnit(text)
	return nil
}

// Schedule is a cron expression with five fields (minute, hour, day of month, month, day
// of week), or one of @hourly, @daily, @every 90s and the like.
type Schedule string

// Parse returns the times of the schedule, or an error that names the wrong part. A
// schedule that never fires, such as 31 February, is an error.
func (s Schedule) Parse() (cron.Schedule, error) {
	parsed, err := parseCron(string(s))
	if err != nil {
		return nil, explainCron(string(s))
	}
	// The parser searches the next five years, which include a leap day.
	if parsed.Next(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("never fires: no such date exists")
	}
	return parsed, nil
}

// parseCron parses a cron expression. The library panics on a time zone without a space
// after it.
func parseCron(text string) (cron.Schedule, error) {
	if strings.Contains(text, "TZ=") && !strings.Contains(text, " ") {
		return nil, errors.New("a time zone alone")
	}
	return cron.ParseStandard(text)
}

// explainCron returns an error that names the wrong part but does not repeat it.
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

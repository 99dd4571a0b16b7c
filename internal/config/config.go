package config

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"sexton/internal/problem"
	"sexton/internal/render"
	"sexton/internal/yamlfile"
)

// Config is the effective configuration. Load checks it, and it is not changed
// afterwards.
type Config struct {
	// Databases lists at least one database, in the order of the file.
	Databases        []Database       `yaml:"databases,keyed"`
	Jobs             Jobs             `yaml:"jobs"`
	LooseForeignKeys LooseForeignKeys `yaml:"loose_foreign_keys"`
	GhostUsers       GhostUsers       `yaml:"ghost_users"`
	PlaceholderUsers PlaceholderUsers `yaml:"placeholder_users"`
	AdjournedGroups  AdjournedGroups  `yaml:"adjourned_groups"`
	ExternalDiffs    ExternalDiffs    `yaml:"external_diffs"`
	Retention        Retention        `yaml:"retention"`
	HTTP             HTTP             `yaml:"http"`
	Log              Log              `yaml:"log"`

	positions yamlfile.Positions
	// Path is the path of the configuration file. It is empty if there is no file.
	Path string `yaml:"-"`
}

// Database is one database whose rows Sexton deletes.
type Database struct {
	// Name is the name of the database in job arguments, lease keys and metrics. It
	// consists of lower-case letters, digits and underscores.
	Name string `yaml:"-"`
	// URL is the address: postgres://… or a libpq connection string. If the section
	// databases is missing, DATABASE_URL defines a database with the name main.
	URL URL `yaml:"url,required"`
	// ListenURL is a direct connection for LISTEN, if URL leads to a transaction pooler.
	// The default is URL.
	ListenURL URL `yaml:"listen_url"`
	// Schema is the schema that applies to table names without a schema.
	Schema string `default:"public" yaml:"schema"`
	// SearchPath is the search_path of the application's triggers in batches. With auto,
	// it is that of the role or the database.
	SearchPath string `default:"auto" yaml:"search_path"`
	// Tables lists shell patterns of table names. They select the database of a table
	// whose name exists in several databases.
	Tables []string `yaml:"tables"`
	// Pace limits one run of the loose foreign keys. The pace adaptive does not limit the
	// number of rows.
	Pace Pace `default:"adaptive" yaml:"pace"`
	// Limits overrides the limits of the pace.
	Limits Limits `yaml:"limits"`
}

// PathAuto is the default of Database.SearchPath: the search_path of the role or the
// database applies.
const PathAuto = "auto"

// TriggerPath returns the configured search_path, or "" if the search_path of the role or
// the database applies.
func (d Database) TriggerPath() string {
	if d.SearchPath == PathAuto {
		return ""
	}
	return d.SearchPath
}

// Limits limits one run of the loose foreign keys. In a Database, 0 means that the limit
// of the pace applies.
type Limits struct {
	// Deletes is the maximum number of rows that one run deletes. With 0, the limit is
	// 100,000 (normal) or 200,000 (turbo), and adaptive has no limit.
	Deletes int `check:"not negative; 0 is the pace's own" yaml:"deletes"`
	// Updates is the maximum number of rows that one run updates. With 0, the limit is
	// 50,000 (normal) or 150,000 (turbo), and adaptive has no limit.
	Updates int `check:"not negative; 0 is the pace's own" yaml:"updates"`
	// Runtime is the time limit of a run. The default is 30s, or 45s for turbo.
	Runtime time.Duration `check:"1s..50s" yaml:"runtime"`
}

// Pace is normal, turbo or adaptive. It limits the work of one run of the loose foreign
// keys.
type Pace string

// Normal, Turbo and Adaptive are the values of Pace. Normal and Turbo limit the numbers
// of rows, and the limits of Turbo are higher.
const (
	Normal Pace = "normal"
	Turbo  Pace = "turbo"
	// Adaptive does not limit the number of rows. It adjusts the size of statements to a
	// target duration, and pauses while other sessions are active.
	Adaptive Pace = "adaptive"
)

// Choices returns the valid values of a Pace.
func (Pace) Choices() []string { return []string{string(Normal), string(Turbo), string(Adaptive)} }

// Limits returns the limits of the pace. 0 rows means that the number is not limited.
func (p Pace) Limits() Limits {
	switch p {
	case Turbo:
		return Limits{Deletes: 200_000, Updates: 150_000, Runtime: 45 * time.Second}
	case Normal:
		return Limits{Deletes: 100_000, Updates: 50_000, Runtime: 30 * time.Second}
	case Adaptive:
	}
	return Limits{Runtime: 30 * time.Second}
}

// Jobs configures the execution of all jobs, and the tables of River and Sexton.
type Jobs struct {
	// Database is the name of the database with jobs, leases and history. The default is
	// the first database.
	Database string `yaml:"database"`
	// Owner is the role that owns Sexton's objects. It must not be a superuser, because
	// functions run with its privileges.
	Owner string `default:"sexton_owner" yaml:"owner"`
	// MaxWorkers is the number of jobs of one kind that a process works in parallel,
	// unless the kind has its own limit.
	MaxWorkers int `check:"1..10000" default:"10" yaml:"max_workers"`
	// Silence is the time without a heartbeat after which a worker counts as dead. All
	// workers must have the same value.
	Silence time.Duration `check:"2s..10m" default:"15s" yaml:"silence"`
	// Reindex is the schedule on which River rebuilds the indexes of its tables.
	Reindex Schedule `default:"0 3 * * *" yaml:"reindex"`
	// LockTimeout limits how long a statement on the application's tables waits for one
	// lock. The effective limit is at most two thirds of StatementTimeout.
	LockTimeout time.Duration `check:"positive" default:"1s" yaml:"lock_timeout"`
	// StatementTimeout limits the duration of a statement on the application's tables.
	// The maximum is 1m0s. A longer timeout also makes leases longer.
	StatementTimeout time.Duration `check:"positive" default:"5s" yaml:"statement_timeout"`
	// ReplicaLag is the largest accepted lag of a replica. If a replica lags more, runs
	// that have a target duration wait. 0s disables the limit.
	ReplicaLag time.Duration `check:"not negative; 0s is no limit" default:"10s" yaml:"replica_lag"`
	// ReplicaLagBytes is the largest accepted lag of a replica in bytes of write-ahead
	// log. 0 disables the limit.
	ReplicaLagBytes int `check:"not negative; 0 is no limit" default:"268435456" yaml:"replica_lag_bytes"`
}

// LooseForeignKeys configures the cleanup of the children of deleted parents.
type LooseForeignKeys struct {
	// Enabled enables the job.
	Enabled bool `default:"true" yaml:"enabled"`
	// Schedule is the cron expression of the job, in UTC. Commits that queue work start
	// the job, too.
	Schedule Schedule `default:"* * * * *" yaml:"schedule"`
	// Definitions lists the files with the definitions. Their paths are relative to the
	// file that names them. The default is loose_foreign_keys.yml.
	Definitions []string `yaml:"definitions"`
	// Truncate determines the effect of TRUNCATE on a tracked table. With reject, it
	// fails with a hint. With ignore, it runs and is not recorded.
	Truncate TruncatePolicy `default:"reject" yaml:"truncate"`
	// Target is the intended duration of a statement.
	Target time.Duration `check:"1ms..1s" default:"20ms" yaml:"target"`
	// Duty is the share of its time, in percent, that a run works. With auto, it depends
	// on the server's load.
	Duty Duty `default:"auto" yaml:"duty"`
	// Connections is the number of connections that a run uses while no other session is
	// active.
	Connections int `check:"1..32" default:"2" yaml:"connections"`
	// ConfirmAfter is the time between the removal of a tombstone and its recheck for
	// late children.
	ConfirmAfter time.Duration `check:"positive" default:"10m" yaml:"confirm_after"`
	Undo         Undo          `yaml:"undo"`
}

// Undo configures which deleted rows are kept so that the deletion of their parent can be
// undone.
type Undo struct {
	// Keep is the time for which deleted rows are kept, in full days. With 0s, no rows
	// are kept.
	Keep time.Duration `check:"not negative" default:"0s" yaml:"keep"`
	// Tables lists the parents whose deletions can be undone. The default is all parents
	// except users.
	Tables []string `yaml:"tables"`
	// Users also keeps the deleted rows of users, and the rows that are deleted with
	// them.
	Users bool `yaml:"users"`
	// ExcludeTables lists tables whose rows are not kept. Rows that are deleted with them
	// are not kept either.
	ExcludeTables []string `yaml:"exclude_tables"`
	// ExcludeColumns lists columns, in the form table.column, whose values are not kept.
	ExcludeColumns []string `yaml:"exclude_columns"`
	// MaxRow is the size in bytes, without compression, above which a row is not kept.
	MaxRow int `check:"positive" default:"16777216" yaml:"max_row"`
	// LargeRows determines the effect of a row that is larger than MaxRow. With left_out,
	// the row is deleted without being kept. With wait, the cleanup waits.
	LargeRows Overflow `default:"left_out" yaml:"large_rows"`
	// MaxSize is the maximum number of bytes that are kept in each database. 0 disables
	// the limit.
	MaxSize int `check:"not negative" default:"0" yaml:"max_size"`
	// WhenFull determines the effect of a row that does not fit into MaxSize. With
	// left_out, the row is deleted without being kept. With wait, the cleanup waits.
	WhenFull Overflow `default:"left_out" yaml:"when_full"`
	// FireTriggers fires the application's triggers for restored rows.
	FireTriggers bool `yaml:"fire_triggers"`

	// usersTable is the value of ghost_users.users.table.
	usersTable string
}

// On reports whether deleted rows are kept.
func (u Undo) On() bool { return u.Keep > 0 }

// Covers reports whether rows are kept when a row of the given parent table is deleted.
// Configured table names without a schema refer to the schema that tracked names.
func (u Undo) Covers(tracked, schema, table string) bool {
	return u.On() && (len(u.Tables) == 0 || names(u.Tables, tracked, schema, table)) &&
		!u.Spares(tracked, schema, table)
}

func names(tables []string, tracked, schema, table string) bool {
	return slices.Contains(tables, schema+"."+table) || schema == tracked && slices.Contains(tables, table)
}

// Spares reports whether rows of the given table are never kept, because it is excluded
// or is the table of users.
func (u Undo) Spares(tracked, schema, table string) bool {
	return names(u.ExcludeTables, tracked, schema, table) || u.SparedUsers() == table && schema == tracked
}

// SparedUsers returns the name of the table of users if rows of users are not kept, and
// "" otherwise.
func (u Undo) SparedUsers() string {
	if u.Users {
		return ""
	}
	return cmp.Or(u.usersTable, "users")
}

// Overflow determines the effect of a row that cannot be kept.
type Overflow string

// LeftOut deletes the row without keeping it. Waits stops the cleanup until the row can
// be kept.
const (
	LeftOut Overflow = "left_out"
	Waits   Overflow = "wait"
)

// Choices returns the valid values of an Overflow.
func (Overflow) Choices() []string { return []string{string(LeftOut), string(Waits)} }

// Duty is the share of its time that a run works, in percent.
type Duty int

// Auto lets a run work all the time while no other session is active, and about half of
// the time while other sessions are active.
const Auto Duty = 0

// Fixed returns the configured share as a fraction of 1, or 0 for Auto.
func (d Duty) Fixed() float64 { return float64(d) / 100 }

// MarshalText returns auto, or the percentage.
func (d Duty) MarshalText() ([]byte, error) {
	if d == Auto {
		return []byte("auto"), nil
	}
	return strconv.AppendInt(nil, int64(d), 10), nil
}

// UnmarshalText accepts auto, or a percentage.
func (d *Duty) UnmarshalText(text []byte) error {
	percent, err := strconv.Atoi(string(text))
	switch {
	case string(text) == "auto":
		percent = int(Auto)
	case err != nil || percent < 1 || percent > 100:
		return errors.New("must be auto, or a percentage from 1 to 100")
	}
	*d = Duty(percent)
	return nil
}

// TruncatePolicy determines the effect of TRUNCATE on a tracked parent.
type TruncatePolicy string

// TruncateReject makes the statement fail. TruncateIgnore lets it run without recording
// the deletions.
const (
	TruncateReject TruncatePolicy = "reject"
	TruncateIgnore TruncatePolicy = "ignore"
)

// Choices returns the valid values of a TruncatePolicy.
func (TruncatePolicy) Choices() []string {
	return []string{string(TruncateReject), string(TruncateIgnore)}
}

// HTTP configures the web page, the metrics and the health checks.
type HTTP struct {
	// Listen is the address of the server, as host:port. If it is empty, there is no
	// server. An address other than loopback requires User and Password, or Token.
	Listen string `default:"127.0.0.1:8686" yaml:"listen"`
	// User is the user name for basic authentication. It requires Password.
	User string `yaml:"user"`
	// Password is the password for basic authentication. It requires User.
	Password Secret `yaml:"password"`
	// Token is the bearer token for Prometheus and other programs. Browsers cannot send
	// it.
	Token Secret `yaml:"token"`
	// PasswordFile is a file that contains the value of Password in one line.
	PasswordFile string `yaml:"password_file"`
	// TokenFile is a file that contains the value of Token in one line.
	TokenFile string `yaml:"token_file"`
	// ReadOnly refuses all requests that change something. The default is true without
	// credentials, and false with credentials.
	ReadOnly bool `yaml:"read_only"`
	// ShowArgs lets River UI show the arguments of jobs, which may hold personal data.
	ShowArgs bool `yaml:"show_args"`
}

// protected reports whether requests need credentials: a token, or a user and a password.
func (h HTTP) protected() bool { return h.Token != "" || h.User != "" && h.Password != "" }

// Log configures logging.
type Log struct {
	// Level is the lowest level that is logged.
	Level Level `default:"info" yaml:"level"`
	// Format is the format of log lines. With auto, it is colored text on a terminal, and
	// JSON otherwise.
	Format Format `default:"auto" yaml:"format"`
}

// Level is the lowest level that is logged: debug, info, warn or error.
type Level string

// Choices returns the valid values of a Level.
func (Level) Choices() []string { return []string{"debug", "info", "warn", "error"} }

// Format is auto, text or json.
type Format string

// FormatAuto is colored text on a terminal, and JSON otherwise.
const (
	FormatAuto Format = "auto"
	FormatText Format = "text"
	FormatJSON Format = "json"
)

// Choices returns the valid values of a Format.
func (Format) Choices() []string {
	return []string{string(FormatAuto), string(FormatText), string(FormatJSON)}
}

// DatabaseNames returns the names of the databases in the order of the configuration.
func (c *Config) DatabaseNames() []string {
	return render.Each(c.Databases, func(db Database) string { return db.Name })
}

// Database returns the database of that name.
func (c *Config) Database(name string) (Database, bool) {
	for _, d := range c.Databases {
		if d.Name == name {
			return d, true
		}
	}
	return Database{}, false
}

// Problem returns a problem of a key, such as "databases.main.url". Its position is the
// origin of the key's value: file, line and column, or the variable or flag.
func (c *Config) Problem(key, message, fix string) problem.Problem {
	return c.positions.Of(key).Problem(key, message, fix)
}

// EffectiveLimits returns the limits of the database. A limit that is not configured is
// the limit of the pace.
func (d Database) EffectiveLimits() Limits {
	configured, pace := d.Limits, d.Pace.Limits()
	return Limits{
		cmp.Or(configured.Deletes, pace.Deletes), cmp.Or(configured.Updates, pace.Updates),
		cmp.Or(configured.Runtime, pace.Runtime),
	}
}
